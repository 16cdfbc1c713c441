"""What is computed where it goes is not read at other places of it, once those are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import srcjit
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


def added_to_an_input(x: Tensor, w: Tensor) -> None:
    # What goes into `w` cannot wait in `x`, whose old values are added to it.
    w[4:, :4].sub_(w[:4, 4:])
    x[:4].add_(w[4:])


def added_to_a_temporary(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    z = (w.cumsum(0) * 2)[4:].softmax(1)
    y[:4] += z
    return y + 1


def through_other_parts(x: Tensor, w: Tensor) -> Tensor:
    y = x.sort(0)[0]
    s = w[:4].sort(1)[0]
    y[:4] = y[:4] * s.cumsum(0)
    y[4:] = y[4:] - y[:4]
    return y @ w


@pytest.mark.parametrize(
    "function", [added_to_an_input, added_to_a_temporary, through_other_parts]
)
def test_old_values_are_read_first(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    own = torch.randn(8, 8), torch.randn(8, 8)
    other = own[0].clone(), own[1].clone()
    found, wanted = srcjit.jit(function)(*own), function(*other)
    torch.testing.assert_close((found, *own), (wanted, *other))
