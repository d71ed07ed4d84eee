"""``RESULTS.md``, made from the files under ``results/`` and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hoarfrost.paper import tables
from hoarfrost.paper.records import Result, grouped, published_row, read_results
from hoarfrost.paper.text import markdown, slashed, spread

HEADLINE = "<!-- made by make results: table 4 on cifar10 -->"
"""where the README has it"""

HEAD = """# Results

Made by `make results` from the files under `results/`, one a run; not edited by hand. Percent of the test images, by
the joint head, under the class-iNCD protocol ([docs/protocol.md](docs/protocol.md)); mean ± standard deviation over the
seeds where there are several. *Paper* is what the FRoST paper prints (Class-incremental Novel Class Discovery, 2022).
"""

SWEEP_HEAD = """## How much the settings matter

Everything else as in the recipe; the row in bold is what the runs above were made with. The sources disagree on these
settings: the paper has a batch of 128 new images and β = 0.05, the authors' scripts β = 0.01, and their loader an
effective 64 new images a step on CIFAR-10, 26 or 51 on CIFAR-100, and 14 in its two-step runs. *Together* sends both
views through the network in one pass, *separate* in two with batch statistics of their own, as the authors' code does.
The learning rate drops in stage one every 30 epochs in the scripts; the paper has one schedule for both stages, with
one drop when 85 % of the epochs are done.
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
                spread([result.content["stage_one"] for result in results]),
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


def sweep_table(results: Sequence[Result], taken: dict[str, Any] | None) -> str:
    """A row for each of the settings that one data set was tried with, and the paper's; ``taken`` in bold."""
    kinds: list[list[Result]] = []
    for result in results:
        kind = next((kind for kind in kinds if kind[0].settings == result.settings), None)
        if kind is None:
            kinds.append(kind := [])
        kind.append(result)
    frozen = [settings["method"].get("frozen", ()) for settings in (kind[0].settings for kind in kinds)]
    thawed = any(parts != frozen[0] for parts in frozen)
    rows = []
    for kind, parts in zip(kinds, frozen, strict=True):
        settings, steps = kind[0].settings, [result.content["steps"][-1] for result in kind]
        beta = settings["method"]["terms"].get("self-training", {}).get("weight", 0)
        cells = [
            f"{settings['discover']['batch_size']}",
            f"{beta:g}",
            settings["views"],
            f"{settings['discover']['epochs']}",
            ", ".join(str(epoch) for epoch in settings["fit"]["drops"]),
            *([", ".join(parts)] if thawed else []),
            ", ".join(str(result.content["seed"]) for result in kind),
            spread([result.content["stage_one"] for result in kind]),
            spread([step["joint"]["old"] for step in steps]),
            _by_step(steps, "new_by_step_joint"),
            *(spread([step["joint"][key] for step in steps]) for key in ("all", "hm")),
            _by_step(steps, "new_by_step_novel"),
        ]
        fit, discover = settings["fit"], settings["discover"]
        order = (discover["batch_size"], beta, settings["views"], discover["epochs"], fit["drops"], len(parts))
        rows.append((order, [f"**{cell}**" for cell in cells] if settings == taken else cells))
    rows.sort(key=lambda row: row[0])
    table = [cells for _, cells in rows]
    header = ["novel batch", "β", "views", "epochs", "drops in stage one", *(["frozen"] if thawed else [])]
    header += ["seeds", "stage one"]
    if (paper := published_row(*results[0].group)) is not None:
        step = paper["steps"][-1]
        new = slashed(step["new_by_step_joint"] if "new_by_step_joint" in step else [step["new"]])
        novel = slashed(step.get("new_by_step_novel", [None]))
        table.append(
            ["*paper*", *[""] * (len(header) - 1), slashed([step["old"]]), new, slashed([step["all"]]), "", novel]
        )
    return markdown([*header, "Old", "New", "All", "HM", "novel head"], table)


def paper_tables(
    groups: dict[tuple[str, str, str], list[Result]],
) -> list[tuple[str, str, dict[tuple[str, str, str], list[Result]]]]:
    """The tables of the paper, each on one data set, that have more runs behind them than FRoST's; and their runs."""
    found = []
    for name, table in tables.TABLES.items():
        if table.shape in ("norms", "confusion"):
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
    """Table 4 on CIFAR-10 in few columns."""
    groups = grouped(read_results(folder))
    found = contents({key: runs for key, runs in groups.items() if key[:2] == ("cifar10", "5-5")})
    header, rows = tables.grid(tables.lines("table4", ["cifar10"], found))
    few = [k for k, name in enumerate(header) if name != "novel head" and not name.endswith("calibrated")]
    return markdown([header[k] for k in few], [[row[k] for k in few] for row in rows])


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


def make_page(folder: Path) -> str:
    """The whole page."""
    results, sweeps = read_results(folder), read_results(folder / "sweeps")
    groups = grouped(results)
    shown = paper_tables(groups)
    covered = {key for _, _, part in shown for key in part if key[2] != "frost"}
    one = {key: runs for key, runs in groups.items() if len(runs[0].content["steps"]) == 1 and key not in covered}
    many = {key: runs for key, runs in groups.items() if len(runs[0].content["steps"]) > 1 and key not in covered}
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
    if sweeps:
        parts.append(SWEEP_HEAD)
        for dataset, split, method in sorted({result.group for result in sweeps}):
            tried = [result for result in sweeps if result.group == (dataset, split, method)]
            runs = groups.get((dataset, split, method), [])
            taken = runs[0].settings if runs else None
            if all(result.settings != taken for result in tried):
                tried += runs
            parts += [f"{dataset} {split}, {method}:\n", sweep_table(tried, taken) + "\n"]
    if not results and not sweeps:
        parts.append("No run is kept yet.\n")
    else:
        parts += ["## Runs\n", runs_table([*results, *sweeps]) + "\n"]
    return "\n".join(parts)
