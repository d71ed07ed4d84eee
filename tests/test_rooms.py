"""Imports between the rooms of the package, which are its folders and the files beside them, run one way."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "hoarfrost"

LAYERS = [
    {"errors", "launch", "locks", "printing", "seeding"},
    {"metrics", "plugins", "provenance", "reading"},
    {"forms"},
    {"store"},
    {"computing"},
    {"data"},
    {"scenario", "sorting", "unsorted"},
    {"models"},
    {"losses", "sorted_folder"},
    {"config", "sorted_images"},
    {"methods", "settings"},
    {"recipes"},
    {"training"},
    {"__init__", "bench", "evaluation"},
    {"report"},
    {"experiment", "review"},
    {"paper"},
    {"cli"},
    {"__main__"},
]
"""a room imports rooms of the lines above it alone"""

STILL_TO_GO = {
    ("computing.capture", "data.sources"),
    ("computing.forecast", "data.images"),
    ("computing.forecast", "models.network"),
    ("computing.processes", "data.sources"),
    ("computing.processes", "models.statistics"),
    ("computing.rounding", "models.resnet"),
    ("data.datasets", "recipes"),
    ("models.model", "__init__"),
    ("models.model", "config"),
    ("models.model", "settings"),
    ("models.network", "losses.functional"),
    ("provenance", "__init__"),
    ("store", "settings"),
}
"""which file imports which against that order: no arrow may be added, and one that is gone is taken out here"""

LOOPS_STILL_TO_GO = {("models.network", "models.readout")}
"""arrows that close a loop of files, beside those above; this list may only shrink, too"""


def arrows() -> set[tuple[str, str]]:
    """Which file imports which, wherever in it, also for types alone."""
    files = {name_of(path): path for path in PACKAGE.rglob("*.py")}
    found = set()
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                whole = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                whole = [f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for imported in whole:
                root, _, module = imported.partition(".")
                assert root not in ("", "tools", "tests"), f"{name} imports {imported}: say it from hoarfrost on"
                ways = (module, f"{module}.__init__", module.rpartition(".")[0], _front(module))
                found |= {(name, next(way for way in ways if way in files))} if root == "hoarfrost" else set()
    return {(one, other) for one, other in found if one != other}


def _front(module: str) -> str:
    """The file of the folder that something is imported from."""
    return f"{module.rpartition('.')[0]}.__init__".removeprefix(".")


def name_of(path: Path) -> str:
    """Its module, below the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def level(name: str) -> int:
    """The line of a file's room."""
    (found,) = [line for line, rooms in enumerate(LAYERS) if name.partition(".")[0] in rooms]
    return found


def test_every_room_has_its_place() -> None:
    rooms = {name_of(path).partition(".")[0] for path in PACKAGE.rglob("*.py")}
    assert sorted(room for layer in LAYERS for room in layer) == sorted(rooms)


def test_imports_run_one_way() -> None:
    between = {arrow for arrow in arrows() if arrow[0].partition(".")[0] != arrow[1].partition(".")[0]}
    assert {(one, other) for one, other in between if level(other) >= level(one)} == STILL_TO_GO


def test_no_files_import_each_other_in_a_loop() -> None:
    every = arrows()
    assert every >= LOOPS_STILL_TO_GO
    order(every - STILL_TO_GO - LOOPS_STILL_TO_GO)
    for arrow in LOOPS_STILL_TO_GO:
        try:
            order(every - STILL_TO_GO - LOOPS_STILL_TO_GO | {arrow})
        except CycleError:
            continue
        raise AssertionError(f"{arrow} closes no loop: take it out of the list")


def order(found: set[tuple[str, str]]) -> list[str]:
    """The files, each after those that it imports; CycleError where there is no such order."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for one, other in found:
        sorter.add(one, other)
    return list(sorter.static_order())
