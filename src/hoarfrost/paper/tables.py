"""The paper's tables: which runs each is made of, and how it is printed, with the published numbers beside ours."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Literal

from hoarfrost.errors import unknown
from hoarfrost.methods import get_method
from hoarfrost.paper.numerics import check_numerics, numerics
from hoarfrost.paper.plan import Planned, shortened
from hoarfrost.paper.published import published_average, published_row
from hoarfrost.paper.text import file_name, markdown, slashed, spread
from hoarfrost.printing import format_score
from hoarfrost.recipes import get_recipe

ONE_STEP = {"cifar10": "5-5", "cifar100": "80-20", "tiny-imagenet": "180-20"}
TWO_STEPS = {"cifar100": "80-10-10", "tiny-imagenet": "180-10-10"}
OTHER_SPLITS = {"one": {"digits": "5-5"}, "two": {"digits": "4-3-3", "cifar10": "4-3-3"}}
"""of data sets that the paper does not have in a table"""

Shape = Literal["one", "two", "protocols"]
Picture = Literal["norms", "confusion", "protocols", "steps"]


@dataclass(frozen=True)
class Table:
    """A table of the paper, or a figure."""

    title: str
    rows: tuple[tuple[str, str], ...]
    """what a row is called, and its method"""
    shape: Shape = "one"
    """one discovery; two; one under both protocols"""
    splits: Mapping[str, str] | None = None
    """the data sets that the paper has in it, and their splits; None for all of one discovery"""
    picture: Picture | None = None
    """what is drawn, where it is a figure (``pictures.py``)"""

    @property
    def printed(self) -> Mapping[str, str]:
        """The data sets that the paper has in it, and their splits."""
        return ONE_STEP if self.splits is None else self.splits

    @property
    def possible(self) -> Mapping[str, str]:
        """All data sets that it can be made of, in the paper's or not, and their splits."""
        if self.shape == "two":
            return {**OTHER_SPLITS["two"], **TWO_STEPS}
        return {**OTHER_SPLITS["one"], **ONE_STEP}

    def split(self, dataset: str) -> str:
        """The split of a data set, be it in the paper's table or not."""
        if dataset not in self.possible:
            raise unknown("data set", dataset, self.possible)
        return self.possible[dataset]


FROST = ("FRoST", "frost")
RESTUNE, NCL, DTC = ("ResTune", "restune"), ("NCL", "ncl"), ("DTC", "dtc")
BOTH_PROTOCOLS = (RESTUNE, FROST)
ABLATED = (("FRoST without FD and FR", "frost-without-fd-fr"), ("FRoST without ST", "frost-without-st"))

TABLES: dict[str, Table] = {
    "table1": Table(
        "Ablation: feature distillation (FD), feature replay (FR), self-training (ST)",
        (
            FROST,
            ("without FD and FR", "frost-without-fd-fr"),
            ("without FD", "frost-without-fd"),
            ("without FR", "frost-without-fr"),
            ("without ST", "frost-without-st"),
            ("without FD, FR and ST", "frost-without-fd-fr-st"),
        ),
    ),
    "table2": Table(
        "FRoST and Learning without Forgetting (LwF)",
        (
            FROST,
            ("LwF (softmax)", "lwf-softmax"),
            ("LwF (softmax) and FR", "lwf-softmax-replay"),
            ("LwF (pre-softmax)", "lwf-presoftmax"),
            ("LwF (pre-softmax) and FR", "lwf-presoftmax-replay"),
        ),
    ),
    "table3": Table(
        "One head or separate ones",
        (
            ("joint and novel (FRoST)", "frost"),
            ("joint", "joint"),
            ("joint without ST", "joint-without-st"),
            ("novel without ST", "novel-without-st"),
        ),
    ),
    "table4": Table(
        "The state of the art in class-iNCD",
        (
            ("AutoNovel", "autonovel"),
            RESTUNE,
            NCL,
            ("NCL with labelled images (reference)", "ncl-labelled"),
            DTC,
            FROST,
            ("k-means (reference)", "kmeans"),
            ("supervised (upper bound, all labels)", "supervised"),
        ),
    ),
    "table5": Table(
        "Two steps",
        (RESTUNE, DTC, NCL, FROST),
        shape="two",
        splits={"tiny-imagenet": "180-10-10"},
    ),
    "tableA3": Table("ResTune under both protocols", BOTH_PROTOCOLS, "protocols", {"cifar10": "5-5"}),
    "tableA4": Table("ResTune under both protocols", BOTH_PROTOCOLS, "protocols", {"cifar100": "80-20"}),
    "tableA5": Table("ResTune under both protocols", BOTH_PROTOCOLS, "protocols", {"tiny-imagenet": "180-20"}),
    "tableA6": Table("Two steps", (DTC, NCL, RESTUNE, FROST), shape="two", splits={"cifar100": "80-10-10"}),
    "figure4": Table(
        "How long the weight vectors of old and new classes are",
        (*ABLATED, FROST),
        splits={"cifar10": "5-5"},
        picture="norms",
    ),
    "figure5": Table(
        "Which classes test images are taken for",
        (*ABLATED, ("AutoNovel", "autonovel"), NCL, RESTUNE, FROST),
        splits={"cifar10": "5-5"},
        picture="confusion",
    ),
    "figureA1": Table("ResTune's predictions under both protocols", (RESTUNE,), picture="protocols"),
    "figureA2": Table(
        "Which classes test images are taken for: ResTune and FRoST", BOTH_PROTOCOLS, picture="confusion"
    ),
    "figureA3": Table(
        "Which classes test images are taken for: FRoST after each of two steps",
        (FROST,),
        shape="two",
        splits={"cifar100": "80-10-10"},
        picture="steps",
    ),
}


