"""One step: the compiled one is the plain one, and where nothing can be compiled the plain one is taken."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hoarfrost.computing.compiling import COMBINED, compiled
from hoarfrost.computing.rounding import Rounded, descend
from hoarfrost.computing.runtime import COMPILE_FROM, Runtime
from hoarfrost.config import Method
from hoarfrost.data.augment import Affine, Augment, Crop, ResizedCrop, Strong
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import ImageSource, Normaliser
from hoarfrost.methods import DEFAULT, METHODS
from hoarfrost.models.network import Network, grow
from hoarfrost.models.resnet import ResNet, Shape
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.loop import build_optimizer, set_learning_rate
from hoarfrost.training.objective import Objective, choose_trained, make_heads, sizes_of
from hoarfrost.training.step import Pass, Stepper

CPU = torch.device("cpu")
IMAGES = 20
LABELLED = 30
"""images of stage one, for a method that mixes them in"""
TWO_STAGES = Shape(widths=(16, 16), blocks=1, stem_stride=2)
"""as little as there can be to compile"""
TRAINED = {name: method for name, method in METHODS.items() if method.active and not method.supervised}


def is_part_of(method: Method, other: Method) -> bool:
    """Whether a method has some of the other's terms, on the same heads and images, and none beside."""
    alike = method.design == other.design and method.labelled_images == other.labelled_images
    return alike and set(method.active) < set(other.active)


WHOLE = [name for name, method in TRAINED.items() if not any(is_part_of(method, other) for other in TRAINED.values())]
"""methods of which no other one has all terms: each term's graph is within theirs"""


def objective_of(method: str, *, together: bool = True) -> Objective:
    torch.manual_seed(0)
    preset = METHODS[method]
    teacher = Network(ResNet(TWO_STAGES, 3), 3, preset.design).requires_grad_(False)
    student, terms = grow(teacher, 2), preset.active
    make_heads(student, terms, sizes_of(student, IMAGES))
    choose_trained(student, frozen=("stem",), terms=terms)
    objective = Objective(
        student,
        terms=terms,
        images=IMAGES,
        labelled_images=LABELLED,
        teacher=teacher,
        statistics=ClassStatistics.of(torch.rand(30, 16), torch.arange(30) % 3, 3),
        clusters=torch.rand(IMAGES, 2).softmax(dim=1),
        views_together=together,
    )
    objective.set_epoch(20)
    objective.train()
    return objective


def source_for(objective: Objective, augment: Augment | None = None) -> ImageSource:
    # Seeds with which no feature is so near to 0 that rounding decides on its gradient.
    pixels, others = (
        np.random.default_rng(seed).integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
        for seed, count in ((0, IMAGES), (1, LABELLED))
    )
    labelled = ImageSet(others, np.arange(LABELLED) % 3, tuple("abc"))
    return ImageSource(
        ImageSet(pixels),
        views=objective.augments(augment or Crop(pad=2)),
        batch_size=8,
        normaliser=Normaliser((0.5,) * 3, (0.2,) * 3, CPU),
        device=CPU,
        mixed_in=labelled if objective.mixes else None,
    )


def traced(
    objective: Objective, source: ImageSource, runtime: Runtime, backend: str = "eager"
) -> tuple[Tensor, Tensor]:
    """The statistics of the plain step and of the one that went through the compiler's front, in one graph.

    "aot_eager" has it make the graph of the backward pass, too.
    """
    whole = Pass(source, objective, runtime)
    generator = torch.Generator().manual_seed(0)
    picked = next(iter(source.picks(generator)))
    drawn, replayed = source.draw(generator), objective.draw(generator)
    before = copy.deepcopy(objective.memories.state_dict())
    _, plain, update = whole(picked, drawn, replayed)
    _, same, again = compiled(Pass.forward, fullgraph=True, backend=backend)(whole, picked, drawn, replayed)
    torch.testing.assert_close(again, update)  # what will be remembered of the step
    torch.testing.assert_close(objective.memories.state_dict(), before, rtol=0, atol=0)  # and is not yet
    return plain, same


