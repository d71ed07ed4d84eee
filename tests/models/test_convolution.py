"""The convolution's own backward pass against PyTorch's."""

from __future__ import annotations

import pytest
import torch

from hoarfrost.models.convolution import Conv, gradients


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("of_x", "of_weight"), [(True, True), (True, False), (False, True)])
def test_with_a_weight_from_elsewhere_it_is_pytorchs(stride: int, of_x: bool, of_weight: bool) -> None:
    torch.manual_seed(0)
    layer = Conv(3, 5, 3, stride=stride)
    other = torch.randn_like(layer.weight).requires_grad_(of_weight)
    x = torch.randn(2, 3, 7, 7, requires_grad=of_x)
    inputs = [tensor for tensor in (x, other) if tensor.requires_grad]
    expected_out = torch.nn.functional.conv2d(x, other, stride=stride, padding=1)
    expected = torch.autograd.grad(expected_out.square().sum(), inputs)
    layer.rounded = other
    out = layer(x)
    found = torch.autograd.grad(out.square().sum(), inputs)
    torch.testing.assert_close(out, expected_out)
    torch.testing.assert_close(found, expected)


def test_its_operator_keeps_pytorchs_rules() -> None:
    x, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    x, weight = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, weight))
    gradient = torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    torch.library.opcheck(gradients, (gradient, x, weight, 2))
