"""What goes into parts is computed there, and what reads them again reads what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import srcjit
from srcjit.options import Options
from srcjit.passes.segment import compile_segment
from tests.backend.support import segment_of


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def text_of(function: Callable[..., Any], *args: Any) -> str:
    code = compile_segment(segment_of(function, *args), Options(target="cpp"))
    return f"{code.definitions}\n{code.function}"


def kinds(x: Tensor, w: Tensor) -> Tensor:
    y = x.clone()
    y[:, 3:].exp_()
    torch.cumsum(x[1:], 0, out=y[1:])
    return y


def halves(x: Tensor, w: Tensor) -> Tensor:
    n = x.shape[0] // 2
    x[:n].sin_()
    x[n:] = w[n:].cumsum(0)
    return x.sum()


def whole_rows(x: Tensor, w: Tensor) -> Tensor:
    y = torch.empty(2 * x.shape[0], x.shape[1])
    torch.mm(x, w, out=y[: x.shape[0]])
    torch.mm(w, x, out=y[x.shape[0] :])
    return y


def every_other(x: Tensor, w: Tensor) -> Tensor:
    x[:, ::2].exp_()
    x[:, 1::2].sub_(x[:, ::2])
    return x @ w


def single_rows(x: Tensor, w: Tensor) -> Tensor:
    w[0].exp_()
    w[:, 1] = (x @ w)[:, 1].sigmoid()
    w[-3:].tanh_()
    return w.t() @ x


def parts_of_parts(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = x[:8, :8].reshape(2, 4, 8).clone()
    y[1, 2:, ::3].exp_()
    y[..., 1:].cumsum_(1)
    return y, y[:, 1:3]


def old_values_read_elsewhere(x: Tensor, w: Tensor) -> Tensor:
    x[:, :4] = x[:, 4:8].exp() + x.t()[:, :4].sin()
    x[1:].add_(x[:-1].clone())
    return x * 1


def old_values_kept(x: Tensor, w: Tensor) -> Tensor:
    x[:4].exp_()
    z = x.sin() + 1
    x[4:].exp_()
    return z


def copies_that_are_read_again(x: Tensor, w: Tensor) -> Tensor:
    w.cumsum_(0)
    w[:4].sin_()
    w[4:] = w[4:].sort(0)[0]
    w[:, 1:5] = x[:, 1:5].cumsum(0)
    w[3].mul_(0.5)
    return torch.relu(x @ w)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [
        kinds,
        halves,
        whole_rows,
        every_other,
        single_rows,
        parts_of_parts,
        old_values_read_elsewhere,
        old_values_kept,
        copies_that_are_read_again,
    ],
)
def test_parts(function: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = srcjit.jit(function, dynamic=dynamic)
    for size in (8, 12, 64):
        given = [torch.randn(size, size) for _ in "xw"]
        other = [t.clone() for t in given]
        found, wanted = compiled(*given), function(*other)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(given, other)
        assert [t._version for t in given] == [t._version for t in other]


def test_only_the_part_is_written() -> None:
    def function(x: Tensor) -> None:
        x[:, :200].exp_()

    text = text_of(function, torch.randn(256, 256))
    assert text.count("void ") == 1 and "empty" not in text
    assert "j < 200" in text and "j < 256" not in text


def test_what_is_written_twice_is_computed_once() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, :200].sin_().cos_()
        return y[:, 200:] * 2

    text = text_of(function, torch.randn(256, 256))
    assert "sin(" not in text


def test_random_numbers_fill_an_input() -> None:
    def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        x.uniform_(0, 1).log_()
        y.normal_()
        z.bernoulli_(0.3)
        return x.sum() + y.sum()

    text = text_of(function, *(torch.randn(64, 64) for _ in "xyz"))
    assert "copy_" not in text and "empty_cpu((64, 64)" not in text
    given, other = ([torch.zeros(64, 64) for _ in "xyz"] for _ in "12")
    compiled = srcjit.jit(function)
    for _ in range(2):
        torch.manual_seed(5)
        found = compiled(*given)
        torch.manual_seed(5)
        torch.testing.assert_close(found, function(*other))
        torch.testing.assert_close(given, other)


def test_what_a_part_is_computed_from_may_be_shown() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        product = x @ w
        x[:32] = product[:32]
        y = torch.zeros(128, 64)
        y[:64] = product
        return y, product

    x, w = torch.randn(64, 64), torch.randn(64, 64)
    other = x.clone()
    found, wanted = srcjit.jit(function)(x, w), function(other, w)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(x, other)
    found[0].zero_()
    torch.testing.assert_close(found[1], wanted[1])
