"""Choices between loads: what a vector loop may take for each other."""

from __future__ import annotations

import pytest
import torch

import srcjit

Tensor = torch.Tensor


def neighbours(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    chosen = torch.where(x > 0, x, y)
    half = x.clone()
    half[:, ::2] = z[:, ::2]
    return chosen, half


def halves(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    first = torch.where(x[:, ::2] > 0, y[:, ::2], z[:, ::2] * 2)
    second = torch.where(x[:, 1::2] > 0, y[:, 1::2], z[:, 1::2] * 3)
    return torch.stack([first, second], -1).flatten(1), torch.stack(
        [z[:, ::2], second], -1
    )


def nested(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    pairs = torch.where(x > 0, torch.where(y > 0, z, x), y * z)
    half = torch.stack([z[:, ::2], pairs[:, 1::2]], -1).flatten(1)
    return pairs, half


@pytest.mark.parametrize("function", [neighbours, halves, nested])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_neighbours_under_different_conditions(
    function: object, dtype: torch.dtype
) -> None:
    x, y, z = (torch.randn(8, 64).mul(100).to(dtype) for _ in range(3))
    assert callable(function)
    with torch.no_grad():
        wanted = function(x, y, z)
        found = srcjit.jit(function)(x, y, z)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
