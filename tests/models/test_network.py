"""Heads grow without a change to what was learned."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network, grow
from hoarfrost.seeding import seeded


def small_network(classes: int = 4, seed: int = 0) -> Network:
    with seeded(seed, "test"):
        return Network(build_backbone("small", 1), classes)


def copied_state(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def same_state(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class TestNetwork:
    def test_before_any_discovery(self) -> None:
        network = small_network(classes=4)
        assert (network.classes, network.labelled_classes, network.novel_per_step) == (4, 4, ())

    def test_forward_gives_features_for_the_heads(self) -> None:
        network = small_network(classes=4).eval()
        features = network(torch.ones(2, 1, 16, 16))
        assert features.shape == (2, network.backbone.width)
        assert network.joint(features).shape == (2, 4)

    def test_the_seed_decides_the_initialisation(self) -> None:
        first, again, other = (small_network(seed=seed).state_dict() for seed in (1, 1, 2))
        assert same_state(first, again)
        assert not torch.equal(first["joint.weight"], other["joint.weight"])
        assert not torch.equal(first["backbone.stem.0.weight"], other["backbone.stem.0.weight"])


class TestGrow:
    def test_old_rows_and_biases_stay_bit_for_bit(self) -> None:
        network = small_network(classes=4)
        grown = grow(network, 3)
        assert grown.joint.weight.shape == (7, network.joint.in_features)
        assert torch.equal(grown.joint.weight[:4], network.joint.weight)
        assert torch.equal(grown.joint.bias[:4], network.joint.bias)

    @pytest.mark.parametrize("biases", [[0.5, -0.25, 2.0, 1.0], [3.0, 4.0, 5.0, 6.0], [-7.0, 0.0, 0.0, 0.0]])
    def test_new_biases_are_below_the_smallest_old_one(self, biases: list[float]) -> None:
        network = small_network(classes=4)
        with torch.no_grad():
            network.joint.bias.copy_(torch.tensor(biases))
        assert grow(network, 3).joint.bias.tolist() == [*biases, *([min(biases) - 1] * 3)]

    def test_new_rows_start_as_a_new_layer_does(self) -> None:
        network = small_network(classes=4)
        with torch.no_grad():
            network.joint.weight.fill_(100.0)
        with seeded(0, "grow"):
            rows = grow(network, 50).joint.weight[4:].detach()
        bound = 1 / network.joint.in_features**0.5
        assert 0.9 * bound < float(rows.abs().max()) <= bound
        assert float(rows.std()) == pytest.approx(bound / 3**0.5, rel=0.1)

    def test_the_network_stays_untouched(self) -> None:
        network = small_network(classes=4)
        before = copied_state(network)
        grown = grow(network, 3)
        with torch.no_grad():
            for parameter in grown.parameters():
                parameter.add_(1)
        grown.train()(torch.ones(2, 1, 16, 16))  # moves the running statistics
        assert same_state(before, copied_state(network))
        assert (network.classes, network.novel_per_step) == (4, ())

    def test_the_backbone_is_the_same(self) -> None:
        network = small_network()
        assert same_state(network.backbone.state_dict(), grow(network, 2).backbone.state_dict())

    def test_old_logits_are_unchanged(self) -> None:
        network = small_network(classes=4)
        features = torch.rand(5, network.backbone.width, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(grow(network, 3).joint(features)[:, :4], network.joint(features))

    def test_three_steps(self) -> None:
        networks = [small_network(classes=4)]
        for novel in (3, 1, 2):
            networks.append(grow(networks[-1], novel))
        assert [network.classes for network in networks] == [4, 7, 8, 10]
        assert [network.labelled_classes for network in networks] == [4, 4, 4, 4]
        assert [network.novel_per_step for network in networks] == [(), (3,), (3, 1), (3, 1, 2)]
        for before, after in pairwise(networks):
            assert torch.equal(after.joint.weight[: before.classes], before.joint.weight)
            assert torch.equal(after.joint.bias[: before.classes], before.joint.bias)
            assert (after.joint.bias[before.classes :] == before.joint.bias.min() - 1).all()
            for earlier, kept in zip(before.novel, after.novel, strict=False):
                assert kept is not earlier
                assert same_state(earlier.state_dict(), kept.state_dict())

    def test_everything_new_can_learn(self) -> None:
        grown = grow(small_network(), 2)
        features = grown(torch.ones(2, 1, 16, 16))
        (grown.joint(features).sum() + grown.novel[0](features).sum()).backward()
        assert [name for name, weight in grown.named_parameters() if weight.grad is None] == []

    def test_the_seed_decides_the_new_rows(self) -> None:
        network = small_network()
        states = []
        for seed in (1, 1, 2):
            with seeded(seed, "grow"):
                states.append(grow(network, 3).state_dict())
        first, again, other = states
        assert same_state(first, again)
        assert not torch.equal(first["joint.weight"][4:], other["joint.weight"][4:])
        assert not torch.equal(first["novel.0.weight"], other["novel.0.weight"])
