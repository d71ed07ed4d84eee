"""Sorted images: each is there once, whatever ends the command, and what is copied is what was looked at."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoarfrost import sorted_images
from hoarfrost.data.images import state_of
from hoarfrost.errors import InputError
from hoarfrost.sorted_folder import NOTE
from hoarfrost.sorted_images import IMAGES, SeenFiles, check_note, put_images

from . import forked

COUNT = 7
CLASSES = [("rose", "tulip", "unsure")[index % 3] for index in range(COUNT)]


def given(root: Path = Path("given"), names: tuple[str, ...] = ()) -> SeenFiles:
    """Files as they are when they are looked at."""
    if not root.exists():
        for name in names or [f"{index}/{index}.png" for index in range(COUNT)]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(f"image {name}".encode() * 100)
    found = sorted(path for path in root.rglob("*") if path.is_file())
    states = np.array([state_of(path.stat()) for path in found])
    return SeenFiles(root, [str(path.relative_to(root)) for path in found], states)


def sort(seen: SeenFiles, *, link: bool = False) -> int:
    return put_images(Path("made"), seen, CLASSES[: len(seen.names)], link=link)


def there() -> Counter[bytes]:
    """What people see, and how often."""
    return Counter(
        path.read_bytes() for path in Path("made").rglob("*") if path.is_file() and NOTE not in path.parts[:-1]
    )


def once(seen: SeenFiles) -> Counter[bytes]:
    return Counter((seen.root / name).read_bytes() for name in seen.names)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def die_at(step: int) -> None:
    """Ends this process without any last word before it changes a file for so manyth a time."""
    left = [step]

    def counted(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)

    def told(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod", "os.utime") or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            counted()

    sys.addaudithook(told)
    write, flush = os.write, os.fsync
    os.write = lambda handle, view: (counted(), write(handle, view[: len(view) // 2 or 1]))[1]  # type: ignore
    os.fsync = lambda handle: (counted(), flush(handle))[1]  # type: ignore


def end_everywhere(link: str) -> None:
    """Ends a sort before every change of a file, moves what is there, and goes on."""
    sorted_images.AT_ONCE = 3
    seen, step, ended = given(), 0, True
    while ended:
        child = os.fork()
        if not child:
            with suppress(BaseException):
                Path("made").mkdir()
                die_at(step)
                sort(seen, link=bool(link))
                os._exit(0)
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9), (step, code)
        step, ended = step + 1, code == 9
        for number, folder in enumerate(sorted(path for path in Path("made").iterdir() if path.name != NOTE)):
            folder.rename(f"made/renamed {number}")  # as after a name, or a merge
        sort(seen, link=bool(link))
        assert there() == once(seen), step
        assert {path.name for path in Path("made", NOTE).iterdir()} == {IMAGES}, step
        assert sort(seen, link=bool(link)) == 0
        shutil.rmtree("made")
    print(step)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that are forked")
@pytest.mark.parametrize("link", ["", "link"])
def test_no_image_is_doubled_or_lost_wherever_a_sort_ends(place: Path, link: str) -> None:
    code = f"from tests.test_sorted_images import end_everywhere\nend_everywhere({link!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = forked.run([sys.executable, "-c", code], env=environment, cwd=place)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3 * COUNT


def swapped(name: str, kind: str) -> None:
    path = Path("given", name)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "bytes":
        path.write_bytes(b"other" * 180)
    elif kind == "nothing":
        return
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("kind", ["/dev/zero", "/etc/passwd", "pipe", "bytes", "nothing"])
@pytest.mark.parametrize("link", [False, True])
def test_what_is_copied_is_what_was_looked_at(kind: str, link: bool) -> None:
    seen = given()
    swapped("4/4.png", kind)
    with pytest.raises(InputError, match=r"4/4\.png.* (run the command again|restore or remove the file)"):
        sort(seen, link=link)
    assert not there()
    assert not list(Path("made", NOTE, "waiting").iterdir())
    seen = given()
    assert sort(seen) == len(seen.names)


def test_an_image_that_grows_while_it_is_copied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, flush = given(), os.fsync

    def grow(handle: int) -> None:
        with Path("given/0/0.png").open("ab") as file:
            file.write(b"more")
        flush(handle)

    monkeypatch.setattr(os, "fsync", grow)
    with pytest.raises(InputError, match=r"0/0\.png has changed"):
        sort(seen)


def test_no_room_leaves_nothing_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, write = given(), os.write

    def fill(handle: int, view: memoryview) -> int:
        write(handle, view[:40])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        with pytest.raises(OSError, match="No space"):
            sort(seen)
    assert not there()
    assert not list(Path("made", NOTE, "waiting").iterdir())
    assert sort(seen) == COUNT


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "../outside", "folder"])
def test_a_note_that_is_no_file_of_its_own(place: Path, kind: str) -> None:
    seen, note = given(), Path("made", NOTE, IMAGES)
    note.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(note)
    elif kind == "folder":
        note.mkdir()
    else:
        note.symlink_to(kind)
    with pytest.raises(OSError, match=r"Not a regular file|A link instead of a file|Is a directory"):
        check_note(Path("made"))
    with pytest.raises(OSError, match=r"images\.jsonl"):
        sort(seen)
    assert not there()
    assert {path.name for path in place.iterdir()} == {"given", "made"}


def test_a_note_in_a_folder_elsewhere() -> None:
    Path("elsewhere").mkdir()
    Path("made").mkdir()
    Path("made", NOTE).symlink_to("../elsewhere")
    with pytest.raises(InputError, match=r"\.sorted is damaged"):
        sort(given())
    assert not list(Path("elsewhere").iterdir())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[" * 5000, "line 2 is nested too deeply"),
        ("[" * 100_000, "line 2 is too long"),
        ('["/a/b.png", 1, 1, "../b.png"]', "line 2 leads out"),
        ('["/a/b.png", 1, 1, "/b.png"]', "line 2 leads out"),
    ],
)
def test_a_line_that_nobody_wrote_here(line: str, words: str) -> None:
    note = Path("made", NOTE, IMAGES)
    note.parent.mkdir(parents=True)
    note.write_text(f"\n{line}")
    with pytest.raises(InputError, match=rf"images\.jsonl is damaged \({words}"):
        check_note(Path("made"))


def test_a_note_of_an_earlier_version() -> None:
    seen = given()
    assert sort(seen) == COUNT
    note = Path("made", NOTE, IMAGES)
    note.write_text("".join(f"\n[{line[1:].rsplit(', ', 1)[0]}]" for line in note.read_text().split("\n") if line))
    shutil.rmtree("made/rose")
    assert sort(seen) == 0


def test_a_link_that_leads_out_is_not_filled() -> None:
    Path("elsewhere").mkdir()
    Path("made").mkdir()
    Path("made/rose").symlink_to("../elsewhere")
    with pytest.raises(InputError, match=r"made/rose leads out of made"):
        sort(given())
    assert not list(Path("elsewhere").iterdir())


def test_names_that_a_file_system_just_takes() -> None:
    names = "é" * 127 + "a", "n" * 251 + ".png", "x" * 255
    seen = given(names=names)
    assert sort(seen) == 3
    (Path("given") / names[1]).write_bytes(b"another one")  # next month's, of the same name
    Path("given", names[2]).unlink()
    assert sort(given()) == 1
    assert sum(there().values()) == 4
    assert all(len(path.name.encode()) <= 255 for path in Path("made").rglob("*"))


def test_a_folder_that_is_called_as_an_image_was() -> None:
    sort(given(names=("x.png",)))
    shutil.rmtree("given")
    seen = given(names=("x.png/y.png", "x.png/z.png"))
    sort(SeenFiles(seen.root, seen.names[:1], seen.states[:1]))
    put_images(Path("made"), seen, ["rose", "rose"], link=False)
    assert Path("made/rose/x.png").is_file()
    assert sorted(path.name for path in Path("made/rose/x-2.png").iterdir()) == ["y.png", "z.png"]


@pytest.fixture
def deep() -> Iterator[str]:
    """An image in more folders than Python's own functions go down, which do not remove them either."""
    here = Path.cwd()
    for name in ("given", *["d"] * 1500):
        Path(name).mkdir()
        os.chdir(name)
    Path("y.png").write_bytes(b"deep")
    os.chdir(here)
    yield f"{'d/' * 1500}y.png"
    subprocess.run(["rm", "-rf", "given", "made"], check=True)


def test_an_image_in_very_many_folders(deep: str) -> None:
    seen = SeenFiles(Path("given"), [deep], np.array([state_of(Path("given", deep).stat())]))
    began = time.process_time()
    assert sort(seen) == 1
    assert time.process_time() - began < 20, "each folder was looked at from the root on, again and again"
    assert Path("made/rose", deep).read_bytes() == b"deep"
    long = "r" * 200
    assert put_images(Path("made"), given_other(), [f"{long}/{'s' * 200}/{'t' * 200}/{'d/' * 1800}"], link=False) == 1
    assert sorted(path.name for path in Path("made", long).iterdir()) == ["other.png"]


def given_other() -> SeenFiles:
    Path("other").mkdir()
    Path("other/other.png").write_bytes(b"other")
    return SeenFiles(Path("other"), ["other.png"], np.array([state_of(Path("other/other.png").stat())]))
