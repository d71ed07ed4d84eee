from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.scenario import Scenario, build_scenario

from .few_draws import draw_few

# Tiny tensors gain nothing from threads, which fight over the cores when something else runs too.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start

LONGEST = (
    *("tests/tries/test_tries.py", "tests/training/test_step.py", "tests/computing/test_processes.py"),
    *("tests/test_experiment.py", "tests/cli/test_reproduce.py", "tests/training/test_photographs.py"),
    *("tests/test_methods.py", "tests/training/test_assignment.py", "tests/cli/test_damaged.py"),
    *("tests/test_open_core.py", "tests/cli/test_resume.py"),
)
"""files whose tests come first, so that at the end no process has a long one left while others have nothing"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONGEST)))


AS_MANY_AS_USUAL = ("unsorted", "training/test_assignment.py", "training/test_photographs.py", "test_open_run.py")
"""tests that look at what a fit learns by trying known classes as new ones"""


@pytest.fixture(scope="module", autouse=True)
def few_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fewer such tries in all other tests."""
    path = request.path.relative_to(request.config.rootpath).as_posix()
    with pytest.MonkeyPatch.context() as patch:
        if not path.startswith(tuple(f"tests/{name}" for name in AS_MANY_AS_USUAL)):
            draw_few(patch)
        yield


TINY = {"fit.epochs": 2, "fit.drops": [], "discover.epochs": 2, "discover.drops": [], "image_size": 8}
"""settings that finish in a second; digits are of 8 x 8 pixels anyway"""


@pytest.fixture(scope="session")
def digits() -> tuple[ImageSet, ImageSet]:
    """Every twelfth digit: about 110 to learn from and 40 to test on."""
    train, test = load_dataset("digits", None, size=16)
    return train.take(slice(None, None, 12)), test.take(slice(None, None, 12))


@pytest.fixture(scope="session")
def three_steps(digits: tuple[ImageSet, ImageSet]) -> Scenario:
    """4-3-3 classes of the few digits."""
    return build_scenario(*digits, split="4-3-3")
