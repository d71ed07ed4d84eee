"""``docs/reproducibility.md``: what was published, what was measured, and whether the one bears the other out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, TypeGuard

from hoarfrost.metrics import harmonic_mean
from hoarfrost.paper.plan import Planned
from hoarfrost.paper.published import published
from hoarfrost.paper.tables import ONE_STEP, TWO_STEPS
from hoarfrost.paper.text import markdown, spread
from hoarfrost.printing import format_score
from tools.results import figures
from tools.results.findings import FINDINGS, Finding, Scores, published_scores, scores_of
from tools.results.kept import Result, grouped, read_results

BEGIN = "<!-- made by make results -->"
NEAR = 5.0
"""points that a figure may be apart from the published one"""

AGREES = 0.35
"""points by which rounding may separate a published All from the mean of Old and New"""

INSTEAD = {"ncl": "ncl-labelled"}
"""references that are compared with the published figures of a method: what the paper may have run under its name"""

RT = "RT-"
"""before the names of figures of the Original RT protocol"""

Group = tuple[str, str, str]


@dataclass(frozen=True)
class Compared:
    """A method on a data set: every published figure, and ours where there are runs."""

    group: Group
    seeds: tuple[int, ...]
    names: tuple[str, ...]
    published: tuple[float, ...]
    ours: tuple[tuple[float | None, ...], ...]
    """for each figure, those of all seeds; None where an earlier version did not score it"""

    @property
    def apart(self) -> tuple[float | None, ...]:
        """Our mean less the published figure."""
        means = [None if None in values else mean(filter(_there, values)) for values in self.ours]
        return tuple(None if own is None else own - paper for own, paper in zip(means, self.published, strict=True))

    @property
    def near(self) -> str:
        """Whether every figure is near the published one ("yes"), or at least All of the last step ("in part")."""
        if not self.seeds:
            return "not run"
        apart = dict(zip(self.names, self.apart, strict=True))
        if all(points is not None and abs(points) <= NEAR for points in apart.values()):
            return "yes"
        last = apart[[name for name in self.names if name.endswith("All") and not name.startswith(RT)][-1]]
        return "in part" if last is not None and abs(last) <= NEAR else "no"

    @property
    def verdict(self) -> str:
        """What stands in the table: one seed is marked as one."""
        return f"{self.near}, one seed" if len(set(self.seeds)) == 1 else self.near


def _there(value: float | None) -> TypeGuard[float]:
    return value is not None


def comparisons(groups: Mapping[Group, list[Result]]) -> Iterator[Compared]:
    """Everything that the paper has a number for, once, with all the figures that it prints for it.

    A reference that may be what the paper ran under a method's name has a row of its own behind it, where it was run.
    """
    rows: dict[Group, list[Mapping[str, Any]]] = {}
    for row in published():
        rows.setdefault((row["dataset"], row["split"], row["method"]), []).append(row)
    asked = []
    for group, printed in rows.items():
        instead = (*group[:2], INSTEAD.get(group[2], ""))
        asked += [(each, printed) for each in (group, instead) if each == group or each in groups]
    for group, printed in asked:
        runs = groups.get(group, [])
        paper = published_figures(printed)
        ours = [dict(_figures([_like_paper(step) for step in run.content["steps"]])) for run in runs]
        yield Compared(
            group,
            tuple(run.content["seed"] for run in runs),
            tuple(paper),
            tuple(paper.values()),
            tuple(tuple(run.get(name) for run in ours) for name in paper) if ours else (),
        )


def published_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The figures of one method on one data set, from all the tables that have it.

    Of several the first counts whose All is the mean of its Old and New over the classes.
    """
    chosen = next((row for row in rows if agrees(row)), rows[0])
    found = {name: value for name, value in _figures(chosen["steps"]) if value is not None}
    for row in rows:
        found |= {n: v for n, v in _figures(row["steps"]) if v is not None and n.startswith(RT)}
    return found


def agrees(row: Mapping[str, Any]) -> bool:
    """Whether All is, but for rounding, the mean of Old and New over the classes."""
    sizes = [int(part) for part in row["split"].split("-")]
    for index, step in enumerate(row["steps"]):
        values, classes = [step["old"], *(step.get("new_by_step_joint") or [step["new"]])], sizes[: index + 2]
        whole = sum(size * value for size, value in zip(classes, values, strict=True)) / sum(classes)
        if abs(whole - step["all"]) > AGREES:
            return False
    return True


