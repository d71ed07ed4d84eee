"""The classes of a model, one row each: what they are called, how they came, and what people have decided of them.

A head has a column for each class that was ever learned or found. The table says which class a column stands for: one
that was merged stands for another, one that was rejected for none. Columns, weights and statistics stay as they are, so
that every decision can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.unsure import UNSURE
from hoarfrost.errors import InputError, unknown

Verb = Literal["rename", "merge", "reject"]


@dataclass(frozen=True)
class Row:
    """A class as it was learned or found; its id is the number of its row."""

    name: str
    step: int
    """0: it came with labels; k: the k-th discovery found it"""


@dataclass(frozen=True)
class Edit:
    """One decision of a person."""

    verb: Verb
    id: int
    name: str | None = None
    """its new name"""
    into: int | None = None
    """the class that it was merged into"""


@dataclass(frozen=True)
class ClassTable:
    """Rows in the order of the columns, and the decisions since, in their order."""

    rows: tuple[Row, ...]
    edits: tuple[Edit, ...] = ()

    @classmethod
    def of_steps(cls, names: Sequence[str], sizes: Sequence[int]) -> ClassTable:
        """Classes with names, of which so many came with labels and so many in each discovery.

        >>> [row.step for row in ClassTable.of_steps(["cat", "dog", "new-1"], [2, 1]).rows]
        [0, 0, 1]
        """
        if sum(sizes) != len(names):
            raise InputError("class_names do not fit the heads")
        steps = (step for step, size in enumerate(sizes) for _ in range(size))
        return cls(tuple(Row(name, step) for name, step in zip(names, steps, strict=True)))

    def __len__(self) -> int:
        return len(self.rows)

    def with_discovered(self, count: int) -> ClassTable:
        """With ``count`` more, found in one more discovery, under names that none has yet.

        >>> ClassTable.of_steps(["cat", "new-1"], [2]).with_discovered(2).names
        ('cat', 'new-1', 'new-2', 'new-3')
        """
        step = 1 + max((row.step for row in self.rows), default=0)
        taken = {*self.names, *(row.name for row in self.rows)}
        free = (name for name in map("new-{}".format, range(1, len(taken) + count + 1)) if name not in taken)
        return replace(self, rows=(*self.rows, *(Row(next(free), step) for _ in range(count))))

    @property
    def own_names(self) -> tuple[str, ...]:
        """Of each class, be it merged or rejected."""
        names = [row.name for row in self.rows]
        for edit in self.edits:
            if edit.verb == "rename" and edit.name is not None:
                names[edit.id] = edit.name
        return tuple(names)

    @property
    def stands_for(self) -> NDArray[np.int64]:
        """``(C,)``: the class that each column stands for, itself in most cases; -1 where it was rejected."""
        found = np.arange(len(self.rows))
        for edit in self.edits:
            if edit.verb == "merge" and edit.into is not None:
                found[found == edit.id] = found[edit.into]
            elif edit.verb == "reject":
                found[found == edit.id] = -1
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """By class id; a merged class has the name of the one that it belongs to now."""
        own, stands_for = self.own_names, self.stands_for
        return tuple(own[k if stands_for[k] < 0 else stands_for[k]] for k in range(len(self.rows)))

    @property
    def is_edited(self) -> bool:
        """Whether some column does not stand for itself."""
        return bool((self.stands_for != np.arange(len(self.rows))).any())

    def find(self, name: str) -> int:
        """The id of a class that is there, by its name."""
        here = {self.own_names[k]: k for k in self.present}
        if name not in here:
            found_first = sorted(here, key=lambda own: self.rows[here[own]].step == 0)
            raise self._gone(name) or unknown("class", name, found_first, near=not name.startswith("new-"))
        return here[name]

    def _gone(self, name: str) -> InputError | None:
        """The error for a class that was called so before something was decided of it."""
        for k, row in enumerate(self.rows):
            if name in (row.name, self.own_names[k]):
                column, now = int(self.stands_for[k]), self.own_names[k]
                if column < 0:
                    return InputError(f"'{name}' was rejected: undo that (hoarfrost undo), or choose another class")
                if column != k:
                    return InputError(f"'{name}' was merged into '{self.own_names[column]}': use that name")
                return InputError(f"'{name}' is now called '{now}': use that name")
        return None

    @property
    def present(self) -> list[int]:
        """The ids of the classes that can be predicted."""
        return [k for k, column in enumerate(self.stands_for.tolist()) if column == k]

    def rename(self, name: str, to: str) -> ClassTable:
        """Another name for a class."""
        if not to.strip():
            raise InputError(f"the new name of '{name}' is empty: choose another")
        if to.encode("utf-8", errors="replace").decode() != to:
            raise InputError(f"'{to.encode('unicode_escape').decode()}' cannot be saved as a name: choose another")
        if to == UNSURE:
            raise InputError(f"'{to}' is reserved for images without a class: choose another name")
        if to in {self.own_names[k] for k in self.present}:
            raise InputError(f"there already is a class '{to}': merge '{name}' into it, or choose another name")
        return self._with(Edit("rename", self.find(name), name=to))

    def merge(self, name: str, into: str) -> ClassTable:
        """Makes a class part of another, whose name stays."""
        id_, other = self.find(name), self.find(into)
        if id_ == other:
            raise InputError(f"'{name}' cannot be merged into itself: choose another class")
        if self.rows[id_].step == 0 and self.rows[other].step > 0:
            raise InputError(f"'{name}' has labels and '{into}' was discovered: give them in the other order")
        return self._with(Edit("merge", id_, into=other))

    def reject(self, name: str) -> ClassTable:
        """Has a class that was found count as none: its images go to what suits them next."""
        id_ = self.find(name)
        if self.rows[id_].step == 0:
            raise InputError(f"'{name}' has labels: choose a discovered class, as only those can be rejected")
        return self._with(Edit("reject", id_))

    def undo(self) -> ClassTable:
        """Without the last decision."""
        if not self.edits:
            raise InputError("there is nothing to undo: no class was renamed, merged or rejected; check the model")
        return replace(self, edits=self.edits[:-1])

    def _with(self, edit: Edit) -> ClassTable:
        return replace(self, edits=(*self.edits, edit))

    def scores(self, columns: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Scores of columns, ``(N, C)`` logits, as scores of classes, in the same places.

        A class has what its columns have together: probabilities add up. What is merged or rejected has none: -inf.
        """
        if not self.is_edited:
            return columns.astype(np.float32, copy=False)
        made = np.full(columns.shape, -np.inf, dtype=np.float32)
        stands_for = self.stands_for
        for k in self.present:
            made[:, k] = np.logaddexp.reduce(columns[:, stands_for == k], axis=1)
        return made

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        rows = [{"name": row.name, "step": row.step} for row in self.rows]
        edits = [{k: v for k, v in vars(edit).items() if v is not None} for edit in self.edits]
        return {"rows": rows, "edits": edits}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ClassTable:
        """The inverse; what does not fit together is refused."""
        table = cls(tuple(Row(row["name"], row["step"]) for row in content["rows"]))
        for given in content["edits"]:
            edit, present = Edit(**given), table.present
            labelled = {k for k in present if table.rows[k].step == 0}
            into = labelled if edit.id in labelled else present
            fits = {
                "rename": edit.name is not None,
                "merge": edit.into in into and edit.into != edit.id,
                "reject": edit.id not in labelled,
            }
            if not fits.get(edit.verb) or edit.id not in present:
                raise InputError("its table of classes has an edit that does not match its classes")
            table = table._with(edit)
        if not table.present:
            raise InputError("its table of classes is empty")
        return table
