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
from tests.report.test_html import Page

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
        right += int(np.sum(others.predictions(images.take(parts == part)).ids == images.labels[parts == part]))
    assert 0 < right < len(images)
    found = learner.held_out(images)
    assert found is not None
    assert found.accuracy == pytest.approx(100 * right / len(images))
    assert np.count_nonzero(found.predicted == images.labels) == right
    assert ((found.probability >= 1 / 10) & (found.probability <= 1)).all()


def test_a_class_of_one_image_does_not_count() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (21, 16, 16), dtype=np.uint8)
    pixels[:10] //= 8  # dark ones
    labels = np.repeat([0, 1, 2], [10, 10, 1])
    learner = Learner(backbone="small", device="cpu", settings=SETTINGS).fit(pixels, labels)
    images = ImageSet(pixels, labels, ("0", "1", "2"))
    found = learner.held_out(images)
    assert found is not None
    assert np.flatnonzero(found.predicted < 0).tolist() == [20]
    accuracy = found.accuracy
    assert accuracy * 20 / 100 == pytest.approx(round(accuracy * 20 / 100)), "of 20 images"
    assert accuracy > 90


def test_no_estimate_where_the_backbone_has_learned_from_all(digits: tuple[ImageSet, ImageSet]) -> None:
    settings = {**SETTINGS, "fit_frozen": []}
    learner = Learner(backbone="small", device="cpu", settings=settings).fit(digits[0])
    assert learner.held_out(digits[0]) is None
    frost = Learner("frost", "small", device="cpu", settings=SETTINGS).fit(digits[0])
    assert frost.held_out(digits[0]) is None, "a head decides"


def test_fit_says_it_and_warns_of_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    for name, brightest in (("dark", 30), ("light", 255)):
        (tmp_path / "known" / name).mkdir(parents=True)
        for index in range(20):
            pixels = generator.integers(0, brightest, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "known" / name / f"{index}.png")
    (tmp_path / "known" / "dark" / "0 again.png").write_bytes((tmp_path / "known" / "dark" / "0.png").read_bytes())
    short = ["--device", "cpu", "--backbone", "small", "--epochs", "1"]
    fixed = [word for key, value in FIXED.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = ["fit", str(tmp_path / "known"), "--out", str(tmp_path / "model"), *short, *fixed]
    assert main(command) == 0
    said = capsys.readouterr()
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().out == said.out, "what is finished is not done again, and said again"
    assert said.out.splitlines()[-3].startswith("accuracy: about 100.0 % on images like these (cross-validated on all ")
    page = (tmp_path / "model" / "report.html").read_text()
    assert "Expect about 100.0 % of images like these" in page
    assert "duplicate images within a class: dark/0.png is dark/0 again.png" in page
    assert "Images taken for another class" not in page
    assert "warning: duplicate images within a class: dark/0.png is dark/0 again.png" in said.err
    assert main(["fit", str(tmp_path / "known"), "--out", str(tmp_path / "other"), *short]) == 0
    assert capsys.readouterr().out.splitlines()[-3].startswith("accuracy: not estimated")
    assert "no images were held out" in (tmp_path / "other" / "report.html").read_text()

    (tmp_path / "known" / "light" / "5.png").rename(tmp_path / "known" / "dark" / "strange.png")
    assert main(["fit", str(tmp_path / "known"), "--out", str(tmp_path / "third"), *short, *fixed]) == 0
    shown = Page((tmp_path / "third" / "report.html").read_text())
    assert "1 image was taken for another class" in shown.text
    assert "dark/strange.png: like light" in shown.text
    assert shown.text.count(": like ") == 1
    assert shown.cells == ["22", "95.5", "light", "19", "100.0"], "images, percent right, taken for"
