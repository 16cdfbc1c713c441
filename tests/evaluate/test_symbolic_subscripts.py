"""Subscripts of tensors by numbers that change: one specialization for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import srcjit


def element(x: Tensor, n: int) -> Tensor:
    return x[n] * 2


def column(x: Tensor, n: int) -> Tensor:
    return x[:, n] * 2


def last(x: Tensor, n: int) -> Tensor:
    return x[..., n] + 1


def among_others(x: Tensor, n: int) -> Tensor:
    return x[1:, None, n, 0].sum() + x[None, ..., n, 2:]


def both(x: Tensor, n: int) -> Tensor:
    return x[n, n + 1].sum() * x[n - 1, :, n]


def shown(x: Tensor, n: int) -> Tensor:
    return x[:, n]


def stored(x: Tensor, n: int) -> Tensor:
    x[:, n] = x[:, 0] + 1
    x[n, 1:, n] = 3
    return x.sum()


def added(x: Tensor, n: int) -> Tensor:
    x[n, ..., 2] += 1
    return x * 2


CASES = [element, column, last, among_others, both, shown, stored, added]


@pytest.mark.parametrize("function", CASES)
def test_numbers_that_change(function: Callable[..., Any]) -> None:
    jitted = srcjit.jit(function)
    for n in (1, 2, 3, 4, 2):
        x = torch.randn(6, 7, 6)
        other = x.clone()
        given, wanted = jitted(x, n), function(other, n)
        torch.testing.assert_close(given, wanted)
        assert given.stride() == wanted.stride()
        assert (given.data_ptr() == x.data_ptr() + 4 * wanted.storage_offset()) == (
            wanted.data_ptr() == other.data_ptr() + 4 * wanted.storage_offset()
        )
        assert torch.equal(x, other)
        assert x._version == other._version
    assert len(jitted.__srcjit__.specializations) <= 2


@pytest.mark.parametrize("n", [-1, -3, 6, -7, 100, True])
def test_numbers_of_another_kind(n: int) -> None:
    def outcome(call: Callable[..., Any]) -> Any:
        try:
            return call(torch.ones(6, 7, 6), n)
        except IndexError as error:
            return str(error)

    for function in (column, added):
        jitted = srcjit.jit(function)
        for first in (1, 2):
            jitted(torch.ones(6, 7, 6), first)
        given, wanted = outcome(jitted), outcome(function)
        if isinstance(wanted, str):
            assert given == wanted
        else:
            torch.testing.assert_close(given, wanted)
