"""Image files and folders of them as a stranger would make them."""

from __future__ import annotations

import io
import os
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from ..hostile import mutated
from .hostile_values import NAMES, Random
from .judge import Try
from .place import EVALUATE, FIT, PREDICT

LINKED = ("/etc/passwd", "/dev/zero", "/dev/full", "nowhere", "..", ".", "../0/0.png", "0", "/proc/self/mem")

FORMATS = {
    "png": ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"),
    "jpeg": ("L", "RGB", "CMYK"),
    "webp": ("RGB", "RGBA"),
    "gif": ("L", "P", "RGB"),
    "tiff": ("1", "L", "P", "RGB", "RGBA", "CMYK", "LAB", "YCbCr", "I", "I;16", "F"),
    "bmp": ("1", "L", "P", "RGB", "RGBA"),
    "ppm": ("1", "L", "RGB", "I"),
    "tga": ("L", "LA", "RGB", "RGBA"),
    "ico": ("RGB", "RGBA"),
    "pcx": ("L", "RGB"),
    "sgi": ("L", "RGB"),
    "jpeg2000": ("L", "RGB"),
    "eps": ("L", "RGB"),
    "im": ("L", "RGB"),
    "dds": ("RGB", "RGBA"),
}


def pictures(random: Random) -> Try:
    """A folder of images with some hostile ones among them."""
    count = random.randrange(1, 4)
    said = []
    for number in range(count):
        what, content = hostile_picture(random)
        said.append(what)
        Path(f"unsorted/hostile-{number}.png").write_bytes(content)
    if random.random() < 0.05:  # and none that is good
        for path in Path("unsorted").glob("[!h]*"):
            path.unlink()
    # Images on disk are read by processes of their own, which take a while to begin.
    more = random.choices([(), ("--json",), ("--cache", "kept"), ("--from-disk",)], weights=[16, 3, 1, 1])[0]
    return Try((*PREDICT, *more), "; ".join(said), blamed=("unsorted",), may_leave=("kept/",))


def _drawn(random: Random, mode: str, side: tuple[int, int]) -> Image.Image:
    noise = np.random.default_rng(random.getrandbits(32)).integers(0, 256, (side[1], side[0], 3), dtype="u1")
    picture = Image.fromarray(noise)
    if mode in ("LAB", "YCbCr", "CMYK"):
        return Image.merge(mode, [*picture.split(), picture.getchannel(0)][: len(Image.new(mode, (1, 1)).getbands())])
    if mode in ("I", "I;16", "F"):
        return picture.convert("L").convert(mode)
    return picture.convert(mode)


def hostile_picture(random: Random) -> tuple[str, bytes]:
    """What it is, and the bytes of its file."""
    kind = random.choice(sorted(FORMATS))
    mode = random.choice(FORMATS[kind])
    side = random.choice([(8, 8), (16, 12), (40, 40), (7, 9), (1, 1), (3000, 8), (300, 200)])
    picture, buffer = _drawn(random, mode, side), io.BytesIO()
    options = _options(random, kind)
    try:
        picture.save(buffer, kind, **options)
    except Exception:  # not every mode goes with every option
        picture.convert("RGB").save(buffer, "png")
        kind, mode = "png", "RGB"
    content = buffer.getvalue()
    match random.randrange(6):
        case 0:
            return f"{kind} {mode} {side}", content
        case 1:
            return f"{kind} {mode} {side}, cut short", content[: random.randrange(len(content))]
        case 2 | 3:
            return f"{kind} {mode} {side}, bytes changed", mutated(content, random.getrandbits(32))
        case 4:
            return _giant(random)
        case _:
            return f"{kind} {mode} {side}, bytes of its head changed", mutated(
                content[:64], random.getrandbits(32)
            ) + content[64:]


