"""What each of two processes does with class Gaussians in ``test_assignment.py``; started by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from hoarfrost import Learner
from hoarfrost.data.images import ImageSet
from hoarfrost.training.inference import Inference


def images(count: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 12, 12, 1), dtype=np.uint8)


def main() -> None:
    out = Path(sys.argv[1])
    learner = Learner.load(out / "model", "cpu")
    processes = learner.runtime.processes
    assert processes.count == 2
    some = ImageSet(images(37, seed=1))
    inference = Inference(learner.config, learner.runtime)
    statistics = inference.statistics(some, learner.network, np.arange(37) % 4 - 1, 3)
    found = {f"tally_{name}": tensor for name, tensor in statistics.tensors().items()}
    found["probabilities"] = torch.from_numpy(learner.predict_proba(some))
    found["unlikeness"] = torch.from_numpy(learner.unlikeness(some))
    learner.discover(some, 2, only_new=True)
    assert learner.assigned is not None
    found["assigned"] = torch.from_numpy(learner.assigned)
    found["after"] = torch.from_numpy(learner.predict_proba(some))
    found["calibration"] = torch.tensor(learner.model.calibration.temperature)
    learner.save(out / "discovered")
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, out / f"rank-{processes.rank}.safetensors")


if __name__ == "__main__":
    main()