FORMER_NAMES = {"figure-norms": "figure4", "figure-confusion": "figure5"}
"""what figures were called before"""


def get_table(name: str) -> Table:
    """The table of a name."""
    if name not in TABLES:
        raise unknown("table or figure", name, TABLES)
    return TABLES[name]


def named(variant: str, settings: Sequence[str]) -> list[str]:
    """What makes runs differ from the usual ones, as parts of a file's name.

    >>> named("paper", ["discover.batch_size=64"]), named("code", [])
    (['paper', 'discover-batch-size-64'], [])
    """
    return [*([] if variant == "code" else [variant]), *(file_name(setting) for setting in settings)]


def run_name(dataset: str, split: str, method: str, seed: int, other: Sequence[str] = ()) -> str:
    """A run's place below the folder of all runs; ``other`` is what makes it differ from the usual one."""
    return f"{dataset}-{split}/{'-'.join([method, *other, f'seed{seed}'])}"


def planned(
    table: Table,
    datasets: Sequence[str],
    seeds: int,
    epochs: int | None = None,
    *,
    variant: str = "code",
    settings: Sequence[str] = (),
) -> list[Planned]:
    """The runs of a table: seed by seed, so that a whole table is there early. ``settings`` are as ``--set`` has them.

    What makes a run differ from the usual one is in its name.
    """
    other = named(variant, settings)
    runs = []
    for seed in range(seeds):
        for dataset in datasets:
            split = table.split(dataset)
            recipe = get_recipe(dataset, variant, split)
            usual = recipe.config(get_method("frost"), seed)
            for _, method in table.rows:
                short, fit = shortened(recipe.config(get_method(method), seed), usual, epochs)
                shorter = [] if epochs is None else [f"epochs{epochs}"]
                name = run_name(dataset, split, method, seed, [*other, *shorter])
                runs.append(
                    Planned(name, dataset, split, seed, method, variant, tuple(settings), epochs=short, fit_epochs=fit)
                )
    return runs


@dataclass(frozen=True)
class Cell:
    """One figure of a table."""

    metric: str
    ours: tuple[float | None, ...]
    """of each seed"""
    published: float | None


@dataclass(frozen=True)
class Line:
    """A row of a table on one data set."""

    dataset: str
    split: str
    label: str
    method: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    note: str | None = None
    """what is odd about it as published"""
    numerics: tuple[str, ...] = ()
    """how its runs were computed, each way once"""


