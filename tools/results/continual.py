"""The section of ``RESULTS.md`` on continual category discovery, from ``results/c-gcd``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hoarfrost.evaluation import TEST_MATCHING, TRAINING_MATCHING
from hoarfrost.paper.text import markdown, spread
from hoarfrost.printing import format_score
from tools.results.kept import Result

HEAD = """## Continual category discovery

With `--protocol c-gcd` ([docs/protocol.md](docs/protocol.md#continual-category-discovery)): old classes come back in
every stage. All, Old and New are those after the last stage. *Forgetting* is of the labelled classes over all stages,
and *discovery* the mean of New. *Test* and *training* say on which images clusters were matched. *Number*: whether the
number of new classes was given or estimated.
"""

PUBLISHED = """Published, All after the last stage, with a DINO ViT-B/16 backbone: not comparable with the rows above.
One command measures the same here, where that backbone can be downloaded:
`hoarfrost run --dataset {dataset} --protocol c-gcd --backbone hf:facebook/dino-vitb16 --data data --out runs/{dataset}`
"""


def section(kinds: Sequence[Sequence[Result]]) -> list[str]:
    """The parts of the section, of runs that differ in nothing but their seeds together; none without any."""
    parts = [HEAD] if kinds else []
    places = dict.fromkeys((kind[0].content["dataset"], kind[0].content["split"]) for kind in kinds)
    for dataset, split in places:
        here = [kind for kind in kinds if (kind[0].content["dataset"], kind[0].content["split"]) == (dataset, split)]
        parts += [f"### {dataset} {split}\n", table(here) + "\n"]
        if rows := [row for row in published() if (row["dataset"], row["split"]) == (dataset, split)]:
            parts += [PUBLISHED.format(dataset=dataset), published_table(rows) + "\n"]
    return parts


def table(kinds: Sequence[Sequence[Result]]) -> str:
    """A row for each kind of run, the best first."""
    rows = []
    for kind in kinds:
        content, last = kind[0].content, [run.content["steps"][-1]["continual"] for run in kind]
        cells = [
            content["method"],
            kind[0].settings["backbone"],
            content["class_order"],
            "estimated" if content["config"]["novel"] == "auto" else "given",
            ", ".join(str(run.content["seed"]) for run in kind),
        ]
        for matching in (TEST_MATCHING, TRAINING_MATCHING):
            cells += [spread([step[matching][key] for step in last]) for key in ("all", "old", "new")]
            whole = [run.content["continual"][matching] for run in kind]
            cells += [spread([found[key] for found in whole]) for key in ("forgetting", "discovery")]
        best = max(step[TEST_MATCHING]["all"] or 0.0 for step in last)
        rows.append((-best, cells))
    names = ("All", "Old", "New", "forgetting", "discovery")
    header = ["method", "backbone", "order of classes", "number", "seeds"]
    header += [f"{name}, {words}" for words in ("test", "training") for name in names]
    return markdown(header, [cells for _, cells in sorted(rows, key=lambda row: row[0])])


def published_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was published on a data set."""
    return markdown(
        ["method", "number", "All"], [[row["method"], row["number"], format_score(row["all"])] for row in rows]
    )


def published() -> list[dict[str, Any]]:
    """All after the last stage, a row a method, data set and split."""
    rows: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return rows
