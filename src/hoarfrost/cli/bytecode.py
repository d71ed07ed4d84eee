"""Python's bytecode, kept where an installation has none and may write none."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

LARGE = ("torch", "triton", "sympy", "networkx", "mpmath", "numpy")
"""the packages that nearly all modules of a compiled step come from"""


def keep_bytecode() -> None:
    """Has Python keep the bytecode of what is imported from now on, if PyTorch came without any and none would be kept.

    So it is in many containers (``PYTHONDONTWRITEBYTECODE``, a read-only installation), and there every command would
    compile two thousand modules before it begins. Processes that this one starts do as it does. The first time, other
    cores compile ahead of it.
    """
    spec = importlib.util.find_spec("torch")
    if sys.pycache_prefix is not None or spec is None or spec.cached is None:
        return
    usual = Path(spec.cached)
    if usual.exists() or (not sys.dont_write_bytecode and _is_writable(usual)):
        return
    packages = usual.parents[2]
    cache, first = _cache(packages)
    if cache is None:
        return
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(cache)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if first:
        _compile_ahead(packages)


def _compile_ahead(packages: Path) -> None:
    """Has the large packages compiled in the background. Whoever comes first writes a file, in one go."""
    folders = [str(packages / name) for name in LARGE if (packages / name).is_dir()]
    others = min(16, (os.cpu_count() or 1) - 1)
    if others < 1:
        return
    options = ["-q", "-j", str(others), "-x", r"[/\\](tests|_internal)[/\\]"]
    try:
        subprocess.Popen(
            [sys.executable, "-m", "compileall", *options, *folders],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:  # no room for one more process: as before
        return


def _is_writable(path: Path) -> bool:
    return os.access(next(parent for parent in path.parents if parent.exists()), os.W_OK)


def _cache(packages: Path) -> tuple[Path | None, bool]:
    """Where it is kept for this set of packages, None where nothing can be; and whether this process made the place.

    Other versions of them, as another container has them in the same place, have another one: Python goes by the time
    and the size of a file, and those may be alike.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - Path's fails without a home
    if not caches.is_absolute():
        return None, False
    versions = sorted(path.name for path in packages.glob("*.dist-info"))
    cache = caches / "hoarfrost" / "bytecode" / hashlib.sha256("\n".join(versions).encode()).hexdigest()[:12]
    first = False
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir()
        first = True  # of several that start at once, one
    except FileExistsError:
        pass
    except OSError:
        return None, False
    return (cache if cache.is_dir() and os.access(cache, os.W_OK) else None), first
