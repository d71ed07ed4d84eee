"""Continual category discovery: which images come in which stage, and how a stage is scored."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from hoarfrost.cli import main
from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.evaluation import Assignment, continual_summary, score_open_step
from hoarfrost.experiment import read_metrics
from hoarfrost.scenario import (
    DRAWS,
    Draws,
    Step,
    Truth,
    build_scenario,
    class_order,
    continual_images,
    usual_draws,
    usual_stages,
)
from hoarfrost.training.inference import Outputs
from tools.results.__main__ import main as paper
from tools.results.page import make_page
from tools.results.splits import LISTED, listed

ROOT = Path(__file__).parents[1]
HAPPY = {  # the first new classes in the authors' logs
    100: [78, 61, 60, 91, 52, 77, 88, 81, 72, 54, 83, 85, 76, 84, 68],
    200: [126, 186, 102, 155, 175, 193, 116, 173, 154, 195, 153, 192, 178, 113],
}


@pytest.mark.parametrize("classes", HAPPY)
def test_new_classes_are_shuffled_as_the_authors_of_happy_do_it(classes: int) -> None:
    half, first = classes // 2, HAPPY[classes]
    learned = class_order(classes, order="shuffled", seed=5, labelled=half).tolist()
    assert learned[:half] == list(range(half))
    assert learned[half : half + len(first)] == first
    assert sorted(learned) == list(range(classes))


def test_a_stage_has_the_numbers_of_images_that_happy_has() -> None:
    sizes = tuple(map(int, usual_stages(100).split("-")))
    first, *stages = continual_images([500] * 100, sizes, DRAWS["cifar100"])
    assert [len(own) for own in first] == [400] * 50
    for number, stage in enumerate(stages):
        assert [len(own) for own in stage] == [25] * (50 + 10 * number) + [400] * 10
        for own in stage:
            assert len(set(own.tolist())) == len(own)
        for labelled, back in zip(first, stage, strict=False):
            assert not set(labelled.tolist()) & set(back.tolist()), "what comes back had no label"
    drawn = [set(stage[0].tolist()) for stage in stages]
    assert len({frozenset(own) for own in drawn}) == 5, "each stage draws anew"


def test_ten_classes_with_labels_and_nine_stages() -> None:
    sizes = (10,) * 10
    first, *stages = continual_images([500] * 100, sizes, DRAWS["cifar100"])
    assert (len(first), len(stages), len(stages[-1])) == (10, 9, 100)


def test_a_class_with_few_images_gives_what_it_has() -> None:
    first, stage = continual_images([10, 4, 3], (2, 1), Draws(new=400, labelled=25, earlier=25))
    assert [len(own) for own in (*first, *stage)] == [8, 3, 2, 1, 3]


@pytest.mark.parametrize("name", LISTED)
def test_the_committed_lists_are_those_that_are_used(name: str) -> None:
    committed = json.loads((ROOT / "results" / "splits" / f"{name}.json").read_text())
    assert committed == listed(name, committed["classes"])


def test_a_scenario_does_not_depend_on_the_order_of_the_files() -> None:
    train, test = load_dataset("digits", None)
    moved = train.take(np.random.default_rng(0).permutation(len(train)))
    one, other = (
        build_scenario(images, test, split="5-3-2", order="shuffled", seed=seed, draws=usual_draws("digits", 90))
        for seed, images in enumerate((train, moved))
    )
    for step, same in zip(one.steps[1:], other.steps[1:], strict=True):
        assert step.mixed
        assert step.images.labels is None
        assert np.array_equal(step.images.pixels(slice(None)), same.images.pixels(slice(None)))
    known = one.truths[2].train_labels
    assert np.bincount(known, minlength=10).tolist()[5:8] == [15] * 3
    assert set(np.bincount(known, minlength=10).tolist()[8:]) == {75}
    assert one.truths[1].test.class_names == one.class_names[:8]


def outputs(predicted: np.ndarray, classes: int, found: int) -> Outputs:
    novel = np.ones((len(predicted), found), dtype=np.float32)
    return Outputs(np.eye(classes, dtype=np.float32)[predicted], (novel,))


@pytest.mark.parametrize("seed", range(10))
def test_both_matchings_are_the_best_of_all_that_can_be_tried(seed: int) -> None:
    """Two labelled classes, one that an earlier stage brought, two new ones; five predicted ids."""
    random = np.random.default_rng(seed)
    true = np.concatenate([np.arange(5), random.integers(0, 5, 25)])
    seen, tested = (random.integers(0, 5, len(true)) for _ in range(2))
    images = ImageSet(np.zeros((len(true), 8, 8, 1), dtype=np.uint8), true, tuple("abcde"))
    before = Assignment(2, (np.array([0]),), (1,))
    made = score_open_step(
        outputs(tested, 5, 2), outputs(seen, 5, 2), Truth(true, images), Step(2, images, 3, 2), before
    )["continual"]

    def right(predicted: np.ndarray, targets: tuple[int, ...], group: np.ndarray) -> int:
        return int(sum(predicted[group] == np.array(targets)[true[group]]))

    every = np.full(len(true), True)
    best = max(right(tested, targets, every) for targets in permutations(range(5)))
    assert made["test_matching"]["all"] == pytest.approx(100 * best / len(true))
    new = true >= 3
    (most, targets), (second, _) = sorted(
        ((right(seen, (0, 1, 2, *pair), new), (0, 1, 2, *pair)) for pair in permutations((3, 4))), reverse=True
    )[:2]
    if most == second:
        return
    for key, group in (("all", every), ("old", true < 3), ("new", new), ("labelled", true < 2)):
        hits = right(tested, targets, group)
        assert made["training_matching"][key] == pytest.approx(100 * hits / group.sum()), key


def test_forgetting_and_discovery_over_a_run() -> None:
    steps = [
        {"continual": {name: {"old": 80, "new": new, "all": 70, "labelled": labelled} for name in NAMES}}
        for new, labelled in ((30, 85), (None, 80), (60, 71.5))
    ]
    assert continual_summary(90.0, steps[::2]) == {name: {"forgetting": 18.5, "discovery": 45.0} for name in NAMES}
    assert continual_summary(90.0, steps) == {name: {"forgetting": 18.5, "discovery": None} for name in NAMES}


NAMES = ("test_matching", "training_matching")
RUN = ("run", "--dataset", "digits", "--device", "cpu", "--fit-epochs", "6", "--epochs", "2", "--protocol", "c-gcd")
SMALL = ("--set", "image_size=8", "--seed", "1")


@pytest.mark.parametrize("novel", ["given", "auto"])
def test_a_run_is_scored_stage_by_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str], novel: str) -> None:
    command = [*RUN, *SMALL, "--split", "5-3-2", "--novel", novel, "--out", str(tmp_path / "run")]
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == read_metrics(tmp_path / "run" / "metrics.json")
    assert (content["protocol"], content["class_order"]) == ("c-gcd", "shuffled")
    for step in content["steps"]:
        by_test, by_training = (step["continual"][name] for name in NAMES)
        assert by_test["all"] >= by_training["all"] - 1e-6, "the matching on the test images is the best for them"
        assert by_training["labelled"] == pytest.approx(step["joint"]["old"])
    last = content["steps"][-1]["continual"]["training_matching"]
    forgotten = content["continual"]["training_matching"]["forgetting"]
    assert forgotten == pytest.approx(content["stage_one"] - last["labelled"], abs=1e-5)
    results = tmp_path / "results"
    assert paper(["keep", str(tmp_path / "run"), "--to", str(results)]) == 0
    assert [path.name for path in (results / "c-gcd").iterdir()] == [
        f"digits-5-3-2-shuffled-hoarfrost-small-{novel}-seed1.json"
    ]
    page, scores = make_page(results), content["steps"][-1]["continual"]["test_matching"]
    number = "given" if novel == "given" else "estimated"
    shown = " | ".join(f"{scores[key]:.1f}" for key in ("all", "old", "new"))
    assert f"| hoarfrost | small | shuffled | {number} | 1 | {shown} |" in page
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["protocol"] == "c-gcd"
    assert main([*command, "--resume"]) == 0
    assert "matched on test images: forgetting" in capsys.readouterr().out


def test_what_does_not_go_together_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, words in ((["--mixed", "0.5"], "leave out --mixed"), (["--method", "supervised"], "uses labels")):
        assert main([*RUN, *more, "--out", str(tmp_path / "run")]) == 2
        assert words in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
