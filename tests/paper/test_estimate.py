"""How long runs will take: as long as others of their kind took, and else by their arithmetic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hoarfrost.paper.estimate import AROUND, Estimate
from hoarfrost.paper.plan import Planned
from hoarfrost.settings import to_json

from .finished import finished_metrics

RUN = Planned("a", "digits", "5-5")


def finish(folder: Path, run: Planned, stage_one: float, discovery: list[float]) -> None:
    place = folder / run.name
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"learner": to_json(run.config())}))
    (place / "metrics.json").write_text(json.dumps(finished_metrics(stage_one, discovery)))


@pytest.fixture
def by_arithmetic(tmp_path: Path) -> Estimate:
    estimate = Estimate("cpu", tmp_path, [])
    estimate.__dict__["rate"] = (1e10, "cpu")  # a machine of known speed
    return estimate


def test_runs_take_as_long_as_others_of_their_kind_took(tmp_path: Path) -> None:
    others = [replace(RUN, name=f"s{seed}", seed=seed) for seed in range(2)]
    for run, took in zip(others, (10.0, 20.0), strict=True):
        finish(tmp_path, run, took, [3 * took, took])
    to_come = replace(RUN, name="s2", seed=2)
    estimate = Estimate("cpu", tmp_path, [*others, to_come])
    assert estimate.stages(to_come) == (15.0, 60.0)
    assert estimate.total([*others, to_come]) == 75.0 + AROUND["cpu"]


def test_stage_one_counts_once(by_arithmetic: Estimate) -> None:
    one, rest = by_arithmetic.stages(RUN)
    assert one > 0
    around = AROUND["cpu"]
    assert by_arithmetic.total([RUN]) == pytest.approx(around + one + rest)
    both = [RUN, replace(RUN, name="b", method="frost-without-st")]
    assert by_arithmetic.total(both) == pytest.approx(2 * around + one + rest + by_arithmetic.stages(both[1])[1])
    assert by_arithmetic.total([RUN, replace(RUN, name="c", seed=1)]) == pytest.approx(2 * (around + one + rest))


def test_longer_courses_and_more_images_take_longer(by_arithmetic: Estimate) -> None:
    one, rest = by_arithmetic.stages(RUN)
    assert by_arithmetic.stages(replace(RUN, epochs=20))[1] == pytest.approx(rest / 2)
    assert by_arithmetic.stages(replace(RUN, fit_epochs=10))[0] == pytest.approx(one / 2)
    assert by_arithmetic.stages(replace(RUN, split="5-3"))[1] == pytest.approx(0.6 * rest, rel=0.01)
    assert by_arithmetic.stages(replace(RUN, split="5-3-2"))[1] == pytest.approx(rest, rel=0.01)


def test_what_trains_nothing_takes_nothing_and_the_upper_bound_learns_all_again(by_arithmetic: Estimate) -> None:
    one, _ = by_arithmetic.stages(RUN)
    assert by_arithmetic.stages(replace(RUN, method="kmeans"))[1] == 0
    assert by_arithmetic.stages(replace(RUN, method="supervised"))[1] == pytest.approx(2 * one)


def test_what_sees_the_labelled_images_again_takes_longer_by_them(by_arithmetic: Estimate) -> None:
    plain, mixed = (by_arithmetic.stages(replace(RUN, method=name))[1] for name in ("ncl", "ncl-labelled"))
    assert mixed == pytest.approx(2 * plain, rel=0.02)  # as many labelled images as new ones
