"""What tables of benchmarks say: intervals over images and seeds, and which classes a year found."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_an_interval_is_of_images_and_of_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = benchmark("photographs", monkeypatch).interval
    random = np.random.default_rng(1)
    old = "".join("01"[int(one)] for one in random.random(96) < 0.5)
    low, high = interval([{"old": old, "new": "1111"}] * 3, "old")
    share = 100 * old.count("1") / 96
    assert low < share < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(share * (100 - share) / 96), rel=0.1), "seeds that agree"
    assert interval([{"old": old, "new": "1111"}] * 3, "new") == (100, 100)
    low, high = interval([{"old": "0" * 50, "new": ""}, {"old": "1" * 50, "new": ""}], "all")
    assert (low, high) == (0, 100), "seeds that do not"


def test_a_class_without_images_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table = benchmark("year", monkeypatch).table()
    assert "| flowers, seed 0 | 5 | none | 7 | 6 of 8 |" in table
    assert table in (ROOT / "docs" / "unsorted.md").read_text()


def test_a_row_that_changes_nothing_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ablations = benchmark("ablations", monkeypatch)
    found = [name for name in ("digits", "cifar10") if ablations.changes_nothing(ablations.NO_MIRROR, name)]
    assert found == ["digits"]


def test_ten_corrections_raise_the_score_on_the_checked_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    corrections = benchmark("corrections", monkeypatch)
    assert corrections.table() in (ROOT / "docs" / "guide.md").read_text().replace("\N{NO-BREAK SPACE}", " ")
    kept = [json.loads(path.read_text())["scores"] for path in sorted(corrections.RESULTS.glob("*.json"))]
    for name in ("all", "new"):
        assert np.mean([one["10"][name] - one["0"][name] for one in kept]) > 1
