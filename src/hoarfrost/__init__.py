"""hoarfrost: learn classes from labelled images, then discover new ones without labels and without forgetting.

>>> from hoarfrost import Learner
>>> learner = Learner(method="frost", backbone="small", seed=0)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hoarfrost.data.images import ImageSet
    from hoarfrost.errors import InputError
    from hoarfrost.scenario import Scenario, build_scenario
    from hoarfrost.training.learner import Learner

__all__ = ["ImageSet", "InputError", "Learner", "Scenario", "__version__", "build_scenario"]
__version__ = "0.1.0"

# torch takes seconds to import: a name brings its module along when it is first used.
_HOMES = {
    "ImageSet": "hoarfrost.data.images",
    "InputError": "hoarfrost.errors",
    "Learner": "hoarfrost.training.learner",
    "Scenario": "hoarfrost.scenario",
    "build_scenario": "hoarfrost.scenario",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hoarfrost' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
