"""What the JSON files that are written here hold, as far as it is read again (`hoarfrost.reading` checks it)."""

from __future__ import annotations

from collections.abc import Sequence

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

STEP: Form = {
    "index": int,
    "known": int,
    "novel": int,
    "joint": {**SCORES, "hm": SCORE},
    "new_by_step_joint": [SCORE],
    "new_by_step_novel": [SCORE],
    "original_rt": SCORES,
}
"""the scores of a discovery"""

STAGE_ONE_RECORD: Form = {"stage_one": SCORE, "seconds": float}
DISCOVERY_RECORD: Form = {"assignment": [int], "scores": STEP, "seconds": float}
"""``record.json`` of a finished stage"""

TRAINED: Form = [(dict, type(None))]
"""how each stage was computed; null in runs from before that was written"""

METRICS: Form = {
    "method": str,
    "dataset": str,
    "split": str,
    "class_order": str,
    "seed": int,
    "hardware": str,
    "seconds": {"stage_one": float, "discovery": [float], "scoring": float, "total": float},
    "stage_one": SCORE,
    "steps": [{**STEP, "assignment": [int]}],
    "trained?": TRAINED,
}
"""``metrics.json`` of a run"""

RESULT: Form = {
    **{key: METRICS[key] for key in ("method", "dataset", "split", "seed", "hardware")},
    "versions": {"torch": str},
    "commit": (str, type(None)),
    "seconds": {"stage_one": float, "discovery": [float]},
    "stage_one": SCORE,
    "trained?": TRAINED,
    "steps": [{key: STEP[key] for key in ("joint", "new_by_step_joint", "new_by_step_novel")}],
    "config": {"learner": dict},
}
"""a kept result: what the pages show of a run"""

MODEL: Form = {
    "config": object,
    "backbone": str,
    "channels": int,
    "heads": {"known": int, "novel": [int]},
    "class_names": [str],
    "decided?": [str],
    "classes?": {
        "rows": [{"name": str, "step": int}],
        "edits": [{"verb": str, "id": int, "name?": str, "into?": int}],
    },
}
"""``model.json``; its configuration is checked when it is decoded"""


def is_assignment(clusters: Sequence[int], classes: int) -> bool:
    """Whether each of so many classes has a cluster of its own.

    >>> is_assignment([1, 0, 2], 3), is_assignment([1, 1, 2], 3)
    (True, False)
    """
    return sorted(clusters) == list(range(classes))
