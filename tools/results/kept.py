"""Results that are kept: a JSON file a run, with the fields of ``metrics.json`` and the configuration behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.config import DECIDED, Config
from hoarfrost.errors import InputError
from hoarfrost.forms import METRICS, SCORE, SCORES, STEP, TRAINED, misfit_of_steps
from hoarfrost.methods import METHODS
from hoarfrost.paper.numerics import check_numerics
from hoarfrost.reading import Form, misfit
from hoarfrost.recipes import RECIPES, VARIANTS, get_recipe
from hoarfrost.settings import filled, from_json, to_json


@dataclass(frozen=True)
class Result:
    """A kept run."""

    name: str
    """of its file, without the ending"""
    content: Mapping[str, Any]

    @property
    def group(self) -> tuple[str, str, str]:
        """Runs of one group differ in their seed."""
        return (self.content["dataset"], self.content["split"], self.content["method"])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the run was configured with, images and all, but for the seed. Newer settings have their defaults."""
        config: dict[str, Any] = dict(self.content["config"])
        settings = {**store.ADDED, **filled(config.pop("learner")), **config}
        return {key: value for key, value in settings.items() if key != "seed"}

    @cached_property
    def follows_rule(self) -> bool:
        """Whether its settings are those that its data set and its variant have for the method."""
        name, variant = self.content["method"], self.content.get("variant", "code")
        if name not in METHODS or self.content["dataset"] not in RECIPES:
            return False
        recipe = get_recipe(self.content["dataset"], variant, self.content["split"])
        rule = to_json(recipe.config(METHODS[name], self.content["seed"]))
        open_ = [key for key, value in DECIDED.items() if rule[key] == value]
        return all(self.settings.get(key) == value for key, value in rule.items() if key not in ("seed", *open_))


RESULT: Form = {
    **{key: METRICS[key] for key in ("method", "dataset", "split", "seed", "hardware")},
    "variant?": str,
    "versions": {"torch": str},
    "commit": (str, type(None)),
    "seconds": {"stage_one": float, "discovery": [float]},
    "trained?": [TRAINED],
    "stage_one?": SCORE,
    "steps": [
        {
            **{key: STEP[key] for key in ("joint", "new_by_step_joint", "new_by_step_novel")},
            "known?": int,
            "novel?": int,
            "original_rt?": (type(None), SCORES),
            **{key: STEP[key] for key in ("calibrated?", "confusion?", "weight_norms?")},
        }
    ],
    "config": {"learner": dict},
}
"""a kept result: what the pages show of a run"""

CONTINUAL = "c-gcd"
"""the protocol of continual category discovery, and the folder of its results"""


def continual_name(content: Mapping[str, Any]) -> str:
    """The name of such a run, with all in which runs of one data set, method and seed may differ."""
    config = content["config"]
    parts = [content[key] for key in ("dataset", "split", "class_order", "method")]
    parts += [config["learner"]["backbone"].replace("/", "-"), config["novel"], f"seed{content['seed']}"]
    return "-".join(parts)


def collect(run: Path, to: Path, name: str | None = None) -> Path:
    """Keeps a finished run folder's figures as ``to/NAME.json``, or ``to/VARIANT/NAME.json`` but for ``code``.

    Those of continual category discovery go to ``to/c-gcd``.
    A run that was kept already stays as it is; another one of the same settings and seed is kept beside it, as
    ``NAME-2.json``, and both count.
    """
    metrics = store.read_json(run / "metrics.json", "finished run folder")
    content = checked({**metrics, "config": store.read_json(run / "config.json", "run folder")}, run)
    if name is None:
        name = "-".join([metrics["dataset"], metrics["split"], metrics["method"], f"seed{metrics['seed']}"])
        variant = metrics.get("variant", "code")
        to = to / variant if variant in VARIANTS and variant != "code" else to
        if metrics.get("protocol") == CONTINUAL:
            name, to = continual_name(content), to / CONTINUAL
    new, count, path = Result(name, content), 1, to / f"{name}.json"
    while path.exists():
        there = Result(name, checked(store.read_json(path, "folder of results"), path))
        if there.content == content:
            return path
        if (there.settings, there.content["seed"]) != (new.settings, content["seed"]):
            raise InputError(f"{path} is of another run than {run}: remove it, or use --folder-names or another --to")
        path = to / f"{name}-{(count := count + 1)}.json"
    to.mkdir(parents=True, exist_ok=True)
    store.write_json(path, content)
    return path


def checked(content: dict[str, Any], place: Path) -> dict[str, Any]:
    """The content of a result, if that is what it is."""
    problem = misfit(content, RESULT) or misfit_of_steps(content)
    try:
        from_json(Config, {} if problem else content["config"]["learner"])
    except InputError as error:
        raise InputError(f"{place} does not hold a run's results ({problem or error}): remove it") from None
    return content


def read_results(folder: Path) -> list[Result]:
    """All results right in a folder, in the order of their names."""
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    return [Result(path.stem, checked(store.read_json(path, "folder of results"), path)) for path in paths]


def grouped(results: list[Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Results that differ in nothing but their seeds, together; refuses a group with different settings or numerics.

    One seed may come several times: on a GPU the same settings and seed do not give the same weights.
    """
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        group = groups.setdefault(result.group, [])
        if group and (found := store.differences(group[0].settings, result.settings)):
            raise InputError(
                f"{result.name} and {group[0].name} have different settings ({found[0]}): remove one of them"
            )
        group.append(result)
    for group in groups.values():
        check_numerics({result.name: result.content for result in group})
    return groups
