"""One backbone and its heads: the joint head over all classes seen so far, and a novel head a discovery step."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from hoarfrost.errors import InputError, require
from hoarfrost.losses.functional import student_t_logits
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.heads import Cosine, CosineLinear
from hoarfrost.models.readout import ReadoutKind
from hoarfrost.models.resnet import ResNet
from hoarfrost.models.statistics import KeptStatistics


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a method builds on the backbone, and what decides in the end."""

    novel: Literal["linear", "cosine", "centres", "joint"] = "linear"
    """a step's novel head: a linear layer; cosines to a prototype of each class; a linear layer and centres in its
    output; or none, in whose place stand the joint head's own logits of the step's classes"""
    joint: Literal["linear", "cosine"] = "linear"
    """the joint head: a linear layer, or cosines with a bias"""
    residual: bool = False
    """whether a step adds a second last stage beside the backbone's, and an auxiliary head on it"""
    readout: ReadoutKind = field(default_factory=ReadoutKind)
    """what decides: the joint head, or another of the kinds in ``hoarfrost.models.readout``"""
    before_last: bool = False
    """whether likelihoods that decide are of the features of the backbone's part before the last too, where it gives
    them"""
    mirror: bool = False
    """whether the features of an image, once a network is trained, are the mean of its own and its mirror image's"""


class Centres(nn.Module):
    """A linear layer and centres in its output: an image belongs to those that it comes near to.

    The logits are -log(1 + distance^2), so that their softmax is Student's t of DTC and ResTune.
    """

    def __init__(self, features: int, clusters: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, clusters)
        self.centres = nn.Parameter(torch.randn(clusters, clusters))

    def forward(self, features: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, clusters)``."""
        return student_t_logits(self.linear(features), self.centres)


class Network(nn.Module):
    """``joint`` classifies everything seen so far; the novel head of a step only the classes that it discovered.

    Features are those of the backbone and, behind them, those of each step's residual branch.
    """

    def __init__(self, backbone: Backbone, classes: int, design: Design | None = None) -> None:
        super().__init__()
        self.backbone, self.design = backbone, design or Design()
        check_design(self.design, backbone)
        self.parts_in_evaluation: tuple[str, ...] = ()
        """parts of the backbone that stay in evaluation mode: their batch statistics do not move in training"""
        self.joint = joint_head(self.design, backbone.width, classes)
        self.novel = nn.ModuleList()
        self.auxiliary = nn.ModuleList()
        self.branches = nn.ModuleList()
        self.heads = nn.ModuleDict()
        """heads that loss terms make for the stage that is trained, by name"""
        self.novel_per_step: tuple[int, ...] = ()
        """how many classes each discovery step added"""

    @property
    def steps(self) -> int:
        """The number of discoveries."""
        return len(self.novel_per_step)

    @property
    def classes(self) -> int:
        """All classes of the joint head."""
        return self.joint.out_features

    @property
    def labelled_classes(self) -> int:
        """The classes of stage one."""
        return self.classes - sum(self.novel_per_step)

    @property
    def width(self) -> int:
        """The number of features, residual ones included."""
        return self.backbone.width * (1 + len(self.branches))

    def train(self, mode: bool = True) -> Network:
        """All but what stays still."""
        super().train(mode)
        for part in self.backbone.chosen(self.parts_in_evaluation).values():
            part.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images ``(B, C, H, W)`` to features ``(B, width)``; the heads are applied to those.

        Features in the place of images, which were computed before, are given back as they are.
        """
        if images.ndim == 2:
            return images
        if not len(self.branches):
            features: Tensor = self.backbone(images)
            shape = getattr(features, "shape", None)
            if not isinstance(features, Tensor) or shape != (len(images), self.backbone.width):
                kind = type(self.backbone).__qualname__
                given = shape if isinstance(features, Tensor) else type(features).__name__
                raise InputError(f"the backbone {kind} gives {given}, not (B, width): ask its authors")
            return features.float()
        assert isinstance(self.backbone, ResNet)
        shared = self.backbone.trunk(images)
        return torch.cat([self.backbone.pooled(stage(shared)) for stage in (self.backbone.last, *self.branches)], dim=1)

    def backbone_features(self, features: Tensor) -> Tensor:
        """The backbone's own features, ``(B, D)``."""
        return features[:, : self.backbone.width]

    @property
    def kept(self) -> KeptStatistics:
        """What class statistics must keep for what decides."""
        return kept_statistics(self.design, self.backbone)

    @property
    def _before_last(self) -> int:
        return self.kept.before_last

    def extended_features(self, images: Tensor) -> Tensor:
        """Images to features ``(B, width)``, behind which stand those of the part before the last, where wanted."""
        if images.ndim == 2 or not self._before_last:
            features: Tensor = self(images)
            return features
        return self.backbone.with_before_last(images).float()

    def decisive(self, features: Tensor) -> Tensor:
        """Of ``extended_features`` those that class statistics are made of: all but those of residual branches."""
        return features if self._before_last else self.backbone_features(features)

    @property
    def decisive_width(self) -> int:
        """Their number."""
        return self.backbone.width + self._before_last

    def residual(self, features: Tensor, step: int) -> Tensor:
        """Those of a step's branch, ``(B, D)``."""
        size = self.backbone.width
        return features[:, (step + 1) * size : (step + 2) * size]

    def columns(self, step: int) -> slice:
        """The classes of one discovery, counted from 0, among all."""
        first = self.labelled_classes + sum(self.novel_per_step[:step])
        return slice(first, first + self.novel_per_step[step])

    def joint_logits(self, features: Tensor) -> Tensor:
        """``(B, C)`` of all classes."""
        logits: Tensor = self.joint(self.backbone_features(features))
        return logits

    def novel_logits(self, features: Tensor, step: int = -1) -> Tensor:
        """``(B, n)`` of a step's classes, the newest step's unless told."""
        step %= self.steps
        if self.design.novel == "joint":
            return self.joint_logits(features)[:, self.columns(step)]
        seen = self.backbone_features(features)
        for earlier in range(step + 1 if self.design.residual else 0):
            seen = seen + self.residual(features, earlier)
        logits: Tensor = self.novel[step](seen)
        return logits

    @property
    def class_heads(self) -> tuple[str, ...]:
        """The names of the joint head and of each step's novel head."""
        return ("joint", *(f"novel {step + 1}" for step in range(self.steps)))

    @property
    def head_names(self) -> tuple[str, ...]:
        """The names that ``logits`` takes; "novel" is the newest step's."""
        newest = ("novel",) if self.steps else ()
        auxiliary = ("auxiliary",) if len(self.auxiliary) else ()
        return (*self.class_heads, *newest, *auxiliary, *self.heads)

    def logits(self, head: str, features: Tensor) -> Tensor:
        """``(B, outputs)`` of a head by its name."""
        if head == "joint":
            return self.joint_logits(features)
        if head == "novel":
            return self.novel_logits(features)
        if head == "auxiliary":
            return self.auxiliary_logits(features)
        if head in self.heads:
            logits: Tensor = self.heads[head](self.backbone_features(features))
            return logits
        return self.novel_logits(features, self.class_heads.index(head) - 1)

    def auxiliary_logits(self, features: Tensor) -> Tensor:
        """``(B, n)`` of the newest auxiliary head."""
        logits: Tensor = self.auxiliary[-1](self.residual(features, self.steps - 1))
        return logits

    def weight_norms(self) -> Tensor | None:
        """``(C,)``: the length of each deciding row of weights; None where no weights decide."""
        if self.design.readout.by_likelihood:
            return None
        rows = [self.joint.weight]
        if self.design.readout.concatenates:
            heads = [head.linear if isinstance(head, Centres) else head for head in self.novel]
            rows = [
                self.joint.weight[: self.labelled_classes],
                *(head.weight for head in heads if isinstance(head, nn.Linear)),
            ]
        norms: Tensor = torch.linalg.vector_norm(torch.cat(rows).detach(), dim=1)
        return norms


