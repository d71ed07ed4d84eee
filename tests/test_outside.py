"""A package from outside brings a method with a term of its own, a backbone and a data set, by entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import forked

THEIRS = """
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import nn

from hoarfrost import ImageSet
from hoarfrost.config import Schedule
from hoarfrost.data.augment import Augment
from hoarfrost.data.datasets import Dataset
from hoarfrost.losses.terms import Term
from hoarfrost.methods import FROST
from hoarfrost.models.backbone import Backbone, Input
from hoarfrost.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class Shorter(Term):
    kind: ClassVar[str] = "shorter-features"

    def loss(self, inputs):
        return inputs.features().square().mean()


METHOD = replace(FROST, name="theirs", summary="FRoST with shorter features", paper="a paper of theirs",
                 frozen=(), terms=(*FROST.terms, Shorter(weight=0.01)))


class Patches(Backbone):
    width = 16
    input = Input(side=24, mean=(0.5,), std=(0.25,))

    def __init__(self, channels):
        super().__init__()
        self.patches = nn.Sequential(nn.Conv2d(channels, 16, 6, stride=6), nn.GELU())

    @property
    def parts(self):
        return {"patches": self.patches}

    def forward(self, images):
        return self.patches(images).amax(dim=(2, 3))


def stripes(seed):
    images = np.random.default_rng(seed).integers(0, 99, (48, 12, 12, 1), dtype=np.uint8)
    labels = np.arange(48) % 4
    for image, label in zip(images, labels):
        image[3 * label : 3 * label + 3] = 255
    return ImageSet(images, labels, ("first", "second", "third", "fourth"))


SHORT = Schedule(epochs=2, batch_size=16)
DATASET = Dataset(
    lambda folder, size, keep: (stripes(0).fitted(size), stripes(1).fitted(size)),
    embedded=True,
    recipe=Recipe(split="2-2", backbone="small", fit=SHORT, discover=SHORT, fit_augment=Augment(),
                  discover_augment=Augment()),
)
"""

ENTRY_POINTS = """
[hoarfrost.methods]
theirs = their_package:METHOD
[hoarfrost.backbones]
theirs = their_package:Patches
[hoarfrost.datasets]
theirs = their_package:DATASET
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package as pip would leave it."""
    site = tmp_path / "site"
    package, info = site / "their_package", site / "their_package-1.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text(THEIRS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("their_package\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def hoarfrost(*arguments: str, site: Path | None, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(site)] if site is not None else []
    paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "hoarfrost", *arguments]
    return forked.run(command, cwd=folder, env=environment)


def line_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that was refused."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


RUN = (
    "run",
    "--method",
    "theirs",
    "--dataset",
    "theirs",
    "--set",
    "backbone=theirs",
    "--device",
    "cpu",
    "--out",
    "run",
)


def test_a_package_from_outside_runs_is_saved_and_predicts(installed: Path, tmp_path: Path) -> None:
    done = hoarfrost(*RUN, "--json", site=installed, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["method"], content["dataset"], content["split"]) == ("theirs", "theirs", "2-2")
    assert content["class_names"] == ["first", "second", "third", "fourth"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())["learner"]
    assert (config["backbone"], config["image_size"], config["mean"]) == ("theirs", 24, [0.5])
    assert "shorter-features" in config["method"]["terms"]
    model = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    assert model["needs"] == ["their-package"]

    write_image(tmp_path / "images" / "a.png")
    predict = ("predict", str(Path("run", "model")), "images", "--device", "cpu")
    predicted = hoarfrost(*predict, site=installed, folder=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stdout.splitlines()[0] == "path,class,probability,kind"
    assert predicted.stdout.splitlines()[1].startswith("images/a.png,")
    again = hoarfrost(*RUN, "--resume", "--json", site=installed, folder=tmp_path)
    assert json.loads(again.stdout) == content

    line = line_of(hoarfrost(*predict, site=None, folder=tmp_path))
    assert "run/model cannot be loaded: " in line
    assert "; install their-package" in line


def test_a_model_that_lacks_its_backbone_alone_names_the_package(installed: Path, tmp_path: Path) -> None:
    for position in range(8):
        write_image(tmp_path / "photos" / str(position % 2) / f"{position}.png", 30 * position)
    fit = ("fit", "photos", "--backbone", "theirs", "--set", "method.frozen=[]", "--epochs", "1", "--device", "cpu")
    done = hoarfrost(*fit, "--out", "model", site=installed, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    line = line_of(hoarfrost("predict", "model", "photos", "--device", "cpu", site=None, folder=tmp_path))
    known = "resnet18, small, efficientnet-lite0, efficientnet-lite1, efficientnet-lite2"
    assert f"unknown backbone 'theirs': choose from {known}; install their-package" in line
    assert "unknown backbone 'theirs'" in line_of(hoarfrost(*fit, "--out", "other", site=None, folder=tmp_path))


def write_image(path: Path, gray: int = 128) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (16, 16), gray).save(path)


def test_names_from_outside_are_listed(installed: Path, tmp_path: Path) -> None:
    text = " ".join(hoarfrost("run", "--help", site=installed, folder=tmp_path).stdout.split())
    assert "digits, cifar10, cifar100, tiny-imagenet, folder or theirs" in text
    assert "resnet18, small, efficientnet-lite0, hf:NAME or theirs" in text
    without = " ".join(hoarfrost("run", "--help", site=None, folder=tmp_path).stdout.split())
    assert "digits, cifar10, cifar100, tiny-imagenet or folder" in without
    asked = hoarfrost("run", "--dataset", "abcxyz", "--out", "run", site=installed, folder=tmp_path)
    assert "unknown data set 'abcxyz': choose from digits, cifar10, cifar100, tiny-imagenet, folder, theirs" in line_of(
        asked
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DATASET = 5", "the package of the data set 'theirs' provides no Dataset: ask its authors"),
        (
            "Patches = lambda channels: 5",
            "the package of the backbone 'theirs' provides no Backbone: ask its authors",
        ),
    ],
)
def test_what_is_none_is_refused(installed: Path, tmp_path: Path, change: str, words: str) -> None:
    (installed / "their_package" / "__init__.py").write_text(f"{THEIRS}\n{change}\n")
    assert words in line_of(hoarfrost(*RUN, site=installed, folder=tmp_path))
    assert not (tmp_path / "run").exists()
