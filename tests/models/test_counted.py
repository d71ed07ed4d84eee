"""Statistics from which images are taken and to which others are added, and what is remembered for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hoarfrost.errors import InputError
from hoarfrost.models.classes import ClassTable, Edit
from hoarfrost.models.counted import DIGEST, IMAGES, Counted, keep_moves, read_moved
from hoarfrost.models.statistics import ClassStatistics, KeptStatistics

KEPT = [
    KeptStatistics(),
    KeptStatistics("shared", features="hellinger"),
    KeptStatistics("full"),
    KeptStatistics("low-rank", rank=6),
    KeptStatistics("shared", before_last=2),
]


def drawn(count: int, width: int = 6) -> Tensor:
    return torch.rand(count, width, generator=torch.Generator().manual_seed(count)) + 0.1


def close(one: ClassStatistics, other: ClassStatistics, exact: float) -> None:
    torch.testing.assert_close(one.count, other.count, rtol=0, atol=0)
    torch.testing.assert_close(one.mean, other.mean, rtol=exact, atol=exact)
    torch.testing.assert_close(one.variance, other.variance, rtol=exact, atol=exact)
    if other.root is not None:
        # Roots of single classes are in half precision, and a low-rank one has forgotten some correlations.
        near = exact if other.root.ndim == 2 else 1e-3 if other.root.shape[1] == other.root.shape[2] else 1e-2
        torch.testing.assert_close(one.covariances(), other.covariances(), rtol=near, atol=near)
    if other.transformed is not None:
        assert one.transformed is not None
        close(one.transformed, other.transformed, exact)


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.covariance} {kept.features} {kept.before_last}")
def test_statistics_after_a_move_are_those_of_the_images_as_they_are_now(kept: KeptStatistics) -> None:
    features, labels = drawn(60, 8), torch.arange(60) % 3
    before = ClassStatistics.of(features, labels, 3, kept)
    moved = torch.tensor([0, 3, 4])
    now = labels.clone()
    now[moved] = torch.tensor([2, 3, 3])
    after = before.with_room(4).changed(features[moved], labels[moved], features[moved], now[moved], kept)
    close(after, ClassStatistics.of(features, now, 4, kept), 1e-5)
    assert after.mean[1].equal(before.mean[1]) == (1 not in labels[moved])
    more = drawn(7, 8)
    grown = before.changed(torch.zeros(0, 0), torch.zeros(0).long(), more, torch.full((7,), 1), kept)
    close(
        grown, ClassStatistics.of(torch.cat([features, more]), torch.cat([labels, torch.full((7,), 1)]), 3, kept), 1e-5
    )
    back = after.changed(features[moved], now[moved], features[moved], labels[moved], kept)
    close(back.first(3), before, 1e-5)


def test_a_class_that_loses_all_its_images_has_none() -> None:
    kept, features, labels = KeptStatistics("shared"), drawn(30), torch.arange(30) % 3
    before, own = ClassStatistics.of(features, labels, 3, kept), labels == 0
    after = before.changed(features[own], labels[own], features[own], labels[own] + 1, kept)
    assert after.count.tolist() == [0, 20, 10]
    assert not after.mean[0].any()
    assert not after.variance[0].any()
    close(after, ClassStatistics.of(features, labels.clamp(min=1), 3, kept), 1e-5)


def test_an_image_that_was_never_there_leaves_a_covariance() -> None:
    kept, features, labels = KeptStatistics("shared"), drawn(30), torch.arange(30) % 3
    before, strange = ClassStatistics.of(features, labels, 3, kept), torch.full((1, 6), 30.0)
    after = before.changed(strange, torch.tensor([0]), strange, torch.tensor([1]), kept)
    assert after.root is not None
    assert after.root.isfinite().all()
    assert (after.variance >= 0).all()


def name(number: int) -> str:
    return f"{number:032x}"


def counted(*labels: int, rows: bool = False) -> Counted:
    digest = np.frombuffer(b"".join(bytes.fromhex(name(k)) for k in range(len(labels))), dtype=np.uint8)
    made = Counted(digest.reshape(-1, DIGEST).copy(), np.array(labels))
    return replace(made, row=np.arange(len(labels))) if rows else made


def test_images_are_taken_from_the_class_they_were_counted_for() -> None:
    features, labels = drawn(4).numpy(), torch.tensor([0, 0, 1, 1])
    kept, names = KeptStatistics("shared"), [name(k) for k in range(4)]
    before = ClassStatistics.of(torch.from_numpy(features), labels, 2, kept)
    known = counted(0, 0, 1, 1).with_features(names, features)
    after = known.applied(before, {name(1): 1, name(2): 1}, kept, 2)
    assert after.count.tolist() == [1, 3], "the third was counted there already"
    unknown = counted(0, -1, 1, 1).with_features(names, features)
    assert unknown.applied(before, {name(1): 1}, kept, 2).count.tolist() == [2, 3], "it was counted for none"
    twice = known.extended(counted(1, 0)).with_features(names, features)
    assert twice.applied(before.with_room(3), {name(0): 2}, kept, 3).count.tolist() == [1, 1, 1]
    assert known.applied(before, {}, kept, 2) is before


def test_what_settles_is_counted_where_it_was_moved_to() -> None:
    known = counted(0, 0, 1, rows=True)
    settled = known.settled({name(0): 1, name(9): 2})
    assert settled.labels_of([name(0), name(1), name(9), name(7)]) == [[1], [0], [2], []]
    assert settled.given_by_name == {name(0): 1, name(9): 2}
    assert settled.row.tolist() == [0, 1, 2, -1]


def test_files_hold_what_decisions_need_and_no_more(tmp_path: Path) -> None:
    features = drawn(4).numpy()
    known = replace(counted(0, 0, 1, 1, rows=True), key="0" * 16)
    table = ClassTable.of_steps(["ant", "bee"], [2])
    known.write_into(tmp_path)
    moved = table.move([name(1), name(2)], "bee")
    keep_moves(tmp_path, table, moved, known.with_features([name(1), name(2)], features[:2]))
    assert list(read_moved(tmp_path)) == [name(1)], "the other is counted there already"
    found = Counted.read(tmp_path, 2)
    assert (found.names, found.key, found.row.tolist()) == (known.names, known.key, [0, 1, 2, 3])
    found.check(moved.edits, 6)
    with pytest.raises(InputError, match="lacks the features"):
        found.check(table.move([name(0)], "bee").edits, 6)
    again = table.move([name(3)], "ant")
    keep_moves(tmp_path, table, again, known.with_features([name(3)], features[3:]))
    assert list(read_moved(tmp_path)) == [name(3)]
    (tmp_path / IMAGES).write_bytes(b"none")
    with pytest.raises(InputError, match="damaged"):
        Counted.read(tmp_path, 2)


def test_labels_of_other_classes_are_refused(tmp_path: Path) -> None:
    counted(0, 4).write_into(tmp_path)
    with pytest.raises(InputError, match="'label' does not fit the classes"):
        Counted.read(tmp_path, 2)


def test_a_table_with_moves() -> None:
    table = ClassTable.of_steps(["ant", "new-1"], [1, 1])
    moved = table.move([name(1)], "ant").move([name(2), name(2)], "bee").rename("bee", "wasp")
    assert moved.names == ("ant", "new-1", "wasp")
    assert moved.moved == {name(1): 0, name(2): 2}
    assert moved.rows[2].step == 1
    assert ClassTable.from_json(moved.to_json()) == moved
    assert len(moved.to_json()["rows"]) == 2
    assert moved.settled.names == moved.names
    assert moved.settled.edits == (Edit("rename", 2, name="wasp"),)
    assert moved.undo().undo().names == ("ant", "new-1")
    assert moved.undo().undo().undo() == table
    split = table.split("new-1", [[name(1)], [name(2), name(3)]])
    assert split.names == ("ant", "new-1", "new-2", "new-3")
    assert split.undo() == table, "both groups are one decision"
    assert split.move([name(3)], "ant").moved == {name(1): 2, name(2): 3, name(3): 0}


@pytest.mark.parametrize(
    "edit",
    [
        {"verb": "move", "id": 0},
        {"verb": "move", "id": 0, "images": []},
        {"verb": "move", "id": 0, "images": ["../x"]},
        {"verb": "move", "id": 2, "images": [name(1)]},
        {"verb": "move", "id": 3, "name": "bee", "images": [name(1)]},
        {"verb": "move", "id": 2, "name": "ant", "images": [name(1)]},
        {"verb": "split", "id": 2, "name": "bee", "images": [name(1)]},
        {"verb": "split", "id": 2, "name": "bee", "into": 7, "images": [name(1)]},
        {"verb": "rename", "id": 0, "name": "bee", "images": [name(1)]},
    ],
)
def test_moves_that_do_not_fit_their_classes(edit: dict[str, object]) -> None:
    table = ClassTable.of_steps(["ant", "new-1"], [1, 1])
    with pytest.raises(InputError, match="does not match its classes"):
        ClassTable.from_json({**table.to_json(), "edits": [edit]})


def test_what_no_class_can_be_called() -> None:
    table = ClassTable.of_steps(["ant", "new-1"], [1, 1])
    for bad in ("", "unsure", "\ud800"):
        with pytest.raises(InputError, match="choose another"):
            table.move([name(1)], bad)
    with pytest.raises(InputError, match="was rejected"):
        table.reject("new-1").move([name(1)], "new-1")
