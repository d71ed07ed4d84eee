"""A folder with images, models and a run; what a command says there, and what is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from hoarfrost.cli import main

Words = tuple[str, ...]
Build = Callable[[Path], object]

# Later options replace earlier ones, so that a case adds its own to these.
FIT = ("fit", "known", "--out", "made", "--epochs", "1", "--method", "frost")
DISCOVER = ("discover", "model", "unsorted", "--novel", "2", "--out", "made", "--epochs", "1")
PREDICT = ("predict", "model2", "unsorted")
EVALUATE = ("evaluate", "model2", "checked")
SHORT = ("--epochs", "1", "--fit-epochs", "1")
RUN = (
    "run",
    "--dataset",
    "folder",
    "--data",
    "checked",
    "--split",
    "3-2",
    "--out",
    "made",
    "--method",
    "frost",
    *SHORT,
)
DEMO = ("demo", "--out", "made", "--set", "fit.epochs=1", "--set", "discover.epochs=1")

FINISHED = {
    "fit": (*FIT, "--out", "model"),
    "discover": (*DISCOVER, "--out", "model2"),
    "run": (*RUN, "--out", "run"),
}

MAKING = {"fit": FIT, "discover": DISCOVER, "run": RUN, "demo": DEMO}

ADVICE = re.compile(
    r"\b(choose|give|check|did you mean|use|free|update|remove|download|see hoarfrost|restore|again|add|put|must"
    r"|needs?|needed|of the form|but the data set has|set|nor a|it is not a \.npz|not a folder|name"
    r"|required|lower|leave|discover them)\b|--resume"
)
"""Words of which one says what to do, or what the rule is."""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Place:
    """The current folder of one test."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def call(self, *arguments: str) -> Answer:
        self.capsys.readouterr()
        try:
            code: Any = main(arguments)
        except SystemExit as end:
            code = end.code
        return Answer(code, *self.capsys.readouterr())

    def well(self, *arguments: str) -> Answer:
        answer = self.call(*arguments)
        assert answer.code == 0, answer.err
        return answer

    def refused(self, *arguments: str, words: Words, kept: bool = True) -> str:
        """The one line with which the command is refused; ``kept``: and no file has changed."""
        before = contents(self.folder)
        code, out, err = self.call(*arguments)
        *warnings, line = err.splitlines() or [""]
        assert code == 2, f"{code}: {err}"
        assert out == ""
        assert all(warning.startswith("hoarfrost: warning: ") for warning in warnings), err
        assert re.match(r"hoarfrost( \w+)?: \S", line)
        assert "Traceback" not in err
        assert ".part" not in line, "a file that people never see"
        for word in words:
            assert word in line, f"'{word}' is not in: {line}"
        assert ADVICE.search(line), f"nothing to do in: {line}"
        if kept:
            assert contents(self.folder) == before
        return line


def named(cases: list[tuple[Words, Words]]) -> list[Any]:
    """The cases with the verb and the last arguments as their names."""
    return [pytest.param(*case, id=" ".join(dict.fromkeys((case[0][0], *case[0][-2:])))) for case in cases]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, and every folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@cache
def all_digits() -> Any:
    """They come in a file of text, which takes a while to read."""
    return load_digits()


def digit_images(digit: int, first: int, count: int) -> list[Image.Image]:
    digits = all_digits()
    chosen = np.flatnonzero(digits.target == digit)[first : first + count]
    return [Image.fromarray(np.round(digits.images[index] * (255 / 16)).astype(np.uint8)) for index in chosen]


def save_digits(folder: Path, digits: range, *, first: int = 0, count: int = 8, flat: bool = False) -> None:
    for digit in digits:
        for index, image in enumerate(digit_images(digit, first, count)):
            path = folder / (f"{digit}-{index}.png" if flat else f"{digit}/{index}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)


def cut(path: Path, size: int | None = None) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 if size is None else size])