def _options(random: Random, kind: str) -> dict[str, object]:
    exif = Image.Exif()
    exif[0x0112] = random.choice([1, 2, 5, 6, 8, 0, 9, 65535])
    exif[0x9286] = random.choice(NAMES)
    raw = random.choice([exif.tobytes(), b"Exif\x00\x00garbage", b"Exif\x00\x00II*\x00\xff\xff\xff\xff", b""])
    if kind in ("jpeg", "webp", "png"):
        return random.choice([{}, {"exif": raw}, {"icc_profile": b"garbage"}, {"exif": raw, "icc_profile": bytes(200)}])
    if kind == "gif":
        more = [_drawn(random, "L", (20, 20)) for _ in range(random.randrange(4))]
        return {"save_all": True, "append_images": more, "transparency": random.choice([0, 255])}
    if kind == "tiff":
        return {
            "compression": random.choice(
                [None, "tiff_lzw", "tiff_deflate", "jpeg", "packbits", "group4", "tiff_adobe_deflate"]
            )
        }
    return {}


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _giant(random: Random) -> tuple[str, bytes]:
    """A small file that says it is a large picture, or unpacks to a large one."""
    width, height = random.choice(
        [(2**31 - 1, 1), (60000, 60000), (9400, 9400), (13000, 13000), (2**31 - 1, 2**31 - 1), (0, 0), (10**6, 9)]
    )
    depth, colour = random.choice([(8, 0), (8, 2), (8, 6), (16, 2), (1, 0), (8, 3), (16, 6)])
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, random.choice([0, 1])))
    body = _chunk(b"IDAT", zlib.compress(bytes(random.choice([10, 10**5]))))
    text = _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(random.choice([10**4, 3 * 10**6]))))
    png = b"\x89PNG\r\n\x1a\n" + head + random.choice([b"", text, text * 3]) + body + _chunk(b"IEND", b"")
    gif = (
        b"GIF89a"
        + struct.pack("<HHBBB", min(width, 65535), min(height, 65535), 0xF7, 0, 0)
        + bytes(768)
        + b",\0\0\0\0"
        + b"\xff" * 4
        + b"\0\x08\xff;"
    )
    bmp = (
        b"BM"
        + struct.pack(
            "<IHHIIiiHHIIiiII",
            100,
            0,
            0,
            54,
            40,
            width,
            height,
            1,
            random.choice([1, 8, 24, 32]),
            random.choice([0, 1, 3]),
            0,
            0,
            0,
            0,
            0,
        )
        + bytes(50)
    )
    ppm = b"P6 %d %d %d\n" % (width, height, random.choice([255, 65535, 0, 10**30])) + bytes(50)
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, 8),
        (259, 3, 1, random.choice([1, 5, 7, 8, 34712])),
        (262, 3, 1, 1),
        (273, 4, 1, 8),
        (277, 3, 1, random.choice([1, 3, 65535])),
        (278, 4, 1, height),
        (279, 4, random.choice([1, 2**31]), 50),
    ]
    tiff = (
        b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(60)
    )
    name, content = random.choice(
        [("PNG", png), ("PNG", png), ("GIF", gif), ("BMP", bmp), ("PPM", ppm), ("TIFF", tiff)]
    )
    return f"{name} that says it is {width}x{height}", content


# ---------------------------------------------------------------------------------------------------------------------
# Folders
# ---------------------------------------------------------------------------------------------------------------------


def folders(random: Random) -> Try:
    """A folder of classes with odd names and odd things in it."""
    said = [_odd_thing(random, Path("checked")) for _ in range(random.randrange(1, 5))]
    more = random.choice([(), (), ("--json",), ("--epochs", "1")])
    command, blamed = random.choice(
        [
            ((*FIT[:1], "checked", *FIT[2:4], "--epochs", "1"), ("checked",)),
            ((*EVALUATE, *(more if "--epochs" not in more else ())), ("checked",)),
            (("predict", "model2", "checked", *(more if "--epochs" not in more else ())), ("checked",)),
            (
                ("run", "--dataset", "folder", "--data", "checked", "--split", "99-99", "--out", "made"),
                ("checked", "99-99"),
            ),
        ]
    )
    return Try(command, "; ".join(said), blamed=blamed)


def _odd_name(random: Random) -> bytes:
    name = random.choice(NAMES).replace("/", "_")[:60] or "e"
    name = name if name not in ("..", ".") else "x.."
    return random.choice([name.encode(), name.encode(), b"\xff\xfe" + name.encode()[:10], b"." + name.encode()])


def _is_small(path: Path) -> bool:
    """Whether it is a file that can be read, and not made large here."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20 and os.access(path, os.R_OK)


def _odd_thing(random: Random, folder: Path) -> str:
    """Puts something odd below a folder, or takes something away."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    some, name = random.choice(classes), os.fsdecode(_odd_name(random))
    good = next((path for path in sorted(some.rglob("*")) if _is_small(path)), None)
    image = good.read_bytes() if good else b"none"
    other = random.choice([folder / name, some / name, some / f"{name}.png"])
    match random.randrange(12):
        case 0:
            if not (folder / name).exists():
                some.rename(folder / name)
            return f"a class {name!r}"
        case 1:
            if not other.exists():
                other.mkdir()
            (other / f"{name[:40]}.png").write_bytes(image) if other.is_dir() else None
            return f"a folder {name!r}"
        case 2 | 3:
            if not other.exists():
                other.write_bytes(image)
            return f"an image {name!r}"
        case 4:
            if not other.exists():
                os.mkfifo(other)
            return f"a pipe {name!r}"
        case 5:
            if not other.is_symlink() and not other.exists():
                other.symlink_to(random.choice(LINKED))
            return f"a link {name!r}"
        case 6:
            for path in sorted(some.iterdir()):
                path.unlink() if not path.is_dir() or path.is_symlink() else None
            return "an empty class"
        case 7:
            if good:
                good.write_bytes(b"")
            return "an empty image"
        case 8:
            if good:
                good.chmod(0)
            return "a file that may not be read"
        case 9:
            if good:
                os.truncate(good, 3 << 30)
            return "an image with three GiB of nothing behind it"
        case 10:
            if not other.exists() and len(os.fsencode(other)) < 90:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(os.fsencode(other))
            return f"a socket {name!r}"
        case _:
            deep = some.joinpath(*["d"] * random.choice([3, 60]))
            deep.mkdir(parents=True, exist_ok=True)
            (deep / "deep.png").write_bytes(image)
            return "an image far below"
