"""Parts of inputs, and of temporaries, are written where they are, not into copies."""

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
    return compile_segment(segment_of(function, *args), Options()).function


def cache() -> Tensor:
    return torch.randn(2, 4, 512, 64)


def copied(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    keys.index_copy_(2, at, k)
    return (keys * 2).sum(-1)


def put(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    keys[:, :, at] = k
    return keys.sum(-1)


def sliced(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    keys[:, :, 7:8] = k * 2
    return k.transpose(-2, -1) + keys[:, :, :64].sum(-1, keepdim=True)


def nested(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    keys[1, :, 9] = k[1, :, 0]
    return keys.sum(-1)


def of_itself(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    keys[:, :, 3:4] = keys[:, :, 5:6]
    return keys.sum(-1)


def read_before(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    before = keys.sum(-1)
    keys[:, :, 3:4] = k
    return before + keys[..., 0]


def first_row(keys: Tensor, k: Tensor, at: Tensor) -> Tensor:
    row = keys[0]
    keys[0, :, 3:5] = k[0].expand(4, 2, 64)
    return row


@pytest.mark.parametrize(
    "function", [copied, put, sliced, nested, of_itself, read_before, first_row]
)
def test_as_in_eager(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    own = (cache(), torch.randn(2, 4, 1, 64), torch.tensor([3]))
    other = tuple(a.clone() for a in own)
    jitted = srcjit.jit(function, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(jitted(*own), function(*other))
        assert torch.equal(own[0], other[0])
        assert own[0]._version == other[0]._version


@pytest.mark.parametrize("function", [copied, put, sliced, nested])
def test_only_the_part_is_written(function: Callable[..., Any]) -> None:
    text = text_of(function, cache(), torch.randn(2, 4, 1, 64), torch.tensor([3]))
    assert "keys.data" in text
    assert "keys.copy_(" not in text
    assert "clone()" not in text


def test_the_part_of_an_input_that_begins_later() -> None:
    torch.manual_seed(0)
    k, at = torch.randn(2, 4, 1, 64), torch.tensor([3])
    own, other = (torch.zeros(3, 4, 512, 64) for _ in range(2))
    srcjit.jit(sliced)(own[1:], k, at)
    sliced(other[1:], k, at)
    assert torch.equal(own, other)


def test_a_position_that_changes() -> None:
    def step(keys: Tensor, k: Tensor, n: int) -> Tensor:
        keys[:, :, n : n + 1] = k
        return keys[:, :, : n + 1].sum(-1)

    jitted = srcjit.jit(step)
    own = cache()
    other = own.clone()
    for n in range(3, 9):
        k = torch.randn(2, 4, 1, 64)
        torch.testing.assert_close(jitted(own, k, n), step(other, k, n))
        assert torch.equal(own, other)


def test_temporaries_are_written_in_place() -> None:
    def means(x: Tensor, at: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, at, x) * 2

    def kept(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        start = x * 2
        return start, start.index_add(0, at, x)

    x, at = torch.randn(64, 8), torch.arange(63, -1, -1)
    assert "index_add_" in text_of(means, x, at)
    assert "index_add_" not in text_of(kept, x, at)
    for function in (means, kept):
        torch.testing.assert_close(srcjit.jit(function)(x, at), function(x, at))


def test_a_view_of_what_goes_into_an_input_is_apart() -> None:
    def function(x: Tensor) -> Tensor:
        new = torch.sin(x)
        x.copy_(new)
        return new.view(-1)

    x = torch.randn(4, 4)
    given = srcjit.jit(function)(x)
    assert given.data_ptr() != x.data_ptr()
    x.zero_()
    assert given.abs().sum() > 0


def exp_into(x: Any, y: Any) -> Any:
    shown = x.t()
    torch.exp(y, out=shown)
    return shown


def sums_into(x: Any, y: Any) -> Any:
    shown = x.t()
    torch.cumsum(y, 0, out=shown)
    return shown


@pytest.mark.parametrize("function", [exp_into, sums_into])
def test_a_view_that_is_written_to_keeps_its_strides(function: Any) -> None:
    x, y = torch.zeros(5, 5), torch.randn(5, 5)
    wanted = function(x.clone(), y)
    found = srcjit.jit(function)(x, y)
    torch.testing.assert_close(found, wanted)
    assert found.stride() == wanted.stride() == (1, 5)
    assert found.data_ptr() == x.data_ptr()


def end_written(x: Any) -> Any:
    y = x + 1
    y.resize_(x.shape[0], x.shape[1] + 3)
    y[:, 5:] = 0
    y.view(-1)[x.numel() :] = 0
    return y


def test_views_of_symbolic_sizes_that_go_into_inputs() -> None:
    """The sizes are operands of the view as well."""
    x = torch.randn(8, 10)
    found = srcjit.jit(end_written, dynamic=True)(x)
    torch.testing.assert_close(found, end_written(x))
