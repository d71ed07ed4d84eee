"""Methods on photographs: tables in the README and in docs/unsorted.md. What is finished is not done again.

python benchmarks/photographs.py --data data      flowers and cars, seeds 0 to 2; kept in results/photographs/, those
                                                  of a GPU in a folder there
python benchmarks/photographs.py --table          only the tables, of what is kept

DIR/flowers and DIR/cars have train/ and test/, each with a folder a class. The first 16 classes by name are known, the
other 8 are new. In a mixed folder half of the known classes' training images come back without labels, among the new
ones; the other half was learned from. Where few are labelled, four fifths come back. On a GPU `hoarfrost` is measured
with a tuned network too. GCD is the semi-supervised k-means of Vaze et al., Generalized Category Discovery (CVPR 2022),
on the same features: the labelled images are there again, and stay in their clusters. One test set is too small to show
how true probabilities are, so that is measured with other classes as the known ones too: many random choices together.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost import Learner, build_scenario, metrics
from hoarfrost.data.cache import AUTO
from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.evaluation import Assignment, score_open_step
from hoarfrost.paper.text import file_name, markdown, renewed, spread
from hoarfrost.provenance import commit
from hoarfrost.scenario import Scenario
from hoarfrost.training.resolve import storage, suited
from hoarfrost.unsorted.clusters import squared_distances

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]
Row = dict[str, Any]

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, README = ROOT / "results" / "photographs", ROOT / "docs" / "unsorted.md", ROOT / "README.md"
BEGIN = "<!-- made by benchmarks/photographs.py -->"
SETS, SPLIT, KNOWN, NEW, SHARE = ("flowers", "cars"), "16-8", 16, 8, 0.5
MOST_COME_BACK = 0.8
"""of the known classes' training images, where few are labelled"""
STARTS, ROUNDS = 10, 200
"""of semi-supervised k-means"""
DRAWS = 2000
"""of images and seeds, for an interval"""
CHOICES = 8
"""random choices of the known classes for each seed"""


def semi_supervised(labelled: Floats, labels: Ids, points: Floats, clusters: int, seed: int) -> Floats:
    """``(clusters, D)``: centres of k-means in which labelled points stay in the cluster of their class."""
    random, known = np.random.default_rng(seed), int(labels.max()) + 1
    means = np.stack([labelled[labels == label].mean(axis=0) for label in range(known)])
    best, least = means, np.inf
    for _ in range(STARTS):
        centres = means
        while len(centres) < clusters:
            chance = squared_distances(points, centres).min(axis=1)
            centres = np.concatenate([centres, points[random.choice(len(points), 1, p=chance / chance.sum())]])
        nearest = np.full(len(points), -1)
        for _ in range(ROUNDS):
            distances = squared_distances(points, centres)
            before, nearest = nearest, distances.argmin(axis=1)
            if (before == nearest).all():
                break
            both, own = np.concatenate([labelled, points]), np.concatenate([labels, nearest])
            centres = np.stack(
                [both[own == k].mean(axis=0) if (own == k).any() else centres[k] for k in range(clusters)]
            )
        total = float(distances.min(axis=1).sum() + np.square(labelled - centres[labels]).sum())
        if total < least:
            best, least = centres, total
    return best


def gcd_number(labelled: Floats, labels: Ids, points: Floats, most: int, seed: int) -> int:
    """GCD's number of classes: that of k-means in which the labelled images come out best."""
    from sklearn.cluster import KMeans

    both, known, found = np.concatenate([labelled, points]), int(labels.max()) + 1, {}
    for clusters in range(known, most + 1):
        own = KMeans(clusters, n_init=10, random_state=seed).fit_predict(both)[: len(labels)].astype(np.int64)
        matched = metrics.match_unequal(own, labels, clusters=clusters, classes=known)
        found[clusters] = float((own == matched[labels]).mean())
    return max(found, key=lambda clusters: found[clusters])


def loaded(args: argparse.Namespace, images: str) -> tuple[ImageSet, ImageSet]:
    asked = Learner().config
    return load_dataset("folder", Path(args.data) / images, size=suited(asked).image_size, keep=storage(asked, AUTO))


