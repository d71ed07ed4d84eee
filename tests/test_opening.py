"""Files are opened in one way: regular ones alone, and ours not through links."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hoarfrost import store

PACKAGE = Path(__file__).parents[1] / "src" / "hoarfrost"

OPENS = {"open", "read_text", "read_bytes", "fdopen", "memmap", "fromfile", "load_file", "np.load", "torch.load"}
"""functions and methods that open a file to read it or to add to it"""

OTHERS = {
    ("reading.py", "open"): 1,  # the one way
    ("reading.py", "fdopen"): 2,
    ("store.py", "open"): 1,  # folders and files to be flushed, which nobody reads
    ("locks.py", "open"): 2,  # or locked
    ("cli/__init__.py", "open"): 1,  # the system's /dev/null
    ("computing/runtime.py", "read_text"): 1,  # the system's /proc
    ("data/images.py", "open"): 1,  # Pillow, of a file that is open
    ("data/images.py", "read_text"): 3,  # the system's /proc and /sys
    ("data/folder.py", "open"): 1,  # Pillow, of a file that is open
    ("data/datasets.py", "np.load"): 1,  # numpy, of a file that is open
    ("data/cache.py", "open"): 1,  # new files, which are written
    ("data/download.py", "open"): 2,  # an archive that was fetched, and new files
    ("training/features.py", "open"): 1,  # new files
    ("models/efficientnet.py", "read_bytes"): 1,  # of an installed package, checked by its SHA-256
    ("models/efficientnet.py", "torch.load"): 1,  # torch, of those bytes
    ("report/html.py", "read_text"): 1,  # of this package
    ("paper/published.py", "read_text"): 1,
    ("review/server.py", "read_bytes"): 1,
    ("cli/review.py", "open"): 1,  # a page in the browser
    ("review/pictures.py", "open"): 3,  # Pillow, of a file that is open
    ("review/session.py", "np.load"): 1,  # numpy, of a file that is open
}
"""what else opens files, and why it may"""


def test_files_are_opened_in_one_place() -> None:
    found: dict[tuple[str, str], int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name == "load" and isinstance(node.func, ast.Attribute):
                    name = ast.unparse(node.func)
                of_reading = isinstance(node.func, ast.Name) and name == "read_bytes"
                if name in OPENS and not of_reading:
                    key = path.relative_to(PACKAGE).as_posix(), name
                    found[key] = found.get(key, 0) + 1
    assert found == OTHERS


@pytest.mark.parametrize("content", [b"", b"of its owner"])
def test_no_link_is_written_through(tmp_path: Path, content: bytes) -> None:
    """One that a stranger left in a model folder, where a file is made before it takes its name."""
    (tmp_path / "precious").write_bytes(content)
    (tmp_path / ".model.json.part").symlink_to("precious")
    store.write_json(tmp_path / "model.json", {"format": 1})
    assert (tmp_path / "precious").read_bytes() == content
    assert not (tmp_path / "model.json").is_symlink()
    assert store.read_json(tmp_path / "model.json", "model folder") == {"format": 1}
