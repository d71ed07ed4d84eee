"""Pictures of the pages of fit and of a discovery, as a telephone and a desktop show them, in docs/. Needs Chromium.

docs/discovery.png, for the README, is the top of the page of a discovery, in 256 colours.

python benchmarks/screenshots.py --data data

DIR/flowers has train/ with a folder a class. The first 16 classes by name are learned from half of their photographs;
the other half and all other classes are the folder in which hoarfrost discovers.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS, KNOWN = Path(__file__).parents[1] / "docs", 16
SIZES = {390: 2600, 1280: 1500}
"""width and height in pixels: the first part of the page"""
FRONT = (1060, 1170)
"""those of the README's picture"""


def lay_out(classes: Path, out: Path) -> None:
    """known/ and unsorted/; file names there say nothing of classes."""
    (out / "unsorted").mkdir(parents=True)
    count = 0
    for number, folder in enumerate(sorted(path for path in classes.iterdir() if path.is_dir())):
        files = sorted(folder.iterdir())
        known = files[::2] if number < KNOWN else []
        for path in known:
            (out / "known" / folder.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out / "known" / folder.name)
        for path in files:
            if path not in known:
                count += 1
                shutil.copy(path, out / "unsorted" / f"{count:04}{path.suffix}")


def hoarfrost(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "hoarfrost", *map(str, words)], check=True)


def picture(browser: str, page: Path, width: int, height: int, out: Path) -> None:
    """The page in a window of that size, as a JPEG file; a PNG file has a quarter more pixels."""
    whole, scale = out.with_name("whole.png"), 1.25 if out.suffix == ".png" else 1.0
    # Chromium's window is never narrower than 500 pixels: the page is put into a frame that is.
    frame = page.with_name("frame.html")
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.name}" style="border:0;width:{width}px;height:{height}px"></iframe>'
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
    options += ["--disable-background-networking", f"--force-device-scale-factor={scale}"]
    size = f"--window-size={max(width, 500)},{height}"
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *options, f"--user-data-dir={profile}", size, f"--screenshot={whole}", frame.as_uri()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Image.open(whole) as image:
        shown = image.convert("RGB").crop((0, 0, int(width * scale), int(height * scale)))
    if out.suffix == ".png":
        shown.quantize(256, dither=Image.Dither.NONE).save(out, optimize=True)
    else:
        shown.save(out, quality=82, optimize=True, progressive=True)
    whole.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR")
    args = parser.parse_args()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("no Chromium was found: install it")
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        lay_out(args.data / "flowers" / "train", work)
        hoarfrost("fit", work / "known", "--out", work / "model", "--device", "cpu")
        hoarfrost("discover", work / "model", work / "unsorted", "--out", work / "model2", "--device", "cpu")
        for name, page in (("fit", work / "model"), ("discovery", work / "model2")):
            for width, height in SIZES.items():
                picture(browser, page / "report.html", width, height, DOCS / f"{name}-{width}.jpg")
        picture(browser, work / "model2" / "report.html", *FRONT, DOCS / "discovery.png")


if __name__ == "__main__":
    main()