def scenario_of(args: argparse.Namespace, images: str, seed: int, mixed: float, *, tuned: bool = False) -> Scenario:
    train, test = loaded(args, images)
    if tuned:
        train = AUTO.placed(train)
    return build_scenario(train, test, split=SPLIT, seed=seed, mixed=mixed)


def learned(args: argparse.Namespace, scenario: Scenario, method: str, seed: int, *, tuned: bool = False) -> Learner:
    settings = {"fit_frozen": []} if tuned else {}
    learner = Learner(method, seed=seed, device=args.device, settings=settings)
    learner.keep_features(Path(args.features))
    return learner.fit(scenario.steps[0].images)


def scored(learner: Learner, scenario: Scenario) -> Row:
    """Scores on the test images, AUROC of old against new in the folder, the calibration error, and how much of the
    folder is unsure, and of the rest right."""
    made, probability, right = judged(learner, scenario)
    is_old = np.asarray(scenario.truths[1].test.labels) < learner.labelled_classes
    images = {"old": _as_text(right[is_old]), "new": _as_text(right[~is_old])}
    return {**made, "calibration_error": metrics.calibration_error(probability, right), "right": images}


def _as_text(right: NDArray[np.bool_]) -> str:
    """A digit an image, in the order of the test set: 1 where its class is right."""
    return "".join("01"[int(one)] for one in right)


def interval(seeds: Sequence[dict[str, str]], score: str) -> tuple[float, float]:
    """The middle 95 % of a score's mean over seeds, where both seeds and test images are drawn again (bootstrap).

    All seeds are scored on the same images, so one draw of images is for all of them. Old and new ones are drawn apart.
    """
    random, parts = np.random.default_rng(0), ["old", "new"] if score == "all" else [score]
    right = [np.array([list(map(int, seed[part])) for seed in seeds]) for part in parts]
    means = []
    for _ in range(DRAWS):
        some = random.integers(0, len(seeds), len(seeds))
        drawn = [part[some][:, random.integers(0, part.shape[1], part.shape[1])] for part in right]
        means.append(100 * float(np.concatenate(drawn, axis=1).mean()))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def judged(learner: Learner, scenario: Scenario) -> tuple[Row, Floats, NDArray[np.bool_]]:
    """The scores, and of each test image how probable its class is said to be, and whether that is right."""
    step, truth, known = scenario.steps[1], scenario.truths[1], learner.labelled_classes
    true, tested, seen = truth.test.labels, learner.outputs(truth.test), learner.outputs(step.images)
    assert true is not None
    made = score_open_step(tested, seen, truth, step, Assignment(known, ()))
    matched = np.array(made["assignment"])
    targets = np.concatenate([np.arange(known), np.where(matched < 0, -1, known + matched)])
    assigned = learner.assigned
    assert assigned is not None
    sure = assigned >= 0
    row = {
        **made["joint"],
        "unsure": 100 * float((~sure).mean()),
        "sure_right": 100 * float((assigned == targets[truth.train_labels])[sure].mean()),
        "found": made["found"],
        "auroc": made["auroc_new"],
    }
    return row, tested.sureness.max(axis=1), tested.predicted == targets[true]


