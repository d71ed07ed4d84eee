"""What other packages bring: methods, by entry points of the group ``hoarfrost.methods``.

A package names a ``Method`` there, under the name that ``--method`` takes; the terms of its own come along with the
module that defines it::

    [project.entry-points."hoarfrost.methods"]
    theirs = "their_package:THEIRS"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points, packages_distributions
from typing import Any

from hoarfrost.errors import InputError

METHODS = "hoarfrost.methods"


def found(group: str) -> dict[str, EntryPoint]:
    """What installed packages name in a group, by name; nothing is imported."""
    return {point.name: point for point in entry_points(group=group)}


def load(point: EntryPoint) -> Any:
    """Imports what an entry point names."""
    try:
        return point.load()
    except Exception as error:
        who = f" of {point.dist.name}" if point.dist is not None else ""
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"'{point.name}'{who} cannot be imported ({reason}): update or remove that package") from error


def load_all(group: str) -> None:
    """Imports everything in a group, so that what its modules define is known."""
    for point in found(group).values():
        load(point)


def packages_of(kinds: list[type]) -> list[str]:
    """The packages, other than this one, from which classes come, as they are called where one installs them."""
    tops = sorted({kind.__module__.partition(".")[0] for kind in kinds} - {"hoarfrost", "builtins", "__main__"})
    known = packages_distributions() if tops else {}  # reads the lists of all installed packages
    return list(dict.fromkeys(name for top in tops for name in known.get(top, [top])))
