"""The accuracy to expect is that of models that have not seen the images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hoarfrost import ImageSet, Learner
from hoarfrost.cli import main
from hoarfrost.training.held_out import FOLDS, folds

FIXED = {"fit_frozen": ["all"], "method.frozen": ["all"], "method.moving_statistics": False, "fit_augment": "none"}
SETTINGS = {**FIXED, "fit.epochs": 1, "fit.drops": [], "mean": [0.3], "std": [0.3], "image_size": 16}


def test_it_is_that_of_learners_of_the_others(digits: tuple[ImageSet, ImageSet]) -> None:
    images, _ = digits
    assert images.labels is not None
    assert images.labels[:20].tolist() != sorted(images.labels[:20])
    learner = Learner(backbone="small", device="cpu", settings=SETTINGS).fit(images)
    parts, right = folds(images.labels), 0
    for part in range(FOLDS):
        others = Learner(backbone="small", device="cpu", settings=SETTINGS).fit(images.take(parts != part))
        right += int(np.sum(others.predict(images.take(parts == part)) == images.labels[parts == part]))
    assert 0 < right < len(images)
    assert learner.held_out_accuracy(images) == pytest.approx(100 * right / len(images))


def test_a_class_of_one_image_does_not_count() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (21, 16, 16), dtype=np.uint8)
    pixels[:10] //= 8  # dark ones
    labels = np.repeat([0, 1, 2], [10, 10, 1])
    learner = Learner(backbone="small", device="cpu", settings=SETTINGS).fit(pixels, labels)
    images = ImageSet(pixels, labels, ("0", "1", "2"))
    accuracy = learner.held_out_accuracy(images)
    assert accuracy is not None
    assert accuracy * 20 / 100 == pytest.approx(round(accuracy * 20 / 100)), "of 20 images"
    assert accuracy > 90


def test_no_estimate_where_the_backbone_has_learned_from_all(digits: tuple[ImageSet, ImageSet]) -> None:
    settings = {**SETTINGS, "fit_frozen": []}
    learner = Learner(backbone="small", device="cpu", settings=settings).fit(digits[0])
    assert learner.held_out_accuracy(digits[0]) is None
    frost = Learner("frost", "small", device="cpu", settings=SETTINGS).fit(digits[0])
    assert frost.held_out_accuracy(digits[0]) is None, "a head decides"


def test_fit_says_it_and_warns_of_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    for name, brightest in (("dark", 30), ("light", 255)):
        (tmp_path / "known" / name).mkdir(parents=True)
        for index in range(6):
            pixels = generator.integers(0, brightest, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "known" / name / f"{index}.png")
    (tmp_path / "known" / "dark" / "0 again.png").write_bytes((tmp_path / "known" / "dark" / "0.png").read_bytes())
    short = ["--device", "cpu", "--backbone", "small", "--epochs", "1"]
    fixed = [word for key, value in FIXED.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    assert main(["fit", str(tmp_path / "known"), "--out", str(tmp_path / "model"), *short, *fixed]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("accuracy: about 100.0 % on images like these")
    assert "warning: the same image is in its class more than once: dark/0.png is dark/0 again.png" in said.err
    assert main(["fit", str(tmp_path / "known"), "--out", str(tmp_path / "other"), *short]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("accuracy: not estimated")
