"""What a finished run leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def finished_metrics(stage_one: float = 1.0, discovery: Sequence[float] = (2.0,)) -> dict[str, Any]:
    """The content of ``metrics.json`` of a run with one discovery."""
    scores = {"old": 60.0, "new": 40.0, "all": 50.0}
    step = {
        "index": 1,
        "known": 5,
        "novel": 5,
        "joint": {**scores, "hm": 48.0},
        "new_by_step_joint": [40.0],
        "new_by_step_novel": [41.0],
        "original_rt": scores,
        "assignment": [0, 1, 2, 3, 4],
    }
    total = stage_one + sum(discovery)
    return {
        "method": "frost",
        "dataset": "digits",
        "split": "5-5",
        "class_order": "natural",
        "seed": 0,
        "hardware": "a machine",
        "seconds": {"stage_one": stage_one, "discovery": list(discovery), "scoring": 0.0, "total": total},
        "stage_one": 90.0,
        "steps": [step],
    }
