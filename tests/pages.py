"""What a page of the documentation tells people to type."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hoarfrost.cli import main

ROOT = Path(__file__).parents[1]


def load(path: str) -> ModuleType:
    """A script of the repository, as a module."""
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


def python_of(page: str) -> str:
    """All of its Python."""
    return "\n".join(_blocks(page, "python"))


def commands_of(page: str) -> list[list[str]]:
    """The words of each line of its blocks without a language."""
    return [
        words
        for block in _blocks(page, "")
        for line in block.splitlines()
        if (words := shlex.split(line, comments=True))
    ]


def _blocks(page: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    return [block for named, block in found if named == language]


def carry_out(words: list[str]) -> None:
    """A line that calls hoarfrost, whose output may go into a file."""
    assert words[0] == "hoarfrost"
    if words[-2] == ">":
        with Path(words[-1]).open("w") as file, redirect_stdout(file):
            assert main(words[1:-2]) == 0
    else:
        assert main(words[1:]) == 0
