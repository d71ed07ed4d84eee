"""Tiny-ImageNet's lists and archives of data sets as a stranger would make them."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from hoarfrost.cli import main
from hoarfrost.data.datasets import DATASETS

from ..hostile import mutated
from .hostile_values import NAMES, Random
from .judge import Try, Words
from .pickles import LOOKED_AT
from .place import files_below

ENTRIES = (*NAMES, "../../model/model.json", "/etc/passwd", "val_0.JPEG", "val_1.JPEG", "..\\x", "\x00", "a\tb\tc")


def lists(random: Random) -> Try:
    """Tiny-ImageNet with hostile lists of names."""
    root = Path("tiny-imagenet-200")
    path = random.choice([root / "wnids.txt", root / "val" / "val_annotations.txt"])
    lines = path.read_bytes().splitlines()
    match random.randrange(7):
        case 0:
            what = "bytes changed"
            path.write_bytes(mutated(path.read_bytes(), random.getrandbits(32)))
        case 1:
            what = "cut short"
            path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])
        case 2 | 3:
            what = "other names"
            parts = random.choice(lines).split(b"\t")
            parts[random.randrange(len(parts))] = random.choice(ENTRIES).encode()
            lines.insert(random.randrange(len(lines) + 1), b"\t".join(parts))
            path.write_bytes(b"\n".join(lines))
        case 4:
            what = "another text"
            path.write_bytes(
                random.choice([b"", b"\n", b"\xff\xfe", b"\x00" * 1000, b"a\t" * 50_000, lines[0] * 10_000])
            )
        case 5:
            what = "something else in its place"
            path = random.choice([path, *files_below(str(root / "val"))])
            path.unlink()
            match random.randrange(4):
                case 0:
                    os.mkfifo(path)
                case 1:
                    path.mkdir()
                case 2:
                    path.symlink_to(random.choice(["nowhere", "/dev/zero", path.name]))
                case _:
                    path.touch()
                    os.truncate(path, 3 << 30)
        case _:
            what = "many lines"
            path.write_bytes(b"\n".join(lines * random.choice([2, 300])))
    arguments = ("run", "--dataset", "tiny-imagenet", "--data", ".", "--split", LOOKED_AT, "--out", "made")
    return Try(arguments, f"{path}: {what}", blamed=(root.name, LOOKED_AT))


class _Site(BaseHTTPRequestHandler):
    content = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@cache
def _address(process: int) -> str:
    """Of a site in this process, of which this is the number, that gives out what ``_Site`` has."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def archives(random: Random) -> Try:
    """A data set that is fetched from a hostile site."""
    name, root = random.choice([("cifar10", "cifar-10-batches-py"), ("tiny-imagenet", "tiny-imagenet-200")])
    what, content = _tar(random, root) if name == "cifar10" else _zip(random, root)
    match random.randrange(6):
        case 0:
            what, content = f"{what}, cut short", content[: random.randrange(len(content))]
        case 1:
            what, content = f"{what}, bytes changed", mutated(content, random.getrandbits(32))
        case _:
            pass
    Path("outside").mkdir()
    Path("outside/kept").write_text("kept")

    def fetched(arguments: Words) -> object:
        _Site.content = content
        archive = DATASETS[name].archive
        md5 = hashlib.md5(content).hexdigest()
        before = DATASETS[name]
        DATASETS[name] = replace(before, url=f"{_address(os.getpid())}/{archive}", md5=md5)
        try:
            return main(arguments)
        finally:
            DATASETS[name] = before
            if Path("planted").exists() or Path("outside/kept").read_text() != "kept":
                raise AssertionError("something was written outside")

    arguments = ("run", "--dataset", name, "--data", "data", "--download", "--split", LOOKED_AT, "--out", "made")
    return Try(
        arguments, f"{name}: {what}", blamed=(name, root, LOOKED_AT), main=fetched, may_leave=("data", f"data/{root}/")
    )


OUTSIDE = (
    "../planted",
    "../../planted",
    "/tmp/planted-by-tries",
    "a/../../../planted",
    "\\..\\planted",
    "C:\\planted",
    "link/planted",
)


def _tar(random: Random, root: str) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    said = []
    modes: list[Literal["w:gz", "w:bz2"]] = ["w:gz", "w:gz", "w:gz", "w:bz2"]
    with tarfile.open(fileobj=buffer, mode=random.choice(modes)) as archive:
        good = random.random() < 0.7
        hostile = random.randrange(1, 4)
        for number in range(hostile + 1):
            if number == random.randrange(hostile + 1) and good:
                archive.add(root, root)
                good = False
            member = tarfile.TarInfo(
                random.choice([*OUTSIDE, f"{root}/link", "link", root, f"{root}/data_batch_1", *NAMES])
            )
            member.type = random.choice(
                [
                    tarfile.REGTYPE,
                    tarfile.SYMTYPE,
                    tarfile.LNKTYPE,
                    tarfile.CHRTYPE,
                    tarfile.FIFOTYPE,
                    tarfile.DIRTYPE,
                    b"Z",
                ]
            )
            member.linkname = random.choice(["../outside", "outside/kept", "/etc/passwd", "..", root, "."])
            member.mode = random.choice([0o644, 0o000, 0o7777])
            content = bytes(random.choice([0, 10, 10**6])) if member.type == tarfile.REGTYPE else b""
            member.size = len(content)
            said.append(f"{member.name!r} {member.type!r}")
            archive.addfile(member, io.BytesIO(content))
    return ", ".join(said), buffer.getvalue()


def _zip(random: Random, root: str) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    said = []
    with zipfile.ZipFile(buffer, "w") as archive:
        if random.random() < 0.7:
            for path in files_below(root):
                archive.write(path, path)
        for _ in range(random.randrange(1, 4)):
            member = zipfile.ZipInfo(random.choice([*OUTSIDE, f"{root}/wnids.txt", root, *NAMES]) or "e")
            member.external_attr = random.choice([0o644, 0o120777, 0o020644, 0o040755, 0]) << 16
            said.append(f"{member.filename!r} {member.external_attr >> 16:o}")
            content = random.choice([b"../outside", bytes(10**6), b""])
            archive.writestr(member, content, compress_type=random.choice([0, 8]))
    return ", ".join(said), buffer.getvalue()
