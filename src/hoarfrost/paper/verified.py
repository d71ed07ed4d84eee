"""``docs/reproducibility.md``: what was published, what was measured, and whether the one bears the other out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from hoarfrost.paper.findings import FINDINGS, scores_of
from hoarfrost.paper.records import Result, grouped, published, read_results
from hoarfrost.paper.tables import ONE_STEP
from hoarfrost.paper.text import markdown, slashed, spread

BEGIN = "<!-- made by make results -->"
NEAR = 5.0
"""points that a figure may be apart from the published one"""

Group = tuple[str, str, str]


@dataclass(frozen=True)
class Compared:
    """A method on a data set: the published figures, and ours where there are runs."""

    group: Group
    seeds: tuple[int, ...]
    names: tuple[str, ...]
    published: tuple[float, ...]
    ours: tuple[tuple[float, ...], ...]
    """for each figure, those of all seeds"""

    @property
    def apart(self) -> tuple[float, ...]:
        """Our mean less the published figure."""
        return tuple(mean(values) - paper for values, paper in zip(self.ours, self.published, strict=True))

    @property
    def verdict(self) -> str:
        """Whether every figure is near the published one, or at least All, which stands last."""
        if not self.seeds:
            return "not run"
        if all(abs(points) <= NEAR for points in self.apart):
            return "yes"
        return "in part" if abs(self.apart[-1]) <= NEAR else "no"


def comparisons(groups: Mapping[Group, list[Result]]) -> Iterator[Compared]:
    """Everything that the paper has a number for, once, as its main comparison prints it, which comes first."""
    done = set[Group]()
    for row in published():
        group = (row["dataset"], row["split"], row["method"])
        if group in done:
            continue
        done.add(group)
        runs = groups.get(group, [])
        paper = dict(_figures(row["steps"]))
        ours = [dict(_figures([_like_paper(step) for step in run.content["steps"]])) for run in runs]
        yield Compared(
            group,
            tuple(run.content["seed"] for run in runs),
            tuple(paper),
            tuple(paper.values()),
            tuple(tuple(run[name] for run in ours) for name in paper) if ours else (),
        )


def _like_paper(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step of ``metrics.json`` with the fields of a published one."""
    return {**step["joint"], "new_by_step_joint": step["new_by_step_joint"]}


def _figures(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Old, New and All; in several steps those of each, New apart by the step that found it."""
    for number, step in enumerate(steps, 1):
        place = f"{number}: " if len(steps) > 1 else ""
        yield f"{place}Old", step["old"]
        if len(steps) == 1:
            yield "New", step["new"]
        else:
            yield from ((f"{place}New-{k}", value) for k, value in enumerate(step["new_by_step_joint"], 1))
        yield f"{place}All", step["all"]


def make_tables(folder: Path) -> str:
    """What stands between the marks of the page."""
    groups = grouped(read_results(folder))
    parts = ["## The paper's findings\n"]
    for dataset, split in ONE_STEP.items():
        scores = scores_of(groups, dataset, split)
        rows = []
        for finding in FINDINGS:
            if missing := finding.missing(scores):
                rows.append([finding.claim, finding.figures(scores) or "–", f"not run: {', '.join(missing)}"])
            else:
                rows.append([finding.claim, finding.figures(scores), "yes" if finding.holds(scores) else "**no**"])
        if any(len(finding.missing(scores)) == 0 for finding in FINDINGS):
            parts += [f"### {dataset} {split}\n", markdown(["finding", "our runs", "holds"], rows) + "\n"]
    parts.append("## Every published row\n")
    found = list(comparisons(groups))
    for dataset, split in dict.fromkeys(compared.group[:2] for compared in found):
        here = [compared for compared in found if compared.group[:2] == (dataset, split)]
        run = [compared for compared in here if compared.seeds]
        parts.append(f"### {dataset} {split}\n")
        if run:
            names = " / ".join(run[0].names)
            header = ["method", "seeds", f"published: {names}", "measured", "largest difference", "verified"]
            parts.append(markdown(header, [_row(compared) for compared in run]) + "\n")
        if lacking := [f"`{compared.group[2]}`" for compared in here if not compared.seeds]:
            parts.append(f"Not run: {', '.join(lacking)}.\n")
    return "\n".join(parts)


def _row(compared: Compared) -> list[str]:
    largest = max(compared.apart, key=abs)
    return [
        f"`{compared.group[2]}`",
        ", ".join(map(str, compared.seeds)),
        slashed(compared.published),
        " / ".join(spread(values) for values in compared.ours),
        f"{compared.names[compared.apart.index(largest)]} {largest:+.1f}",
        compared.verdict,
    ]
