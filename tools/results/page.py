"""``RESULTS.md``, made from the files under ``results/`` and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hoarfrost.paper import tables
from hoarfrost.paper.numerics import ARITHMETIC, numerics
from hoarfrost.paper.published import published_row
from hoarfrost.paper.text import markdown, slashed, spread
from hoarfrost.printing import format_score
from hoarfrost.recipes import PRINTED
from tools.results import continual, figures
from tools.results.kept import CONTINUAL, Result, grouped, read_results

HEADLINE = "<!-- made by make results: table 4 on cifar100 -->"
"""where the README has it"""

SCORES, SHOWN = ("old", "new", "all", "hm"), ("Old", "New", "All")

ESTIMATED = "<!-- made by make results: the number estimated -->"
BEYOND = "<!-- made by make results: hoarfrost and frost -->"
"""where pages have both methods side by side"""

HEAD = """# Results

Made by `make results` from the files under `results/`, one a run; not edited by hand. Every run has the settings of the
authors' public code (`--variant code`) unless a section says otherwise ([docs/deviations.md](docs/deviations.md)).
Percent of the test images under the class-iNCD protocol ([docs/protocol.md](docs/protocol.md)); mean ± standard
deviation over the seeds where there are several; a seed that stands twice was run twice. *Paper* is what the FRoST
paper prints (Class-incremental Novel Class Discovery, 2022).
"""

PRINTED_HEAD = """## As the paper prints it

With `--variant paper`: β = 0.05, similarity of a pair by the logistic function, distance of features image by image,
each class's own variance, replayed classes at random, 128 new images a batch, one drop of the learning rate in both
stages. All other figures of this page are with the settings of the authors' public code, `--variant code`.
"""

RELEASED_HEAD = """## As first released

With `--variant released`, the schedule of the authors' scripts of July 2022, before the preprint: longer discoveries,
and on CIFAR-100 twice the images in a batch and half the weight of consistency. Everything else as in `--variant code`.
"""

VARIANT_HEADS = {"paper": PRINTED_HEAD, "released": RELEASED_HEAD}
"""sections of the variants that have a folder of their own under ``results/``"""

SWEEP_HEAD = """## How much the settings matter

Runs with other settings than the rule's, whose own rows are in bold. Most were made before there was a rule. *Novel
batch* is the number of new images in a batch, β the weight of self-training, γ the weight of consistency and the epochs
over which it rises. *Together* sends both views through the network in one pass, *separate* in two with batch
statistics of their own, as the authors' code does. *As printed* are forms of terms that the paper prints and the code
has not. *Arithmetic* is the precision of the networks, and that of heads and losses: runs that allowed TF32 there are
not compared with others. Two runs of one seed and the same settings can differ by 4 points, so that smaller differences
between single seeds say nothing.
The scores are of the test images: whoever picks a row by them has looked at the labels of new classes.
"""


TABLES_HEAD = """## The paper's tables

As `hoarfrost reproduce` prints them for one data set. Runs with the same seed share their stage one where they were
made together. *HM* is the harmonic mean of Old and New; *novel head* is New by the head of the new classes alone;
*calibrated* is for methods that set their heads side by side, the softmax of each by itself
([docs/methods.md](docs/methods.md)).
"""


def one_step_table(groups: dict[tuple[str, str, str], list[Result]]) -> str:
    """A row for each group with one discovery."""
    rows = []
    for (dataset, split, method), results in groups.items():
        steps = [result.content["steps"][0] for result in results]
        paper = published_row(dataset, split, method)
        rows.append(
            [
                f"{dataset} {split}, {method}",
                ", ".join(str(result.content["seed"]) for result in results),
                spread([result.content.get("stage_one") for result in results]),
                *(spread([step["joint"][key] for step in steps]) for key in ("old", "new", "all", "hm")),
                spread([step["new_by_step_novel"][0] for step in steps]),
                "–" if paper is None else slashed(paper["steps"][0][key] for key in ("old", "new", "all")),
            ]
        )
    header = [
        "data and method",
        "seeds",
        "stage one",
        "Old",
        "New",
        "All",
        "HM",
        "novel head",
        "paper: Old / New / All",
    ]
    return markdown(header, rows)


def many_step_table(groups: dict[tuple[str, str, str], list[Result]]) -> str:
    """A row for each step of each group with several discoveries, the paper's below it."""
    rows = []
    for (dataset, split, method), results in groups.items():
        paper = published_row(dataset, split, method)
        seeds = ", ".join(str(result.content["seed"]) for result in results)
        for index in range(len(results[0].content["steps"])):
            steps = [result.content["steps"][index] for result in results]
            rows.append(
                [
                    f"{dataset} {split}, {method}, step {index + 1}",
                    seeds,
                    spread([step["joint"]["old"] for step in steps]),
                    *(_by_step(steps, key) for key in ("new_by_step_joint", "new_by_step_novel")),
                    spread([step["joint"]["all"] for step in steps]),
                ]
            )
            if paper is not None:
                step = paper["steps"][index]
                by_step = [slashed(step[key]) for key in ("new_by_step_joint", "new_by_step_novel")]
                rows.append(["*paper*", "", slashed([step["old"]]), *by_step, slashed([step["all"]])])
    return markdown(["data and method", "seeds", "Old", "New by step, joint", "New by step, novel heads", "All"], rows)


