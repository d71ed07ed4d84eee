"""The comparison of two commits: what it calls a difference, and what not."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from .pages import ROOT, load


@pytest.fixture
def same_weights(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return load("benchmarks/same_weights.py")


def saved(folder: Path, tensors: dict[str, Any], content: dict[str, Any], page: str = "<p>60 %</p>\n") -> Path:
    folder.mkdir(parents=True)
    save_file(tensors, folder / "weights.safetensors")
    (folder / "model.json").write_text(json.dumps(content))
    (folder / "report.html").write_text(page)
    return folder


WEIGHTS = {"joint.weight": np.eye(3, dtype=np.float32), "joint.bias": np.zeros(3, dtype=np.float32)}
CONTENT = {"classes": [{"name": "a"}, {"name": "b"}], "seconds": 3.1}
ONE_BIT = {**WEIGHTS, "joint.bias": np.full(3, 1e-45, dtype=np.float32)}


@pytest.mark.parametrize(
    ("now", "differs", "told"),
    [
        ((WEIGHTS, {**CONTENT, "seconds": 5.0}, "<p>60 %</p>\n"), 0, "the same"),
        (({"head.w": WEIGHTS["joint.weight"], "head.b": WEIGHTS["joint.bias"]}, CONTENT), 0, "the same"),
        ((ONE_BIT, CONTENT), 1, "joint.bias: F32[3]"),
        (({"joint.weight": WEIGHTS["joint.weight"]}, CONTENT), 1, "is gone"),
        (({**WEIGHTS, "more": np.ones(1, dtype=np.float32)}, CONTENT), 0, "has more (1)"),
        ((WEIGHTS, {**CONTENT, "added": 1}), 0, "added: 1"),
        ((WEIGHTS, {"classes": [{"name": "a"}, {"name": "c"}]}), 1, 'classes[1].name: "b" became "c"'),
        ((WEIGHTS, {"classes": [{"name": "a"}]}), 1, 'classes[1].name: "b" became nothing'),
        ((WEIGHTS, CONTENT, "<p>61 %</p>\n"), 1, "+<p>61 %</p>"),
    ],
)
def test_what_differs(
    same_weights: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    now: tuple[Any, ...],
    differs: int,
    told: str,
) -> None:
    sides = [
        {"case": same_weights.files(saved(tmp_path / side / "model", *given))}
        for side, given in (("before", (WEIGHTS, CONTENT)), ("now", now))
    ]
    assert same_weights.compare(*sides) == differs
    assert told in capsys.readouterr().out


def test_a_case_that_is_gone_or_fails_is_a_difference(
    same_weights: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"part": {"": "1"}}
    assert same_weights.compare({"one": whole, "two": whole}, {"one": whole, "three": whole}) == 1
    assert same_weights.compare({"one": whole}, {"one": {}}) == 1
    assert same_weights.compare({"one": {"failed": {"": "x"}}}, {"one": {"failed": {"": "x"}}}) == 1
    assert "one: failed" in capsys.readouterr().out


def test_times_on_a_page_do_not_count_and_pictures_do(same_weights: ModuleType) -> None:
    before, later, other = (
        same_weights.page(f'<p>trained for {seconds} s</p><img src="data:image/png;base64,{picture}">')
        for seconds, picture in (("3.1", "QUJD"), ("1,204", "QUJD"), ("3.1", "QUJE"))
    )
    assert before == later != other