@pytest.mark.parametrize("augment", [Augment(), Crop(), Affine(), ResizedCrop(), Strong()], ids=lambda a: a.kind)
def test_a_step_is_one_graph_whatever_the_augmentation(augment: Augment) -> None:
    objective = objective_of("frost-without-fd-fr-st")  # few terms: it is about the images
    plain, same = traced(objective, source_for(objective, augment), Runtime("cpu"))
    torch.testing.assert_close(same, plain)


@pytest.mark.parametrize("method", WHOLE)
def test_a_step_is_one_graph_whatever_the_method(method: str) -> None:
    objective, backend = objective_of(method, together=False), "aot_eager" if method == DEFAULT else "eager"
    plain, same = traced(objective, source_for(objective), Runtime("cpu", "bf16"), backend)
    torch.testing.assert_close(same, plain)


def test_a_step_of_stage_one_with_views_of_its_own_is_one_graph() -> None:
    network, terms = Network(ResNet(TWO_STAGES, 3), 3), METHODS["hoarfrost"].stage_one
    make_heads(network, terms, sizes_of(network, LABELLED))
    objective = Objective(network, terms=terms)
    objective.set_epoch(0)
    images = np.random.default_rng(0).integers(0, 256, (LABELLED, 12, 12, 3), dtype=np.uint8)
    source = ImageSource(
        ImageSet(images, np.arange(LABELLED) % 3, tuple("abc")),
        views=objective.augments(Crop()),
        batch_size=8,
        normaliser=Normaliser((0.5,) * 3, (0.2,) * 3, CPU),
        device=CPU,
    )
    plain, same = traced(objective, source, Runtime("cpu", "bf16"), "aot_eager")
    torch.testing.assert_close(same, plain)


