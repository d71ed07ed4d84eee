"""A folder of sorted images: a folder for each class, and a note of what was sorted, so that it can grow."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hoarfrost import store
from hoarfrost.data.unsure import UNSURE
from hoarfrost.errors import InputError
from hoarfrost.models.model import Model
from hoarfrost.printing import STEERING
from hoarfrost.reading import check_own_folder

NOTE = ".sorted"
"""a hidden folder that says what was sorted; readers of images do not look into it"""

LONGEST = 100
"""bytes of a folder's name; file systems take 255"""


@dataclass(frozen=True)
class SortedFolder:
    """What a folder of sorted images says of the classes in it."""

    into: Path
    folders: Mapping[str, str] = field(default_factory=dict)
    """the folder of each class, by the name of the class"""
    unnamed: Mapping[str, str] = field(default_factory=dict)
    """of discovered classes that nobody had named, what tells them from others that are called the same"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """what such classes are called by the model now"""

    @property
    def note(self) -> Path:
        """The file that says this."""
        return self.into / NOTE / "config.json"

    @classmethod
    def of(cls, into: Path, *, resume: bool) -> SortedFolder:
        """Of a place; refuses whatever else is there."""
        note = cls(into).note
        check_own_folder(note.parent)
        if note.is_symlink():
            raise store.damaged(note, "it is a link")
        if not note.is_file():
            if into.exists() and store.strangers(into, {NOTE}):
                raise InputError(f"{into} already holds something else: choose another --into")
            return cls(into)
        if not resume:
            raise InputError(f"{into} already holds sorted images: --resume adds to them, or choose another --into")
        content = store.read_json(note, "folder of sorted images")
        store.check_format(content, into)
        parts: list[dict[str, str]] = []
        for part in (content.get("folders"), content.get("unnamed")):
            if not isinstance(part, dict) or not all(isinstance(value, str) for value in part.values()):
                raise store.damaged(note, "it does not list the folders of the classes")
            parts.append(part)
        if not all(folder not in ("", "..") and Path(folder).name == folder for folder in parts[0].values()):
            raise store.damaged(note, "a class has an invalid folder name")
        if parts[1].keys() - parts[0].keys():
            raise store.damaged(note, "a class has no folder")
        return cls(into, *parts)

    def with_classes_of(self, model: Model) -> SortedFolder:
        """With folders for the classes of a model. Refuses one whose unnamed classes are others than those here.

        A discovered class is known again by the mean of its features as it was found, whatever it is called; one that
        a person made, by the images that were its first.
        """
        table = model.classes
        found = [k for k in table.present if table.rows[k].step]
        means = model.statistics.mean.cpu()
        signs = {k: means[k].numpy().tobytes() for k in found if k < len(means)}
        signs |= {edit.id: " ".join(edit.images or ()).encode() for edit in table.edits if edit.makes}
        digests = {model.class_names[k]: hashlib.sha256(signs[k]).hexdigest()[:16] for k in found}
        unnamed = {table.own_names[k] for k in found if table.own_names[k] == table.rows[k].name}
        for name in sorted(unnamed & self.unnamed.keys()):
            if digests[name] != self.unnamed[name]:
                advice = "name the classes of MODEL, or choose another --into"
                raise InputError(f"{self.into} holds images of another class called '{name}': {advice}")
        names = [model.class_names[k] for k in table.present]
        own = [name for name in dict.fromkeys(names) if name not in self.folders]
        made = folder_names([UNSURE, *own], taken=self.folders.values())[1:]
        now = {digest: name for name, digest in digests.items()}
        return SortedFolder(
            self.into,
            {**self.folders, **dict(zip(own, made, strict=True))},
            {**self.unnamed, **{name: digests[name] for name in unnamed}},
            {old: now[digest] for old, digest in self.unnamed.items() if now.get(digest, old) != old},
        )

    def write(self) -> bool:
        """Writes the note; True, for `store.at_work`, which asks whether it was written now."""
        self.note.parent.mkdir(parents=True, exist_ok=True)
        content = {"kind": "sort", "folders": dict(self.folders), "unnamed": dict(self.unnamed)}
        store.write_json(self.note, {"format": store.FORMAT, **content})
        return True


def class_names_of(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The classes that sub-folders with these names stand for: `sort` may have changed a name to make a folder."""
    note = SortedFolder(folder).note
    if not note.is_file():
        return tuple(names)
    folders = SortedFolder.of(folder, resume=True).folders
    classes = {made: name for name, made in folders.items()}
    return tuple(classes.get(name, name) for name in names)


def folder_names(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Names of folders for classes of any name, each another one and none that is taken, on any file system.

    >>> folder_names(["unsure", "Rose", "rose", "../a/b", "", "unsure", ".hidden", "con "])
    ['unsure', 'Rose', 'rose-2', '_a_b', '_', 'unsure-2', 'hidden', 'con']
    """
    made, keys = list[str](), {unicodedata.normalize("NFKC", folder).casefold() for folder in taken}
    for name in names:
        plain = STEERING.sub("_", re.sub(r'[/\\:*?"<>|]', "_", name)).strip(" .")
        plain = plain.encode()[:LONGEST].decode(errors="ignore").strip(" .") or "_"
        folder, number = plain, 1
        while (key := unicodedata.normalize("NFKC", folder).casefold()) in keys:
            number += 1
            folder = f"{plain}-{number}"
        keys.add(key)
        made.append(folder)
    return made
