"""A year of photographs: twelve folders, old and new mixed, into one model month after month, killed five times.

python benchmarks/year.py --data data --out runs/year
python benchmarks/year.py --table      only the table in docs/unsorted.md, of what is kept

DIR/flowers and DIR/cars have train/ and test/, each with a folder a class. The first 16 classes by name are known from
half of their images. The others come in by and by, and come back; in half of the months nothing is new, and in two of
those there is one photograph of something else. What is left after the year is in results/year/: whether every class
and name is still there, which classes were found, which of them twice, and the scores on the test images.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from hoarfrost.paper.text import markdown, renewed

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "year", ROOT / "docs" / "unsorted.md"
BEGIN = "<!-- made by benchmarks/year.py -->"
SETS, KNOWN, MONTHS = ("flowers", "cars"), 16, 12
BEGINS = (1, 1, 3, 4, 6, 7, 7, 10)
"""the months in which the new classes first come, by name"""
STRANGE = (5, 9)
"""months with one photograph of the other set"""
KILLED = (1, 3, 4, 7, 10)
FIRST_SHARE = 0.6
"""of a new class's photographs that come in its first month"""


def lay_out(data: Path, images: str, out: Path, seed: int) -> None:
    """known/, and a folder for each month; file names say nothing of classes."""
    generator = np.random.default_rng(seed)
    months: dict[int, list[Path]] = {month: [] for month in range(1, MONTHS + 1)}
    classes = sorted(path for path in (data / images / "train").iterdir() if path.is_dir())
    for number, folder in enumerate(classes):
        files = [sorted(folder.iterdir())[k] for k in generator.permutation(len(list(folder.iterdir())))]
        if number < KNOWN:
            (out / "known" / folder.name).mkdir(parents=True)
            half = len(files) // 2
            for path in files[:half]:
                shutil.copy(path, out / "known" / folder.name / path.name)
            later, first = files[half:], 1
        else:
            first = BEGINS[number - KNOWN]
            share = round(FIRST_SHARE * len(files))
            months[first] += files[:share]
            later, first = files[share:], first + 1
        for count, path in enumerate(later):
            months[first + count % (MONTHS + 1 - first)].append(path)
    other = next(name for name in SETS if name != images)
    for month in STRANGE:
        months[month].append(sorted((data / other / "train").rglob("*.*"))[month])
    truth = {}
    for month, files in months.items():
        (out / f"month-{month:02}").mkdir()
        for number in generator.permutation(len(files)):
            path = files[number]
            name = f"month-{month:02}/{number:04}{path.suffix}"
            shutil.copy(path, out / name)
            truth[name] = path.parent.name
    (out / "truth.json").write_text(json.dumps(truth))


def hoarfrost(*arguments: str, killed_after: float | None = None) -> str:
    """The output of a command; one that is to be killed is, and gives none."""
    command = [sys.executable, "-m", "hoarfrost", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            output, errors = process.communicate(timeout=killed_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return ""
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {process.returncode}: {errors.strip().splitlines()[-1]}")
    return output


def names_of(model: Path) -> list[str]:
    names: list[str] = json.loads((model / "model.json").read_text())["class_names"]
    return names


def year(args: argparse.Namespace, images: str) -> dict[str, Any]:
    """Twelve months, and what is left."""
    out = args.out / images
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    lay_out(args.data, images, out, args.seed)
    generator, usual = np.random.default_rng([args.seed, 1]), ["--seed", str(args.seed), "--device", args.device]
    hoarfrost("fit", str(out / "known"), "--out", str(out / "model-00"), *usual)
    lost: list[str] = []
    found_in, kills = [], 0
    for month in range(1, MONTHS + 1):
        before, after = out / f"model-{month - 1:02}", out / f"model-{month:02}"
        command = ["discover", str(before), str(out / f"month-{month:02}"), "--out", str(after), "--resume", *usual]
        start = time.perf_counter()
        if month in KILLED:
            hoarfrost(*command, killed_after=float(generator.uniform(3, args.longest_kill)))
            kills += 1
        hoarfrost(*command)
        names, earlier = names_of(after), names_of(before)
        lost += [f"{name} in month {month}" for name in earlier if name not in names]
        new = [name for name in names if name not in earlier]
        found_in.append(len(new))
        print(f"{images}, month {month}: {len(new)} new, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    truth = json.loads((out / "truth.json").read_text())
    last = str(out / f"model-{MONTHS:02}")
    given: dict[str, Counter[str]] = {}
    for month in range(1, MONTHS + 1):
        rows = csv.DictReader(io.StringIO(hoarfrost("predict", last, str(out / f"month-{month:02}"))))
        for row in rows:
            if row["kind"] == "new":
                name = f"month-{month:02}/{Path(row['path']).name}"
                given.setdefault(row["class"], Counter())[truth[name]] += 1
    meant = {name: counts.most_common(1)[0][0] for name, counts in given.items()}
    known = [path.name for path in sorted((out / "known").iterdir())]
    scores = json.loads(hoarfrost("evaluate", last, str(args.data / images / "test"), "--json"))
    new = {path.name for path in (args.data / images / "train").iterdir()} - set(known)
    return {
        "seed": args.seed,
        "killed": kills,
        "lost": lost,
        "new_classes_a_month": [BEGINS.count(month) for month in range(1, MONTHS + 1)],
        "found_a_month": found_in,
        "stands_for": meant,
        "found": sorted(set(meant.values()) & new),
        "twice": sorted(name for name, count in Counter(meant.values()).items() if count > 1),
        "known_again": sorted(set(meant.values()) & set(known)),
        "evaluated": {key: value for key, value in scores.items() if key not in ("model", "matched_on")},
    }


def table() -> str:
    """A row a year. A class is found if some class of the model has most of its images from it; one that gets no image
    stands for none."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text())
        scores = content["evaluated"]["joint"]
        rows.append(
            [
                path.stem.replace("-", ", ").replace("seed", "seed "),
                str(content["killed"]),
                ", ".join(content["lost"]) or "none",
                str(sum(content["found_a_month"])),
                f"{len(content['found'])} of {sum(content['new_classes_a_month'])}",
                ", ".join(content["twice"]) or "none",
                ", ".join(content["known_again"]) or "none",
                " / ".join(f"{scores[key]:.1f}" for key in ("old", "new", "all")),
            ]
        )
    columns = [
        "year",
        "killed",
        "classes lost",
        "new classes proposed",
        "new ones found",
        "found twice",
        "known ones found again",
    ]
    return markdown([*columns, "Old / New / All in the end"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path("runs/year"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--device", default="auto", metavar="NAME")
    parser.add_argument("--longest-kill", type=float, default=12.0, metavar="S")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    args = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for images in [] if args.table else args.sets:
        content = year(args, images)
        (RESULTS / f"{images}-seed{args.seed}.json").write_text(json.dumps(content, indent=1) + "\n")
        print(images, {key: value for key, value in content.items() if key != "evaluated"})
    PAGE.write_text(renewed(PAGE.read_text(), table(), begin=BEGIN))


if __name__ == "__main__":
    main()