def rows_of(args: argparse.Namespace, images: str, seed: int) -> dict[str, Callable[[], Row]]:
    def discovered(method: str, novel: Any, *, only_new: bool, mixed: float = SHARE, tuned: bool = False) -> Row:
        scenario = scenario_of(args, images, seed, mixed, tuned=tuned)
        learner = learned(args, scenario, method, seed, tuned=tuned)
        return scored(learner.discover(scenario.steps[1].images, novel, only_new=only_new), scenario)

    def random_choices(novel: Any, *, only_new: bool, mixed: float) -> Row:
        """Probabilities of all choices together, and the mean scores."""
        train, test = loaded(args, images)
        first = learned(args, build_scenario(train, test, split=SPLIT, seed=seed), "hoarfrost", seed)
        for some in (train, test):  # features go with the images, whatever is chosen of them
            first.outputs(some)
        rows, probabilities, rights = list[Row](), list[Floats](), list[NDArray[np.bool_]]()
        for choice in range(CHOICES * seed, CHOICES * (seed + 1)):
            scenario = build_scenario(train, test, split=SPLIT, order="seeded", seed=choice, mixed=mixed)
            learner = learned(args, scenario, "hoarfrost", choice)
            learner.discover(scenario.steps[1].images, novel, only_new=only_new)
            row, probability, right = judged(learner, scenario)
            rows.append(row)
            probabilities.append(probability)
            rights.append(right)
        together = np.concatenate(probabilities)
        return {
            **{key: float(np.mean([row[key] for row in rows])) for key in ("old", "new", "all")},
            "found": [row["found"] for row in rows],
            "calibration_error": metrics.calibration_error(together, np.concatenate(rights)),
            "by_chance": metrics.calibration_by_chance(together),
            "of_each": [metrics.calibration_error(*own) for own in zip(probabilities, rights, strict=True)],
        }

    def nothing_new() -> Row:
        scenario = scenario_of(args, images, seed, SHARE)
        learner, old = learned(args, scenario, "hoarfrost", seed), scenario.truths[1].train_labels < KNOWN
        learner.discover(scenario.steps[1].images.take(np.flatnonzero(old)), "auto", only_new=False)
        assert learner.assigned is not None
        return {"found": sum(learner.novel_per_step), "called_new": 100 * float((learner.assigned >= KNOWN).mean())}

    def something_else() -> Row:
        scenario, (other,) = scenario_of(args, images, seed, SHARE), set(SETS) - {images}
        learner, others = learned(args, scenario, "hoarfrost", seed), scenario_of(args, other, seed, SHARE)
        return {
            "given_a_class": 100 * float((learner.predictions(others.truths[1].test, threshold=0.5).ids >= 0).mean())
        }

    def gcd() -> Row:
        scenario = scenario_of(args, images, seed, SHARE)
        learner, truth = learned(args, scenario, "hoarfrost", seed), scenario.truths[1]

        def normalised(some: Any) -> Floats:
            features = learner.outputs(some, features=True).features
            assert features is not None
            points: Floats = features.astype(np.float64)
            return points / np.linalg.norm(points, axis=1, keepdims=True)

        labels, true = scenario.steps[0].images.labels, truth.test.labels
        assert labels is not None
        assert true is not None
        labelled, points, tested = (
            normalised(some) for some in (scenario.steps[0].images, scenario.steps[1].images, truth.test)
        )
        centres = semi_supervised(labelled, labels, points, KNOWN + NEW, seed)
        seen, predicted = (squared_distances(some, centres).argmin(axis=1) for some in (points, tested))
        apart = (truth.train_labels >= KNOWN) & (seen >= KNOWN)
        among = truth.train_labels[apart] - KNOWN
        own = metrics.match_unequal(seen[apart] - KNOWN, among, clusters=NEW, classes=NEW)
        return {
            **asdict(metrics.unequal_scores(predicted, true, KNOWN, own)),
            "found": gcd_number(labelled, labels, points, 3 * (KNOWN + NEW), seed) - KNOWN,
        }

    on_a_gpu = {
        "hoarfrost, tuned": lambda: discovered("hoarfrost", "auto", only_new=False, tuned=True),
        "only new, tuned": lambda: discovered("hoarfrost", NEW, only_new=True, mixed=0, tuned=True),
    }
    return {
        "hoarfrost": lambda: discovered("hoarfrost", "auto", only_new=False),
        "hoarfrost, number given": lambda: discovered("hoarfrost", NEW, only_new=False),
        "few labelled": lambda: discovered("hoarfrost", "auto", only_new=False, mixed=MOST_COME_BACK),
        "k-means": lambda: discovered("kmeans", NEW, only_new=True),
        "GCD": gcd,
        "FRoST": lambda: discovered("frost", NEW, only_new=True),
        "nothing new": nothing_new,
        "something else": something_else,
        "only new": lambda: discovered("hoarfrost", "auto", only_new=True, mixed=0),
        "only new, number given": lambda: discovered("hoarfrost", NEW, only_new=True, mixed=0),
        "only new, k-means": lambda: discovered("kmeans", NEW, only_new=True, mixed=0),
        "only new, FRoST": lambda: discovered("frost", NEW, only_new=True, mixed=0),
        RANDOM: lambda: random_choices("auto", only_new=False, mixed=SHARE),
        RANDOM_NEW: lambda: random_choices(NEW, only_new=True, mixed=0),
        **(on_a_gpu if Learner(device=args.device).runtime.device.type == "cuda" else {}),
    }