def _by_step(steps: Sequence[dict[str, Any]], key: str) -> str:
    return " / ".join(spread(values) for values in zip(*(step[key] for step in steps), strict=True))


def kinds(results: Sequence[Result]) -> list[list[Result]]:
    """Runs of one method with the same settings and the same arithmetic, together."""
    found: dict[str, list[Result]] = {}
    for result in results:
        key = json.dumps([result.group, result.settings, numerics(result.content, ARITHMETIC)], sort_keys=True)
        found.setdefault(key, []).append(result)
    return list(found.values())


def sweep_table(results: Sequence[Result]) -> str:
    """A row for each method and each of the settings that one data set was tried with; those of the rule in bold."""
    found = kinds(results)
    frozen = {tuple(kind[0].settings["method"].get("frozen", ())) for kind in found}
    some_printed = any(printed_forms(kind[0]) for kind in found)
    rows = []
    for kind in found:
        settings, steps = kind[0].settings, [result.content["steps"][-1] for result in kind]
        fit, discover, method = settings["fit"], settings["discover"], settings["method"]
        terms, parts = dict(method["terms"]), method.get("frozen", ())
        beta = terms.get("self-training", {}).get("weight", 0)
        batch = batch_of(kind[0])
        gamma = terms.get("consistency", {})
        cells = [
            f"{method['name']}",
            f"{batch or '–'}",
            f"{beta:g}",
            f"{gamma['weight']:g} over {gamma['ramp']}" if gamma.get("weight") else "–",
            settings["views"],
            f"{discover['epochs']}",
            f"{fit['epochs']}: {', '.join(str(epoch) for epoch in fit['drops'])}",
            *([", ".join(parts)] if len(frozen) > 1 else []),
            *([", ".join(printed_forms(kind[0])) or "–"] if some_printed else []),
            arithmetic_of(kind[0]),
            ", ".join(str(result.content["seed"]) for result in kind),
            spread([result.content.get("stage_one") for result in kind]),
            spread([step["joint"]["old"] for step in steps]),
            _by_step(steps, "new_by_step_joint"),
            *(spread([step["joint"][key] for step in steps]) for key in ("all", "hm")),
            _by_step(steps, "new_by_step_novel"),
        ]
        order = (method["name"] != "frost", method["name"], batch, beta, cells[3:])
        rows.append((order, [f"**{cell}**" for cell in cells] if kind[0].follows_rule else cells))
    rows.sort(key=lambda row: row[0])
    header = ["method", "novel batch", "β", "γ", "views", "epochs", "stage one: drops"]
    header += [
        *(["frozen"] if len(frozen) > 1 else []),
        *(["as printed"] if some_printed else []),
        "arithmetic",
        "seeds",
        "stage one",
    ]
    table = [cells for _, cells in rows]
    return markdown([*header, "Old", "New", "All", "HM", "novel head"], table)


