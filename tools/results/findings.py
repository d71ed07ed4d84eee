"""What the paper finds, each as a question that runs can answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, TypeAlias

from hoarfrost.paper.published import published
from hoarfrost.printing import format_score
from tools.results.kept import Result

Scores: TypeAlias = Mapping[str, Mapping[str, float]]
"""of each method: what `LABELS` names, after its last step unless it says otherwise"""

NEAR_ZERO = 5.0
"""percent; what counts as next to nothing"""

LABELS = {
    "old": "Old",
    "new": "New",
    "all": "All",
    "hm": "HM",
    "novel": "novel head",
    "first_before": "New-1-N after step 1",
    "first_after": "New-1-N after step 2",
    "norms": "norm of new / old",
}
"""``novel`` is New by the novel head of the last step alone; ``first_…`` is that of the first step, of two;
``norms`` is the mean length of the new classes' weights over that of the old ones"""


@dataclass(frozen=True)
class Finding:
    """A claim about some methods, with the figures that it is about."""

    claim: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    holds: Callable[[Scores], bool]
    steps: int = 1
    """the discoveries that the runs have"""

    def missing(self, scores: Scores) -> list[str]:
        """The methods without which nothing can be said."""
        return [method for method in self.methods if method not in scores]

    def figures(self, scores: Scores) -> str:
        """What the answer is read from, as far as it is there."""
        shown = []
        for method in self.methods:
            of_method = scores.get(method, {})
            if values := [f"{LABELS[key]} {_shown(key, of_method[key])}" for key in self.metrics if key in of_method]:
                shown.append(f"`{method}` {', '.join(values)}")
        return "; ".join(shown)

    def answer(self, scores: Scores) -> str | None:
        """Whether it holds; None where a figure that it is about is not there."""
        if self.missing(scores):
            return None
        try:
            return "yes" if self.holds(scores) else "**no**"
        except KeyError:
            return None


def _shown(key: str, value: float) -> str:
    return f"{value:.2f}" if key == "norms" else format_score(value)


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


COMPARED = ("restune", "ncl", "dtc")
"""the methods that the paper sets beside FRoST in two steps"""


def _fewer_with_one_head(scores: Scores) -> bool:
    return scores["joint"]["new"] < scores["frost"]["new"]


def _none_without_st(scores: Scores) -> bool:
    return all(scores[f"{heads}-without-st"]["new"] < NEAR_ZERO for heads in ("joint", "novel"))


def _new_are_longer(scores: Scores) -> bool:
    return scores["frost-without-fd-fr"]["norms"] > 1


def _most_even(scores: Scores) -> bool:
    full, *ablated = (
        abs(math.log(scores[method]["norms"])) for method in ("frost", "frost-without-fd-fr", "frost-without-st")
    )
    return full < min(ablated)


def _old_are_longer(scores: Scores) -> bool:
    return all(scores[method]["norms"] < 1 for method in ("autonovel", "ncl"))


def _found_but_not_said(scores: Scores) -> bool:
    found = (scores[method] for method in COMPARED)
    return all(
        method["new"] < NEAR_ZERO and min(method["first_after"], method["novel"]) > 4 * NEAR_ZERO for method in found
    )


def _balanced_twice(scores: Scores) -> bool:
    return all(scores["frost"]["hm"] > scores[method]["hm"] for method in COMPARED)


def _best_overall(scores: Scores) -> bool:
    return all(scores["frost"]["all"] > scores[method]["all"] for method in COMPARED)