FRONT = {
    "hoarfrost": "`hoarfrost`, mixed folder",
    "only new, number given": "`hoarfrost`",
    "only new, k-means": "`kmeans`",
    "only new, FRoST": "`frost`",
}
MIXED = {
    "hoarfrost": "`hoarfrost`, number estimated",
    "hoarfrost, number given": "`hoarfrost`, number given",
    "k-means": "`kmeans`, number given: all are taken for new; nearest class mean",
    "GCD": "semi-supervised k-means (GCD), number given, with the labelled images",
    "FRoST": "`frost`, number given: all are taken for new",
}
"""rows of the tables, and what they are called"""


def place_for(hardware: str) -> Path:
    """Where its rows are kept."""
    return RESULTS if hardware.startswith("CPU") else RESULTS / file_name(hardware)


@dataclass(frozen=True)
class Kept:
    """The rows that one machine made."""

    contents: dict[str, list[Row]]
    """by the name of the photographs, the files of the seeds"""

    @classmethod
    def of(cls, folder: Path) -> Kept:
        """Those of a folder."""
        files = {images: sorted(folder.glob(f"{images}-seed*.json")) for images in SETS}
        return cls({images: [json.loads(path.read_text()) for path in paths] for images, paths in files.items()})

    def values(self, images: str, row: str, key: str) -> list[Any]:
        """Of the seeds that have them."""
        found = [content["rows"].get(row, {}).get(key) for content in self.contents[images]]
        return [value for value in found if value is not None]

    @property
    def origin(self) -> str:
        """The seeds and the hardware, in words."""
        files = [content for contents in self.contents.values() for content in contents]
        hardware = " and ".join(sorted({row["hardware"] for content in files for row in content["rows"].values()}))
        seeds = {
            images: ", ".join(str(content["seed"]) for content in contents)
            for images, contents in self.contents.items()
        }
        if len(set(seeds.values())) == 1:
            return f"seeds {next(iter(seeds.values()))}; {hardware}"
        return f"seeds {' and '.join(f'{own} ({images})' for images, own in seeds.items())}; {hardware}"

    def by_seed(self, lines: Sequence[tuple[str, str, str, str]], *, title: str = "by seed") -> str:
        """A table of what each seed gave: title, row, key and format of a line."""

        def numbers(images: str, row: str, key: str, form: str) -> str:
            several = [value if isinstance(value, list) else [value] for value in self.values(images, row, key)]
            return ", ".join(" ".join(format(value, form) for value in values) for values in several) or "–"

        measured = [line for line in lines if any(self.values(images, *line[1:3]) for images in SETS)]
        cells = [[title, *(numbers(images, *which) for images in SETS)] for title, *which in measured]
        return markdown([title, *SETS], cells)


COUNTS = (
    (f"number of the {NEW} new classes, nothing old in the folder", "only new", "found", "d"),
    ("the same, old and new mixed", "hoarfrost", "found", "d"),
    ("the same, some six images a known class labelled, the others mixed in", "few labelled", "found", "d"),
    ("the same by GCD's way", "GCD", "found", "d"),
    ("new classes made of a folder with nothing new", "nothing new", "found", "d"),
    ("percent of its images that are called new", "nothing new", "called_new", ".1f"),
    ("AUROC of old against new in the mixed folder", "hoarfrost", "auroc", ".1f"),
    ("calibration error, nothing old, number given", "only new, number given", "calibration_error", ".3f"),
    ("calibration error, mixed, number estimated", "hoarfrost", "calibration_error", ".3f"),
)
RANDOM, RANDOM_NEW = "random choices", "random choices, only new, number given"
OVER_CHOICES = (
    ("calibration error of all together, nothing old, number given", RANDOM_NEW, "calibration_error", ".3f"),
    ("the same, mixed, number estimated", RANDOM, "calibration_error", ".3f"),
    ("what it would be by chance at least, if all probabilities were true", RANDOM, "by_chance", ".3f"),
    ("All on average, nothing old, number given", RANDOM_NEW, "all", ".1f"),
    ("All on average, mixed, number estimated", RANDOM, "all", ".1f"),
    (f"number of the {NEW} new classes, mixed, in each", RANDOM, "found", "d"),
)
UNSURE = (
    ("percent of the mixed folder that is unsure", "hoarfrost", "unsure", ".1f"),
    ("percent of its other images that are right", "hoarfrost", "sure_right", ".1f"),
    ("percent of the other set's photographs that are given a class", "something else", "given_a_class", ".1f"),
)
ON_A_GPU = (
    ("New, nothing old in the folder, number given", "only new, number given", "new", ".1f"),
    ("All, nothing old in the folder, number given", "only new, number given", "all", ".1f"),
    ("New, old and new mixed, number estimated", "hoarfrost", "new", ".1f"),
    ("All, old and new mixed, number estimated", "hoarfrost", "all", ".1f"),
    *(line for line in COUNTS if line[1] != "GCD"),
    ("All, nothing old in the folder, number given, tuned", "only new, tuned", "all", ".1f"),
    ("All, old and new mixed, number estimated, tuned", "hoarfrost, tuned", "all", ".1f"),
)
"""lines of the tables by seed"""