def lines(
    name: str, datasets: Sequence[str], results: Mapping[tuple[str, str], Sequence[dict[str, Any]]]
) -> list[Line]:
    """The rows of a table, from the ``metrics.json`` of each data set and method; last their averages, as printed."""
    table = get_table(name)
    made = []
    for dataset in datasets:
        split = table.split(dataset)
        for label, method in table.rows:
            metrics = results.get((dataset, method), ())
            paper = published_row(dataset, split, method, name)
            cells = tuple(_cells(table, metrics, None if paper is None else paper["steps"], split.count("-")))
            seeds, note = tuple(content["seed"] for content in metrics), (paper or {}).get("note")
            check_numerics({f"{dataset} {split}, {method}, seed {content['seed']}": content for content in metrics})
            ways = tuple(dict.fromkeys(way for content in metrics for way in numerics(content)))
            made.append(Line(dataset, split, label, method, seeds, cells, note, ways))
    if table.shape == "one" and set(datasets) == set(table.printed):
        made += [_average(name, label, method, made) for label, method in table.rows]
    return made


def _average(name: str, label: str, method: str, made: Sequence[Line]) -> Line:
    """Of one row over all data sets: of each seed that it was run with on all of them."""
    rows = [line for line in made if line.method == method]
    seeds = sorted(set.intersection(*(set(line.seeds) for line in rows)))
    paper = published_average(name, method)
    cells = []
    for metric in ("Old", "New", "All"):
        found = [(line, next(cell for cell in line.cells if cell.metric == metric)) for line in rows]
        each = [[_of_seed(line, cell, seed) for line, cell in found] for seed in seeds]
        ours = tuple(mean(value for values in every for value in values) for every in each)
        cells.append(Cell(metric, ours, None if paper is None else paper[metric.lower()]))
    note = (paper or {}).get("note")
    return Line("average", "of all data sets", label, method, tuple(seeds), tuple(cells), note)


def _of_seed(line: Line, cell: Cell, seed: int) -> list[float]:
    """The figure of a seed: of several runs their mean; nothing where there is none."""
    values = [value for own, value in zip(line.seeds, cell.ours, strict=True) if own == seed and value is not None]
    return [mean(values)] if values else []


def _cells(
    table: Table, metrics: Sequence[dict[str, Any]], paper: Sequence[dict[str, Any]] | None, steps: int
) -> Iterator[Cell]:
    """The figures of a row; those that the paper does not print have None there."""

    def cell(metric: str, step: int, *path: str | int) -> Cell:
        printed = list(path[1:] if path[0] == "joint" else path)
        published = None if paper is None or step >= len(paper) else _at(paper[step], printed)
        return Cell(metric, tuple(_at(content["steps"][step], path) for content in metrics), published)

    if table.shape != "two":
        for key in ("old", "new", "all"):
            yield cell(key.capitalize(), 0, "joint", key)
        if table.shape == "protocols":
            for key in ("old", "new", "all"):
                yield cell(f"{key.capitalize()}, RT", 0, "original_rt", key)
            return
        yield cell("HM", 0, "joint", "hm")
        yield cell("novel head", 0, "new_by_step_novel", 0)
        for key in ("old", "new", "all"):
            yield cell(f"{key.capitalize()}, calibrated", 0, "calibrated", key)
        return
    for step in range(steps):
        place = f"step {step + 1}: " if steps > 1 else ""
        yield cell(f"{place}Old", step, "joint", "old")
        for kind, key in (("J", "new_by_step_joint"), ("N", "new_by_step_novel")):
            for earlier in range(step + 1):
                yield cell(f"{place}New-{earlier + 1}-{kind}", step, key, earlier)
        yield cell(f"{place}All", step, "joint", "all")


def _at(content: Any, path: Sequence[str | int]) -> float | None:
    for key in path:
        if content is None or (isinstance(key, str) and key not in content):
            return None
        content = content[key]
    return None if content is None else float(content)


def to_row(line: Line) -> dict[str, Any]:
    """A row for JSON."""
    cells = {cell.metric: {"ours": list(cell.ours), "published": cell.published} for cell in line.cells}
    place = {"dataset": line.dataset, "split": line.split, "label": line.label, "method": line.method}
    return {**place, "seeds": list(line.seeds), "scores": cells, "note": line.note}


