from __future__ import annotations

import os

import pytest
import torch

from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.scenario import Scenario, build_scenario

# Tiny tensors gain nothing from threads, which fight over the cores when something else runs too.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start

TINY = {"fit.epochs": 2, "fit.drops": [], "discover.epochs": 2, "discover.drops": []}
"""settings that finish in a second"""


@pytest.fixture(scope="session")
def digits() -> tuple[ImageSet, ImageSet]:
    """Every twelfth digit: about 110 to learn from and 40 to test on."""
    train, test = load_dataset("digits", None, size=16)
    return train.take(slice(None, None, 12)), test.take(slice(None, None, 12))


@pytest.fixture(scope="session")
def three_steps(digits: tuple[ImageSet, ImageSet]) -> Scenario:
    """4-3-3 classes of the few digits."""
    return build_scenario(*digits, split="4-3-3")
