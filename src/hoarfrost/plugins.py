"""What other packages bring by entry points: methods, backbones and data sets.

A package names a ``Method``, what makes a ``Backbone`` for a number of channels, or a ``Dataset``, under the name by
which people ask for it; the terms of a method come along with the module that defines it::

    [project.entry-points."hoarfrost.methods"]
    theirs = "their_package:THEIRS"
    [project.entry-points."hoarfrost.backbones"]
    their-network = "their_package:build_network"
    [project.entry-points."hoarfrost.datasets"]
    their-images = "their_package:IMAGES"

Somebody's own file needs no package: HOARFROST_IMPORT names Python files that are imported before anything is looked
for. What they put into ``METHODS``, ``BACKBONES`` and ``DATASETS`` is known then.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points, packages_distributions
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hoarfrost.errors import InputError, Missing, unknown

METHODS = "hoarfrost.methods"
BACKBONES = "hoarfrost.backbones"
DATASETS = "hoarfrost.datasets"
OWN_FILES = "HOARFROST_IMPORT"
"""an environment variable: paths, separated as in PATH"""


def found(group: str) -> dict[str, EntryPoint]:
    """What installed packages name in a group, by name; nothing is imported."""
    points: EntryPoints = _installed(tuple(map(_stamp, sys.path))).select(group=group)
    return {point.name: point for point in points}


@lru_cache(maxsize=1)
def _installed(_: tuple[tuple[str, int | None], ...]) -> Any:
    """The entry points of all packages, read once for as long as the folders they are in stay as they are.

    Python 3.11 gives ``SelectableGroups``, later ones ``EntryPoints``; both have ``select``.
    """
    return entry_points()


def _stamp(folder: str) -> tuple[str, int | None]:
    """A folder that is searched, and when something in it was last added or removed."""
    try:
        return folder, Path(folder).stat().st_mtime_ns
    except OSError:
        return folder, None


def names(own: Mapping[str, Any], group: str) -> list[str]:
    """What can be asked for: this package's own, then those of others."""
    return list(dict.fromkeys([*own, *found(group)]))


def find(what: str, name: str, own: Mapping[str, Any], group: str) -> Any:
    """What a name stands for, among this package's ``own`` or in another package that is installed."""
    import_own_files()
    if name in own:
        return own[name]
    others = found(group)
    if name not in others:
        own_file = f" (for a file of your own, set {OWN_FILES}=FILE)"
        hint = own_file if group == METHODS and OWN_FILES not in os.environ else ""
        raise Missing(f"{unknown(what, name, [*own, *others])}{hint}")
    return load(others[name])


def load(point: EntryPoint) -> Any:
    """Imports what an entry point names."""
    try:
        return point.load()
    except Exception as error:
        who = f" of {point.dist.name}" if point.dist is not None else ""
        raise InputError(
            f"'{point.name}'{who} cannot be imported ({_reason(error)}): update or remove that package"
        ) from error


def import_own_files() -> None:
    """Imports the files that HOARFROST_IMPORT names, each once."""
    for path in filter(None, os.environ.get(OWN_FILES, "").split(os.pathsep)):
        _import_file(Path(path).absolute())


@cache
def _import_file(path: Path) -> None:
    name, said = path.stem, f"{path}, which {OWN_FILES} names,"
    spec = spec_from_file_location(name, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise InputError(f"{said} is not a Python file: check the path")
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return  # it looks something up while it is being imported
        raise InputError(f"{said} has the same name as a loaded module: rename it")
    sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = "" if line is None else f"line {line}: "
        raise InputError(f"{said} cannot be imported ({where}{_reason(error)}): fix it") from error


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def load_all(group: str) -> None:
    """Imports everything in a group, so that what its modules define is known."""
    import_own_files()
    for point in found(group).values():
        load(point)


def packages_of(kinds: list[type]) -> list[str]:
    """The packages, other than this one, from which classes come, as they are called where one installs them."""
    tops = sorted({kind.__module__.partition(".")[0] for kind in kinds} - {"hoarfrost", "builtins", "__main__"})
    known = packages_distributions() if tops else {}  # reads the lists of all installed packages
    return list(dict.fromkeys(name for top in tops for name in known.get(top, [top])))
