"""What each part of hoarfrost gains: one stage one, and after it the method without one part at a time, and FRoST.

python benchmarks/ablations.py --data data --seed 0     the rows of CIFAR-10 for a seed; kept in results/ablations/
python benchmarks/ablations.py --dataset digits         those of the digits, on a CPU
python benchmarks/ablations.py --dataset cifar100 --classes 80 --split 60-20    known classes stand for new ones
python benchmarks/ablations.py --table                  the table and the curve in docs/, of what is kept

All rows but the one without contrast share the network of one stage one; what a row remembers of the labelled images is
computed anew, since readouts differ in that. The curve adds a number to the scores of all new classes, from low to
high: what Old costs for more of New, apart from where a method happens to decide.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hoarfrost import Learner, build_scenario, metrics
from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.models.backbone import Backbone
from hoarfrost.paper.text import markdown, renewed, spread
from hoarfrost.provenance import commit
from hoarfrost.recipes import get_recipe
from hoarfrost.scenario import Scenario

Ids = NDArray[np.int64]

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "ablations", ROOT / "docs" / "hoarfrost.md"
BEGIN, FIGURE = "<!-- made by benchmarks/ablations.py -->", ROOT / "docs" / "trade-off-cifar10.png"
TABLES = {
    "cifar10-seed*": "CIFAR-10, 5 classes known and 5 new",
    "digits-seed*": "The digits of the demonstration, 5 known and 5 new",
    "cifar10-known*": "Known classes of CIFAR-10 alone, 3 known and 2 new",
    "cifar100-known*": "Known classes of CIFAR-100 alone, 60 known and 20 new; without contrast in stage one",
    "cifar100-contrast-known*": "The same with it",
}
"""the names of kept files, and of what they are"""
SCORES = ("old", "new", "all", "hm", "clusters")
POINTS = 101

TERMS, DESIGN = "method.terms", "method.design"
NO_TERMS = {f"{TERMS}.{kind}.weight": 0 for kind in ("self-labelling", "over-clustering", "feature-distillation")}

FROST = "FRoST after the same stage one"
CURVE = """Where a method draws the line between old and new is one thing, how well it tells them apart another. The
line moves when a number is added to the scores of all new classes:

