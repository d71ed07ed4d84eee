"""A loss term of your own, in a method of your own, compared with FRoST on the digits: a minute on two idle cores.

    python examples/own_method.py --out runs/own-method

The new term asks that clusters have about the same size, so that none stays empty. The method is FRoST with that term.
docs/add-a-method.md says what else a term may do: make heads, remember images, look at two views. Other commands know
the method too, if you name this file:

    HOARFROST_IMPORT=examples/own_method.py hoarfrost run --dataset digits --method frost-balanced --out runs/balanced
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from hoarfrost.cli import main as hoarfrost
from hoarfrost.losses.inputs import LossInputs
from hoarfrost.losses.terms import Term
from hoarfrost.methods import FROST, METHODS


@dataclass(frozen=True, kw_only=True)
class Balance(Term):
    """Negative entropy of the mean prediction of a batch: lowest if all clusters have the same size."""

    kind: ClassVar[str] = "balance"
    heads: ClassVar[tuple[str, ...]] = ("novel",)
    trains: ClassVar[frozenset[str]] = frozenset({"novel"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """One number; the weight of the term multiplies it."""
        mean = inputs.logits("novel").softmax(dim=1).mean(dim=0)
        return (mean * mean.clamp(min=1e-7).log()).sum()


METHODS["frost-balanced"] = replace(
    FROST,
    name="frost-balanced",
    summary="FRoST with clusters of about equal size",
    paper="examples/own_method.py",
    terms=(*FROST.terms, Balance(weight=0.5)),
)


def main() -> None:
    """Runs both methods after the same stage one, and prints their scores on the test images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/own-method"), metavar="DIR")
    parser.add_argument("--epochs", type=int, default=40, metavar="N", help="of each stage")
    args = parser.parse_args()
    for method in ("frost", "frost-balanced"):
        out: Path = args.out / method
        where = ["--out", str(out), "--share", str(args.out / "shared"), "--resume"]
        epochs = ["--epochs", str(args.epochs), "--fit-epochs", str(args.epochs)]
        code = hoarfrost(["run", "--dataset", "digits", "--method", method, *epochs, *where])
        if code:
            raise SystemExit(code)
        scores = json.loads((out / "metrics.json").read_text())["steps"][-1]["joint"]
        print(f"{method}: Old {scores['old']:.1f}, New {scores['new']:.1f}, All {scores['all']:.1f}")


if __name__ == "__main__":
    main()
