"""Python's bytecode, kept where an installation has none and may write none."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def keep_bytecode() -> None:
    """Has Python keep the bytecode of what is imported from now on, if PyTorch came without any and none would be kept.

    So it is in many containers (``PYTHONDONTWRITEBYTECODE``, a read-only installation), and there every command would
    compile two thousand modules before it begins. Processes that this one starts do as it does.
    """
    spec, cache = importlib.util.find_spec("torch"), _cache()
    if sys.pycache_prefix is not None or spec is None or spec.cached is None or cache is None:
        return
    usual = Path(spec.cached)
    if usual.exists() or (not sys.dont_write_bytecode and _is_writable(usual)):
        return
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(cache)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _is_writable(path: Path) -> bool:
    return os.access(next(parent for parent in path.parents if parent.exists()), os.W_OK)


def _cache() -> Path | None:
    """Where it is kept; nowhere without a home. Python does without where nothing can be written there."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    return caches / "hoarfrost" / "bytecode" if caches.is_absolute() else None