![Old against New on CIFAR-10, of hoarfrost and of FRoST after the same stage one](trade-off-cifar10.png)"""

NO_CONTRAST, NO_MIRROR = "no contrast in stage one", "no mirror image"
ROWS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "hoarfrost": ("hoarfrost", {}),
    NO_CONTRAST: ("hoarfrost", {"method.stage_one.instance-contrast.weight": 0}),
    "no copy: the clusters of k-means": ("hoarfrost", NO_TERMS),
    "no over-clustering": ("hoarfrost", {f"{TERMS}.over-clustering.weight": 0}),
    "no feature distillation": ("hoarfrost", {f"{TERMS}.feature-distillation.weight": 0}),
    "the copy's head begins at random": ("hoarfrost", {"method.start": "random"}),
    NO_MIRROR: ("hoarfrost", {f"{DESIGN}.mirror": False}),
    "no features before the last part": ("hoarfrost", {f"{DESIGN}.before_last": False}),
    "features as they are": ("hoarfrost", {f"{DESIGN}.readout.features": "plain"}),
    "covariance of low rank (32)": ("hoarfrost", {f"{DESIGN}.readout.covariance": "low-rank"}),
    "one covariance for all classes": ("hoarfrost", {f"{DESIGN}.readout.covariance": "shared"}),
    "variances alone": ("hoarfrost", {f"{DESIGN}.readout.covariance": "diagonal"}),
    "the average of both networks decides": ("hoarfrost", {"method.decides": "average"}),
    "the copy decides": ("hoarfrost", {"method.decides": "trained"}),
    "the copy's weights averaged over its steps": ("hoarfrost", {"method.weight_average": 0.99}),
    "80 epochs of discovery": ("hoarfrost", {"discover.epochs": 80}),
    FROST: ("frost", {}),
}


@dataclass(frozen=True)
class StageOne:
    """What rows share."""

    backbone: Backbone
    joint: dict[str, Tensor]

    @classmethod
    def of(cls, learner: Learner) -> StageOne:
        network = copy.deepcopy(learner.network).cpu()
        return cls(network.backbone, network.joint.state_dict())


def changes_nothing(row: str, dataset: str) -> bool:
    """Whether a row is the method itself there: digits are not looked at in a mirror at all."""
    return row == NO_MIRROR and not get_recipe(dataset).strong_augment.flip


def learned(
    dataset: str, seed: int, scenario: Scenario, row: str, first: StageOne | None, more: Mapping[str, Any]
) -> Learner:
    """The learner of a row after stage one: one of its own, or the shared one."""
    method, settings = ROWS[row]
    settings = {**more, **settings}
    if first is None:
        return Learner(method, seed=seed, recipe=dataset, settings=settings).learn(scenario.steps[0])
    begun: dict[str, Any] = {"fit_frozen": ["all"], "fit_augment": "none", "fit.epochs": 1}
    if method == "hoarfrost":
        begun["method.stage_one.instance-contrast.weight"] = 0
    learner = Learner(method, first.backbone, seed, recipe=dataset, settings={**settings, **begun}).learn(
        scenario.steps[0]
    )
    learner.network.joint.load_state_dict(first.joint)
    return learner


def curve(scores: NDArray[np.float32], true: Ids, known: int, assignment: Ids) -> list[list[float]]:
    """Old and New, in percent, where a number is added to the scores of new classes, from low to high."""
    by_cluster = metrics.relabel(true, known, assignment)
    old, new = scores[:, :known], scores[:, known:]
    apart = old.max(axis=1) - new.max(axis=1)
    predicted = np.stack([old.argmax(axis=1), known + new.argmax(axis=1)])
    points = []
    for added in np.quantile(apart, np.linspace(0, 1, POINTS)):
        right = np.where(apart >= added, predicted[0], predicted[1]) == by_cluster
        points.append([round(100 * float(right[part].mean()), 2) for part in (true < known, true >= known)])
    return points


def measured(learner: Learner, scenario: Scenario) -> dict[str, Any]:
    """Discovers and scores."""
    step, truth, start = scenario.steps[1], scenario.truths[1], time.perf_counter()
    learner.learn(step)
    seconds = time.perf_counter() - start
    outputs, known = learner.outputs(truth.test), step.seen_classes
    assert learner.assigned is not None
    assert truth.test.labels is not None
    found, true = learner.assigned - known, truth.train_labels - known
    clusters = metrics.match_clusters(found, true, step.novel)
    scores = metrics.class_incd_scores(outputs.predicted, truth.test.labels, known, clusters)
    statistics = learner.model.statistics.tensors().values()
    return {
        **{name: round(getattr(scores, name), 2) for name in ("old", "new", "all", "hm")},
        "clusters": round(metrics.clustering_accuracy(found, true, step.novel), 2),
        "kibibytes_a_class": round(sum(t.nbytes for t in statistics) / len(learner.class_names) / 1024, 1),
        "seconds": round(seconds, 1),
        "curve": curve(outputs.scores, truth.test.labels, known, clusters),
    }


def first_classes(images: ImageSet, classes: int | None) -> ImageSet:
    """Those of the first classes alone: settings are chosen by known classes that stand for new ones."""
    if classes is None:
        return images
    assert images.labels is not None
    return replace(images.take(np.flatnonzero(images.labels < classes)), class_names=images.class_names[:classes])


def run(args: argparse.Namespace) -> None:
    """All rows of one seed; each is kept as soon as it is done."""
    train, test = (first_classes(images, args.classes) for images in load_dataset(args.dataset, args.data))
    scenario = build_scenario(train, test, split=args.split or get_recipe(args.dataset).split or "")
    more = dict(item.split("=", 1) for item in args.set)
    more = {key: json.loads(value) for key, value in more.items()}
    path = RESULTS / f"{args.name or f'{args.dataset}-seed{args.seed}'}.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"dataset": args.dataset, "seed": args.seed, "set": more, "rows": {}}
    if path.exists():
        content = json.loads(path.read_text())
        assert content["set"] == more, f"{path} was made with other settings: {content['set']}"
    first: StageOne | None = None
    for row in args.rows or ROWS:
        learner = learned(args.dataset, args.seed, scenario, row, None if row == NO_CONTRAST else first, more)
        if row != NO_CONTRAST:
            first = first or StageOne.of(learner)
        found = measured(learner, scenario)
        runtime = learner.runtime
        made_by = {"hardware": runtime.hardware, "numerics": runtime.describe(), "commit": commit()}
        content["rows"][row] = {**found, **made_by}
        path.write_text(json.dumps(content, indent=1) + "\n")
        print(row, *(found[name] for name in ("old", "new", "all", "clusters", "seconds")), flush=True)


def kept(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{pattern}.json"))]


def tables() -> str:
    """One for each group of files, mean and standard deviation over its seeds."""
    made = []
    for pattern, title in TABLES.items():
        runs = kept(pattern)
        rows = []
        for row in ROWS:
            if changes_nothing(row, pattern.partition("-")[0]):
                continue
            found = [run["rows"][row] for run in runs if row in run["rows"]]
            if found:
                scores = [spread([scored[name] for scored in found]) for name in SCORES]
                rows.append([row, *scores, f"{found[0]['kibibytes_a_class']:,.1f}"])
        header = [title, *(name.capitalize() if name != "hm" else "HM" for name in SCORES), "KiB a class"]
        every = [scored for run in runs for scored in run["rows"].values()]
        made_on, commits = ({scored[key] for scored in every} for key in ("hardware", "commit"))
        seeds = ", ".join(str(run["seed"]) for run in runs)
        some_alone = any(row not in run["rows"] for run in runs for row in runs[0]["rows"])
        said = f"Percent; seed{'s' if len(runs) > 1 else ''} {seeds}{', the first alone without ±' * some_alone}; "
        said += f"{', '.join(sorted(made_on))}; commit {', '.join(sorted({commit[:7] for commit in commits}))}"
        made += [markdown(header, rows), "", f"{said}.", ""] if rows else []
    if drawn():
        made += [CURVE, ""]
    return "\n".join(made).rstrip()


def drawn() -> bool:
    """Old against New, of hoarfrost and of FRoST after the same stage one; a point where each decides.

    False where those were not run.
    """
    runs = kept("cifar10-seed*")
    if not any(FROST in run["rows"] for run in runs):
        return False
    from matplotlib.figure import Figure

    from hoarfrost.paper.pictures import write_png

    figure = Figure(figsize=(4.8, 3.6), layout="constrained")
    axes = figure.subplots()
    for row, label in (("hoarfrost", "hoarfrost"), (FROST, "FRoST, same stage one")):
        found = [run["rows"][row] for run in runs if row in run["rows"]]
        mean = np.mean([scored["curve"] for scored in found], axis=0)
        (line,) = axes.plot(mean[:, 0], mean[:, 1], label=label)
        point = [np.mean([scored[name] for scored in found]) for name in ("old", "new")]
        axes.plot(*point, "o", color=line.get_color())
    axes.set(xlabel="Old, in percent", ylabel="New, in percent", title="CIFAR-10: what Old costs for New")
    axes.legend(frameon=False)
    write_png(figure, FIGURE)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], metavar="ROW")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--split")
    parser.add_argument("--classes", type=int, help="only the first so many classes of the data set")
    parser.add_argument("--name", help="of the file of results; the data set and the seed unless told")
    parser.add_argument("--data", default="data", type=Path)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        run(args)
        return
    PAGE.write_text(renewed(PAGE.read_text(), tables(), begin=BEGIN))


if __name__ == "__main__":
    main()
