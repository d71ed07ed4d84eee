"""The runs behind RESULTS.md, several at once on one GPU; what is finished is not repeated.

python benchmarks/real_runs.py cifar100/80-20/frost/0-2 cifar100/80-10-10/frost/0 --data data --out runs --jobs 4
python benchmarks/real_runs.py cifar100/80-10-10/frost/0-2 --variant released --data data --out runs
python benchmarks/real_runs.py cifar100/80-20/frost/0 --variant paper --data data --out runs
python -m tools.results keep runs/cifar100-80-20/*
python -m tools.results keep runs/tries/* --to results/sweeps --folder-names
make results

A run is named by its data set, split, method and seeds, or is one of the tries below, which change settings. They are
begun in the order in which they are named. Runs of one data set and seed share their stage one: those that need it wait
for the one that makes it. Several at once share the GPU through NVIDIA's MPS where that is installed; without it they
take turns. `hoarfrost reproduce` with the same --out finds what was run here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from hoarfrost.paper.plan import Planned, carry_out, launch_here, sharing_gpu
from hoarfrost.paper.tables import named, run_name
from hoarfrost.recipes import VARIANTS

LONG_DROPS = "fit.drops=[30,60,90,120,150,180]"
ONLY_STAGE4 = 'method.frozen=["stem","stage1","stage2","stage3"]'
TWO = ("cifar100", "80-10-10")


def as_printed(dataset: str, split: str, name: str, setting: str) -> Planned:
    """The paper's variant of FRoST but for one setting."""
    return Planned(f"tries/{dataset}-paper-{name}", dataset, split, variant="paper", settings=(setting,))


SOFTMAX_PAIRS = ("softmax-pairs", "method.terms.pairwise.similarity=softmax")
BATCH_DISTANCE = ("batch-distance", "method.terms.feature-distillation.form=batch")
TENTH_OF_RATE = ("learning-rate-0.01", "discover.learning_rate=0.01")

TRIES: dict[str, Planned] = {
    "two-step-separate-views": Planned("tries/cifar100-two-separate-views", *TWO, settings=("views=separate",)),
    "two-step-long-stage-one": Planned(
        "tries/cifar100-two-200-epochs-first", *TWO, settings=("fit.epochs=200", LONG_DROPS)
    ),
    "two-step-fp32": Planned("tries/cifar100-two-fp32", *TWO, settings=("precision=fp32",)),
    "ncl-only-stage4": Planned(
        "tries/cifar10-ncl-only-stage4", "cifar10", "5-5", method="ncl", settings=(ONLY_STAGE4,)
    ),
    **{
        f"{dataset}-paper-{change[0]}": as_printed(dataset, split, *change)
        for dataset, split in (("cifar100", "80-20"), ("cifar10", "5-5"))
        for change in (SOFTMAX_PAIRS, BATCH_DISTANCE, TENTH_OF_RATE)
    },
}


def planned(text: str, variant: str = "code") -> Iterator[Planned]:
    """The runs that ``cifar100/80-20/frost/0-2`` or the name of a try stands for.

    >>> [run.name for run in planned("cifar10/5-5/frost/1-2")]
    ['cifar10-5-5/frost-seed1', 'cifar10-5-5/frost-seed2']
    """
    if text in TRIES:
        yield TRIES[text]
        return
    try:
        dataset, split, method, seeds = text.split("/")
        first, _, last = seeds.partition("-")
        numbers = range(int(first), int(last or first) + 1)
    except ValueError:
        sys.exit(f"'{text}' is neither of the form cifar100/80-20/frost/0-2 nor one of {', '.join(TRIES)}")
    for seed in numbers:
        name = run_name(dataset, split, method, seed, named(variant, ()))
        yield Planned(name, dataset, split, seed, method, variant)


def summary(plan: list[Planned], out: Path) -> str:
    lines = [f"{'run':44}{'stage one':>10}{'Old':>7}{'New':>15}{'All':>7}{'novel heads':>15}{'s':>7}"]
    for run in plan:
        content = run.metrics(out)
        if content is None:
            continue
        for step in content["steps"]:
            new, novel = (
                " / ".join(f"{value:.1f}" for value in step[f"new_by_step_{key}"]) for key in ("joint", "novel")
            )
            seconds, joint = content["seconds"]["total"], step["joint"]
            scores = f"{content['stage_one']:>10.1f}{joint['old']:>7.1f}{new:>15}{joint['all']:>7.1f}{novel:>15}"
            lines.append(f"{run.name:44}{scores}{seconds:>7.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--variant", choices=VARIANTS, default="code")
    given = sys.argv[1:]
    more = given[given.index("--") + 1 :] if "--" in given else []
    args = parser.parse_args(given[: given.index("--")] if "--" in given else given)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.jobs < 1:
        parser.error(f"--jobs must be above 0, not {args.jobs}")
    plan = list(dict.fromkeys(run for text in args.runs for run in planned(text, args.variant)))

    def said(run: Planned, what: str) -> None:
        print(f"{run.name}: {what}", flush=True)

    with sharing_gpu(args.jobs):
        launch = launch_here(args.out, args.data, more)
        failed = carry_out(plan, launch, folder=args.out, jobs=args.jobs, said=said)
    print(summary(plan, args.out))
    if failed:
        sys.exit(f"failed: {', '.join(run.name for run in failed)}; see {args.out / 'logs'}")


if __name__ == "__main__":
    main()