INTERVALS = """All seeds share the test photographs, and the ± is of seeds alone: of 96 photographs the choice adds up
to ± 5. In brackets, for rows that kept which images are right: a 95 % bootstrap interval over images and seeds."""


def tables() -> tuple[str, str]:
    """Scores for the README; and those of mixed folders, with numbers and probabilities."""
    kept, scores = Kept.of(RESULTS), ("old", "new", "all")

    def cell(images: str, row: str, key: str) -> str:
        found, right = kept.values(images, row, key), kept.values(images, row, "right")
        if not found or len(right) < len(found):
            return spread(found) if found else "–"
        return f"{spread(found)} ({' to '.join(f'{end:.1f}' for end in interval(right, key))})"

    def scored_rows(title: str, rows: dict[str, str], more: str) -> str:
        columns = [f"{images}: {score.capitalize()}" for images in SETS for score in scores]
        cells = [[called, *(cell(images, row, k) for images in SETS for k in scores)] for row, called in rows.items()]
        note = f"Percent of the test photographs, mean ± standard deviation over the {kept.origin}. {more}".rstrip()
        return f"{markdown([title, *columns], cells)}\n\n{note}"

    def by_seed(some: Kept, lines: Sequence[tuple[str, str, str, str]]) -> str:
        chosen = some.by_seed(OVER_CHOICES, title=f"by seed, {CHOICES} random choices of the known classes each")
        return f"{some.by_seed(lines)}\n\n{chosen}"

    others = [Kept.of(folder) for folder in sorted(RESULTS.iterdir()) if folder.is_dir()]
    on_gpus = [f"\n\nThe same on a GPU, {other.origin}:\n\n{by_seed(other, ON_A_GPU)}" for other in others]
    own = by_seed(kept, (*COUNTS, *UNSURE))
    mixed = f"{scored_rows('old and new mixed', MIXED, INTERVALS)}\n\n{own}{''.join(on_gpus)}"
    return scored_rows("method", FRONT, ""), mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these rows, anew")
    parser.add_argument("--data", default="data", metavar="DIR")
    parser.add_argument("--features", default="runs/photographs", metavar="DIR", help="where features are kept")
    parser.add_argument("--images", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--device", default="auto", metavar="NAME")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    for images, seed in [] if args.table else [(images, seed) for images in args.images for seed in args.seeds]:
        hardware = Learner(device=args.device).runtime.hardware
        path = place_for(hardware) / f"{images}-seed{seed}.json"
        content = json.loads(path.read_text()) if path.exists() else {"seed": seed, "rows": {}}
        for name, made in rows_of(args, images, seed).items():
            if name in (args.rows or [name]) and (args.rows or name not in content["rows"]):
                started = time.perf_counter()
                content["rows"][name] = {**made(), "hardware": hardware, "commit": commit()}
                print(images, seed, name, content["rows"][name], f"{time.perf_counter() - started:.0f} s", flush=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(content, indent=1) + "\n")
    for page, made in zip((README, PAGE), tables(), strict=True):
        page.write_text(renewed(page.read_text(), made, begin=BEGIN))
        print(made)


if __name__ == "__main__":
    main()
