"""What the page shows of one model, and what is decided there."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost import store
from hoarfrost.data.unsure import UNSURE_BELOW
from hoarfrost.errors import InputError
from hoarfrost.models import decisions, description
from hoarfrost.models.classes import ClassTable, Edit
from hoarfrost.reading import open_regular, read_json
from hoarfrost.review.judging import Judge, Judgement
from hoarfrost.review.judging import Stale as Stale
from hoarfrost.review.pictures import Pictures

LONGEST = 200
"""characters of a name that is given on the page"""
SAMPLES = 4
"""images that show a class in a few"""
FIRST = 200
"""images of a class whose shapes are found at once"""

UNSURE_GROUP, POSSIBLY_NEW = -1, -2
"""groups that are no classes"""
UNLIKE = 0.5
"""an unsure image whose probabilities add up to less is unlike all classes"""

Decision = dict[str, Any]
"""verb: rename, merge, reject, move, split, undo or redo; class: its id; name: the new one; into: the id of another
class; images: positions; groups: such of images that are split off; generation: of the list that positions are of"""


@dataclass(frozen=True, eq=False)
class Groups:
    """The images by their class, as the page shows them: the most doubtful ones first."""

    judgement: Judgement
    members: dict[int, NDArray[np.int64]]
    """positions by class id; -1: unsure; -2: unsure and unlike all classes"""
    ids: NDArray[np.int64]
    """(N,): the class id of each"""
    sure: NDArray[np.float32]
    """(N,): the probability of the best class"""
    second: NDArray[np.int64]
    """(N,): the id of the next best one"""

    @classmethod
    def of(cls, judgement: Judgement) -> Groups:
        """Sorted as `hoarfrost sort` would do it."""
        table, probabilities = judgement.table, judgement.probabilities
        present, rows = np.array(table.present), np.arange(len(probabilities))
        columns = probabilities[:, present]
        best = columns.argmax(axis=1) if len(rows) else np.zeros(0, dtype=np.int64)
        sure = columns[rows, best]
        others = columns.copy()
        others[rows, best] = -1
        second = present[others.argmax(axis=1)] if len(rows) else best
        ids = np.where(sure < UNSURE_BELOW, UNSURE_GROUP, present[best])
        ids[(ids < 0) & (judgement.likeness < UNLIKE)] = POSSIBLY_NEW
        order = np.argsort(sure, kind="stable")
        members = {k: order[ids[order] == k] for k in (UNSURE_GROUP, POSSIBLY_NEW, *table.present)}
        return cls(judgement, members, ids, sure, second)


class Session:
    """One model and one folder of images; threads of the server call it side by side.

    cache: a folder beside the model for thumbnails and for what was judged before; it may be removed at any time.
    """

    def __init__(self, model: Path, folder: Path, cache: Path | None, features: str, device: str = "auto") -> None:
        self.model, self.folder, self.cache = model, folder, cache
        self.table = description.read_classes(model)
        self._seen = self._stamp()
        self.groups: Groups | None = None
        self.pictures: Pictures | None = None
        self.round = 0
        """counts what was judged, so that a page knows when to look again"""
        self.generation = 0
        """counts lists of images: in another one, a position may be another image"""
        self.quiet = threading.Event()
        """whether no request is at work"""
        self.quiet.set()
        self.changed: int | None = None
        """how many other images changed class by the last move or split, once that is known"""
        self._before: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        """the classes of all images before a move, and which were moved"""
        self._lock = threading.RLock()
        self.judge = Judge(model, folder, features, self._judged, device)
        kept = self._kept()
        if kept is None:
            self.judge.ask()
        else:
            self._show(kept)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends what works in the background, and keeps what it has found."""
        self.judge.close()
        if self.pictures is not None:
            self.pictures.stop()
            self.pictures.keep_shapes()

    # What is judged ---------------------------------------------------------------------------------------------------

    def _judged(self, judgement: Judgement) -> None:
        """In the thread that asks the model."""
        self._show(judgement)
        self._keep(judgement)

    def _show(self, judgement: Judgement) -> None:
        with self._lock:
            self.refresh()
            if judgement.table.rows == self.table.rows:  # something may have been decided meanwhile
                judgement = judgement.of_table(self.table)
            first = self.pictures is None
            if self.pictures is None or not self.pictures.are(judgement.paths, judgement.states):
                self.pictures = Pictures(self.folder, judgement.paths, judgement.states, self.cache)
                self.generation += 1
            self.groups = Groups.of(judgement)
            if self._before is not None and judgement.table == self.table:
                before, moved = self._before
                if len(before) == len(self.groups.ids):
                    differs = np.maximum(before, UNSURE_GROUP) != np.maximum(self.groups.ids, UNSURE_GROUP)
                    differs[moved] = False
                    self.changed = int(differs.sum())
                self._before = None
            self.round += 1
            groups, pictures = self.groups, self.pictures
        if first:
            order = [*self._queue_ids(groups), *groups.members]
            ahead = (int(index) for k in dict.fromkeys(order) for index in groups.members.get(k, ()))
            threading.Thread(target=pictures.make_ahead, args=(ahead, self.quiet), daemon=True).start()

    def _key(self, table: ClassTable) -> str:
        """What a judgement depends on: the model, which classes are one or none, and the files in the folder."""
        moved = repr(sorted(table.moved.items())).encode()
        digest = hashlib.sha256(os.fsencode(self.folder.absolute()) + table.stands_for.tobytes() + moved)
        for name in ("weights.safetensors", "prototypes.safetensors"):
            told = (self.model / name).stat()
            digest.update(f"{told.st_size} {told.st_mtime_ns} {told.st_ino}".encode())
        waiting = [str(self.folder.absolute())]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    told = entry.stat()
                    digest.update(os.fsencode(entry.path) + f" {told.st_size} {told.st_mtime_ns}\0".encode())
        return digest.hexdigest()

    def _keep(self, judgement: Judgement) -> None:
        """For the next time that the page is opened; what cannot be kept is judged again."""
        if self.cache is None:
            return
        with suppress(OSError, InputError):
            buffer = io.BytesIO()
            np.savez(
                buffer,
                key=np.array(self._key(judgement.table)),
                paths=np.frombuffer("\0".join(judgement.paths).encode(errors="surrogateescape"), dtype=np.uint8),
                states=judgement.states,
                probabilities=judgement.probabilities,
                left_out=np.frombuffer(judgement.left_out.encode(errors="surrogateescape"), dtype=np.uint8),
            )
            self.cache.mkdir(exist_ok=True)
            store.write_bytes(self.cache / "judged.npz", buffer.getvalue())

    def _kept(self) -> Judgement | None:
        """What was judged before of the very same images and classes."""
        if self.cache is None:
            return None
        with (
            suppress(OSError, ValueError, KeyError, EOFError, InputError),
            open_regular(self.cache / "judged.npz") as file,
        ):
            with np.load(file, allow_pickle=False) as held:
                if str(held["key"]) != self._key(self.table):
                    return None
                text = held["paths"].tobytes().decode(errors="surrogateescape")
                paths, states, found = text.split("\0"), held["states"], held["probabilities"]
                left_out = held["left_out"].tobytes().decode(errors="surrogateescape")
            if states.shape == (len(paths),) and found.shape == (len(paths), len(self.table)):
                return Judgement(self.table, paths, states, found, left_out)
        return None

    # What the page shows ----------------------------------------------------------------------------------------------

    def _stamp(self) -> tuple[int, int, int]:
        told = (self.model / "model.json").stat()
        return (told.st_mtime_ns, told.st_size, told.st_ino)

    def refresh(self) -> None:
        """Takes over what was decided elsewhere, as by a command."""
        with self._lock, suppress(OSError):
            stamp = self._stamp()
            if stamp != self._seen:
                self._take_over(description.read_classes(self.model))
                self._seen = stamp

    def _take_over(self, table: ClassTable) -> None:
        """Shows a table: at once as far as it follows from what was judged, then as the model has it."""
        before, self.table = self.table, table
        if self.groups is None or before == table:
            return
        judged = self.groups.judgement
        if (before.rows, before.moved) == (table.rows, table.moved) and (before.stands_for == table.stands_for).all():
            self.groups = replace(self.groups, judgement=replace(judged, table=table))  # names change nothing else
            return
        self.judge.ask()
        learned = len(table) - table.made
        if judged.table.rows[:learned] == table.rows[:learned] and len(judged.table) - judged.table.made == learned:
            self.groups = Groups.of(judged.of_table(table))
        self.round += 1

    @property
    def version(self) -> str:
        """Of what was decided."""
        return decisions.state_of(self.table)

    def state(self) -> dict[str, Any]:
        """All that the page shows but for the images themselves."""
        self.refresh()
        with self._lock:
            table, groups = self.table, self.groups
            undone: list[Edit] = []
            with suppress(InputError):  # a record that is damaged is named when something is decided
                undone = decisions.undone(self.model, table)
            earlier = table.before_last() if table.edits else None
            return {
                "version": self.version,
                "round": self.round,
                "generation": self.generation,
                "model": str(self.model),
                "folder": str(self.folder),
                "ready": groups is not None,
                "busy": self.judge.busy,
                "progress": self.judge.progress,
                "refused": self.judge.refused,
                "images": 0 if self.pictures is None else len(self.pictures),
                "left_out": "" if groups is None else groups.judgement.left_out,
                "classes": self._classes(table, groups),
                "queue": [] if groups is None else self._queue_ids(groups),
                "unsure": 0 if groups is None else len(groups.members[UNSURE_GROUP]),
                "unsure_samples": [] if groups is None else groups.members[UNSURE_GROUP][:1].tolist(),
                "possibly_new": 0 if groups is None else len(groups.members[POSSIBLY_NEW]),
                "possibly_new_samples": [] if groups is None else groups.members[POSSIBLY_NEW][:1].tolist(),
                "changed": self.changed,
                "undo": None if earlier is None else decisions.in_words(earlier, table.edits[-1]),
                "redo": decisions.in_words(table, undone[-1]) if undone else None,
            }

    def _classes(self, table: ClassTable, groups: Groups | None) -> list[dict[str, Any]]:
        own, stands_for = table.own_names, table.stands_for.tolist()
        touched = {edit.id for edit in table.edits if edit.images is None or (edit.verb == "move" and edit.makes)}
        last = max(row.step for row in table.rows)
        none = np.zeros(0, dtype=np.int64)
        found = []
        for k, row in enumerate(table.rows):
            positions = none if groups is None else groups.members.get(k, none)
            found.append(
                {
                    "id": k,
                    "name": own[k],
                    "found_as": row.name,
                    "new": row.step > 0,
                    "stands_for": stands_for[k],
                    "decided": k in touched,
                    "to_decide": row.step > 0 and (row.step == last or k not in touched),
                    "images": len(positions),
                    "least": None
                    if not len(positions) or groups is None
                    else round(float(groups.sure[positions[0]]), 4),
                    "samples": [int(index) for index in positions[::-1][:SAMPLES]],
                }
            )
        return found

    def _queue_ids(self, groups: Groups) -> list[int]:
        """The order of the classes: new ones by size, then known ones with the most doubtful images first."""
        table, members = groups.judgement.table, groups.members
        new = [k for k in table.present if table.rows[k].step > 0]
        known = [k for k in table.present if table.rows[k].step == 0 and len(members[k])]
        new.sort(key=lambda k: -len(members[k]))
        known.sort(key=lambda k: float(groups.sure[members[k][0]]))
        return [*new, *known]

    def images(self, group: int, *, whole: bool = True) -> dict[str, Any] | None:
        """Those of a class, -1 for the unsure ones, or -2 for those unlike all classes; None where there is no such.

        Of many images all shapes are known only after a while: if not ``whole``, some are 0 for now.
        """
        with self._lock:
            groups, pictures = self.groups, self.pictures
        if groups is None or pictures is None or group not in groups.members:
            return None
        positions, probabilities = groups.members[group], groups.judgement.probabilities
        shapes = pictures.shapes(positions, most=None if whole else FIRST)
        second = groups.second[positions]
        best = probabilities[positions].argmax(axis=1) if len(positions) else positions
        return {
            "round": self.round,
            "index": positions.tolist(),
            "shape": np.round(shapes[:, 0] / np.maximum(shapes[:, 1], 1), 4).tolist(),
            "whole": bool(shapes.all()),
            "best": best.tolist(),
            "sure": np.round(groups.sure[positions], 4).tolist(),
            "second": second.tolist(),
            "runner_up": np.round(probabilities[positions, second], 4).tolist(),
            "name": [printable_path(pictures.paths[index]) for index in positions.tolist()],
        }

    # What is decided --------------------------------------------------------------------------------------------------

    def decide(self, version: str, decision: Decision) -> None:
        """Writes one decision, unless something else was decided since the page had that version."""
        if decision["verb"] in ("move", "split"):
            self._move(version, decision)
            return

        def decided(table: ClassTable) -> ClassTable:
            if decisions.state_of(table) != version:
                raise Stale
            return self._after(table, decision)

        try:
            table = description.change_classes(self.model, decided)
        except Stale:
            self.refresh()
            raise
        with self._lock:
            self._seen = self._stamp()
            self._take_over(table)

    def _move(self, version: str, decision: Decision) -> None:
        """Moves images to a class, or splits them off one; the other process knows the images by their content."""
        with self._lock:
            table, groups, generation = self.table, self.groups, self.generation
        if groups is None or decision.get("generation") != generation or decisions.state_of(table) != version:
            self.refresh()
            raise Stale
        given = [decision.get("images", [])] if decision["verb"] == "move" else decision.get("groups", [])
        chosen = [np.array(positions, dtype=np.int64) for positions in given]
        paths, count = groups.judgement.paths, len(groups.judgement.paths)
        if not chosen or any(not len(own) or own.min() < 0 or own.max() >= count for own in chosen):
            raise InputError("no images are chosen: choose some")
        if len(np.unique(np.concatenate(chosen))) < sum(map(len, chosen)):
            raise InputError("an image is chosen twice: choose each once")
        name = self._target(table, decision)
        try:
            after = self.judge.decide(version, decision["verb"], name, [[paths[k] for k in own] for own in chosen])
        except Stale:
            self.refresh()
            raise
        with self._lock:
            self._before, self.changed = (groups.ids, np.concatenate(chosen)), None
            self._seen = self._stamp()
            self._take_over(after)
            if self.groups is not None and self.groups.judgement.table.rows == after.rows:
                judged = self.groups.judgement
                targets = [after.find(name)] if decision["verb"] == "move" else range(len(table), len(after))
                for own, class_id in zip(chosen, targets, strict=True):
                    judged = judged.given(own, class_id)
                self.groups = Groups.of(judged)

    def _target(self, table: ClassTable, decision: Decision) -> str:
        """The name of the class that a move leads to, or that is split."""
        if "class" in decision:
            if decision["class"] not in table.present:
                raise InputError("this class is not there any more: choose another")
            return table.own_names[decision["class"]]
        name: str = decision.get("name", "")
        if decision["verb"] == "split" or len(name) > LONGEST:
            raise InputError(f"the name is too long: use at most {LONGEST} characters")
        return name

    def split_groups(self, class_id: int, into: int) -> dict[str, Any]:
        """The images of a class in groups, as positions, the largest first."""
        with self._lock:
            table, groups, generation = self.table, self.groups, self.generation
        if groups is None or class_id not in table.present:
            raise InputError("this class is not there any more: choose another")
        place = {path: position for position, path in enumerate(groups.judgement.paths)}
        found = self.judge.groups(class_id, into)
        return {
            "class": class_id,
            "generation": generation,
            "groups": [[place[path] for path in own if path in place] for own in found],
        }

    def _after(self, table: ClassTable, decision: Decision) -> ClassTable:
        verb = decision["verb"]
        if verb == "undo":
            return table.undo()
        if verb == "redo":
            waiting = decisions.undone(self.model, table)
            if not waiting:
                raise InputError("there is nothing to redo")
            table = decisions.with_edit(table, waiting.pop())
            while waiting and waiting[-1].more:
                table = decisions.with_edit(table, waiting.pop())
            return table
        own = dict(zip(table.present, (table.own_names[k] for k in table.present), strict=True))
        name = own.get(decision.get("class", -1))
        if name is None:
            raise InputError("this class is not there any more: choose another")
        if verb == "reject":
            return table.reject(name)
        if verb == "merge":
            into = own.get(decision.get("into", -1))
            if into is None:
                raise InputError("the other class is not there any more: choose another")
            return table.merge(name, into)
        to = decision.get("name", "")
        if len(to) > LONGEST:
            raise InputError(f"the name is too long: use at most {LONGEST} characters")
        return table.rename(name, to)


def printable_path(path: str) -> str:
    """A path as text, whatever bytes a file system has in it."""
    return path.encode("utf-8", errors="replace").decode()


def remembered_folder(cache: Path) -> Path | None:
    """The folder that was reviewed with this model the last time."""
    with suppress(OSError, InputError):
        return Path(read_json(cache / "folder.json", "folder of thumbnails", {"folder": str})["folder"])
    return None


def remember_folder(cache: Path, folder: Path) -> None:
    """Keeps which folder was reviewed, for the next time."""
    with suppress(OSError, UnicodeEncodeError):
        cache.mkdir(exist_ok=True)
        store.write_json(cache / "folder.json", {"folder": str(folder.absolute())})