def printed_forms(result: Result) -> list[str]:
    """Which of a run's terms have a form that the paper prints and its public code has not."""
    terms = dict(result.settings["method"]["terms"])
    forms = [(kind, key, value) for kind, values in PRINTED.items() for key, value in values.items() if key != "weight"]
    return [f"{key} {value}" for kind, key, value in forms if terms.get(kind, {}).get(key) == value]


def batch_of(result: Result) -> int:
    """Images a batch of the last discovery, 0 where nothing was trained; as configured where it was not recorded."""
    *_, last = result.content.get("trained") or [None]
    size: int | None = {**result.settings["discover"], **(last or {})}["batch_size"]
    return size or 0


def arithmetic_of(result: Result) -> str:
    """The precision of the networks and of what comes after them, in few words."""
    stages = [stage for stage in result.content.get("trained") or () if stage]
    ways = {(stage.get("networks"), stage.get("heads")) for stage in stages}
    return "; ".join(sorted(f"{networks}, heads {heads}" for networks, heads in ways)) or "not recorded"


def paper_tables(
    groups: dict[tuple[str, str, str], list[Result]],
) -> list[tuple[str, str, dict[tuple[str, str, str], list[Result]]]]:
    """The tables of the paper, each on one data set, that have more runs behind them than FRoST's; and their runs."""
    found = []
    for name, table in tables.TABLES.items():
        if table.picture is not None:
            continue
        for dataset, split in table.printed.items():
            keys = [(dataset, split, method) for _, method in table.rows]
            part = {key: groups[key] for key in keys if key in groups}
            if any(key[2] != "frost" for key in part):
                found.append((name, dataset, part))
    return found