def joint_head(design: Design, features: int, classes: int) -> nn.Linear:
    """A new one, as PyTorch initialises it."""
    kind = CosineLinear if design.joint == "cosine" else nn.Linear
    return kind(features, classes)


def kept_statistics(design: Design, backbone: Backbone) -> KeptStatistics:
    """What class statistics must keep for what decides."""
    wanted = design.before_last and design.readout.by_likelihood
    return replace(design.readout.kept, before_last=backbone.width_before_last if wanted else 0)


def check_design(design: Design, backbone: Backbone) -> None:
    """Refuses a design that asks for more than the backbone can."""
    require(
        not design.residual or isinstance(backbone, ResNet),
        "method.design.residual needs a ResNet backbone: choose resnet18 or small",
    )
    require(
        not (design.residual and design.before_last),
        "method.design.residual and method.design.before_last exclude each other: choose one",
    )


def set_nearest(head: nn.Linear, means: Tensor, seen: Tensor | None = None) -> None:
    """Makes a linear head choose the nearest of the means ``(C, D)``; never one that was not ``seen``, ``(C,)``.

    |x - m|^2 is smallest where 2 <m, x> - |m|^2 is largest. A head of cosines chooses the nearest in direction.
    """
    bias = -means.square().sum(dim=1)
    if isinstance(head, CosineLinear):
        bias = torch.zeros_like(bias)
    if seen is not None:
        bias = torch.where(seen, bias, torch.finfo(bias.dtype).min)
    with torch.no_grad():
        head.weight.copy_(2 * means)
        head.bias.copy_(bias)


def to_channels_last(network: Network, device: torch.device) -> Network:
    """The network on a device, its convolutions channels-last, which is the faster layout on all of them."""
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def grow(network: Network, novel: int, *, same_backbone: bool = False) -> Network:
    """A copy with room for ``novel`` more classes; the network itself is left as it is, to teach.

    ``same_backbone``: with the backbone of the network itself, where that will not be used beside the copy.

    The joint head keeps its rows; new rows start as PyTorch initialises them, with biases of the smallest old bias
    minus 1, so that at first hardly an image is taken for a new class. What is new starts at random.
    """
    grown = copy.deepcopy(network, {id(network.backbone): network.backbone} if same_backbone else None)
    old, design = network.joint, network.design
    joint = joint_head(design, old.in_features, old.out_features + novel)
    with torch.no_grad():
        joint.weight[: old.out_features] = old.weight.cpu()
        joint.bias[: old.out_features] = old.bias.cpu()
        joint.bias[old.out_features :] = old.bias.min().cpu() - 1
    device = old.weight.device
    grown.joint = joint.to(device)
    grown.novel_per_step = (*network.novel_per_step, novel)
    if design.novel == "linear":
        grown.novel.append(nn.Linear(old.in_features, novel).to(device))
    elif design.novel == "cosine":
        grown.novel.append(Cosine(old.in_features, novel).to(device))
    elif design.novel == "centres":
        grown.novel.append(Centres(old.in_features, novel).to(device))
    if design.residual:
        assert isinstance(grown.backbone, ResNet)
        grown.branches.append(grown.backbone.another_last().to(device))
        grown.auxiliary.append(nn.Linear(old.in_features, novel).to(device))
    return grown
