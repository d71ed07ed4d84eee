"""What each of two processes does in ``test_processes.py``; started by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from hoarfrost import Learner
from hoarfrost.computing.processes import SeveralProcesses
from hoarfrost.data.images import ImageSet
from hoarfrost.losses.terms import Consistency, FeatureDistillation, Pairwise, SelfTraining
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network, grow
from hoarfrost.scenario import Step
from hoarfrost.training.objective import Objective, choose_trained

TERMS = (Pairwise(top_k=3), Consistency(weight=5.0), SelfTraining(), FeatureDistillation(weight=10.0))


def images(count: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 12, 12, 1), dtype=np.uint8)


def gradients(processes: SeveralProcesses | None, views: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of one step on a batch of two views, which the processes share, or which this one has to itself.

    Batch normalisation is kept in evaluation mode: apart from its statistics the two must be the same.
    """
    torch.manual_seed(0)
    teacher = Network(build_backbone("small", 1), 3).requires_grad_(False)
    student = grow(teacher, 2)
    choose_trained(student, frozen=("stem",), terms=TERMS)
    gather = None if processes is None else processes.gather
    objective = Objective(student, terms=TERMS, teacher=teacher, gather=gather)
    objective.set_epoch(0)
    objective.eval()
    if processes is not None:
        share = processes.share(len(views) // 2)
        views = torch.cat([share.of(view) for view in views.chunk(2)])
    module = objective if processes is None else processes.set_up(objective)
    loss, statistics, _ = module(views, None, None)
    loss.backward()
    found = {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}
    return {**found, "statistics": statistics}


def main() -> None:
    out = Path(sys.argv[1])
    settings = {"fit.epochs": 2, "fit.drops": [], "discover.epochs": 2, "discover.drops": [], "fit.batch_size": 16}
    learner = Learner(device="cpu", settings={**settings, "discover.batch_size": 16})
    processes = learner.runtime.processes
    assert isinstance(processes, SeveralProcesses)
    rank = processes.rank

    views = torch.rand(24, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    for name, owner in (("shared", processes), ("whole", None)):
        save_file(gradients(owner, views), out / f"gradients-{name}-{rank}.safetensors")

    learner.fit(images(45, seed=0), [f"class-{n % 3}" for n in range(45)])
    learner.discover(images(37, seed=1), 2, only_new=True)
    statistics = learner.model.statistics
    remembered = {"mean": statistics.mean, "variance": statistics.variance, "count": statistics.count}
    state = {key: tensor.contiguous() for key, tensor in learner.network.state_dict().items()}
    save_file(state, out / f"weights-{rank}.safetensors")
    save_file(remembered, out / f"prototypes-{rank}.safetensors")
    outputs = learner.outputs(ImageSet(images(7, seed=2)), features=True)
    assert outputs.features is not None
    logits = {"joint": torch.from_numpy(outputs.scores), "features": torch.from_numpy(outputs.features)}
    save_file(logits, out / f"outputs-{rank}.safetensors")
    learner.save(out / "model")
    for method in ("restune", "ncl", "dtc-te", "joint"):
        other = Learner(method, device="cpu", settings={**settings, "discover.batch_size": 16})
        other.fit(images(45, seed=0), [f"class-{n % 3}" for n in range(45)])
        other.discover(images(37, seed=1), 2, only_new=True)
        found = {key: tensor.contiguous() for key, tensor in other.network.state_dict().items()}
        save_file(found, out / f"{method}-{rank}.safetensors")
    reference = Learner("ncl-labelled", device="cpu", settings={**settings, "discover.batch_size": 16})
    labelled = ImageSet(images(45, seed=0), np.arange(45) % 3, ("a", "b", "c"))
    reference.fit(labelled)
    reference.learn(Step(1, ImageSet(images(37, seed=1)), 3, 2, labelled))
    found = {key: tensor.contiguous() for key, tensor in reference.network.state_dict().items()}
    save_file(found, out / f"ncl-labelled-{rank}.safetensors")
    one = learner.outputs(ImageSet(images(1, seed=2)))  # fewer images than processes
    assert one.scores.shape == (1, 5)


if __name__ == "__main__":
    main()
