from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# What imports PyTorch is imported where it is needed: the process that hands out tests to others needs nothing of it.
if TYPE_CHECKING:
    from hoarfrost.data.images import ImageSet
    from hoarfrost.scenario import Scenario

# Tiny tensors gain nothing from threads, which fight over the cores when something else runs too.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start

# A shell has its background commands, and all that they start, ignore Ctrl-C. Tests press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    *("tests/soak/test_soak.py", "tests/tries/test_tries.py", "tests/training/test_step.py"),
    *("tests/computing/test_processes.py",),
    *("tests/test_experiment.py", "tests/cli/test_reproduce.py", "tests/training/test_photographs.py"),
    *("tests/test_methods.py", "tests/training/test_assignment.py", "tests/cli/test_damaged.py"),
    *("tests/test_open_core.py", "tests/cli/test_resume.py", "tests/test_readme.py", "tests/test_examples.py"),
)
"""files whose tests come first, so that at the end no process has a long one left while others have nothing"""


SLOW, LONG = Path(__file__).with_name("slow.txt"), 0.4
"""the tests that --fast leaves out, and the seconds from which on a test, with all its parameters, is one of them"""
seconds: defaultdict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hoarfrost")
    group.addoption("--fast", action="store_true", help="leave out the tests of tests/slow.txt")
    group.addoption("--measure", action="store_true", help="write those that take long into tests/slow.txt")


def function_of(nodeid: str) -> str:
    """A test without its parameters.

    >>> function_of("tests/test_a.py::test_b[c-1]")
    'tests/test_a.py::test_b'
    """
    return nodeid.partition("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "teardown":
        seconds[function_of(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("measure") and not hasattr(session.config, "workerinput"):
        slow = sorted(name for name, each in seconds.items() if each >= LONG)
        SLOW.write_text("".join(f"{name}\n" for name in slow))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: Python's garbage collector need not look through it, now and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch

    if config.getoption("fast"):
        slow = set(SLOW.read_text().split("\n"))
        config.hook.pytest_deselected(items=[item for item in items if function_of(item.nodeid) in slow])
        items[:] = [item for item in items if function_of(item.nodeid) not in slow]

    torch.set_num_threads(1)  # as above; here, since only processes that carry tests out come here
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONGEST)))


AS_MANY_AS_USUAL = ("unsorted", "training/test_assignment.py", "training/test_photographs.py", "test_open_run.py")
"""tests that look at what a fit learns by trying known classes as new ones"""


@pytest.fixture(scope="module", autouse=True)
def few_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fewer such tries in all other tests."""
    from .few_draws import draw_few

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
    from hoarfrost.data.datasets import load_dataset

    train, test = load_dataset("digits", None, size=16)
    return train.take(slice(None, None, 12)), test.take(slice(None, None, 12))


@pytest.fixture(scope="session")
def three_steps(digits: tuple[ImageSet, ImageSet]) -> Scenario:
    """4-3-3 classes of the few digits."""
    from hoarfrost.scenario import build_scenario

    return build_scenario(*digits, split="4-3-3")