def contents(groups: dict[tuple[str, str, str], list[Result]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Of runs with one split for each data set, as a table of the paper is made from them."""
    return {(key[0], key[2]): [dict(result.content) for result in runs] for key, runs in groups.items()}


def headline(folder: Path) -> str:
    """The published rows of table 4 on CIFAR-100 in few columns, then ``hoarfrost`` and the upper bound."""
    groups = grouped(read_results(folder))
    found = contents({key: runs for key, runs in groups.items() if key[:2] == ("cifar100", "80-20")})
    published, others = [], []
    for line in tables.lines("table4", ["cifar100"], found):
        cells = [cell for cell in line.cells if cell.metric in SHOWN]
        paper = [cell.published for cell in cells]
        row = [line.label, ", ".join(map(str, line.seeds)) or "–", *(spread(cell.ours) for cell in cells)]
        if any(value is not None for value in paper):
            published.append([*row, slashed(paper)])
        elif line.method == "supervised":
            others.append([*row, "–"])
    runs = groups.get(("cifar100", "80-20", "hoarfrost"), [])
    ours = [["**hoarfrost**", *_last_step(runs, SHOWN), "–"]] if runs else []
    return markdown(["method", "seeds", *SHOWN, f"paper: {' / '.join(SHOWN)}"], [*published, *ours, *others])


def _last_step(runs: Sequence[Result], names: Sequence[str] = SCORES) -> list[str]:
    """The seeds, and the scores of the last step."""
    joint = [run.content["steps"][-1]["joint"] for run in runs]
    seeds = ", ".join(str(run.content["seed"]) for run in runs)
    return [seeds, *(spread([scores[key] for scores in joint]) for key in map(str.lower, names))]


def beyond(folder: Path) -> str:
    """The last step of ``hoarfrost``, and beside it that of FRoST, here and in its paper; where the first was run."""
    groups, rows = grouped(read_results(folder)), []
    for dataset, split in [key[:2] for key in groups if key[2] == "hoarfrost"]:
        title, printed = f"{dataset} {split}", published_row(dataset, split, "frost")
        if printed is not None:
            last = printed["steps"][-1]
            rows.append([title, "FRoST in its paper", "–", *(format_score(last.get(key)) for key in SCORES)])
        for method, name in (("frost", "FRoST"), ("hoarfrost", "**hoarfrost**")):
            runs = groups.get((dataset, split, method), [])
            if runs:
                rows.append([title, name, *_last_step(runs)])
    return markdown(["data set", "method", "seeds", "Old", "New", "All", "HM"], rows)


def estimated(folder: Path) -> str:
    """Runs that had to find the number of new classes too, each by itself: what they found for how many."""
    rows = []
    for result in sorted(read_results(folder / "number"), key=lambda result: float(result.settings["mixed"])):
        for step in result.content["steps"]:
            scores = step["category_discovery"]
            rows.append(
                [
                    f"{result.content['dataset']} {result.content['split']}, {result.content['method']}",
                    format(result.settings["mixed"], "g"),
                    str(result.content["seed"]),
                    str(step["index"]),
                    f"{step['found']} for {step['novel']}",
                    *(format_score(scores[key]) for key in ("old", "new", "all")),
                ]
            )
    return markdown(["data and method", "mixed", "seed", "step", "new classes", "Old", "New", "All"], rows)


def runs_table(results: Sequence[Result]) -> str:
    """Where every figure comes from."""
    rows = []
    for result in results:
        content = result.content
        seconds = content["seconds"]
        rows.append(
            [
                f"`{result.name}`",
                content["hardware"],
                f"torch {content['versions']['torch']}",
                f"`{(content['commit'] or '–')[:10]}`",
                f"{seconds['stage_one']:.0f}",
                " / ".join(f"{value:.0f}" for value in seconds["discovery"]),
            ]
        )
    return markdown(["file", "hardware", "version", "commit", "stage one, s", "discovery, s"], rows)


Groups = dict[tuple[str, str, str], list[Result]]


def by_steps(groups: Groups) -> tuple[Groups, Groups]:
    """Those with one discovery, and those with several."""
    one = {key: runs for key, runs in groups.items() if len(runs[0].content["steps"]) == 1}
    return one, {key: runs for key, runs in groups.items() if key not in one}


def _among(group: tuple[str, str, str], dataset: str, split: str, methods: set[str]) -> bool:
    return group[:2] == (dataset, split) and group[2] in methods


def make_page(folder: Path) -> str:
    """The whole page."""
    results, sweeps = read_results(folder), read_results(folder / "sweeps")
    variants = {name: read_results(folder / name) for name in VARIANT_HEADS}
    groups = grouped(results)
    shown = paper_tables(groups)
    covered = {key for _, _, part in shown for key in part if key[2] != "frost"}
    one, many = by_steps({key: runs for key, runs in groups.items() if key not in covered})
    parts = [HEAD]
    if one:
        parts += ["## One discovery\n", one_step_table(one) + "\n"]
        rows = [row for key in one if (row := published_row(*key)) is not None]
        notes = [f"- Paper, {row['method']} on {row['dataset']}: {row['note']}" for row in rows if "note" in row]
        parts += ["\n".join(notes) + "\n"] if notes else []
    if many:
        parts += ["## Several discoveries\n", many_step_table(many) + "\n"]
    if shown:
        parts.append(TABLES_HEAD)
        for name, dataset, part in shown:
            title = f"### Table {name.removeprefix('table')} on {dataset}. {tables.get_table(name).title}\n"
            lines = tables.lines(name, [dataset], contents(part))
            parts += [title, markdown(*tables.grid(lines)) + "\n", *(f"- {note}\n" for note in tables.notes(lines))]
    parts += figures.section(groups, "docs/figures")
    for name, kept in variants.items():
        one, many = by_steps(grouped(kept))
        tables_of = [table(part) + "\n" for table, part in ((one_step_table, one), (many_step_table, many)) if part]
        parts += [VARIANT_HEADS[name], *tables_of] if kept else []
    in_stages = read_results(folder / CONTINUAL)
    parts += continual.section(kinds(in_stages))
    if sweeps:
        parts.append(SWEEP_HEAD)
        for dataset, split in sorted({result.group[:2] for result in sweeps}):
            tried = [result for result in sweeps if result.group[:2] == (dataset, split)]
            methods = {result.group[2] for result in tried}
            tried += [result for key, runs in groups.items() for result in runs if _among(key, dataset, split, methods)]
            parts += [f"### {dataset} {split}\n", sweep_table(tried) + "\n"]
    every = [*results, *chain(*variants.values()), *in_stages, *sweeps, *read_results(folder / "number")]
    parts += ["## Runs\n", runs_table(every) + "\n"] if every else ["No run is kept yet.\n"]
    return "\n".join(parts)
