"""What the JSON files that are written here hold, as far as it is read again (`hoarfrost.reading` checks it)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hoarfrost.reading import Form

SCORE: Form = (float, type(None))
"""in percent; null where there was nothing to score"""

SCORES: Form = {"old": SCORE, "new": SCORE, "all": SCORE}

LOG_ENTRY: Form = {
    "stage": int,
    "epoch": int,
    "loss": float,
    "terms": {str: float},
    "learning_rate": float,
    "seconds": float,
    "train_accuracy?": float,
    "accuracy?": {str: SCORE},
}
"""a line of ``log.jsonl``"""

TRAINED: Form = (
    type(None),
    {
        "batch_size?": (int, type(None)),
        "steps?": int,
        "compiled?": (bool, type(None)),
        "networks?": str,
        "heads?": str,
        "tf32?": bool,
        "torch?": str,
        "driver?": (str, type(None)),
    },
)
"""how a stage was computed; null, or less of it, in runs of earlier versions"""

STEP: Form = {
    "index": int,
    "known": int,
    "novel": int,
    "joint": {**SCORES, "hm": SCORE},
    "new_by_step_joint": [SCORE],
    "new_by_step_novel": [SCORE],
    "original_rt": SCORES,
    "calibrated?": (type(None), SCORES),
    "confusion?": [[[int]]],
    "weight_norms?": [float],
    "found?": int,
    "count_error?": int,
    "category_discovery?": SCORES,
    "category_discovery_seen?": SCORES,
    "auroc_new?": SCORE,
    "continual?": {str: {**SCORES, "labelled": SCORE}},
}
"""the scores of a discovery; the last six where old images came back, or the number of classes was estimated"""

STAGE_ONE_RECORD: Form = {"stage_one": SCORE, "seconds": float, "trained?": TRAINED}
DISCOVERY_RECORD: Form = {"assignment": [int], "scores": STEP, "seconds": float, "trained?": TRAINED}
"""``record.json`` of a finished stage"""

METRICS: Form = {
    "method": str,
    "dataset": str,
    "split": str,
    "class_order": str,
    "seed": int,
    "hardware": str,
    "seconds": {"stage_one": float, "discovery": [float], "scoring": float, "total": float},
    "trained?": [TRAINED],
    "stage_one": SCORE,
    "steps": [{**STEP, "assignment": [int]}],
    "continual?": {str: {"forgetting": SCORE, "discovery": SCORE}},
}
"""``metrics.json`` of a run"""

EXPECTED: Form = dict.fromkeys(("gain", "distance", "deviation", "margin"), float)
COUNT: Form = {"number": int, "least": int, "most": int, "level": float, "curve": [float], "images_a_class?": float}

ENCODER: Form = {
    "library": str,
    "name": str,
    "network": dict,
    "input": {
        **dict.fromkeys(("side", "channels"), int),
        "still_side": (int, type(None)),
        **{key: [float] for key in ("mean", "std")},
    },
    "blue_first": bool,
}
"""a network of another package, as that package describes it"""

EDIT: Form = {"verb": str, "id": int, "name?": str, "into?": int, "images?": [str], "more?": bool}
"""one decision of a person"""

MODEL: Form = {
    "config": object,
    "backbone": str,
    "encoder?": (type(None), ENCODER),
    "channels": int,
    "heads": {"known": int, "novel": [int]},
    "class_names": [str],
    "labels?": [(bool, int, float)],
    "decided?": [str],
    "needs?": [str],
    "temperature?": float,
    "calibration?": {
        "novel_temperature?": (float, type(None)),
        "novel_impurity?": float,
        "unlike?": (float, type(None)),
        "levels": {"images_a_class": float, **{name: [float] for name in ("sizes", "low", "level", "high")}},
        "expected": (type(None), {**EXPECTED, "error": (float, type(None)), "images?": int}),
        "sorter?": (type(None), dict.fromkeys(("roughness", "roughness_alone", "chance"), float)),
    },
    "discovery?": (
        type(None),
        {
            **dict.fromkeys(("images", "known", "unsure"), int),
            "new": [int],
            "count": (type(None), COUNT),
            "nearest?": [[int]],
        },
    ),
    "classes?": {
        "rows": [{"name": str, "step": int}],
        "edits": [EDIT],
    },
}
"""``model.json``; its configuration is checked when it is decoded"""

DECISION: Form = {"time": str, "words": str, "undone?": [EDIT], "edits?": [EDIT], "outside?": bool, "state": str}
"""a line of ``decisions.jsonl``"""


def misfit_of_steps(content: Mapping[str, Any]) -> str:
    """What of the scores of a run, or of a kept result, does not belong together, in words; empty where all does."""
    steps = content["steps"]
    if not re.fullmatch(r"\d{1,9}(-\d{1,9})+", content["split"]):
        return "split is invalid"
    if len(steps) != content["split"].count("-"):
        return "steps do not fit split"
    for number, step in enumerate(steps, 1):
        if not len(step["new_by_step_joint"]) == len(step["new_by_step_novel"]) == number:
            return f"steps[{number - 1}] does not have the scores of {number} steps"
    return ""


def is_assignment(clusters: Sequence[int], classes: int) -> bool:
    """Whether each of so many classes has a cluster of its own.

    >>> is_assignment([1, 0, 2], 3), is_assignment([1, 1, 2], 3)
    (True, False)
    """
    return sorted(clusters) == list(range(classes))
