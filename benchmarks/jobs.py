"""How many runs at a time finish a table soonest on one GPU or CPU.

python benchmarks/jobs.py --data data                         on CIFAR-10; keeps results/jobs/HARDWARE.json
python benchmarks/jobs.py --dataset digits --epochs 20 --jobs 1 2    on the digits
python benchmarks/jobs.py --table                             only renews docs/speed.md, as the others do at the end

Carries out table 1 with a shortened course, compiled as the full one is, once for each number of runs at a time. A
first round that is not counted trains the stage one that all share and fills the cache of compiled code.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoarfrost import provenance
from hoarfrost.computing.runtime import Runtime, resolve_device
from hoarfrost.paper import tables
from hoarfrost.paper.plan import Planned, carry_out, launch_here, log_of, sharing_gpu, shelf_of
from hoarfrost.paper.text import file_name, markdown, renewed

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "jobs"
PAGE = ROOT / "docs" / "speed.md"
BEGIN = "<!-- made by benchmarks/jobs.py -->"


def carried_out(
    plan: list[Planned], folder: Path, args: argparse.Namespace, *, jobs: int, shared: bool
) -> tuple[float, bool]:
    """Seconds for all runs in a folder, and whether MPS ran; ``shared`` asks for it."""
    compiled = "off" if resolve_device(args.device).type == "cpu" else "on"
    launch = launch_here(folder, args.data, ["--device", args.device, "--compile", compiled])
    made = {run.stage_one for run in plan} if shelf_of(folder).exists() else set()
    began = time.perf_counter()
    with sharing_gpu(jobs) if shared else nullcontext(enter_result=False) as mps:
        failed = carry_out(plan, launch, folder=folder, jobs=jobs, said=lambda *_: None, made=made)
    if failed:
        sys.exit(f"{failed[0].name} failed: {log_of(folder, failed[0]).read_text().strip().splitlines()[-1]}")
    return time.perf_counter() - began, mps


def steady(run: Planned, folder: Path) -> float:
    """Epochs of discovery a second of one run, without the first ones."""
    entries = [json.loads(line) for line in (folder / run.name / "log.jsonl").read_text().splitlines()]
    return 1 / statistics.mean(entry["seconds"] for entry in entries if entry["stage"] == 1 and entry["epoch"] > 1)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All numbers of runs at a time."""
    runtime = Runtime(args.device)
    plan = tables.planned(tables.get_table("table1"), [args.dataset], 1, args.epochs)
    kept: dict[str, Any] = {
        "hardware": runtime.hardware,
        "dataset": args.dataset,
        "epochs": args.epochs,
        **provenance.describe(),
    }
    kept |= {"runs": len(plan), "rounds": []}
    on_gpu = runtime.device.type == "cuda"
    ways = [(jobs, on_gpu and jobs > 1) for jobs in args.jobs]
    ways += [(2, False)] if on_gpu and 2 in args.jobs else []  # what MPS gives
    with tempfile.TemporaryDirectory() as place:
        first = Path(place, "first")
        first.mkdir()
        briefly = [replace(run, epochs=1) for run in plan]
        carried_out(briefly, first, args, jobs=max(args.jobs), shared=on_gpu)
        for number, (jobs, shared) in enumerate(ways):
            folder = Path(place, str(number))
            folder.mkdir()
            shelf_of(folder).symlink_to(shelf_of(first), target_is_directory=True)
            seconds, mps = carried_out(plan, folder, args, jobs=jobs, shared=shared)
            rates = [steady(run, folder) for run in plan]
            kept["rounds"].append({"jobs": jobs, "mps": mps, "seconds": seconds, "epochs_per_second": rates})
            print(kept["rounds"][-1], file=sys.stderr, flush=True)
    return kept


def section(kept: dict[str, Any]) -> str:
    """The table of one machine."""
    rounds, on_gpu = kept["rounds"], "CPU" not in kept["hardware"]
    one = next(each for each in rounds if each["jobs"] == 1)

    def together(each: dict[str, Any], jobs: int) -> float:
        """Of the runs that are started together where so many are."""
        return sum(each["epochs_per_second"][:jobs])

    rows = [
        [
            str(each["jobs"]) + (", without MPS" if on_gpu and each["jobs"] > 1 and not each["mps"] else ""),
            f"{each['seconds']:.0f}",
            f"{one['seconds'] / each['seconds']:.2f}",
            f"{together(each, each['jobs']):.2f}",
            f"{each['jobs'] * together(each, each['jobs']) / together(one, each['jobs']):.2f}",
        ]
        for each in rounds
    ]
    header = ["runs at a time", "s for the table", "times as fast", "epochs a second, all runs", "times as many"]
    length = f"{kept['runs']} runs of {kept['epochs']} epochs"
    title = f"{kept['hardware']}: table 1 on {kept['dataset']}, {length}, stage one and compiled code at hand."
    return f"{title}\n\n{markdown(header, rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--epochs", type=int, default=12, help="of discovery (default: 12)")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if 1 not in args.jobs or args.epochs < 3:
        parser.error("one run at a time is what the others are compared with, and the first two epochs do not count")
    if not args.table:
        kept = measured(args)
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{file_name(kept['hardware'])}.json").write_text(json.dumps(kept, indent=1) + "\n")
    made = "\n".join(section(json.loads(path.read_text())) for path in sorted(args.out.glob("*.json")))
    if args.out == RESULTS and PAGE.exists():
        PAGE.write_text(renewed(PAGE.read_text(), made.rstrip("\n"), begin=BEGIN))
    print(made)


if __name__ == "__main__":
    main()
