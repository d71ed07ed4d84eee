"""Images into a folder for each class: each once, nothing overwritten, nothing outside."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hoarfrost import Learner
from hoarfrost.sorted_folder import folder_names

from .. import forked
from .place import Place, Words, contents, cut, named

SORT = ("sort", "model2", "unsorted", "--into", "made")


def files(folder: str) -> dict[str, bytes]:
    """Those that people see."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and ".sorted" not in path.parts
    }


def expected(threshold: float = 0.5) -> dict[str, bytes]:
    found = Learner.load("model2", "cpu").predictions("unsorted", threshold=threshold)
    assert found.paths is not None
    return {
        f"{name}/{Path(path).relative_to('unsorted')}": Path(path).read_bytes()
        for path, name in zip(found.paths, found.names, strict=True)
    }


def test_every_image_is_in_the_folder_of_its_class(place: Place) -> None:
    Path("unsorted/deep/er").mkdir(parents=True)
    shutil.copy("unsorted/3-0.png", "unsorted/deep/er/3-0.png")
    cut(Path("unsorted/4-0.png"))
    before = contents(Path("unsorted"))
    threshold = Learner.load("model2", "cpu").predictions(["unsorted/3-0.png"]).confidence[0]
    answer = place.well(*SORT, "--threshold", str(threshold))
    assert "4-0.png" in answer.err
    sorted_ = files("made")
    assert "unsure" in {Path(path).parts[0] for path in sorted_}
    with pytest.warns(UserWarning, match=r"4-0\.png"):
        assert sorted_ == expected(float(threshold))
    assert sum(path.endswith("3-0.png") for path in sorted_) == 2
    assert contents(Path("unsorted")) == before
    lines = answer.out.splitlines()
    assert lines[0] == "made: 16 images copied"
    assert sum(int(line.split()[-2]) for line in lines[1:]) == 16
    scored = place.well("evaluate", "model2", "made", "--json")  # it is a folder of class folders
    assert "1 folder of unsure images (unsure)" in scored.err
    assert "unsure" not in {row["class"] for row in json.loads(scored.out)["classes"]}


def test_classes_that_are_one_have_the_folder_of_its_name(place: Place) -> None:
    place.well("merge", "model2", "new-1", "new-2")
    content = json.loads(place.well(*SORT[:-2], "--out", SORT[-1], "--threshold", "0", "--json").out)
    assert content["sorted"]["new-2"]["folder"] == "new-2"
    assert "new-1" not in content["sorted"]
    assert files("made") == expected(0)


def test_links(place: Place) -> None:
    content = json.loads(place.well(*SORT, "--link", "--threshold", "0", "--json").out)
    assert (content["into"], content["images"]) == ("made", 16)
    assert sum(entry["images"] for entry in content["sorted"].values()) == 16
    links = list(Path("made").rglob("*.png"))
    assert len(links) == 16
    assert all(path.is_symlink() and path.resolve().parent == Path("unsorted").resolve() for path in links)
    place.well("predict", "model2", "made")


def test_resume_goes_on_and_takes_what_has_come_since(place: Place) -> None:
    kill = (
        "import os\nfrom pathlib import Path\nfrom hoarfrost.cli import main\nmove, count = Path.rename, [0]\n"
        "def killed(*paths):\n    count[0] += '.sorted' in paths[0].parts\n"
        "    os._exit(9) if count[0] == 6 else move(*paths)\n"
        f"Path.rename = killed\nmain({SORT!r})"
    )
    assert forked.run([sys.executable, "-c", kill]).returncode == 9
    assert len(files("made")) == 5
    place.refused(*SORT, words=("made", "--resume"))
    mine = next(Path("made").rglob("*.png"))
    place.well(*SORT, "--resume")
    assert files("made") == expected()
    shutil.copy("checked/0/0.png", "unsorted/one more.png")
    mine.write_bytes(b"changed by its owner")
    elsewhere = next(path for path in Path("made").rglob("*.png") if path != mine)
    shutil.move(elsewhere, "moved by its owner.png")
    whole = expected()
    assert place.well(*SORT, "--resume").out.splitlines()[0] == "made: 1 image copied, 16 were sorted before"
    after = files("made")
    assert after.pop(str(mine.relative_to("made"))) == b"changed by its owner"
    assert after == {path: whole[path] for path in whole if Path("made", path) not in (mine, elsewhere)}
    place.well("reject", "model2", "new-1")
    place.well(*SORT, "--resume", "--threshold", "1")
    assert len(files("made")) == len(after) + 1, "what was sorted stays"
    Path("unsorted/one more.png").write_bytes(Path("checked/1/0.png").read_bytes() + b"another")
    assert "made: 1 image copied, " in place.well(*SORT, "--resume").out


def test_a_growing_folder_of_a_later_model_and_another_path(place: Place) -> None:
    place.well(*SORT)
    first = files("made")
    place.well("name", "model2", "new-1=rose")
    place.well("discover", "model2", "unsorted", "--novel", "2", "--only-new", "--out", "model3", "--epochs", "1")
    Path("link").symlink_to("unsorted")
    later = ("sort", "model3", "link", "--into", "made")
    place.refused(*later, words=("made", "--resume adds to them"))
    assert place.well(*later, "--resume").out.splitlines()[0] == "made: 0 images copied, 16 were sorted before"
    assert files("made") == first
    Path("february").mkdir()
    shutil.copy("unsorted/3-0.png", "february/other.png")
    shutil.copy("checked/0/0.png", "february/3-0.png")  # another image, of a name that is there
    added = place.well("sort", "model3", "february", "--into", "made", "--resume", "--threshold", "0", "--json")
    assert [json.loads(added.out)[key] for key in ("images", "added")] == [2, 2]
    after = files("made")
    assert {path: after[path] for path in first} == first, "nothing is overwritten"
    more = [after[path] for path in after.keys() - first.keys()]
    assert sorted(more) == sorted(path.read_bytes() for path in Path("february").iterdir())