def _forgets_less(scores: Scores) -> bool:
    lost = {method: scores[method]["first_before"] - scores[method]["first_after"] for method in ("frost", "restune")}
    return lost["frost"] < lost["restune"]


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
    Finding(  # table 3; the paper says so of CIFAR-10 and Tiny-ImageNet
        "A joint head without a novel head finds fewer new classes than FRoST, which has both: New below FRoST's",
        ("joint", "frost"),
        ("new",),
        _fewer_with_one_head,
    ),
    Finding(  # table 3
        f"Without ST neither a joint head alone nor an old and a novel head find anything new: New below {NEAR_ZERO:g}",
        ("joint-without-st", "novel-without-st"),
        ("new",),
        _none_without_st,
    ),
    Finding(  # figure 4, and the text of table 1
        "Without FD and FR the new classes have longer weight vectors than the old: mean norm of new / old above 1",
        ("frost-without-fd-fr",),
        ("norms",),
        _new_are_longer,
    ),
    Finding(  # figure 4
        "With FRoST the weight vectors of old and new classes are more even than without FD and FR and than without ST:"
        " new / old nearer to 1",
        ("frost", "frost-without-fd-fr", "frost-without-st"),
        ("norms",),
        _most_even,
    ),
    Finding(  # figure 5, and the text of table 4
        "In AutoNovel and NCL the old classes have longer weight vectors than the new: mean norm of new / old below 1",
        ("autonovel", "ncl"),
        ("norms",),
        _old_are_longer,
    ),
    Finding(  # tables 5 and A6
        f"ResTune, NCL and DTC find the new classes of both steps and do not predict them: novel heads above"
        f" {4 * NEAR_ZERO:g}, New below {NEAR_ZERO:g} after step 2",
        COMPARED,
        ("new", "first_after", "novel"),
        _found_but_not_said,
        steps=2,
    ),
    Finding(  # tables 5 and A6
        "FRoST balances old and new best after two steps: the highest harmonic mean of Old and New",
        ("frost", *COMPARED),
        ("old", "new", "hm"),
        _balanced_twice,
        steps=2,
    ),
    Finding(  # the text of table A6
        "FRoST is the best on all classes after two steps: the highest All",
        ("frost", *COMPARED),
        ("all",),
        _best_overall,
        steps=2,
    ),
    Finding(  # the text of table A6
        "FRoST forgets less of the first step's new classes than ResTune: the first novel head loses less in step 2",
        ("frost", "restune"),
        ("first_before", "first_after"),
        _forgets_less,
        steps=2,
    ),
)


def scores_of(groups: Mapping[tuple[str, str, str], list[Result]], dataset: str, split: str) -> Scores:
    """Means over the seeds of every method that has runs on a data set, of one discovery or of two."""
    return {
        method: _means([result.content["steps"] for result in runs])
        for (where, how, method), runs in groups.items()
        if (where, how) == (dataset, split) and len(runs[0].content["steps"]) == split.count("-")
    }


def published_scores(dataset: str, split: str) -> Scores:
    """The paper's own figures, as its main comparison prints them; New of two steps is the mean of both."""
    made: dict[str, dict[str, float]] = {}
    for row in published():
        if (row["dataset"], row["split"]) == (dataset, split) and row["method"] not in made:
            steps = []
            for step in row["steps"]:
                old, new = step["old"], step.get("new", mean(step.get("new_by_step_joint", [0.0])))
                hm = 2 * old * new / (old + new) if old + new else 0.0
                joint = {"old": old, "new": new, "all": step["all"], "hm": hm}
                steps.append({"joint": joint, "new_by_step_novel": step.get("new_by_step_novel", [None])})
            made[row["method"]] = _means([steps])
    return made


def _means(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Over the seeds, from the steps of each run; what one of them lacks is left out."""
    last = [steps[-1] for steps in runs]
    found: dict[str, list[float | None]] = {
        key: [step["joint"][key] for step in last] for key in ("old", "new", "all", "hm")
    }
    found["novel"] = [step["new_by_step_novel"][-1] for step in last]
    if len(runs[0]) > 1:
        found["first_before"] = [steps[0]["new_by_step_novel"][0] for steps in runs]
        found["first_after"] = [step["new_by_step_novel"][0] for step in last]
    found["norms"] = [norm_ratio(steps) for steps in runs]
    means = {}
    for key, values in found.items():
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            means[key] = mean(known)
    return means


def norm_ratio(steps: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean length of the weights of all new classes over that of the labelled ones, after the last step.

    >>> norm_ratio([{"known": 2, "weight_norms": [1.0, 3.0, 4.0]}])
    2.0
    """
    if "weight_norms" not in steps[-1]:  # of an earlier version
        return None
    norms, known = steps[-1]["weight_norms"], steps[0].get("known", 0)
    if not 0 < known < len(norms) or not any(norms[:known]):
        return None
    return float(mean(norms[known:]) / mean(norms[:known]))
