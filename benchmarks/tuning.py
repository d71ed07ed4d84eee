"""Whether tuning a pretrained backbone pays, by the number of labelled images a class: a table in docs/hoarfrost.md.

python benchmarks/tuning.py --data data      kept in results/tuning/; what is finished is not done again
python benchmarks/tuning.py --table          only the table, of what is kept

40 classes of DIR/tiny-imagenet-200/train, drawn by a fixed seed: 24 are known, 16 are new. Images are made larger, from
64 to 128 pixels, so that they are taken for photographs. Either nothing in the folder is old, and the number of new
classes is given; or the folder is mixed, with as many images of each known class as were learned from, and the number
is estimated. The network has learned these classes from ImageNet: what is compared is a tuned one and one that is left
as it is, and the scores are not those of other photographs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from photographs import scored
from PIL import Image

from hoarfrost import Learner, build_scenario
from hoarfrost.data.images import ImageSet
from hoarfrost.paper.text import file_name, markdown, renewed, spread
from hoarfrost.provenance import commit
from hoarfrost.training.resolve import ENOUGH

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "tuning", ROOT / "docs" / "hoarfrost.md"
BEGIN = "<!-- made by benchmarks/tuning.py -->"
KNOWN, NEW, SIDE, TESTED, CHOSEN = 24, 16, 128, 40, 0
"""numbers of classes, pixels a side, test images a class, and the seed by which classes are drawn"""
SIZES = (ENOUGH // 2, ENOUGH, 2 * ENOUGH)
SETTINGS: dict[str, dict[str, Any]] = {"as it is": {"fit_frozen": ["all"]}, "tuned": {"fit_frozen": []}}
FOLDERS = {"only new": (0.0, NEW), "mixed": (0.5, "auto")}
"""the share of the known classes' images that come back, and the number that is given"""


def drawn(data: Path, size: int) -> tuple[ImageSet, ImageSet]:
    """So many images of each class to learn from, and others to test with."""
    folders = sorted(path for path in (data / "tiny-imagenet-200" / "train").iterdir() if path.is_dir())
    random = np.random.default_rng(CHOSEN)
    chosen = [folders[k] for k in sorted(random.permutation(len(folders))[: KNOWN + NEW])]
    files = [random.permutation(sorted((folder / "images").glob("*.JPEG"))) for folder in chosen]
    names = tuple(folder.name for folder in chosen)

    def images(parts: list[Any]) -> ImageSet:
        pixels = np.stack([larger(path) for part in parts for path in part])
        return ImageSet(pixels, np.repeat(np.arange(len(parts)), [len(part) for part in parts]), names)

    return images([own[TESTED : TESTED + size] for own in files]), images([own[:TESTED] for own in files])


def larger(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pixels of an image, three channels."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def measured(args: argparse.Namespace, size: int, seed: int, folder: str, how: str) -> dict[str, Any]:
    share, novel = FOLDERS[folder]
    # As many images of a known class are learned from, whether others of it come back or not.
    train, test = drawn(Path(args.data), 2 * size if share else size)
    scenario = build_scenario(train, test, split=f"{KNOWN}-{NEW}", seed=seed, mixed=share)
    settings = {**SETTINGS[how], **({} if args.epochs is None or how != "tuned" else {"fit.epochs": args.epochs})}
    learner = Learner(seed=seed, device=args.device, settings=settings).fit(scenario.steps[0].images)
    return scored(learner.discover(scenario.steps[1].images, novel, only_new=not share), scenario)


def table() -> str:
    """Of all that is kept."""
    contents = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    cells = []
    for size in sorted({content["size"] for content in contents}):
        for how in SETTINGS:
            rows = {f: [c["rows"].get(f"{f}, {how}") for c in contents if c["size"] == size] for f in FOLDERS}
            found = {folder: [row for row in own if row is not None] for folder, own in rows.items()}
            scores = [(folder, key) for folder in FOLDERS for key in ("old", "new", "all")]
            made = [spread([row[key] for row in found[f]]) if found[f] else "–" for f, key in scores]
            counts = ", ".join(str(row["found"]) for row in found["mixed"]) or "–"
            cells.append([str(size), how, *made, counts])
    columns = [f"{folder}: {key}" for folder in FOLDERS for key in ("Old", "New", "All")]
    hardware = sorted({row["hardware"] for content in contents for row in content["rows"].values()})
    seeds = sorted({content["seed"] for content in contents})
    note = (
        f"{KNOWN} known and {NEW} new classes of Tiny-ImageNet, at {SIDE} pixels; percent of the test images;"
        f" seeds {', '.join(map(str, seeds))}; {' and '.join(hardware)}."
    )
    return f"{markdown(['labelled images a class', 'backbone', *columns, 'new classes found'], cells)}\n\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", metavar="DIR")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="labelled images a class")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--folders", nargs="+", default=list(FOLDERS), choices=FOLDERS)
    parser.add_argument("--epochs", type=int, metavar="N", help="of the tuning, to try others; not kept")
    parser.add_argument("--device", default="auto", metavar="NAME")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    hardware = Learner(device=args.device).runtime.hardware
    for size, seed in [] if args.table else [(size, seed) for size in args.sizes for seed in args.seeds]:
        path = RESULTS / f"{file_name(hardware)}-{size}-seed{seed}.json"
        content = json.loads(path.read_text()) if path.exists() else {"size": size, "seed": seed, "rows": {}}
        for name, folder, how in [(f"{folder}, {how}", folder, how) for folder in args.folders for how in SETTINGS]:
            if name not in content["rows"] or args.epochs is not None:
                started = time.perf_counter()
                row = {**measured(args, size, seed, folder, how), "hardware": hardware, "commit": commit()}
                print(size, seed, name, row, f"{time.perf_counter() - started:.0f} s", flush=True)
                content["rows"][name] = row
                if args.epochs is None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(content, indent=1) + "\n")
    if any(RESULTS.glob("*.json")):
        PAGE.write_text(renewed(PAGE.read_text(), table(), begin=BEGIN))
        print(table())


if __name__ == "__main__":
    main()
