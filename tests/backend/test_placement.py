"""What is computed where it goes is not read at other places of it, once those are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.backend.support import check_stages


def first_row_added(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    return (y * 2 + y[:1]).clone()


def flipped(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    return (y - y.flip(0)).clone()


def into_a_part(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    made = torch.zeros(x.size(0), 2 * w.size(1))
    made[:, : w.size(1)] = y + y[:1]
    return made


def row_by_row(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    return (y - y.mean(-1, keepdim=True)).clone()


@pytest.mark.parametrize(
    "function", [first_row_added, flipped, into_a_part, row_by_row]
)
def test_as_in_eager(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    check_stages(function, torch.randn(37, 50), torch.randn(50, 64), stages=("emit",))
