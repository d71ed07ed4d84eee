"""The table of classes: what people decide is followed by predictions, kept in the model folder, and can be undone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hoarfrost import Learner
from hoarfrost.errors import InputError
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.scenario import Scenario

from ..conftest import TINY

TABLE = ClassTable.of_steps(["ant", "bee", "new-1", "new-2", "new-3"], [2, 3])


def test_decisions_in_a_row() -> None:
    table = TABLE.rename("new-1", "cat").merge("new-2", "cat").reject("new-3")
    assert table.names == ("ant", "bee", "cat", "cat", "new-3")
    assert table.stands_for.tolist() == [0, 1, 2, 2, -1]
    assert table.present == [0, 1, 2]
    again = table.merge("cat", "bee").rename("bee", "both")
    assert again.stands_for.tolist() == [0, 1, 1, 1, -1], "what was merged into it goes along"
    assert again.names == ("ant", "both", "both", "both", "new-3")


def test_every_decision_can_be_undone() -> None:
    table = TABLE.rename("new-1", "cat").merge("new-2", "cat").reject("new-3")
    for names in (("ant", "bee", "cat", "cat", "new-3"), ("ant", "bee", "cat", "new-2", "new-3"), TABLE.names):
        table = table.undo()
        assert table.names == names
    assert table == TABLE
    with pytest.raises(InputError, match="nothing to undo"):
        table.undo()


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (lambda t: t.rename("new-9", "cat"), "unknown class 'new-9': choose from new-1, "),
        (lambda t: t.rename("new-1", "unsure"), "'unsure' is reserved for images without a class"),
        (lambda t: t.merge("ant", "new-1"), "'ant' has labels and 'new-1' was discovered"),
        (lambda t: t.rename("new-1", "cat").reject("new-1"), "'new-1' is now called 'cat'"),
        (lambda t: t.rename("new-1", "bee"), "there already is a class 'bee': merge 'new-1' into it"),
        (lambda t: t.rename("new-1", " "), "the new name of 'new-1' is empty"),
        (lambda t: t.rename("new-1", "\ud800"), "cannot be saved as a name"),
        (lambda t: t.merge("new-1", "new-1"), "cannot be merged into itself"),
        (lambda t: t.reject("ant"), "has labels"),
        (lambda t: t.merge("new-1", "bee").rename("new-1", "cat"), "'new-1' was merged into 'bee'"),
        (lambda t: t.reject("new-1").merge("new-2", "new-1"), "'new-1' was rejected"),
    ],
)
def test_what_cannot_be_decided(decide: object, words: str) -> None:
    assert callable(decide)
    with pytest.raises(InputError) as error:
        decide(TABLE)
    assert words in str(error.value)


def test_names_of_discovered_classes_are_free() -> None:
    assert ClassTable.of_steps((), []).with_discovered(2).names == ("new-1", "new-2")
    assert ClassTable.of_steps(["new-1", "new-3"], [2]).with_discovered(3).names[2:] == ("new-2", "new-4", "new-5")
    renamed = TABLE.rename("new-2", "cat").with_discovered(1)
    assert renamed.names[-1] == "new-4", "a name that was once given is not given again"
    assert renamed.rows[-1].step == 2


def test_scores_of_merged_columns_add_up_as_probabilities() -> None:
    columns = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    table = TABLE.merge("new-2", "bee").reject("new-3")
    made = table.scores(columns)
    probabilities = np.exp(columns) / np.exp(columns).sum(axis=1, keepdims=True)
    for row in range(7):
        expected = [probabilities[row, 0], probabilities[row, 1] + probabilities[row, 3], probabilities[row, 2]]
        shares = np.exp(made[row, :3]) / np.exp(made[row, :3]).sum()
        np.testing.assert_allclose(shares, np.array(expected) / sum(expected), rtol=1e-5)
    assert np.isneginf(made[:, 3:]).all()
    assert TABLE.scores(columns) is columns, "without decisions nothing is computed"


def test_statistics_of_merged_classes_are_those_of_their_images_together() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(60, 4, generator=generator), torch.arange(60) % 5
    merged = ClassStatistics.of(features, labels, 5).merged(torch.tensor([0, 1, 1, -1, 1]))
    together = features[(labels == 1) | (labels == 2) | (labels == 4)]
    torch.testing.assert_close(merged.mean[1], together.mean(dim=0))
    torch.testing.assert_close(merged.variance[1], together.var(dim=0, unbiased=False))
    assert merged.count.tolist() == [12, 36, 0, 0, 0]
    torch.testing.assert_close(merged.mean[0], features[labels == 0].mean(dim=0))


def test_predictions_of_a_saved_model_follow(three_steps: Scenario, tmp_path: Path) -> None:
    learner = Learner(recipe="digits", device="cpu", settings=TINY)
    for step in three_steps.steps[:2]:
        learner.learn(step)
    test = three_steps.truths[1].test
    before, folder = learner.predictions(test).ids, tmp_path / "model"
    probabilities = learner.predict_proba(test)
    learner.save(folder)
    unseen = replace(learner.model, statistics=learner.model.statistics.without(torch.arange(7) == 6))
    unseen.save(tmp_path / "unseen")
    without = Learner.load(tmp_path / "unseen", "cpu").predict_proba(test)

    changed = Learner.load(folder, "cpu").rename("new-1", "seven").merge("new-2", "seven").reject("new-3")
    changed.save(folder)
    loaded = Learner.load(folder, "cpu")
    assert loaded.model.class_names[-3:] == ("seven", "seven", "new-3")
    assert loaded.class_names[3:] == (learner.class_names[3], "seven"), "what is predicted, each class once"
    assert loaded.classes_.tolist() == list(loaded.class_names)
    found = loaded.predictions(test)
    after = found.ids
    assert np.array_equal(found.probabilities, loaded.predict_proba(test))
    assert found.probabilities.shape == (len(test), 5)
    assert found.names == tuple(loaded.predict(test)) == tuple(loaded.model.class_names[k] for k in after)
    assert not {5, 6} & set(after.tolist()), "a merged and a rejected class are never predicted"
    assert (after[without.argmax(axis=1) == 5] == 4).all(), "what was new-2 is seven"
    expected = np.column_stack([without[:, :4], without[:, 4] + without[:, 5]]).argmax(axis=1)
    assert (after == expected).all()
    np.testing.assert_allclose(loaded.predict_proba(test).sum(axis=1), 1)

    loaded.undo().undo()
    assert loaded.class_names[-3:] == ("seven", "new-2", "new-3")
    assert (loaded.predictions(test).ids == before).all()
    assert (loaded.predict_proba(test) == probabilities).all()

    changed.learn(three_steps.steps[2])
    assert changed.model.class_names[4:7] == ("seven", "seven", "new-3"), "what was named stays named"
    assert changed.class_names[5:] == ("new-4", "new-5", "new-6")


def test_a_model_of_an_earlier_version_has_its_table_from_its_names(three_steps: Scenario, tmp_path: Path) -> None:
    learner = Learner(recipe="digits", device="cpu", settings=TINY)
    for step in three_steps.steps[:2]:
        learner.learn(step)
    learner.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    content = json.loads(path.read_text())
    for new in ("classes", "decided"):
        del content[new]
    path.write_text(json.dumps(content))
    loaded = Learner.load(tmp_path / "model", "cpu")
    assert loaded.model.classes == learner.model.classes
    assert [row.step for row in loaded.model.classes.rows] == [0] * 4 + [1] * 3


@pytest.mark.parametrize(
    "edit", [{"verb": "merge", "id": 0, "into": 99}, {"verb": "merge", "id": 0}, {"verb": "burn", "id": 0}]
)
def test_a_damaged_table_is_refused(edit: dict[str, object], three_steps: Scenario, tmp_path: Path) -> None:
    learner = Learner(recipe="digits", device="cpu", settings=TINY)
    learner.learn(three_steps.steps[0])
    learner.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    content = json.loads(path.read_text())
    content["classes"]["edits"] = [edit]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="damaged"):
        Learner.load(tmp_path / "model", "cpu")
