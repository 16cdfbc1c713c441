"""Bit by bit: a kernel rounds where eager's kernel for that dtype rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import srcjit
from tests.backend.test_lowerings import run

aten = torch.ops.aten
HALVES = [torch.bfloat16, torch.float16]
COUNT = 4096

OPERATIONS: dict[str, Callable[..., Any]] = {
    "truncated": lambda x, y, g: torch.div(x, y, rounding_mode="trunc"),
    "floored": lambda x, y, g: torch.div(x, y, rounding_mode="floor"),
    "truncated by one element": lambda x, y, g: torch.div(
        x, y[3:4], rounding_mode="trunc"
    ),
    "floored by one element": lambda x, y, g: torch.div(x, y[3], rounding_mode="floor"),
    "truncated by a number": lambda x, y, g: torch.div(x, 0.3, rounding_mode="trunc"),
    "floored by a number": lambda x, y, g: x // 0.3,
    "a number floored": lambda x, y, g: 1e-3 // y,
    "mse": lambda x, y, g: F.mse_loss(x, y, reduction="none"),
    "smooth l1": lambda x, y, g: F.smooth_l1_loss(x, y, reduction="none"),
    "smooth l1, beta": lambda x, y, g: F.smooth_l1_loss(x, y, reduction="none", beta=3),
    "huber": lambda x, y, g: F.huber_loss(x, y, reduction="none"),
    "huber, delta": lambda x, y, g: F.huber_loss(x, y, reduction="none", delta=0.7),
    "mse backward": lambda x, y, g: aten.mse_loss_backward(g, x, y, 0),
    "mse backward, mean": lambda x, y, g: aten.mse_loss_backward(g[0], x, y, 1),
    "smooth l1 backward": lambda x, y, g: aten.smooth_l1_loss_backward(g, x, y, 0, 1.0),
    "huber backward": lambda x, y, g: aten.huber_loss_backward(g, x, y, 0, 0.7),
    "xlogy": lambda x, y, g: torch.xlogy(x, y.abs()),
    "xlogy of a number": lambda x, y, g: torch.xlogy(0.3, y.abs()),
    "xlogy by a number": lambda x, y, g: torch.xlogy(x, 0.3),
    "logit": lambda x, y, g: torch.logit(x.sigmoid()),
    "logit with bounds": lambda x, y, g: torch.logit(x.sigmoid(), 0.1),
    "logit backward": lambda x, y, g: aten.logit_backward(g, x.sigmoid(), None),
    "logit backward with bounds": lambda x, y, g: aten.logit_backward(
        g, x.sigmoid(), 0.1
    ),
    "cube": lambda x, y, g: x**3,
    "inverse square": lambda x, y, g: x**-2,
    "root": lambda x, y, g: x**0.5,
    "inverse root": lambda x, y, g: x**-0.5,
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_rounds_where_eager_does(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y, g = (
        (torch.randn(COUNT, generator=generator) * scale).to(dtype)
        for scale in (4, 2, 1)
    )
    x[:3] = torch.tensor([-0.0, -torch.inf, torch.inf])
    run(OPERATIONS[name], x, y, g, rtol=0, atol=0)


def test_logarithms_of_integers_are_not_cut() -> None:
    """Beside a tensor of bytes an integer alone is not made a byte before its logarithm."""
    x, large = torch.arange(200, dtype=torch.uint8), torch.tensor(2**40)
    run(torch.xlogy, x, large)
    run(torch.xlogy, large, x[1:])


@pytest.mark.parametrize("dtype", HALVES)
def test_a_square_may_overflow(dtype: torch.dtype) -> None:
    x = torch.full((4,), 300.0, dtype=dtype)
    run(F.mse_loss, x, torch.zeros_like(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_neighbours_are_those_of_the_element_type(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 20, dtype=dtype)
    run(torch.nextafter, x, x.flip(0), loops=False, rtol=0, atol=0)


FUSED: dict[str, Callable[..., Any]] = {
    "lerp, near": lambda x, y, z: torch.lerp(x, y, 0.3),
    "lerp, far": lambda x, y, z: torch.lerp(x, y, 0.7),
    "lerp by a tensor": torch.lerp,
    "addcmul": torch.addcmul,
    "addcmul, value": lambda x, y, z: torch.addcmul(x, y, z, value=0.3),
    "addcdiv": torch.addcdiv,
    "addcdiv, value": lambda x, y, z: torch.addcdiv(x, y, z, value=0.3),
    "add, alpha": lambda x, y, z: torch.add(x, y, alpha=0.3),
    "sub, alpha": lambda x, y, z: torch.sub(x, y, alpha=0.3),
}


@pytest.mark.parametrize("name", FUSED)
def test_products_that_eager_fuses_are_rounded_once(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(COUNT, generator=generator) * scale for scale in (4, 2, 1)]
    function = FUSED[name]
    made = srcjit.jit(lambda x, y, z: function(x, y, z))
    differ = (made(*args) != function(*args)).sum().item()
    assert differ == 0


BOUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 1.0),
    "clamp": lambda x: x.clamp(0, 1),
    "clamp_min": lambda x: x.clamp(min=0.0),
    "clamp_max": lambda x: (-x).clamp(max=-0.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("name", BOUNDED)
def test_zeros_within_a_bound_keep_their_sign(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([-0.0, 0.0] * 40, dtype=dtype)
    run(lambda x: torch.copysign(torch.ones_like(x), BOUNDED[name](x)), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mean_rounds_once(dtype):
    def mean(x):
        return (x + 1).mean(), (x + 1).mean(1)

    x = torch.full((300, 300), 3.0, dtype=dtype)  # the sum is beyond float16
    for got, expected in zip(srcjit.jit(mean)(x), mean(x), strict=True):
        assert torch.equal(got, expected)
