"""Random numbers come from a seed and a purpose, and from nothing else."""

from __future__ import annotations

import pytest
import torch

from hoarfrost.seeding import derive, generator, seeded

CPU = torch.device("cpu")


class TestDerive:
    def test_the_scheme_stays(self) -> None:
        """Another value here makes every published result one that cannot be repeated."""
        assert derive(0, "epoch", 1) == 1583786290671302529
        assert derive(7) == 5135535630271676732

    def test_purposes_and_seeds_differ(self) -> None:
        purposes: list[tuple[str | int, ...]] = [(), ("epoch", 0), ("epoch", 1), ("epoch", 11), ("grow", 1), ("grow",)]
        derived = [derive(seed, *purpose) for seed in range(20) for purpose in purposes]
        assert len(set(derived)) == len(derived)

    def test_generators_take_it(self) -> None:
        assert all(0 <= derive(seed, "epoch") < 2**63 for seed in (-1, 0, 1, 2**40))


class TestGenerator:
    def test_equal_for_equal_purposes(self) -> None:
        first, again, other = (
            torch.rand(5, generator=generator(CPU, 3, "epoch", number)).tolist() for number in (1, 1, 2)
        )
        assert first == again
        assert first != other

    def test_the_global_generator_stays(self) -> None:
        before = torch.get_rng_state()
        torch.rand(5, generator=generator(CPU, 3))
        assert torch.equal(torch.get_rng_state(), before)


class TestSeeded:
    def test_decides_what_is_drawn_inside(self) -> None:
        drawn = []
        for seed, purpose in ((0, "network"), (0, "network"), (1, "network"), (0, "grow")):
            with seeded(seed, purpose):
                drawn.append(torch.nn.Linear(4, 4).weight.tolist())
        first, again, other_seed, other_purpose = drawn
        assert first == again
        assert first != other_seed
        assert first != other_purpose

    def test_restores_the_global_generator(self) -> None:
        before = torch.get_rng_state()
        with seeded(0, "network"):
            torch.rand(5)
        assert torch.equal(torch.get_rng_state(), before)

    def test_restores_it_after_an_error(self) -> None:
        before = torch.get_rng_state()
        with pytest.raises(KeyError), seeded(0, "network"):
            raise KeyError
        assert torch.equal(torch.get_rng_state(), before)
