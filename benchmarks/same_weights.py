"""Whether the code still learns the same: weights and scores of every preset after two discoveries on the digits.

python benchmarks/same_weights.py --against COMMIT      this tree and that commit, one after the other on this machine
python benchmarks/same_weights.py --write FILE          of this tree alone, as JSON

CPU, one thread. Weights and class statistics are compared byte for byte, whatever their names are, and so are the
scores. What is new on one side is listed, and does not count as a difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EPOCHS = 2
SHORT = {"fit.batch_size": 32, "discover.batch_size": 16}
SPLIT = "4-3-3"
IMAGES = 40
"""a class"""


def digests(tensors: Any) -> list[str]:
    """Of each tensor, in an order that no name decides."""
    found = []
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        found.append(hashlib.sha256(str((array.dtype, array.shape)).encode() + array.tobytes()).hexdigest()[:16])
    return sorted(found)


def learned() -> dict[str, Any]:
    """What every preset of the code at hand has learned."""
    import numpy as np
    import torch

    from hoarfrost import Learner, build_scenario
    from hoarfrost.data.datasets import load_dataset
    from hoarfrost.methods import METHODS
    from hoarfrost.recipes import get_recipe

    try:
        from hoarfrost.settings import override
    except ImportError:  # its earlier place
        from hoarfrost.config import override  # type: ignore[attr-defined, no-redef]

    torch.set_num_threads(1)
    train, test = load_dataset("digits", Path())
    assert train.labels is not None
    rows = np.concatenate([np.flatnonzero(train.labels == label)[:IMAGES] for label in range(10)])
    content = {}
    for name, method in METHODS.items():
        other = {"supervised": method.supervised}
        if getattr(method, "labelled_images", False):
            other["labelled_images"] = True
        scenario = build_scenario(train.take(rows), test, split=SPLIT, **other)
        config = get_recipe("digits").config(method, 3)
        if hasattr(config, "with_epochs"):
            config = config.with_epochs(fit=EPOCHS, discover=EPOCHS)
        else:  # earlier commits
            config = config.with_fit_epochs(EPOCHS).with_discover_epochs(EPOCHS)
        learner = Learner.from_config(override(config, SHORT), "cpu")
        for step in scenario:
            learner.learn(step)
        outputs = learner.outputs(test)
        statistics = learner.model.statistics
        content[name] = {
            "weights": digests(learner.network.state_dict().values()),
            "statistics": digests([statistics.mean, statistics.variance, statistics.count]),
            "predicted": hashlib.sha256(outputs.predicted.tobytes()).hexdigest()[:16],
            "accuracy": float(np.mean(outputs.predicted == test.labels)),
        }
    return content


def of_tree(tree: Path) -> dict[str, Any]:
    """The same, of the code in a folder."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "learned.json")
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, __file__, "--write", str(file)], env=environment, check=True)
        content: dict[str, Any] = json.loads(file.read_text())
        return content


def compare(before: dict[str, Any], now: dict[str, Any]) -> int:
    differing = 0
    for name in sorted(before.keys() | now.keys()):
        if name not in before or name not in now:
            print(f"{name:28} only {'now' if name in now else 'before'}")
            continue
        other = [key for key in before[name] if before[name][key] != now[name].get(key)]
        differing += bool(other)
        print(f"{name:28} {'differs in ' + ', '.join(other) if other else 'the same'}")
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.write is not None:
        args.write.write_text(json.dumps(learned(), indent=1) + "\n")
        return
    if args.against is None:
        parser.error("give --against COMMIT or --write FILE")
    home = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place, "tree")
        subprocess.run(["git", "-C", home, "worktree", "add", "-q", "--detach", tree, args.against], check=True)
        try:
            before = of_tree(tree)
        finally:
            subprocess.run(["git", "-C", home, "worktree", "remove", "--force", tree], check=True)
    differing = compare(before, of_tree(home))
    print(f"{differing} of {len(before)} presets differ")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
