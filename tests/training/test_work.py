"""Unfinished model folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from hoarfrost import store
from hoarfrost.errors import InputError
from hoarfrost.training.processes import Processes
from hoarfrost.training.work import workspace


@pytest.mark.parametrize("resume", [True, False])
def test_nobody_else_works_on_a_model_that_somebody_is_at_work_on(resume: bool, tmp_path: Path) -> None:
    out, content = tmp_path / "model", {"format": store.FORMAT}
    with workspace(out, content, resume=False, processes=Processes()) as unfinished:
        (unfinished / "model.json").write_text("{}")
        with (
            pytest.raises(InputError, match=r"another command is at work in .*model\.unfinished"),
            workspace(out, content, resume=resume, processes=Processes()),
        ):
            pass
    assert (out / "model.json").exists()
    with workspace(tmp_path / "other", content, resume=resume, processes=Processes()):
        pass
