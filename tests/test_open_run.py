"""A run in which old images come back and nobody says how many classes are new."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hoarfrost.cli import main
from hoarfrost.data.images import ImageSet
from hoarfrost.evaluation import Assignment, score_open_step
from hoarfrost.experiment import read_metrics
from hoarfrost.scenario import Step, Truth
from hoarfrost.training.inference import Outputs

SMALL = ("--set", "image_size=8", "--seed", "1")
RUN = ("run", "--dataset", "digits", "--device", "cpu", "--fit-epochs", "6", "--epochs", "2", "--mixed", "0.5", *SMALL)


def test_it_is_scored_by_category_discovery_and_can_be_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*RUN, "--split", "5-3-2", "--novel", "auto", "--out", str(tmp_path / "run")]
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == read_metrics(tmp_path / "run" / "metrics.json")
    before = 5
    for number, step in enumerate(content["steps"], start=1):
        assert step["count_error"] == step["found"] - step["novel"]
        assert len(step["assignment"]) == step["novel"] == (3, 2)[number - 1]
        matched = [cluster for cluster in step["assignment"] if cluster >= 0]
        assert len(matched) == len(set(matched)) == min(step["found"], step["novel"])
        assert step["known"] == before
        before += step["novel"]
        for scores in (step["joint"], step["category_discovery"], step["category_discovery_seen"]):
            assert 0 <= scores["new"] <= 100
            assert scores["old"] > 75
        assert step["found"] == 0 or step["auroc_new"] > 70
        assert len(step["new_by_step_joint"]) == number
    assert content["steps"][0]["found"] > 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["mixed"], config["novel"]) == (0.5, "auto")
    assert main([*command, "--resume"]) == 0
    assert "new classes found, 3 true; AUROC" in capsys.readouterr().out


def test_references_that_see_labels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--split", "5-5", "--method", "supervised", "--out", str(tmp_path / "run")]) == 2
    assert "leave out --mixed" in capsys.readouterr().err
    assert main([*RUN, "--split", "5-5", "--mixed", "1.5", "--out", str(tmp_path / "run")]) == 2
    assert "at least 0 and below 1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_images_that_are_taken_for_old_ones_do_not_say_what_a_cluster_stands_for() -> None:
    """Classes 0 and 1 are known; of the new ones, 2 and 3, one was found: four images of class 3 are in it. The six of
    class 2 are taken for old ones, though among discovered classes alone they are in the cluster too."""
    true, predicted = np.array([2] * 6 + [3] * 4), np.array([0] * 6 + [2] * 4)
    said = Outputs(np.eye(3, dtype=np.float32)[predicted], (np.ones((10, 1), dtype=np.float32),))
    images = ImageSet(np.zeros((10, 8, 8, 1), dtype=np.uint8), true, ("a", "b", "c", "d"))
    made = score_open_step(said, said, Truth(true, images), Step(1, images, 2, 2), Assignment(2, ()))
    assert made["assignment"] == [-1, 0]
    assert made["joint"]["new"] == 40
