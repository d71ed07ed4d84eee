"""The paper's figures, from finished runs: what is compared in each, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hoarfrost import evaluation, metrics
from hoarfrost.data.images import ImageSet
from hoarfrost.paper.plan import Planned
from hoarfrost.report import comparison
from hoarfrost.report.comparison import Compared
from hoarfrost.scenario import build_scenario
from hoarfrost.training.learner import Learner

PICTURES: dict[str, Callable[[Sequence[Compared]], Figure]] = {
    "norms": comparison.norms,
    "confusion": comparison.confusions,
}


def compared(run: Planned, label: str, folder: Path, images: tuple[ImageSet, ImageSet], device: str) -> Compared | None:
    """A finished run's weights, and its predictions of the test images; None of one that is not finished."""
    content = run.metrics(folder)
    if content is None:
        return None
    scenario = build_scenario(*images, split=run.split)
    test = scenario.truths[-1].test
    assert test.labels is not None
    clusters = tuple(np.array(step["assignment"], dtype=np.int64) for step in content["steps"])
    assignment = evaluation.Assignment(scenario.steps[0].novel, clusters)
    learner = Learner.load(folder / run.name / "model", device)
    targets = metrics.relabel(test.labels, assignment.known, assignment.whole)
    return Compared(
        title=label,
        known=learner.known,
        novel_per_step=learner.novel_per_step,
        confusion=metrics.confusion_matrix(learner.predict(test), targets, learner.network.classes),
        weight_norms=learner.network.weight_norms().cpu().numpy(),
    )


def save(figure: Figure, path: Path) -> list[Path]:
    """As PNG and as PDF, the same bytes for the same figure."""
    made = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    figure.savefig(made[0], dpi=200, metadata={"Software": None})
    figure.savefig(made[1], metadata={"CreationDate": None})
    return made
