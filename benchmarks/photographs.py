"""Methods on photographs: one table of Old, New and All on flowers and cars, in the README. What is finished is not run
again; its scores are kept in results/photographs/.

python benchmarks/photographs.py --data data                seeds 0 to 2 of hoarfrost, k-means and FRoST
python benchmarks/photographs.py --data data frost-small    FRoST with a network for little images: hours
python benchmarks/photographs.py --table                    only the table, of what is kept

DIR/flowers and DIR/cars have train/ and test/, each with a folder a class. The first 16 classes by name are known, the
other 8 are new. A method is a preset's name, on the backbone that hoarfrost chooses for photographs, or one of ROWS.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from hoarfrost.paper.text import markdown, renewed, spread

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "photographs"
BEGIN = "<!-- made by benchmarks/photographs.py -->"
SETS, SPLIT = ("flowers", "cars"), "16-8"
SCORES = ("old", "new", "all")

ROWS: dict[str, tuple[str, list[str]]] = {
    "hoarfrost": ("`hoarfrost`", ["--method", "hoarfrost"]),
    "kmeans": ("`kmeans`: clusters, and the nearest class mean", ["--method", "kmeans"]),
    "frost": ("`frost` on the same features", ["--method", "frost"]),
    "frost-small": ("`frost`, small network, 64 pixels", ["--method", "frost", "--backbone", "small"]),
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

    content = json.loads((folder(args, images, name, seed) / "metrics.json").read_text())
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{images}-{name}-seed{seed}.json").write_text(json.dumps(content, indent=1) + "\n")


def table() -> str:
    """A row a method: Old, New and All of each set, mean and standard deviation over the seeds."""
    columns, rows, kept = [f"{images}: {score.capitalize()}" for images in SETS for score in SCORES], [], []
    for name in ROWS:
        cells: list[str] = []
        for images in SETS:
            runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{images}-{name}-seed*.json"))]
            kept += runs
            joint = [content["steps"][-1]["joint"] for content in runs]
            cells += [spread([scores[score] for scores in joint]) if joint else "–" for score in SCORES]
        if any(cell != "–" for cell in cells):
            rows.append([row(name)[0], *cells])
    hardware = ", ".join(sorted({content["hardware"] for content in kept}))
    seeds = ", ".join(map(str, sorted({content["seed"] for content in kept})))
    note = f"Percent of the test photographs, mean ± standard deviation over the seeds {seeds}; {hardware}."
    return f"{markdown(['method', *columns], rows)}\n\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=["hoarfrost", "kmeans", "frost"], metavar="METHOD")
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
    made, readme = table(), ROOT / "README.md"
    readme.write_text(renewed(readme.read_text(), made, begin=BEGIN))
    print(made)


if __name__ == "__main__":
    main()
