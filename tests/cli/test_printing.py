"""Names that would steer a terminal, a spreadsheet or a page, were they shown as they are."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hoarfrost.cli import main
from hoarfrost.printing import cell, printable

from .place import Place, Words, save_digits

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")

NAMES = ("esc\x1b[31mred", "line\nhoarfrost: all is well", "over\rwritten", "x\x01", "c1\x9b2J", "turned\u202egnp")


@pytest.fixture(scope="module")
def named_once(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders and files with names of that kind, and a model of them, made once."""
    folder = tmp_path_factory.mktemp("names")
    for digit, name in enumerate(NAMES):
        shutil.copytree(finished / f"checked/{digit % 5}", folder / "named" / name)
    (folder / "named" / NAMES[0] / "0.png").rename(folder / "named" / NAMES[0] / "file\x1b[2J\r\n.png")
    (folder / "named" / NAMES[1] / "no\x1bimage\n.txt").write_text("text")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(("fit", "named", "--out", MODEL, "--epochs", "1")) == 0
    return folder


@pytest.fixture
def named(named_once: Path, place: Place) -> Place:
    """A copy of it."""
    shutil.copytree(named_once, place.folder, dirs_exist_ok=True)
    place.capsys.readouterr()
    return place


MODEL = "model\x1b]0;title\x07"

COMMANDS: list[Words] = [
    ("fit", "named", "--out", "made\x1b[1m\n", "--epochs", "1"),
    ("fit", "named", "--out", "made", "--epochs", "1", "--json"),
    ("discover", MODEL, "named", "--novel", "2", "--out", "made\x9b", "--epochs", "1"),
    ("predict", MODEL, "named"),
    ("predict", MODEL, "named", "--json"),
    ("predict", MODEL, "named", "--out", "table\x1b.csv"),
    ("evaluate", MODEL, "named"),
    ("evaluate", MODEL, "named", "--match", "named"),
    ("evaluate", MODEL, "unsorted\x1b[2J"),
    ("predict", "no\x1b[2Jmodel\n", "named"),
    ("fit", "named", "--out", MODEL),
    ("fit", "na\x1bmed\n", "--out", "made"),
    ("fit", "named", "--out", "made", "--method", "fr\x1bost"),
    ("fit", "named", "--out", "made", "--set", "a\x1b\n"),
    ("fit", "named", "--out", "made", "--se\x1bed", "1"),
    ("f\x1bit",),
    ("run", "--dataset", "folder", "--data", "named", "--split", "3-3", "--out", "run\x1b\n", "--epochs", "1"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(map(printable, words))[:60])
def test_no_name_reaches_the_terminal_as_it_is(named: Place, arguments: Words) -> None:
    code, out, err = named.call(*arguments)
    assert code in (0, 2)
    assert not STEERING.search(out), repr(out)
    assert not STEERING.search(err), repr(err)
    for line in (out + err).splitlines():
        assert not line.startswith("hoarfrost: all is well"), "a name has made a line of its own"


def test_json_holds_the_names_themselves(named: Place) -> None:
    content = json.loads(named.well("fit", "named", "--out", "made", "--epochs", "1", "--json").out)
    assert content["classes"] == sorted(NAMES)
    rows = json.loads(named.well("predict", MODEL, "named", "--json").out)["predictions"]
    assert f"named/{NAMES[0]}/file\x1b[2J\r\n.png" in [row["path"] for row in rows]


FORMULAS = ("@SUM(1)", "=1+0", "+1", "-1", "＝1")


@pytest.fixture(scope="module")
def of_formulas(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with classes that are formulas, made once."""
    folder = tmp_path_factory.mktemp("formulas")
    for digit, name in enumerate(FORMULAS):
        shutil.copytree(finished / f"checked/{digit}", folder / "images" / name)
    assert main(("fit", str(folder / "images"), "--out", str(folder / "model"), "--epochs", "40")) == 0
    return folder / "model"


@pytest.fixture
def computing(of_formulas: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """That model, in a folder of files that are."""
    shutil.copytree(of_formulas, "model-of-formulas")
    save_digits(Path("files"), range(5), flat=True)
    Path("files/0-0.png").rename("files/=1+0.png")
    Path("files/1-1.png").rename("files/a\x1bb.png")
    monkeypatch.chdir("files")
    return place


@pytest.mark.parametrize("out", [None, "../table.csv"])
@pytest.mark.parametrize("raw", [False, True])
def test_a_table_computes_nothing(computing: Place, raw: bool, out: str | None) -> None:
    options = [*(["--raw"] if raw else []), *(["--out", out] if out else [])]
    answer = computing.well("predict", "../model-of-formulas", ".", *options)
    text = Path(out).read_text() if out else answer.out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 40
    classes = {row["class"] for row in rows}
    if raw:
        assert {"=1+0.png", "a\x1bb.png"} <= {row["path"] for row in rows}
        assert classes <= set(FORMULAS)
    else:
        assert {"'=1+0.png", "a\\x1bb.png"} <= {row["path"] for row in rows}
        assert classes <= {f"'{name}" for name in FORMULAS}
        assert not re.search(r"(^|,)\"?[=+@-]", text, re.MULTILINE), "a cell begins as a formula does"
    assert len(classes) > 1, "nothing was tested"


def test_a_figure_is_xml_whatever_the_classes_are_called(place: Place) -> None:
    for digit, name in enumerate(("x\x01", "a\x1b[2J", "b\ufffe\uffff", "c&<d>", "e\x7f")):
        shutil.copytree(f"checked/{digit}", Path("named", name))
    place.well("run", "--dataset", "folder", "--data", "named", "--split", "3-2", "--out", "made", "--epochs", "1")
    page = Path("made/report.html").read_text()
    figures = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)
    assert len(figures) >= 3
    texts = []
    for figure in figures:
        texts += [element.text or "" for element in ElementTree.fromstring(base64.b64decode(figure)).iter()]
    assert any("x\\x01" in text for text in texts), "the name is not shown"
    assert not STEERING.search(page.replace("\n", ""))


@pytest.mark.parametrize("mark", ["\u200e", "\u200f", "\u061c", "\u202e"])
def test_no_mark_turns_the_direction_of_writing(mark: str) -> None:
    assert mark not in printable(f"gnp{mark}.exe")
    assert mark not in cell(f"gnp{mark}.exe")


@pytest.mark.parametrize(
    "text", ["", "cat", "猫 und Kätzchen", "a b", "50% off; $HOME", "it's", os.fsdecode(b"caf\xe9")]
)
def test_other_names_are_shown_as_they_are(text: str) -> None:
    assert printable(text) == cell(text) == text


@pytest.mark.parametrize("arguments", [["keep"], ["page", "--results"], ["renew"]], ids=lambda arguments: arguments[0])
def test_the_program_of_the_paper_shows_no_path_as_it_is(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tools.results.__main__ import main as paper

    assert paper([*arguments, str(tmp_path / "nowhere\x1b[2J")]) == 2
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert r"nowhere\x1b[2J" in said.err