def _like_paper(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step of ``metrics.json`` with the fields of a published one."""
    return {**step, **step["joint"]}


def _figures(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float | None]]:
    """Old, New, All and HM, then those of the other protocol; in several steps those of each, New by step and head."""
    for number, step in enumerate(steps, 1):
        place = f"{number}: " if len(steps) > 1 else ""
        yield f"{place}Old", step["old"]
        if len(steps) == 1:
            yield "New", step["new"]
            yield "All", step["all"]
            yield "HM", harmonic_mean(step["old"], step["new"])
            original = step.get("original_rt") or {}
            yield from ((f"{RT}{key.capitalize()}", original.get(key)) for key in ("old", "new", "all"))
        else:
            for kind, key in (("J", "new_by_step_joint"), ("N", "new_by_step_novel")):
                yield from ((f"{place}New-{k}-{kind}", value) for k, value in enumerate(step[key], 1))
            yield f"{place}All", step["all"]


def minutes(group: Group, kept: Sequence[Result]) -> float | None:
    """About how long the discoveries of a run take, by the kept runs on its data set; None without any.

    They count by the images that they went through, those of the same split alone where there are some. Methods that
    the paper does not have may go through them otherwise.
    """
    dataset, split, method = group
    methods = {row["method"] for row in published()}
    kept = [run for run in kept if run.group[0] == dataset and run.group[2] in methods and sum(_discovery(run)) > 0]
    kept = [run for run in kept if run.group[1] == split] or kept
    if not kept:
        return None
    rates = [sum(_discovery(run)) / _passes(run.content["split"], run.settings["discover"]["epochs"]) for run in kept]
    epochs = Planned("", dataset, split, method=method).config().discover.epochs
    return mean(rates) * _passes(split, epochs) / 60


def _discovery(run: Result) -> Sequence[float]:
    seconds: Sequence[float] = run.content["seconds"].get("discovery", ())
    return seconds


def _passes(split: str, epochs: int) -> int:
    """How often the images of a new class are looked at, added up over the new classes."""
    return epochs * sum(int(part) for part in split.split("-")[1:])


def make_tables(folder: Path) -> str:
    """What stands between the marks of the page."""
    results = read_results(folder)
    groups, kept = grouped(results), [*results, *read_results(folder / "sweeps")]
    parts = ["## The paper's findings\n"]
    for dataset, split in (*ONE_STEP.items(), *TWO_STEPS.items()):
        scores, printed = scores_of(groups, dataset, split), published_scores(dataset, split)
        findings = [finding for finding in FINDINGS if finding.steps == split.count("-")]
        rows = []
        for finding in findings:
            answer = finding.answer(scores) or _unanswered(finding, scores)
            rows.append([finding.claim, finding.figures(scores) or "–", answer, finding.answer(printed) or "–"])
        if any(finding.answer(scores) for finding in findings):
            header = ["finding", "our runs", "holds", "in the paper's tables"]
            parts += [f"### {dataset} {split}\n", markdown(header, rows) + "\n"]
    parts += figures.section(groups, "figures")
    parts.append("## Every published row\n")
    found = list(comparisons(groups))
    released = [row for row in comparisons(grouped(read_results(folder / "released"))) if row.seeds]
    for dataset, split in dict.fromkeys(compared.group[:2] for compared in found):
        here = [compared for compared in found if compared.group[:2] == (dataset, split)]
        parts.append(f"### {dataset} {split}\n")
        names = " / ".join(name for name in here[0].names if not name.startswith(RT))
        header = ["method", "seeds", f"published: {names}", "measured", "largest difference", "verified"]
        rows = [_row(compared, kept) for compared in here]
        rows += [
            _row(compared, kept, " --variant released")
            for compared in released
            if compared.group[:2] == (dataset, split)
        ]
        parts.append(markdown(header, rows) + "\n")
    return "\n".join(parts)


def _unanswered(finding: Finding, scores: Scores) -> str:
    """Why a finding has no answer: runs that were not made, or whose kept files lack what it is about."""
    if missing := finding.missing(scores):
        return f"not run: {', '.join(missing)}"
    lacking = [method for method in finding.methods if not scores[method].keys() >= set(finding.metrics)]
    return f"not in the kept files: {', '.join(lacking)}"


def _row(compared: Compared, kept: Sequence[Result], other: str = "") -> list[str]:
    """A line of the table; ``other`` is what its runs have that is not the rule's."""
    name, published = (
        f"`{compared.group[2]}{other}`",
        _cell(compared.names, list(map(format_score, compared.published))),
    )
    if not compared.seeds:
        about = minutes(compared.group, kept)
        return [name, "–", published, "–", "–", "not run" + ("" if about is None else f", about {about:.0f} min")]
    apart = {k: points for k, points in zip(compared.names, compared.apart, strict=True) if points is not None}
    largest = max(apart, key=lambda k: abs(apart[k]))
    return [
        name,
        ", ".join(map(str, compared.seeds)),
        published,
        _cell(compared.names, [spread(values) for values in compared.ours]),
        f"{largest} {apart[largest]:+.1f}",
        compared.verdict,
    ]


def _cell(names: Sequence[str], values: Sequence[str]) -> str:
    """All figures in one cell, those of the other protocol last."""
    both = list(zip(names, values, strict=True))
    own = " / ".join(value for name, value in both if not name.startswith(RT))
    other = " / ".join(value for name, value in both if name.startswith(RT))
    return f"{own}; RT {other}" if other else own
