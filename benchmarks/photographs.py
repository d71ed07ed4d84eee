"""Methods on photographs: one table of Old, New and All on flowers and cars. What is finished is not run again.

python benchmarks/photographs.py --data data                       k-means and nearest mean, seeds 0 to 2
python benchmarks/photographs.py --data data kmeans frost-small    FRoST with a network for little images too: hours
python benchmarks/photographs.py --data data frost --table         only the table, of what is there

DIR/flowers and DIR/cars have train/ and test/, each with a folder a class. The first 16 classes by name are known, the
other 8 are new. A method is a preset's name, on the backbone that hoarfrost chooses for photographs, or one of ROWS.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hoarfrost.paper.text import markdown, spread

SETS, SPLIT = ("flowers", "cars"), "16-8"
SCORES = ("old", "new", "all")

ROWS: dict[str, tuple[str, list[str]]] = {
    "kmeans": ("k-means and nearest mean, pretrained features", ["--method", "kmeans"]),
    "frost-small": ("FRoST, small network, 64 pixels", ["--method", "frost", "--backbone", "small"]),
}
"""what a row is called, and the arguments of ``hoarfrost run``"""


def row(name: str) -> tuple[str, list[str]]:
    return ROWS.get(name, (name, ["--method", name]))


def folder(args: argparse.Namespace, images: str, name: str, seed: int) -> Path:
    return Path(args.out, f"{images}-{name}-seed{seed}")


def run(args: argparse.Namespace, images: str, name: str, seed: int) -> None:
    """One run, or the rest of it; runs of one kind of network share their stage one."""
    command = [sys.executable, "-m", "hoarfrost", "run", "--dataset", "folder", "--split", SPLIT, "--resume"]
    command += ["--data", str(Path(args.data, images)), "--seed", str(seed), "--device", args.device]
    command += ["--out", str(folder(args, images, name, seed)), "--share", str(Path(args.out, "stage-one"))]
    print(f"{images}, {name}, seed {seed}", file=sys.stderr, flush=True)
    subprocess.run([*command, *row(name)[1]], check=True, stdout=subprocess.DEVNULL)


def finished(args: argparse.Namespace, images: str, name: str) -> list[dict[str, Any]]:
    paths = [folder(args, images, name, seed) / "metrics.json" for seed in range(args.seeds)]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def table(args: argparse.Namespace) -> str:
    """A row a method: Old, New and All of each set, mean and standard deviation over the seeds."""
    columns, rows, hardware = [f"{images}: {score.capitalize()}" for images in SETS for score in SCORES], [], set()
    for name in args.methods:
        cells = []
        for images in SETS:
            runs = finished(args, images, name)
            hardware |= {content["hardware"] for content in runs}
            joint = [content["steps"][-1]["joint"] for content in runs]
            cells += [spread([scores[score] for scores in joint]) if joint else "–" for score in SCORES]
        rows.append([row(name)[0], *cells])
    note = f"Percent, mean ± standard deviation over {args.seeds} seeds; {', '.join(sorted(hardware))}."
    return f"{markdown(['method', *columns], rows)}\n\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=["kmeans"], metavar="METHOD")
    parser.add_argument("--data", default="data", metavar="DIR")
    parser.add_argument("--out", default="runs/photographs", metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--device", default="auto", metavar="NAME")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    for name in [] if args.table else args.methods:
        for images in SETS:
            for seed in range(args.seeds):
                run(args, images, name, seed)
    print(table(args))


if __name__ == "__main__":
    main()
