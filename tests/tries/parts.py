"""Results of tries, a file a part: a long programme is done in parts, whose results add up to one table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hoarfrost import store

FOLDER = Path(__file__).parents[2] / "results" / "tries"


@dataclass
class Tried:
    """The tries of one kind in one part: case ``start`` and those up to ``stop``."""

    start: int
    stop: int
    tried: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    """number and problem"""
    processor_seconds: float = 0.0


@dataclass
class Part:
    """All tries of one part."""

    seed: int
    part: int
    parts: int
    versions: dict[str, str]
    commit: str | None
    kinds: dict[str, Tried]
    seconds: float = 0.0

    def write(self, folder: Path) -> Path:
        """Keeps it in a file, which takes the place of an earlier try at the same part."""
        kinds = "" if len(self.kinds) > 1 else f"-{next(iter(self.kinds))}"
        path = folder / f"seed-{self.seed}{kinds}-part-{self.part}-of-{self.parts}.json"
        folder.mkdir(parents=True, exist_ok=True)
        content = asdict(self)
        for kind in content["kinds"].values():
            kind["processor_seconds"] = round(kind["processor_seconds"], 1)
        store.write_json(path, content | {"seconds": round(self.seconds, 1)})
        return path


def share(count: int, part: int, parts: int) -> range:
    """The cases of a part, counted from 1.

    >>> [list(share(5, part, 3)) for part in (1, 2, 3)]
    [[0], [1, 2], [3, 4]]
    """
    return range(count * (part - 1) // parts, count * part // parts)


def read(folder: Path) -> list[Part]:
    """The parts in a folder; a ``ValueError`` where two of them hold the same cases."""
    found, held = [], dict[tuple[int, str, int], str]()
    for path in sorted(folder.glob("*.json")):
        content: dict[str, Any] = json.loads(path.read_text())
        kinds = {name: Tried(**tried) for name, tried in content.pop("kinds").items()}
        for name, tried in kinds.items():
            for case in range(tried.start, tried.stop):
                other = held.setdefault((content["seed"], name, case), path.name)
                if other != path.name:
                    raise ValueError(f"{path.name} and {other} both hold case {case} of {name}: remove one of them")
        found.append(Part(**content, kinds=kinds))
    return found


def added_up(parts: Iterable[Part]) -> dict[str, tuple[int, int]]:
    """How many of each kind were tried, and how many failed: cases that were not tried have failed, too."""
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for part in parts:
        for name, tried in part.kinds.items():
            count, failed = counts[name]
            lost = tried.stop - tried.start - tried.tried
            counts[name] = count + tried.tried, failed + len(tried.failed) + lost
    return dict(counts)


def made_by(parts: Iterable[Part]) -> str:
    """The sentence of the page that says what was tried: versions and commits."""
    made = sorted({(part.versions["hoarfrost"], (part.commit or "unknown")[:7]) for part in parts})
    return f"Tried at {', '.join(f'commit {commit} ({version})' for version, commit in made)}."
