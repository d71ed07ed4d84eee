"""``hoarfrost reproduce``: a table of the paper, from its runs to print."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoarfrost.cli import options
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.data.images import ImageSet
    from hoarfrost.paper.estimate import Estimate
    from hoarfrost.paper.plan import Planned

SUMMARY = "reproduce tables and figures of the paper, beside the published numbers"
DESCRIPTION = (
    "Do all runs that tables or figures of the paper need, then make them. Runs share stage one. Finished runs are not "
    "repeated: the same command continues an interrupted table."
)
EXAMPLE = "example: hoarfrost reproduce table4 --dataset cifar10 --seeds 3 --data data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``reproduce``."""
    parser.add_argument(
        "tables",
        nargs="+",
        metavar="TABLE",
        help="table1 to table5, tableA3 to tableA6, figure4, figure5, figureA1 to figureA3; several share their runs",
    )
    parser.add_argument(
        "--dataset", action="append", metavar="NAME", help="a data set; may be repeated (default: those of the paper)"
    )
    parser.add_argument("--seeds", type=options.positive, default=1, metavar="N", help="seeds 0 to N-1 (default: 1)")
    parser.add_argument("--data", default="data", metavar="DIR", help="the folder of the data sets (default: data)")
    parser.add_argument("--download", action="store_true", help="download a missing data set into --data")
    parser.add_argument(
        "--out",
        default="runs/reproduce",
        type=options.place,
        metavar="DIR",
        help="the folder of all runs and tables (default: runs/reproduce)",
    )
    parser.add_argument(
        "--epochs",
        type=options.positive,
        metavar="N",
        help="scale all schedules so that the usual discovery has N epochs",
    )
    options.add_variant(parser)
    options.add_settings(parser)
    parser.add_argument(
        "--jobs",
        type=options.positive,
        metavar="N",
        help="parallel runs on the CPU or on each GPU (default: 4 on a GPU, fewer below 24 GiB; 1 on a CPU and on a"
        " cluster's GPU)",
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="run on a Ray cluster, whose machines must share --out and --data"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list the runs with estimates of their time")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on standard output")


def main(args: argparse.Namespace) -> int:
    """Carries out what is missing, writes the table, prints it."""
    from hoarfrost.computing.runtime import resolve_device
    from hoarfrost.paper.estimate import Estimate
    from hoarfrost.paper.plan import last_line, log_of
    from hoarfrost.paper.tables import FORMER_NAMES
    from hoarfrost.store import check_folder

    args.tables = list(dict.fromkeys(FORMER_NAMES.get(name, name) for name in args.tables))
    asked = [_asked(name, args) for name in args.tables]
    device = resolve_device(args.device)
    plan = list(dict.fromkeys(run for part in asked for run in part.plan))
    folder: Path = args.out
    estimate = Estimate(args.device, folder, plan)
    missing = [run for run in plan if run.metrics(folder) is None]
    if args.dry_run:
        return _list(args, plan, estimate)
    check_folder(folder)
    for dataset in dict.fromkeys(dataset for part in asked for dataset in part.datasets):
        _read(dataset, args)  # refused before the first run does
    failed: list[Planned] = []
    if missing:
        done = len(plan) - len(missing)

        def said(run: Planned, what: str) -> None:
            nonlocal done
            done += what == "done"
            log = log_of(folder, run)
            if what == "failed":
                what = f"failed, see {log}: {last_line(log) or 'no output'}"
            elif what.startswith("was ended"):
                what = f"{what}, see {log}"
            _tell(f"[{done}/{len(plan)}] {run.name} {what}")

        # Counting takes a while for many runs, and the first ones need not wait for it.
        counting = threading.Thread(target=_tell_duration, args=(estimate, plan), daemon=True)

        def begin() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            _tell(f"{len(missing)} of {len(plan)} runs to do, in {folder}")
            estimate.measure()
            counting.start()

        try:
            failed = _carry_out(args, missing, begin, said, on_gpu=device.type == "cuda")
        except KeyboardInterrupt:
            _tell("run the same command again to continue")
            raise
        finally:
            if counting.is_alive():
                counting.join(1.0)
    contents, texts = list[dict[str, Any]](), list[str]()
    for part in asked:
        if part.draws:
            content, text, unreadable = _draw(args, part)
            failed += [run for run in unreadable if run not in failed]
        else:
            content, text = _print(args, part)
        contents.append(content)
        texts.append(f"{text}\n{', '.join(map(printable, content['files']))}")
    whole = contents[0] if len(contents) == 1 else {"tables": contents}
    options.answer(args, {**whole, "failed": [run.name for run in failed]}, "\n\n".join(texts))
    if failed:
        which = "a run" if len(failed) == 1 else f"{len(failed)} runs"
        _tell(f"{which} failed; fix the cause, then run the same command again")
    return 1 if failed else 0


@dataclass(frozen=True)
class Asked:
    """One of the tables or figures that were asked for."""

    name: str
    datasets: tuple[str, ...]
    plan: tuple[Planned, ...]
    path: Path
    """of its files, without their ending"""
    draws: bool
    """whether it is a figure"""


def _asked(name: str, args: argparse.Namespace) -> Asked:
    from hoarfrost.paper import tables

    table = tables.get_table(name)
    datasets = tuple(dict.fromkeys(args.dataset or table.printed))
    draws = table.picture is not None
    seeds = 1 if draws else args.seeds  # a figure shows one run of each method
    plan = tuple(
        tables.planned(table, datasets, seeds, args.epochs, variant=args.variant, settings=tuple(args.settings))
    )
    for run in plan:
        run.config()  # an unknown setting is refused before anything begins
    shortened, several = [f"epochs{args.epochs}"] if args.epochs else [], [f"seeds{seeds}"] if seeds > 1 else []
    unusual = tables.named(args.variant, args.settings)
    file = "-".join([name, *(datasets if args.dataset else ()), *unusual, *shortened, *several])
    return Asked(name, datasets, plan, args.out / file, draws=draws)


