"""What a design builds, and what decides: against plain loops over the heads."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Centres, Design, Network, grow, set_nearest
from hoarfrost.models.readout import ClassMeans, HeadLogits, HeadProbabilities, ReadoutKind
from hoarfrost.models.resnet import ResNet


def network_of(design: Design, *sizes: int) -> Network:
    torch.manual_seed(0)
    network = Network(build_backbone("small", 1), 4, design).eval()
    for size in sizes:
        network = grow(network, size)
    return network


def images() -> Tensor:
    return torch.rand(5, 1, 16, 16, generator=torch.Generator().manual_seed(1))


def softmaxed(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


@pytest.mark.parametrize("readout", [ReadoutKind(), HeadLogits(), HeadProbabilities(), ClassMeans()])
def test_what_decides_is_put_together_from_the_heads(readout: ReadoutKind) -> None:
    network = network_of(Design(readout=readout), 3, 2)
    features = network(images())
    joint = network.joint(features).tolist()
    novel = [head(features).tolist() for head in network.novel]
    for index, found in enumerate(network.design.readout.read(network).scores(features).tolist()):
        parts = [joint[index][:4], novel[0][index], novel[1][index]]
        if readout.kind == "probabilities":
            parts[1:] = [softmaxed(part) for part in parts[1:]]
        expected = joint[index] if readout.kind in ("joint", "means") else [value for part in parts for value in part]
        assert found == pytest.approx(expected, abs=1e-5)
    assert readout.concatenates == (readout.kind in ("logits", "probabilities"))


def test_heads_side_by_side_have_one_scale() -> None:
    network = network_of(Design(readout=HeadLogits()), 3, 2)
    features = network(images())
    found = network.design.readout.read(network).side_by_side(features)
    assert found is not None
    heads = [network.joint(features)[:, :4], *(head(features) for head in network.novel)]
    for row, *parts in zip(found.tolist(), *(head.tolist() for head in heads), strict=True):
        assert row == pytest.approx([value for part in parts for value in softmaxed(part)], abs=1e-5)


def test_without_novel_heads_the_joint_head_has_their_logits() -> None:
    network = network_of(Design(novel="joint"), 3, 2)
    features = network(images())
    joint = network.joint(features)
    assert len(network.novel) == 0
    assert torch.equal(network.novel_logits(features, 0), joint[:, 4:7])
    assert torch.equal(network.novel_logits(features), joint[:, 7:])


def test_the_probabilities_of_centres_are_students_t_of_the_distances() -> None:
    head = Centres(8, 3)
    features = torch.randn(6, 8)
    points = head.linear(features)
    for found, point in zip(head(features).softmax(dim=1).tolist(), points.tolist(), strict=True):
        near = [1 / (1 + sum((a - b) ** 2 for a, b in zip(point, c, strict=True))) for c in head.centres.tolist()]
        assert found == pytest.approx([value / sum(near) for value in near], abs=1e-5)


def test_a_residual_branch_stands_beside_the_last_stage() -> None:
    network = network_of(Design(novel="centres", residual=True, readout=HeadProbabilities()), 3, 2)
    assert isinstance(network.backbone, ResNet)
    size, shared = network.backbone.width, network.backbone.trunk(images())
    features = network(images())
    assert features.shape == (5, 3 * size) == (5, network.width)
    basic = network.backbone(images())
    branches = [branch(shared).mean(dim=(2, 3)) for branch in network.branches]
    torch.testing.assert_close(features, torch.cat([basic, *branches], dim=1))
    torch.testing.assert_close(network.joint_logits(features), network.joint(basic))
    torch.testing.assert_close(network.novel_logits(features, 0), network.novel[0](basic + branches[0]))
    torch.testing.assert_close(network.novel_logits(features, 1), network.novel[1](basic + branches[0] + branches[1]))
    torch.testing.assert_close(network.auxiliary_logits(features), network.auxiliary[1](branches[1]))
    norms = network.weight_norms()
    assert norms is not None
    assert norms.shape == (9,)


def test_a_new_branch_is_no_copy_of_the_old_stage() -> None:
    network = network_of(Design(residual=True), 2)
    assert isinstance(network.backbone, ResNet)
    ours, theirs = network.backbone.last.state_dict(), network.branches[0].state_dict()
    assert ours.keys() == theirs.keys()
    assert not torch.equal(ours["0.conv1.weight"], theirs["0.conv1.weight"])


def test_a_head_of_means_chooses_the_nearest_and_never_an_unseen_one() -> None:
    means, points = torch.randn(4, 8), torch.randn(30, 8)
    head = torch.nn.Linear(8, 4)
    seen = torch.tensor([True, True, False, True])
    set_nearest(head, means, seen)
    for found, point in zip(head(points).argmax(dim=1).tolist(), points, strict=True):
        distances = {c: (point - means[c]).square().sum().item() for c in range(4) if seen[c]}
        assert found == min(distances, key=lambda c: distances[c])
    assert head(points).isfinite().all()


def test_the_lengths_of_weights_are_those_of_what_decides() -> None:
    joint, beside = network_of(Design(), 3), network_of(Design(readout=HeadLogits()), 3)
    torch.testing.assert_close(joint.weight_norms(), joint.joint.weight.detach().norm(dim=1), rtol=0, atol=0)
    rows = torch.cat([beside.joint.weight[:4], beside.novel[0].weight])  # type: ignore[list-item]
    torch.testing.assert_close(beside.weight_norms(), rows.detach().norm(dim=1))
