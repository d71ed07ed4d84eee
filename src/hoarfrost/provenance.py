"""What made a result: versions, and the commit where the code comes from a repository."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import hoarfrost


def describe() -> dict[str, Any]:
    """Versions and commit, for the records of a run."""
    import torch

    versions = {"hoarfrost": hoarfrost.__version__, "python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda is not None:
        versions["cuda"] = torch.version.cuda
    return {"versions": versions, "commit": commit()}


def commit() -> str | None:
    """The commit of the code, with ``+`` where files differ from it; None outside a repository.

    ``HOARFROST_COMMIT`` says it for a copy of the code that has no repository.
    """
    if given := os.environ.get("HOARFROST_COMMIT"):
        return given
    home = Path(__file__).resolve().parents[2]
    if not (home / ".git").exists():
        return None
    try:
        found = _git(home, "rev-parse", "HEAD")
        return found + ("+" if _git(home, "status", "--porcelain", "--untracked-files=no", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(home: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(home), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
