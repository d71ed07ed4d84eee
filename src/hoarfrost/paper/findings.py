"""What the paper finds, each as a question that runs can answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any, TypeAlias

from hoarfrost.paper.records import Result

Scores: TypeAlias = Mapping[str, Mapping[str, float]]
"""of each method: ``old``, ``new``, ``all``, ``hm``, and ``novel``, New by the novel head alone"""

NEAR_ZERO = 5.0
"""percent; what counts as next to nothing"""

LABELS = {"old": "Old", "new": "New", "all": "All", "hm": "HM", "novel": "novel head"}


@dataclass(frozen=True)
class Finding:
    """A claim about some methods, with the figures that it is about."""

    claim: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    holds: Callable[[Scores], bool]

    def missing(self, scores: Scores) -> list[str]:
        """The methods without which nothing can be said."""
        return [method for method in self.methods if method not in scores]

    def figures(self, scores: Scores) -> str:
        """What the answer is read from."""
        return "; ".join(
            f"`{method}` " + ", ".join(f"{LABELS[key]} {scores[method][key]:.1f}" for key in self.metrics)
            for method in self.methods
            if method in scores
        )


def _old_lost(scores: Scores) -> bool:
    return all(scores[f"frost-without-{part}"]["old"] < NEAR_ZERO for part in ("fd", "fr", "fd-fr"))


def _nothing_new(scores: Scores) -> bool:
    return scores["frost-without-st"]["new"] < NEAR_ZERO


def _new_for_old(scores: Scores) -> bool:
    frost = scores["frost"]
    alone = (scores["lwf-softmax"], scores["lwf-presoftmax"])
    return all(method["new"] > frost["new"] and method["old"] < frost["old"] / 2 for method in alone)


def _heads_do_not_fit(scores: Scores) -> bool:
    both = (scores["restune"], scores["dtc"])
    return all(method["new"] < NEAR_ZERO and method["novel"] > 4 * NEAR_ZERO for method in both)


def _best_balance(scores: Scores) -> bool:
    return all(scores["frost"]["hm"] > scores[method]["hm"] for method in ("autonovel", "restune", "ncl", "dtc"))


FINDINGS = (
    Finding(
        f"Without FD, without FR or without both the old classes are forgotten: Old below {NEAR_ZERO:g}",
        ("frost-without-fd", "frost-without-fr", "frost-without-fd-fr", "frost"),
        ("old",),
        _old_lost,
    ),
    Finding(
        f"Without ST the joint head finds nothing new: New below {NEAR_ZERO:g}",
        ("frost-without-st", "frost"),
        ("new", "novel"),
        _nothing_new,
    ),
    Finding(
        "LwF alone gains New and loses Old: New above FRoST's, Old below half of FRoST's",
        ("lwf-softmax", "lwf-presoftmax", "frost"),
        ("old", "new"),
        _new_for_old,
    ),
    Finding(
        f"ResTune and DTC, their heads side by side as they are, have New below {NEAR_ZERO:g} while their novel heads"
        f" alone have more than {4 * NEAR_ZERO:g}",
        ("restune", "dtc"),
        ("new", "novel"),
        _heads_do_not_fit,
    ),
    Finding(
        "FRoST has the best harmonic mean of Old and New in the comparison with the state of the art",
        ("frost", "autonovel", "restune", "ncl", "dtc"),
        ("hm",),
        _best_balance,
    ),
)


def scores_of(groups: Mapping[tuple[str, str, str], list[Result]], dataset: str, split: str) -> Scores:
    """Means over the seeds of every method that has runs with one discovery."""
    return {
        method: _means([dict(result.content["steps"][0]) for result in runs])
        for (where, how, method), runs in groups.items()
        if (where, how) == (dataset, split) and len(runs[0].content["steps"]) == 1
    }


def _means(steps: list[dict[str, Any]]) -> dict[str, float]:
    means = {key: mean(step["joint"][key] for step in steps) for key in ("old", "new", "all", "hm")}
    novel = [step["new_by_step_novel"][0] for step in steps]
    return means | ({} if None in novel else {"novel": mean(novel)})
