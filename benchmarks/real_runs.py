"""The runs behind RESULTS.md, several at once on one GPU; what is finished is not repeated.

python benchmarks/real_runs.py cifar10 cifar100 --data data --out runs --jobs 2
python -m hoarfrost.paper keep runs/cifar10/*
python -m hoarfrost.paper keep runs/sweep/* --to results/sweeps --folder-names
make results

Runs of one data set and seed share their stage one (`--share`): those that need it wait for the one that makes it.
Several at once share the GPU through NVIDIA's MPS where that is installed; without it they take turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

Tried = tuple[int, float, str]
"""novel batch, beta, and the two views in one pass or two"""

SWEEP: tuple[Tried, ...] = (
    *itertools.product((26, 51, 128), (0.01, 0.05), ("together",)),
    *itertools.product((26, 51, 128), (0.01,), ("separate",)),
)
"""beta for every batch, and two passes for every batch at the scripts' beta"""

SWEEP_CIFAR10: tuple[Tried, ...] = tuple(itertools.product((64, 128), (0.01,), ("together", "separate")))
SWEEP_TWO: tuple[Tried, ...] = ((14, 0.01, "together"), (128, 0.01, "together"))


@dataclass(frozen=True)
class Planned:
    """One run: its place below --out, and what it is."""

    name: str
    dataset: str
    split: str
    seed: int = 0
    settings: tuple[str, ...] = ()

    @property
    def stage_one(self) -> tuple[str, str, int]:
        """Runs with the same have the same stage one."""
        return (self.dataset, self.split.split("-")[0], self.seed)


def tried(name: str, dataset: str, split: str, settings: tuple[Tried, ...]) -> tuple[Planned, ...]:
    """A run of seed 0 for each of them."""
    return tuple(
        Planned(
            f"sweep/{name}-batch{batch}-beta{beta:g}-{views}",
            dataset,
            split,
            0,
            (
                f"discover.batch_size={batch}",
                f"method.terms.self-training.weight={beta}",
                f"views={views}",
            ),
        )
        for batch, beta, views in settings
    )


SETS: dict[str, tuple[Planned, ...]] = {
    "cifar10": tuple(Planned(f"cifar10/seed{seed}", "cifar10", "5-5", seed) for seed in range(3)),
    "cifar100": tuple(Planned(f"cifar100/seed{seed}", "cifar100", "80-20", seed) for seed in range(3)),
    "cifar100-two": (Planned("cifar100-two/seed0", "cifar100", "80-10-10"),),
    "tiny": (Planned("tiny/seed0", "tiny-imagenet", "180-20"),),
    "sweep": tried("cifar100", "cifar100", "80-20", SWEEP),
    "sweep-cifar10": tried("cifar10", "cifar10", "5-5", SWEEP_CIFAR10),
    "sweep-two": tried("cifar100-two", "cifar100", "80-10-10", SWEEP_TWO),
}


def start(run: Planned, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    out = args.out / run.name
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hoarfrost", "run", "--dataset", run.dataset, "--split", run.split]
    command += ["--data", str(args.data), "--seed", str(run.seed), "--out", str(out), "--resume"]
    command += ["--share", str(args.out / "shared"), "--json", *args.more]
    for setting in run.settings:
        command += ["--set", setting]
    with (args.out / f"{run.name.replace('/', '-')}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)


@contextmanager
def sharing_gpu(jobs: int) -> Iterator[None]:
    """Within the block the kernels of several processes run side by side, where MPS is there to be started."""
    control = shutil.which("nvidia-cuda-mps-control")
    started = jobs > 1 and control is not None and subprocess.run([control, "-d"], check=False).returncode == 0
    try:
        yield
    finally:
        if started and control is not None:
            subprocess.run([control], input=b"quit\n", check=False)


def has_stage_one(folder: Path) -> bool:
    """Whether a run has its stage one behind it, and so on the shelf."""
    return (folder / "unfinished" / "stage-0").exists() or (folder / "metrics.json").exists()


def carry_out(plan: list[Planned], args: argparse.Namespace) -> list[Planned]:
    """Runs them all, some at once; gives those that failed."""
    waiting, running, failed = list(plan), dict[Planned, subprocess.Popen[bytes]](), []
    made: set[tuple[str, str, int]] = set()
    while waiting or running:
        for run, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[run]
            if process.returncode == 0:
                made.add(run.stage_one)
            else:
                failed.append(run)
            print(f"{run.name}: {'done' if process.returncode == 0 else 'failed'}", flush=True)
        made |= {run.stage_one for run in running if has_stage_one(args.out / run.name)}
        busy = {run.stage_one for run in running} - made
        for run in list(waiting):
            if len(running) < args.jobs and run.stage_one not in busy:
                waiting.remove(run)
                running[run] = start(run, args)
                busy.add(run.stage_one)
                busy -= made
        time.sleep(0.5)
    return failed


def summary(plan: list[Planned], out: Path) -> str:
    lines = [f"{'run':44}{'stage one':>10}{'Old':>7}{'New':>7}{'All':>7}{'novel':>14}{'s':>7}"]
    for run in plan:
        path = out / run.name / "metrics.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text())
        for step in content["steps"]:
            joint, novel = step["joint"], " / ".join(f"{value:.1f}" for value in step["new_by_step_novel"])
            scores = "".join(f"{joint[key]:>7.1f}" for key in ("old", "new", "all"))
            seconds = content["seconds"]["total"]
            lines.append(f"{run.name:44}{content['stage_one']:>10.1f}{scores}{novel:>14}{seconds:>7.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--jobs", type=int, default=2)
    given = sys.argv[1:]
    more = given[given.index("--") + 1 :] if "--" in given else []
    args = parser.parse_args(given[: given.index("--")] if "--" in given else given)
    args.more = more
    args.out.mkdir(parents=True, exist_ok=True)
    if args.jobs < 1:
        parser.error(f"--jobs must be above 0, not {args.jobs}")
    plan = list(dict.fromkeys(run for name in args.sets for run in SETS[name]))
    with sharing_gpu(args.jobs):
        failed = carry_out(plan, args)
    print(summary(plan, args.out))
    if failed:
        sys.exit(f"failed: {', '.join(run.name for run in failed)}; see the logs in {args.out}")


if __name__ == "__main__":
    main()
