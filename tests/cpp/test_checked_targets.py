"""Losses whose targets are checked: values, gradients and errors are eager's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import srcjit


def mean(x: Tensor, t: Tensor) -> Any:
    return F.cross_entropy(x, t)


def unread(x: Tensor, t: Tensor) -> Any:
    F.nll_loss(x, t)
    return x + 1


def one_by_one(x: Tensor, t: Tensor) -> Any:
    return F.nll_loss(x.log_softmax(-1), t, reduction="none", ignore_index=3)


def summed(x: Tensor, t: Tensor) -> Any:
    return F.cross_entropy(x, t, reduction="sum")


def of_one_row(x: Tensor, t: Tensor) -> Any:
    return F.cross_entropy(x[0], t[0])


TARGETS = {
    "classes": [1, 2, 3, 0, 10, 5, 5],
    "ignored": [-100, 3, -100, 0, 3, 3, 1],
    "too large": [11] * 7,
    "negative": [1, 2, -5, 99, 0, 0, 0],
}


def outcome(loss: Callable[..., Any], x: Tensor, t: Tensor) -> Any:
    x = x.clone().requires_grad_()
    try:
        result = loss(x, t)
    except IndexError as error:
        return str(error)
    result.float().sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("loss", [mean, unread, one_by_one, summed, of_one_row])
def test_losses(loss: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    compiled = srcjit.jit(loss)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(7, 11).to(dtype)
        for numbers in TARGETS.values():
            t = torch.tensor(numbers)
            found, wanted = outcome(compiled, x, t), outcome(loss, x, t)
            if isinstance(wanted, str):
                assert found == wanted
            else:
                close = {} if dtype is torch.float32 else {"rtol": 0.03, "atol": 1e-3}
                torch.testing.assert_close(found, wanted, equal_nan=True, **close)
