"""Dimensions of size 1 keep their strides where a tensor is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.harness import check


def added(x: Tensor, z: Tensor) -> Tensor:
    y = x.clone()
    y += z.cumprod(0)
    return y


def copied(x: Tensor, z: Tensor) -> Tensor:
    y = x.clone()
    y.copy_(z)
    return y


def stored(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    y = z.clone()
    y[:] = (
        x.expand_as(z)
        .sum(-1, keepdim=True)
        .repeat(1, 1, 2 * z.shape[-1])[..., : z.shape[-1]]
    )
    return y, y[..., 1:]


def filled(x: Tensor, z: Tensor) -> Tensor:
    y = x.clone()
    y[:] = torch.nn.functional.pad(y.masked_fill(z > 0, 2)[..., :-1], (1, 0))
    return y.mul_(z)


@pytest.mark.parametrize("function", [added, copied, stored, filled])
def test_as_in_eager(function: Callable[..., Any]) -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)):
        sizes = [(1, 1, 9), (1, 4, 3)][sum(order[:2]) % 2]
        block = [sizes[order.index(d)] for d in range(3)]

        def made(block: list[int] = block, order: Any = order) -> Any:
            x = torch.rand(block).permute(order)
            return function, (x, torch.rand(x.shape)), {}

        check(made)