def test_classes_that_nobody_named_are_not_mixed_with_others_of_that_name(place: Place) -> None:
    place.well(*SORT, "--threshold", "0")
    before = files("made")
    place.well("discover", "model", "unsorted", "--novel", "3", "--only-new", "--out", "model3", "--epochs", "1")
    other = ("sort", "model3", "unsorted", "--into", "made", "--resume")
    place.refused(*other, words=("made", "another class called 'new-1'", "name the classes"))
    assert files("made") == before
    place.well("name", "model3", "new-1=a", "new-2=b", "new-3=c")
    place.well(*other)
    place.well("name", "model2", "new-2=a")
    said = place.well(*SORT, "--resume").out
    assert "new-2 is now called a; its images stay in the folder new-2" in said


def test_folders_that_classes_have_stay_theirs(place: Place) -> None:
    place.well("name", "model2", "new-1=a:b", "new-2=a/b")
    made = json.loads(place.well(*SORT, "--json").out)["sorted"]
    assert (made["a:b"]["folder"], made["a/b"]["folder"]) == ("a_b", "a_b-2")
    place.well("reject", "model2", "a:b")
    assert json.loads(place.well(*SORT, "--resume", "--json").out)["sorted"]["a/b"]["folder"] == "a_b-2"


@pytest.mark.parametrize(
    "content",
    [
        "none",
        "{}",
        '{"format": 1, "folders": [], "unnamed": {}}',
        '{"format": 1, "folders": {"0": "../out"}, "unnamed": {}}',
        '{"format": 1, "folders": {"0": ".."}, "unnamed": {}}',
        '{"format": 1, "folders": {}, "unnamed": {"new-1": "0"}}',
    ],
)
def test_a_note_that_is_damaged(place: Place, content: str) -> None:
    place.well(*SORT)
    Path("made/.sorted/config.json").write_text(content)
    place.refused(*SORT, "--resume", words=("made",))
    assert len(files("made")) == 16


def test_a_list_of_sorted_images_that_is_damaged(place: Place) -> None:
    place.well(*SORT)
    before, record = files("made"), Path("made/.sorted/images.jsonl")
    lines = record.read_text().split()
    record.write_text("\n".join([*lines[:5], "[1]", "no line", lines[5][:9]]))
    assert "made: 0 images copied, 16 were sorted before" in place.well(*SORT, "--resume").out
    assert files("made") == before
    assert len(record.read_text().splitlines()) > 16


NAMES = [
    "../../up",
    "/etc",
    "a/b",
    "A/b",
    "..",
    ".",
    "",
    "CON:",
    "n" * 400,
    "é" * 200,
    "unsure",
    "\x1b[2J",
    "Rose",
    "rose",
]


def test_class_names_that_are_no_file_names(place: Place) -> None:
    made = folder_names(["unsure", *NAMES])
    assert made[0] == "unsure"
    assert len({name.casefold() for name in made}) == len(made)
    for name in made:
        assert name not in ("", ".", "..")
        assert not name.startswith(".")
        assert len(name.encode()) <= 110
        assert not set(name) & set("/\\:\x1b")
    before = contents(place.folder)
    place.well("name", "model2", "new-1=../../up", "new-2=Unsure", "0=..", "1=x/y")
    answer = place.well(*SORT, "--threshold", "0")
    new = {path.split("/")[0] for path in contents(place.folder).keys() - before.keys() - {"model2/decisions.jsonl"}}
    assert new == {"made"}
    assert {path.name for path in Path("made").iterdir()} <= {".sorted", "_.._up", "Unsure-2", "_", "x_y", "2"}
    assert not any("\\x1b" in line for line in answer.out.splitlines())
    assert len(files("made")) == 16


REFUSED: list[tuple[Words, Words]] = [
    ((*SORT[:3],), ("--into",)),
    ((*SORT[:4], "known"), ("known", "something else", "--into")),
    ((*SORT[:4], "known/0/0.png"), ("known/0/0.png", "file", "--into")),
    ((*SORT[:4], "known/0/0.png/made"), ("known/0/0.png", "--into")),
    ((*SORT[:4], "unsorted/made"), ("unsorted/made", "inside", "--into")),
    ((*SORT[:4], "unsorted"), ("unsorted", "images to sort", "--into")),
    ((*SORT[:4], ""), ("--into",)),
    (("sort", "model2", "nowhere", "--into", "made"), ("nowhere", "no folder")),
    (("sort", "model2", "unsorted/3-0.png", "--into", "made"), ("unsorted/3-0.png", "not a folder")),
    (("sort", "nowhere", "unsorted", "--into", "made"), ("nowhere",)),
]


@pytest.mark.parametrize(("arguments", "words"), named(REFUSED))
def test_what_is_refused(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)
