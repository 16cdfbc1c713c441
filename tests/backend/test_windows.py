"""What `unfold` shows can be written to: windows that are apart, with or without gaps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import srcjit

WINDOWS = (
    (4, 4),
    (4, 8),
    (5, 5),
    (4, 5),
    (4, 2),
)
"""Sizes and steps in 14 elements: with a rest or without, and some that overlap."""


def temporary(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    y = x * 2
    y.unfold(dim, size, step)[..., 1:].mul_(3)
    return y


def given(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    windows = x.unfold(dim, size, step)
    windows[0] = 7
    torch._foreach_add_([windows[..., 0]], 1.0)
    return windows * 2


def added(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    y = x * 2
    windows = y.unfold(dim, size, step)
    windows += 1
    return y


def sine(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    return x.unfold(dim, size, step).sin()


@pytest.mark.parametrize("dim", [0, -1])
def test_as_in_eager(dim: int) -> None:
    for function in (temporary, given, added, sine):
        for size, step in WINDOWS:
            for grad in (False, True):
                own = torch.arange(196.0).view(14, 14).requires_grad_(grad)
                other = own.detach().clone().requires_grad_(grad)
                one, two = own * 1, other * 1
                compiled = srcjit.jit(function)
                outcomes = []
                for call, x in ((compiled, one), (function, two)):
                    try:
                        outcomes.append([call(x, dim, size, step)])
                    except RuntimeError as error:
                        outcomes.append([str(error)])
                (found,), (wanted,) = outcomes
                if isinstance(wanted, str):
                    assert found == wanted
                    continue
                torch.testing.assert_close(found, wanted)
                assert found.stride() == wanted.stride()
                torch.testing.assert_close(one, two)
                if grad:
                    (have,) = torch.autograd.grad((found * found).sum(), own)
                    (want,) = torch.autograd.grad((wanted * wanted).sum(), other)
                    torch.testing.assert_close(have, want)
