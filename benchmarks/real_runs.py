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
import sys
from pathlib import Path

from hoarfrost.paper.plan import Planned, carry_out, launch_here, sharing_gpu

Tried = tuple[int, float, str]
"""novel batch, beta, and the two views in one pass or two"""

SWEEP: tuple[Tried, ...] = (
    *itertools.product((26, 51, 128), (0.01, 0.05), ("together",)),
    *itertools.product((26, 51, 128), (0.01,), ("separate",)),
)
"""beta for every batch, and two passes for every batch at the scripts' beta"""

SWEEP_CIFAR10: tuple[Tried, ...] = tuple(itertools.product((64, 128), (0.01,), ("together", "separate")))
ONLY_STAGE4 = 'method.frozen=["stem","stage1","stage2","stage3"]'
SWEEP_TWO: tuple[Tried, ...] = ((14, 0.01, "together"), (128, 0.01, "together"))


def tried(name: str, dataset: str, split: str, settings: tuple[Tried, ...]) -> tuple[Planned, ...]:
    """A run of seed 0 for each of them."""
    return tuple(
        Planned(
            f"sweep/{name}-batch{batch}-beta{beta:g}-{views}",
            dataset,
            split,
            settings=(
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
    "sweep-ncl": tuple(
        Planned(f"sweep/{dataset}-ncl-only-stage4", dataset, split, method="ncl", settings=(ONLY_STAGE4,))
        for dataset, split in (("cifar10", "5-5"), ("cifar100", "80-20"))
    ),
    "sweep-autonovel": tuple(
        Planned(
            f"sweep/cifar100-autonovel-batch{batch}",
            "cifar100",
            "80-20",
            method="autonovel",
            settings=(f"discover.batch_size={batch}",),
        )
        for batch in (26, 51)
    ),
    "sweep-two": tried("cifar100-two", "cifar100", "80-10-10", SWEEP_TWO),
}


def summary(plan: list[Planned], out: Path) -> str:
    lines = [f"{'run':44}{'stage one':>10}{'Old':>7}{'New':>7}{'All':>7}{'novel':>14}{'s':>7}"]
    for run in plan:
        content = run.metrics(out)
        if content is None:
            continue
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
    args.out.mkdir(parents=True, exist_ok=True)
    if args.jobs < 1:
        parser.error(f"--jobs must be above 0, not {args.jobs}")
    plan = list(dict.fromkeys(run for name in args.sets for run in SETS[name]))

    def said(run: Planned, what: str) -> None:
        print(f"{run.name}: {what}", flush=True)

    with sharing_gpu(args.jobs):
        launch = launch_here(args.out, args.data, more, jobs=args.jobs)
        failed = carry_out(plan, launch, folder=args.out, jobs=args.jobs, said=said)
    print(summary(plan, args.out))
    if failed:
        sys.exit(f"failed: {', '.join(run.name for run in failed)}; see {args.out / 'logs'}")


if __name__ == "__main__":
    main()
