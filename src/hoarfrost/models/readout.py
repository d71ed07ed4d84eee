"""Readouts: how the features of an image become a decision among all classes."""

from __future__ import annotations

import torch
from torch import Tensor

from hoarfrost.models.network import Network


class Readout:
    """The joint head decides. Other readouts derive from this."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def scores(self, features: Tensor) -> Tensor:
        """``(B, C)``: the class with the highest is what an image is taken for."""
        return self.network.joint_logits(features)

    def novel_scores(self, features: Tensor, step: int) -> Tensor:
        """``(B, n)``: of the classes of one discovery, counted from 0, by what decides among them alone."""
        return self.network.novel_logits(features, step)

    def side_by_side(self, features: Tensor) -> Tensor | None:
        """``(B, C)``, where heads that do not know each other decide: the probabilities of each head by itself."""
        return None


class Concatenated(Readout):
    """The labelled classes' logits beside what every step's novel head says: its logits, or its probabilities."""

    def scores(self, features: Tensor) -> Tensor:
        """Old logits first, then those of each step."""
        novel = self._novel(features)
        if self.network.design.readout == "probabilities":
            # Deviation: raw logits beside probabilities, as the authors of ResTune concatenate; one hardly ever sees
            # a new class through it. ``calibrated`` in metrics.json has probabilities on both sides.
            novel = [logits.softmax(dim=1) for logits in novel]
        return torch.cat([self._labelled(features), *novel], dim=1)

    def side_by_side(self, features: Tensor) -> Tensor:
        """Every head's own softmax."""
        heads = [self._labelled(features), *self._novel(features)]
        return torch.cat([logits.softmax(dim=1) for logits in heads], dim=1)

    def _labelled(self, features: Tensor) -> Tensor:
        return self.network.joint_logits(features)[:, : self.network.labelled_classes]

    def _novel(self, features: Tensor) -> list[Tensor]:
        return [self.network.novel_logits(features, step) for step in range(self.network.steps)]


def build_readout(network: Network) -> Readout:
    """What the network's design asks for. The nearest class mean is a joint head that is set to it."""
    return Concatenated(network) if network.design.concatenates else Readout(network)
