"""The classes of a model, one row each: what they are called, how they came, and what people have decided of them.

A head has a column for each class that was ever learned or found. The table says which class a column stands for: one
that was merged stands for another, one that was rejected for none. Columns, weights and statistics stay as they are, so
that every decision can be undone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.unsure import UNSURE
from hoarfrost.errors import InputError, unknown

Verb = Literal["rename", "merge", "reject", "move", "split"]
DIGEST = re.compile("[0-9a-f]{32}")
"""of an image's content, by which it is known again"""


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
    """its new name; of a move or a split, the name of a class that this decision makes"""
    into: int | None = None
    """the class that it was merged into, or split from"""
    images: tuple[str, ...] | None = None
    """digests of the images that were moved to the class, or split off into it"""
    more: bool | None = None
    """whether it was decided together with the one before, and is undone with it"""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Edit:
        """From JSON."""
        known = {key: content[key] for key in cls.__dataclass_fields__ if key in content}
        return cls(**known | ({"images": tuple(known["images"])} if "images" in known else {}))

    @property
    def makes(self) -> bool:
        """Whether it makes a class."""
        return self.verb in ("move", "split") and self.name is not None


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
    def made(self) -> int:
        """How many of the last rows were made by decisions, and have no columns in the saved heads."""
        return sum(edit.makes for edit in self.edits)

    @cached_property
    def moved(self) -> dict[str, int]:
        """The class id that each image was moved to in the end, or split off into, by its digest."""
        return {image: edit.id for edit in self.edits for image in edit.images or ()}

    @property
    def settled(self) -> ClassTable:
        """The same classes, of which none was made by a decision, once statistics and heads have them."""
        return replace(self, edits=tuple(edit for edit in self.edits if edit.images is None))

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
        _check_name(to)
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

    def move(self, images: Sequence[str], to: str, *, more: bool = False) -> ClassTable:
        """Makes images, named by their digests, evidence of a class; a name that no class has makes one."""
        together = True if more else None
        if to in {self.own_names[k] for k in self.present}:
            return self._with(Edit("move", self.find(to), images=tuple(dict.fromkeys(images)), more=together))
        if (gone := self._gone(to)) is not None:
            raise gone
        if not to.strip():
            raise InputError("the name of the new class is empty: choose another")
        _check_name(to)
        return self._with(Edit("move", len(self), name=to, images=tuple(dict.fromkeys(images)), more=together))

    def corrected(self, groups: Sequence[tuple[str, Sequence[str]]]) -> ClassTable:
        """Makes images evidence of classes, given the name of each class and its images' digests; one decision."""
        table = self
        for number, (name, images) in enumerate(groups):
            table = table.move(images, name, more=number > 0)
        return table

    def split(self, name: str, groups: Sequence[Sequence[str]]) -> ClassTable:
        """Makes a new class of each group of images of a class; what is in no group stays."""
        source, table = self.find(name), self
        for number, images in enumerate(groups):
            edit = Edit("split", len(table), table.free_name(), source, tuple(images), True if number else None)
            table = table._with(edit)
        return table

    def free_name(self) -> str:
        """For a class that nobody has named yet."""
        return self.with_discovered(1).rows[-1].name

    def before_last(self) -> ClassTable:
        """Without the last decision alone, even where it was made together with others."""
        rows = self.rows[:-1] if self.edits[-1].makes else self.rows
        return replace(self, rows=rows, edits=self.edits[:-1])

    def undo(self) -> ClassTable:
        """Without the last decision."""
        if not self.edits:
            raise InputError("there is nothing to undo: no class was renamed, merged or rejected; check the model")
        table, last = self.before_last(), self.edits[-1]
        while last.more and table.edits:
            table, last = table.before_last(), table.edits[-1]
        return table

    def _with(self, edit: Edit) -> ClassTable:
        rows = self.rows
        if edit.makes and edit.name is not None:  # it belongs to the discovery that people are looking at
            rows = (*rows, Row(edit.name, max(1, *(row.step for row in rows))))
        return replace(self, rows=rows, edits=(*self.edits, edit))

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
        rows = [{"name": row.name, "step": row.step} for row in self.rows[: len(self.rows) - self.made]]
        edits = [{k: v for k, v in vars(edit).items() if v is not None} for edit in self.edits]
        return {"rows": rows, "edits": edits}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ClassTable:
        """The inverse; what does not fit together is refused."""
        table = cls(tuple(Row(row["name"], row["step"]) for row in content["rows"]))
        for given in content["edits"]:
            edit, present = Edit.of(given), table.present
            labelled = {k for k in present if table.rows[k].step == 0}
            into = labelled if edit.id in labelled else present
            made = edit.id == len(table) and edit.name not in (None, "", *(table.own_names[k] for k in present))
            has_images = all(map(DIGEST.fullmatch, edit.images or ("none",)))
            fits = {
                "rename": edit.name is not None and edit.id in present,
                "merge": edit.into in into and edit.into != edit.id and edit.id in present,
                "reject": edit.id not in labelled and edit.id in present,
                "move": has_images and (made if edit.name is not None else edit.id in present),
                "split": has_images and made and edit.into in present,
            }
            if not fits.get(edit.verb) or (edit.images is not None) != (edit.verb in ("move", "split")):
                raise InputError("its table of classes has an edit that does not match its classes")
            table = table._with(edit)
        if not table.present:
            raise InputError("its table of classes is empty")
        return table


def _check_name(name: str) -> None:
    """Refuses one that no class may have."""
    if name.encode("utf-8", errors="replace").decode() != name:
        raise InputError(f"'{name.encode('unicode_escape').decode()}' cannot be saved as a name: choose another")
    if name == UNSURE:
        raise InputError(f"'{name}' is reserved for images without a class: choose another name")
