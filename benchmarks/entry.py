"""Where same_weights.py reaches into the code: all that it knows of it, so that it runs on earlier and later commits.

What moves gets one more name here, and nothing else changes. Of several names the first that is there counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAIN = ("hoarfrost.cli:main",)
LEARNER = ("hoarfrost:Learner",)
REFUSED = ("hoarfrost:InputError",)

SCORES = ("outputs",)
"""methods of a learner that give an object with the arrays of `OF_IMAGES`"""
OF_IMAGES = ("scores", "novel_scores", "side_by_side", "likeness", "probabilities", "sureness")
ASSIGNED = ("assigned", "assigned_")
COUNT = ("count", "count_")
UNLIKENESS = ("unlikeness",)


def imported(names: Sequence[str]) -> Any:
    """The first of these that there is, each as ``module:name``."""
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {', '.join(names)} is there: add its new name to {__file__}")


def attribute(owner: object, names: Sequence[str]) -> Any:
    """The first of these that an object has."""
    for name in names:
        if hasattr(owner, name):
            return getattr(owner, name)
    raise AttributeError(f"{type(owner).__name__} has none of {', '.join(names)}: add its new name to {__file__}")


def command(words: Sequence[str]) -> int:
    """What the command line does, in this process; its exit code."""
    main: Callable[[Sequence[str]], int] = imported(MAIN)
    return main(list(words))


def new_learner(method: str, settings: Mapping[str, Any]) -> Any:
    """One for digits, which has learned nothing yet."""
    return imported(LEARNER)(method, "small", 0, recipe="digits", device="cpu", settings=dict(settings))


def load(folder: str) -> Any:
    """The learner of a model folder."""
    return imported(LEARNER).load(folder, "cpu")


def refused() -> type[Exception]:
    """What is raised where a method cannot discover."""
    found: type[Exception] = imported(REFUSED)
    return found


def said(learner: Any, images: Any) -> dict[str, NDArray[Any]]:
    """All that a model says of images, in arrays."""
    outputs, found = attribute(learner, SCORES)(images), dict[str, Any]()
    for name in OF_IMAGES:
        value = getattr(outputs, name)
        if isinstance(value, tuple):
            found |= {f"{name} {step}": each for step, each in enumerate(value)}
        elif value is not None:
            found[name] = value
    predictions = learner.predictions(images)
    found["ids"], found["probability"] = predictions.ids, predictions.confidence
    return {name: np.asarray(value) for name, value in found.items()}


def unlikeness(learner: Any, images: Any) -> NDArray[Any]:
    """How unlike everything known images are."""
    return np.asarray(attribute(learner, UNLIKENESS)(images))


def discovered(learner: Any) -> tuple[NDArray[Any], str]:
    """The class that each image of the last discovery was given to, and what was found of their number, in words."""
    return np.asarray(attribute(learner, ASSIGNED)), repr(attribute(learner, COUNT))
