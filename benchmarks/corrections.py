"""What corrections are worth: a table in docs/guide.md. What is finished is not done again.

python benchmarks/corrections.py --data data      flowers and cars, seeds 0 to 2; kept in results/corrections/
python benchmarks/corrections.py --table          only the table, of what is kept

DIR/flowers and DIR/cars have train/ and test/, each with a folder a class. The first 16 classes by name are known, the
other 8 are new. Half of each known class is labelled. The other half and the new classes are one unsorted folder. A
person names each new class after most of its images, or merges it where that name is taken. Then the person looks at
the most doubtful images first, and moves those that are wrong. Nothing is trained, and no old image is used. Scored
are the photographs of test/, which are in no folder before.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from hoarfrost import Learner
from hoarfrost.paper.text import markdown, renewed, spread
from hoarfrost.provenance import commit

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "corrections", ROOT / "docs" / "guide.md"
BEGIN = "<!-- made by benchmarks/corrections.py -->"
SETS, KNOWN, CORRECTIONS = ("flowers", "cars"), 16, (0, 5, 10, 20, 40)
SCORES = ("old", "new", "all")


def files_of(folder: Path) -> list[Path]:
    """Those of all classes, in the order of their names."""
    return sorted(path for path in folder.glob("*/*") if path.is_file())


def named(learner: Learner, paths: list[Path]) -> None:
    """As a person would: each new class by what most of its images are; what is called so already is merged."""
    found = learner.predictions(list(map(str, paths)))
    for class_id in range(learner.labelled_classes, len(learner.class_names)):
        own = [path.parent.name for path, k in zip(paths, found.ids.tolist(), strict=True) if k == class_id]
        if not own:
            continue
        name, before = Counter(own).most_common(1)[0][0], learner.class_names[class_id]
        there = {learner.class_names[k] for k in learner.model.classes.present}
        learner = learner.merge(before, name) if name in there else learner.rename(before, name)


def scores(learner: Learner, tested: list[Path], known: set[str]) -> dict[str, float]:
    """Percent of the test photographs that are given their class."""
    ids = learner.predictions(list(map(str, tested))).probabilities.argmax(axis=1)
    right = np.array(learner.class_names)[ids] == np.array([path.parent.name for path in tested])
    old = np.array([path.parent.name in known for path in tested])
    shares = {"old": right[old].mean(), "new": right[~old].mean(), "all": right.mean()}
    return {name: round(100 * float(share), 4) for name, share in shares.items()}


def run(data: Path, seed: int, features: Path) -> dict[str, Any]:
    """Scores by the number of images that were moved."""
    train, tested = files_of(data / "train"), files_of(data / "test")
    known = set(sorted({path.parent.name for path in train})[:KNOWN])
    random = np.random.default_rng(seed)
    half = {name: random.permutation([p for p in train if p.parent.name == name]) for name in sorted(known)}
    labelled = [path for own in half.values() for path in own[: len(own) // 2].tolist()]
    unsorted = sorted(set(train) - set(labelled), key=lambda path: path.name)
    learner = Learner(seed=seed)
    learner.fit([*map(str, labelled)], [path.parent.name for path in labelled])
    learner.keep_features(features)
    learner.discover([*map(str, unsorted)], only_new=False)
    named(learner, unsorted)
    found = learner.predictions([*map(str, unsorted)])
    names = [learner.class_names[k] for k in found.probabilities.argmax(axis=1).tolist()]
    doubtful = np.argsort(found.confidence, kind="stable").tolist()
    wrong = [k for k in doubtful if names[k] != unsorted[k].parent.name]
    evidence, made = learner.evidence([*map(str, unsorted)]), {}
    for count in CORRECTIONS:
        if count > len(wrong):
            break
        for at in wrong[max([k for k in CORRECTIONS if k < count], default=0) : count]:
            learner.move(evidence.take(np.array([at])), unsorted[at].parent.name)
        made[str(count)] = scores(learner, tested, known)
    return {"images": len(unsorted), "wrong": len(wrong), "tested": len(tested), "scores": made}


def table() -> str:
    """All that is kept, by the number of corrections."""
    kept = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    rows = []
    for count in map(str, CORRECTIONS):
        cells = [
            [
                one["scores"][count][score]
                for key, one in kept.items()
                if key.startswith(name) and count in one["scores"]
            ]
            for name in SETS
            for score in SCORES
        ]
        rows.append([count, *map(spread, cells)])
    columns = ["images moved", *(f"{name}: {score.capitalize()}" for name in SETS for score in SCORES)]
    seeds = sorted({one["seed"] for one in kept.values()})
    over = f"mean ± standard deviation over the seeds {', '.join(map(str, seeds))}" if seeds[1:] else f"seed {seeds[0]}"
    note = f"Percent of test photographs that get their class, {over}. No network is trained, no earlier image is used."
    return f"{markdown(columns, rows)}\n\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", type=Path, metavar="DIR")
    parser.add_argument(
        "--features", default="runs/corrections", type=Path, metavar="DIR", help="where features are kept"
    )
    parser.add_argument("--images", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    args.features.mkdir(parents=True, exist_ok=True)
    for images, seed in [] if args.table else [(images, seed) for seed in args.seeds for images in args.images]:
        path = RESULTS / f"{images}-seed{seed}.json"
        if not path.exists():
            content = {"seed": seed, **run(args.data / images, seed, args.features), "commit": commit()}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1) + "\n")
            print(images, seed, content, flush=True)
    PAGE.write_text(renewed(PAGE.read_text(), table(), begin=BEGIN))
    print(table())


if __name__ == "__main__":
    main()