def _carry_out(
    args: argparse.Namespace,
    missing: Sequence[Planned],
    begin: Callable[[], None],
    said: Callable[[Planned, str], None],
    *,
    on_gpu: bool,
) -> list[Planned]:
    """Here, or on a cluster; begins when it is certain that it can."""
    from hoarfrost.computing.runtime import all_devices
    from hoarfrost.paper.cluster import Cluster
    from hoarfrost.paper.plan import carry_out, launch_here, sharing_gpu, usual_jobs

    folder, data = args.out, Path(args.data)
    if args.ray is not None:
        with Cluster(args.ray, args.jobs or 1) as cluster:
            begin()
            launch = cluster.launch(folder, data, ["--device", args.device])
            return carry_out(missing, launch, folder=folder, jobs=cluster.jobs, said=said)
    devices = all_devices(args.device)
    jobs = args.jobs or usual_jobs(devices)
    begin()
    with sharing_gpu(jobs if on_gpu else 1):
        every = jobs * len(devices)
        launch = launch_here(folder, data, devices=devices)
        return carry_out(missing, launch, folder=folder, jobs=every, said=said)


def _print(args: argparse.Namespace, asked: Asked) -> tuple[dict[str, Any], str]:
    """The table, in its files, as JSON and as text."""
    from hoarfrost.paper import tables

    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in asked.plan:
        if (content := run.metrics(args.out)) is not None:
            results.setdefault((run.dataset, run.method), []).append(content)
    name, path = asked.name, asked.path
    made = tables.lines(name, asked.datasets, results)
    files = []
    for ending, text in (
        ("md", tables.as_markdown(name, made)),
        ("csv", tables.as_csv(name, made)),
        ("tex", tables.as_latex(name, made)),
    ):
        files.append(path.with_name(f"{path.name}.{ending}"))
        files[-1].write_text(text, encoding="utf-8")
    rows = [tables.to_row(line) for line in made]
    return {"table": name, "rows": rows, "files": [*map(str, files)]}, tables.as_text(name, made) + "\n"


def _draw(args: argparse.Namespace, asked: Asked) -> tuple[dict[str, Any], str, list[Planned]]:
    """The figure, one for each data set, of the first seed; and the runs that cannot be drawn."""
    from hoarfrost.paper import pictures, tables

    table, files, path = tables.get_table(asked.name), list[str](), asked.path
    labels = {method: label for label, method in table.rows}
    unreadable = []
    for dataset in asked.datasets:
        shown = []
        for run in asked.plan:
            content = run.metrics(args.out) if run.dataset == dataset else None
            try:
                shown += [] if content is None else pictures.panels(table, labels[run.method], content)
            except InputError as error:
                _tell(f"{run.name} cannot be drawn: {error}; remove {args.out / run.name} to run it again")
                unreadable.append(run)
        if shown:
            place = path if args.dataset and len(asked.datasets) == 1 else path.with_name(f"{path.name}-{dataset}")
            figure = pictures.draw(table, shown, f"{dataset} {table.split(dataset)}, seed {asked.plan[0].seed}")
            files += map(str, pictures.save(figure, place))
    return {"table": asked.name, "files": files}, f"{asked.name}: {table.title}", unreadable


def _list(args: argparse.Namespace, plan: Sequence[Planned], estimate: Estimate) -> int:
    """The runs, and about how long each will take."""
    from hoarfrost.paper.plan import stage_ones

    rows, lines, made, total = [], list[str](), stage_ones(plan, args.out), 0.0
    width = max(len(run.name) for run in plan)
    for run in plan:
        finished, seconds = run.metrics(args.out) is not None, estimate.next(run, made)
        total += seconds
        rows.append({"run": run.name, "finished": finished, "seconds": round(seconds)})
        lines.append(f"{run.name:{width}}  {'finished' if finished else 'about ' + _duration(seconds)}")
    lines.append(f"{len(plan)} runs, about {_duration(total)} if run one after the other")
    which = {"table": args.tables[0]} if len(args.tables) == 1 else {"tables": args.tables}
    content = {**which, "runs": rows, "seconds": round(total)}
    return options.answer(args, content, "\n".join(lines))


def _read(dataset: str, args: argparse.Namespace) -> tuple[ImageSet, ImageSet]:
    """Train and test images; refuses those that are not there, and fetches them where that was asked for."""
    from hoarfrost.data.datasets import load_dataset
    from hoarfrost.recipes import get_recipe

    size = get_recipe(dataset).image_size
    return load_dataset(dataset, Path(args.data), download=args.download, size=size)


def _duration(seconds: float) -> str:
    """For people.

    >>> _duration(42), _duration(600), _duration(8000), _duration(4e5)
    ('42 s', '10 min', '2.2 h', '5 days')
    """
    for unit, length, upto in (("s", 1, 100), ("min", 60, 6000)):
        if seconds < upto:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"


def _tell_duration(estimate: Estimate, plan: Sequence[Planned]) -> None:
    _tell(f"about {_duration(estimate.total(plan))} in total, if run one after the other")


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # the runs go on where nobody listens
        print(printable(text), file=sys.stderr, flush=True)