def grid(lines_: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text, of one data set: ours, then the paper's where it has any."""
    cells = lines_[0].cells
    used = [k for k in range(len(cells)) if any(v is not None for line in lines_ for v in line.cells[k].ours)]
    used = used or list(range(len(cells)))
    printed = [k for k in range(len(cells)) if any(line.cells[k].published is not None for line in lines_)]
    header = ["method", "seeds", *(cells[k].metric for k in used)]
    header += [f"paper: {' / '.join(cells[k].metric for k in printed)}"] if printed else []
    rows = []
    for line in lines_:
        row = [line.label, ", ".join(map(str, line.seeds)) or "–", *(spread(line.cells[k].ours) for k in used)]
        if printed:
            values = [line.cells[k].published for k in printed]
            row.append("–" if all(value is None for value in values) else slashed(values))
        rows.append(row)
    return header, rows


def by_dataset(lines_: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    """The rows of each data set."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines_:
        groups.setdefault((line.dataset, line.split), []).append(line)
    return groups


def notes(lines_: Sequence[Line]) -> list[str]:
    """What is odd about the published numbers of one data set; and how ours were computed, if not all alike."""
    odd = [f"Published, {line.label}: {line.note}" for line in lines_ if line.note is not None]
    ways: dict[str, list[str]] = {}
    for line in lines_:
        for way in line.numerics:
            ways.setdefault(way, []).append(line.label)
    if len(ways) > 1:
        odd += [f"Not all rows were computed alike: {'; '.join(labels)}: {way}" for way, labels in ways.items()]
    return odd


def as_markdown(name: str, lines_: Sequence[Line]) -> str:
    """A section for each data set."""
    parts = [f"# {name}: {get_table(name).title}\n"]
    for (dataset, split), group in by_dataset(lines_).items():
        parts += [f"## {dataset} {split}\n", markdown(*grid(group)) + "\n"]
        parts += [f"- {note}\n" for note in notes(group)]
    return "\n".join(parts).rstrip() + "\n"


def as_text(name: str, lines_: Sequence[Line]) -> str:
    """For a terminal: the columns aligned."""
    parts = [f"{name}: {get_table(name).title}"]
    for (dataset, split), group in by_dataset(lines_).items():
        header, rows = grid(group)
        widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
        parts += ["", f"{dataset} {split}"]
        for row in (header, *rows):
            padded = [
                cell.ljust(width) if k == 0 else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            parts.append("  ".join(padded).rstrip())
        parts += notes(group)
    return "\n".join(parts)


def as_csv(name: str, lines_: Sequence[Line]) -> str:
    """A line a figure: mean and standard deviation over the seeds, and the published number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["table", "dataset", "split", "row", "method", "metric", "seeds", "mean", "sd", "published", "note"]
    )
    for line in lines_:
        for cell in line.cells:
            known = [value for value in cell.ours if value is not None]
            if not known and cell.published is None:
                continue
            mean, _, deviation = spread(known).partition(" ± ") if known else ("", "", "")
            published = "" if cell.published is None else format_score(cell.published)
            place = [name, line.dataset, line.split, line.label, line.method, cell.metric]
            note = "" if line.note is None or cell.published is None else line.note
            writer.writerow([*place, len(known), mean, deviation, published, note])
    return out.getvalue()


LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "–": "--", "β": r"$\beta$"}


def as_latex(name: str, lines_: Sequence[Line]) -> str:
    """A table environment for each data set."""

    def cell(text: str) -> str:
        return "".join(LATEX.get(character, character) for character in text)

    parts = []
    for (dataset, split), group in by_dataset(lines_).items():
        header, rows = grid(group)
        body = "\n".join("    " + " & ".join(map(cell, row)) + r" \\" for row in rows)
        below = "".join(f"  \\par\\footnotesize {cell(note)}\n" for note in notes(group))
        parts.append(
            "\\begin{table}\n  \\centering\n"
            f"  \\caption{{{cell(get_table(name).title)}: {cell(dataset)} {cell(split)}.}}\n"
            f"  \\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n    \\hline\n"
            f"    {' & '.join(map(cell, header))} \\\\\n    \\hline\n{body}\n    \\hline\n"
            f"  \\end{{tabular}}\n{below}\\end{{table}}\n"
        )
    return "\n".join(parts)
