"""With sizes that are symbols the same is computed as with known ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import srcjit

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, (31, 17), mode="bicubic", align_corners=True),
    "nearest": lambda x: F.interpolate(x, scale_factor=1.7),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_symbolic_sizes(name: str, dtype: torch.dtype) -> None:
    function = PROGRAMS[name]
    jitted = srcjit.jit(function, dynamic=True)
    for shape in ((2, 3, 8, 12), (2, 4, 7, 9)):
        x = torch.randn(shape)
        x.view(-1)[:4] = torch.tensor([float("nan"), float("inf"), -0.0, -float("inf")])
        x = x.to(dtype)
        torch.testing.assert_close(
            jitted(x), function(x), rtol=0, atol=0, equal_nan=True
        )


def test_gradients_of_symbolic_sizes() -> None:
    def loss(x: Tensor) -> Tensor:
        larger = F.interpolate(x, scale_factor=2, mode="bilinear")
        return F.huber_loss(larger, torch.zeros_like(larger), delta=0.5)

    jitted = srcjit.jit(loss, dynamic=True)
    for shape in ((2, 3, 8, 12), (2, 4, 7, 9)):
        x = torch.randn(shape, requires_grad=True)
        (expected,) = torch.autograd.grad(loss(x), x)
        (got,) = torch.autograd.grad(jitted(x), x)
        torch.testing.assert_close(got, expected)


DRAWING: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout of all": lambda x: F.dropout(x, 1.0),
    "dropout of nothing": lambda x: F.dropout(x, 0.4)[:0] + F.dropout(x[:0], 0.4),
}


def _same_draws(function: Callable[[Tensor], Tensor], *shapes: tuple[int, ...]) -> None:
    jitted = srcjit.jit(function, dynamic=True)
    for shape in shapes:
        ends = []
        for call in (function, jitted):
            torch.manual_seed(3)
            x = torch.randn(shape, requires_grad=True)
            y = call(x)
            (gradient,) = torch.autograd.grad(y.square().sum(), x)
            ends.append((y, gradient, torch.rand(())))
        torch.testing.assert_close(ends[1], ends[0])


@pytest.mark.parametrize("name", DRAWING)
def test_symbolic_sizes_draw_the_same_numbers(name: str) -> None:
    _same_draws(DRAWING[name], (2, 3), (4, 5))


@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM])
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_between_recurrent_layers(kind: type, p: float) -> None:
    layers = kind(3, 4, 2, dropout=p, bidirectional=True, batch_first=True)
    _same_draws(lambda x: layers(x)[0] + layers(x)[1][0].sum(), (2, 3, 3), (4, 3, 3))