def without_code(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
    """The compiler's changes to the graphs, which are then run as they are: no C++ compiler is needed."""
    # Importing it takes seconds, and every process of the tests reads this file.
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._inductor.compile_fx import compile_fx

    def as_it_is(changed: torch.fx.GraphModule, *_: Any, **__: Any) -> Any:
        return make_boxed_func(changed.forward)

    return compile_fx(graph, inputs, inner_compile=as_it_is)


@pytest.mark.parametrize("method", ["frost", "ncl", "ncl-labelled", "dtc-te", "restune"])
def test_a_compiled_step_learns_from_memories_as_they_were_before_it(method: str) -> None:
    def learned(backend: Callable[..., Any] | None) -> dict[str, Tensor]:
        objective = objective_of(method)
        source, generator = source_for(objective), torch.Generator().manual_seed(0)
        weights = [p for p in objective.student.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=0.0)  # what is compared is the last step's gradient
        stepper = Stepper(objective, source, optimizer, runtime=Runtime("cpu", "fp32", "off"), steps=1)
        for _ in range(2):  # epochs that fill a queue: what is drawn at random at first is like no image
            for picked in source.picks(generator):
                stepper(picked)
        if backend is not None:
            stepper.compute = partial(compiled(Pass.forward, backend=backend), stepper.module)
        stepper(picked)
        named = objective.student.named_parameters()
        memories = objective.memories.state_dict()
        return {**memories, **{name: p.grad for name, p in named if p.grad is not None}}

    plain, same = learned(None), learned(without_code)
    assert plain.keys() == same.keys()
    for name in plain:
        torch.testing.assert_close(same[name], plain[name], rtol=1e-3, atol=1e-5, msg=name)


def test_a_step_with_weights_rounded_at_once_is_one_graph_too() -> None:
    objective = objective_of("frost")
    with Rounded(objective, torch.bfloat16).in_use():
        plain, same = traced(objective, source_for(objective), Runtime("cpu", "bf16"))
    torch.testing.assert_close(same, plain)


def test_a_step_that_fails_by_itself_is_not_the_compilers_fault(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError("the step itself")

    objective = objective_of("frost")
    source = source_for(objective)
    optimizer = torch.optim.SGD([p for p in objective.student.parameters() if p.requires_grad], lr=0.1)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: fail)
    monkeypatch.setattr(type(objective), "forward", fail)
    stepper = Stepper(objective, source, optimizer, runtime=Runtime("cpu", compiled="on"), steps=1)
    stepper.generator.manual_seed(0)
    with pytest.raises(ZeroDivisionError, match="the step itself"):
        stepper(next(iter(source.picks(stepper.generator))))
    assert not any("could not be compiled" in str(warning.message) for warning in recwarn)


def test_a_compiler_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise RuntimeError("no compiler here\nand more of it")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: refuse)
    objective = objective_of("frost")
    source = source_for(objective)
    parameters = [p for p in objective.student.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    stepper = Stepper(objective, source, optimizer, runtime=Runtime("cpu", compiled="on"), steps=1)
    stepper.generator.manual_seed(0)
    before = [p.detach().clone() for p in parameters]
    with pytest.warns(UserWarning, match=r"could not be compiled and runs uncompiled: no compiler here$"):
        stepper(next(iter(source.picks(stepper.generator))))
    assert any(not torch.equal(p, old) for p, old in zip(parameters, before, strict=True))
    assert stepper.sums[0] > 0
    same = objective_of("frost")
    plain = Stepper(same, source, torch.optim.SGD(same.student.parameters(), lr=0.1), runtime=Runtime("cpu"), steps=1)
    plain.generator.manual_seed(0)
    plain(next(iter(source.picks(plain.generator))))
    assert torch.equal(plain.sums, stepper.sums), "with the numbers that it would have drawn without the compiler"


@pytest.mark.parametrize("together", [True, False])
def test_weights_that_are_rounded_all_at_once_learn_the_same(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    def learned(rounds: bool) -> tuple[dict[str, Tensor], Tensor]:
        monkeypatch.setattr(Runtime, "rounds", property(lambda _: rounds))
        objective = objective_of("frost", together=together)
        source = source_for(objective)
        parameters = [p for p in objective.student.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-2)
        stepper = Stepper(objective, source, optimizer, runtime=Runtime("cpu", "bf16"), steps=6)
        for epoch in range(2):
            with stepper.epoch(epoch):
                for picked in source.picks(stepper.generator):
                    stepper(picked)
            objective.student.eval()(torch.rand(2, 3, 12, 12))  # between epochs it is a network like any other
            objective.train()
        return objective.student.state_dict(), stepper.sums

    plain, plain_sums = learned(rounds=False)
    rounded, rounded_sums = learned(rounds=True)
    assert plain.keys() == rounded.keys()
    for name, tensor in plain.items():
        assert torch.equal(rounded[name], tensor), name
    assert torch.equal(rounded_sums, plain_sums)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_the_step_of_rounded_weights_is_that_of_sgd(momentum: float, nesterov: bool, rate: float | Tensor) -> None:
    settings: dict[str, Any] = {"lr": rate, "momentum": momentum, "weight_decay": 0.1, "nesterov": nesterov}
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,), (2, 3, 3, 3))]
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    copies = [weight.bfloat16() for weight in weights]
    momenta = [torch.zeros_like(weight) for weight in weights] if momentum else []
    optimizer = torch.optim.SGD(parameters, **settings)
    torch._dynamo.reset()
    compiled_descend = compiled(descend, fullgraph=True, backend="aot_eager")
    for _ in range(4):
        gradients = [torch.randn(weight.shape, generator=generator).bfloat16() for weight in weights]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.float()
        optimizer.step()
        compiled_descend(weights, copies, gradients, momenta, **settings)
    for weight, rounded, parameter in zip(weights, copies, parameters, strict=True):
        torch.testing.assert_close(weight, parameter.detach())
        assert torch.equal(rounded, weight.bfloat16())
    for buffer, parameter in zip(momenta, parameters, strict=False):
        torch.testing.assert_close(buffer, optimizer.state[parameter]["momentum_buffer"])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rounded_weights_learn_the_same_where_their_step_is_compiled(
    monkeypatch: pytest.MonkeyPatch, momentum: float
) -> None:
    monkeypatch.setattr(Runtime, "rounds", property(lambda _: True))

    def learned(*, compiled: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        objective = objective_of("frost")
        source = source_for(objective)
        trained = {name: p for name, p in objective.student.named_parameters() if p.requires_grad}
        optimizer = torch.optim.SGD(trained.values(), lr=1e-4, momentum=momentum, weight_decay=1e-2)
        stepper = Stepper(objective, source, optimizer, runtime=Runtime("cpu", "bf16", "off"), steps=6)
        assert stepper._rounded is not None
        if compiled:  # with what the compiler would make of it: the same
            monkeypatch.setattr(torch, "compile", lambda function, **_: function)
            stepper._rounded.compile()
        for epoch in range(2):
            with stepper.epoch(epoch):
                for picked in source.picks(stepper.generator):
                    stepper(picked)
        kept = {name: optimizer.state[p].get("momentum_buffer") for name, p in trained.items()}
        assert all((buffer is not None) == (momentum > 0) for buffer in kept.values())
        return objective.student.state_dict(), {name: buffer for name, buffer in kept.items() if buffer is not None}

    plain, fast = learned(compiled=False), learned(compiled=True)
    for one, two in zip(plain, fast, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("first", [True, False], ids=["stage one", "discovery"])
def test_little_kernels_are_combined_in_stage_one(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    given: list[Any] = []

    def seen(function: Callable[..., Any], **named: Any) -> Callable[..., Any]:
        given.append(named.get("options"))
        return function

    monkeypatch.setattr(torch, "compile", seen)
    objective = objective_of("frost")
    source = source_for(objective)
    if first:
        objective.teacher = None
    optimizer = torch.optim.SGD(objective.student.parameters())
    Stepper(objective, source, optimizer, runtime=Runtime("cpu", compiled="on"), steps=1)
    assert given == [COMBINED if first else None]


def test_when_steps_are_compiled() -> None:
    assert not Runtime("cpu").compiles(COMPILE_FROM), "on a CPU only when asked for"
    assert Runtime("cpu", compiled="on").compiles(1)
    assert not Runtime("cpu", compiled="off").compiles(10**9)


def test_checkpoints_on_a_gpu_take_little_of_its_time() -> None:
    runtime = Runtime("cpu")
    assert runtime.save_after(3.0) == 0, "after each epoch"
    runtime.device = torch.device("cuda")
    assert runtime.save_after(0.01) == 10
    assert runtime.save_after(2.0) == pytest.approx(100), "two seconds of a hundred"


def test_a_learning_rate_in_a_tensor_stays_that_tensor() -> None:
    """A replayed step reads it where it was when the step was captured."""
    parameter = torch.nn.Parameter(torch.ones(2))
    rate = torch.tensor(0.5)
    optimizer = torch.optim.SGD([parameter], lr=rate)
    set_learning_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_the_optimiser_is_plain_sgd_on_a_cpu() -> None:
    from hoarfrost.config import Schedule

    parameter = torch.nn.Parameter(torch.ones(2))
    schedule = Schedule(learning_rate=0.3, momentum=0.5, weight_decay=0.1, nesterov=True)
    group = build_optimizer([parameter], schedule, CPU).param_groups[0]
    assert {key: group[key] for key in ("lr", "momentum", "weight_decay", "nesterov")} == {
        "lr": 0.3,
        "momentum": 0.5,
        "weight_decay": 0.1,
        "nesterov": True,
    }


def test_a_stepper_goes_with_its_last_reference() -> None:
    """Its source may hold worker processes, which should not wait for the garbage collector."""
    objective = objective_of("frost")
    source = source_for(objective)
    optimizer = torch.optim.SGD([p for p in objective.student.parameters() if p.requires_grad], lr=0.1)
    stepper = Stepper(objective, source, optimizer, runtime=Runtime("cpu"), steps=1)
    stepper.generator.manual_seed(0)
    stepper(next(iter(source.picks(stepper.generator))))
    gone = weakref.ref(stepper), weakref.ref(source)
    del stepper, source
    assert [reference() for reference in gone] == [None, None]
