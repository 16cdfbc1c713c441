"""A segment never holds more memory at once than eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import srcjit
from tests.backend.peak_programs import PROGRAMS as WRITING
from tests.backend.peak_programs import WRITING_ARGUMENTS

SIZE = 128
LITTLE = 4096
"""Bytes that do not count: results of one number, rows."""

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def one_multiple_for_each_product(x, w):
    total = x
    for k in range(6):
        total = total + (x * k) @ w
    return total


@program
def one_multiple_for_each_scan(x, w):
    return sum(torch.cumsum(x * k, 0).mean() for k in range(5))


@program
def unused_results_of_calls(x, w):
    first = x.sort(0)[0].sum(1)
    second = x.sort(1)[0].sum(1)
    return first, second, (x * 2).sort(1)[0].sum(0)


@program
def gathered_multiples(x, w):
    index = (x[:, 0] * 0).long()
    return (x * 2)[index].sum(0) + (x * 3)[index].sum(0)


@program
def results_that_come_late(x, w):
    doubled = x * 2
    total = torch.cumsum(torch.exp(x) @ w, 0).sum()
    return doubled, total, x * 3


@program
def sums_of_products(x, w):
    return (x @ w).relu().sum(1), (w @ x).relu().sum(1), (x @ x).relu().sum(1)


@program
def chain_of_layers(x, w):
    for _ in range(6):
        x = torch.tanh(x @ w)
    return x


@program
def chain_with_sums_of_each(x, w):
    total = torch.zeros(())
    for _ in range(4):
        x = torch.relu(x @ w)
        total = total + x.sum()
    return total


@program
def normalized(x, w):
    y = (x - x.mean()) / x.std()
    return (y.exp().cumsum(0) + y).softmax(0)


@program
def across_breaks(x, w):
    y = torch.cumsum(torch.exp(x) * 2, 0).sum(1)
    print(end="")
    z = torch.cumsum(torch.exp(x) * 3, 0).sum(1)
    print(end="")
    return y + z


def peak_of(call: Callable[[], Any]) -> int:
    """The most bytes that PyTorch's CPU allocator holds during a call, beside what it held."""
    call()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        kept = call()
    del kept
    assert profile.kineto_results is not None
    events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_than_eager_holds(name: str) -> None:
    function = PROGRAMS[name]
    x, w = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    compiled = srcjit.jit(function)
    with torch.no_grad():
        wanted = peak_of(lambda: function(x, w))
        found = peak_of(lambda: compiled(x, w))
    assert wanted >= SIZE * SIZE * 4
    assert found <= wanted + LITTLE


TRAINED: dict[str, Callable[..., Any]] = {}


def trained(function: Callable[..., Any]) -> Callable[..., Any]:
    TRAINED[function.__name__] = function
    return function


@trained
def layers_of_relu(x, w, k):
    for _ in range(6):
        x = torch.relu(x @ w)
    return x.sum()


@trained
def layers_of_tanh(x, w, k):
    return torch.tanh(torch.tanh(x @ w) @ w).sum()


@trained
def layers_of_gelu(x, w, k):
    gelu = torch.nn.functional.gelu
    return gelu(gelu(x @ w, approximate="tanh") @ w, approximate="tanh").sum()


@trained
def convolutions(x, w, k):
    conv2d = torch.nn.functional.conv2d
    image = x.view(1, 4, 64, 64)
    image = torch.relu(conv2d(image, k, padding=1))
    return torch.relu(conv2d(image, k, padding=1)).sum()


@trained
def reduced_into_rows(x, w, k):
    index = (torch.arange(SIZE) % 4)[:, None].expand(SIZE, SIZE)
    kinds = "sum", "prod", "mean", "amax", "amin"
    rows = [torch.ones(4, SIZE).scatter_reduce(0, index, x, kind) for kind in kinds]
    return torch.stack(rows).sum()


@trained
def windows(x, w, k):
    return (x.unfold(0, 4, 4) * 2).sum() + (x @ w).sum()


@trained
def runge_kutta_steps(x, w, k):
    for _ in range(2):
        one = torch.tanh(x @ w)
        two = torch.tanh((x + 0.05 * one) @ w)
        x = x + 0.1 / 6 * (one + 2 * two)
    return x.sum()


def gradients(function: Callable[..., Any], given: list[torch.Tensor]) -> list[Any]:
    return list(torch.autograd.grad(function(*given), given, allow_unused=True))


@pytest.mark.parametrize("name", TRAINED)
def test_training_holds_no_more_than_eager(name: str) -> None:
    function = TRAINED[name]
    x, w = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE) / 8
    given = [t.requires_grad_() for t in (x, w, torch.randn(4, 4, 3, 3))]
    compiled = srcjit.jit(function)
    wanted = peak_of(lambda: gradients(function, given))
    found = peak_of(lambda: gradients(compiled, given))
    assert wanted >= SIZE * SIZE * 4
    assert found <= wanted + LITTLE
    for one, other in zip(gradients(compiled, given), gradients(function, given)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_second_backward() -> None:
    function = TRAINED["layers_of_tanh"]
    given = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
    compiled = srcjit.jit(function)

    def steps(call: Callable[..., Any]) -> list[Any]:
        total = call(*given, None)
        retained = [torch.autograd.grad(total, given, retain_graph=True) for _ in "12"]
        seen: list[Any] = [*retained, torch.autograd.grad(total, given)]
        with pytest.raises(RuntimeError) as caught:
            torch.autograd.grad(total, given)
        return [*seen, str(caught.value)]

    *found, said = steps(compiled)
    *wanted, eager = steps(function)
    assert said == eager
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", WRITING)
def test_what_works_in_place_holds_no_more_than_eager(name: str) -> None:
    function = WRITING[name]
    torch.manual_seed(0)
    given = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE), torch.randperm(SIZE)
    compiled = srcjit.jit(function)
    with torch.no_grad():
        wanted = peak_of(lambda: function(*given))
        found = peak_of(lambda: compiled(*given))
        results, expected = compiled(*given), function(*given)
    assert found <= wanted + LITTLE
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-3)
    for result, wanted_result in zip(_tensors(results), _tensors(expected)):
        assert result.stride() == wanted_result.stride()
        assert result._version == wanted_result._version


LARGE_PARTS = (
    "a part beside what is read",
    "a part of a part",
    "a border",
    "columns beside what is read",
    "views from before",
    "rows that move",
)
"""Programs that write parts, which in large inputs some other mechanism writes."""


@pytest.mark.parametrize(
    ("name", "size"),
    [*((n, SIZE) for n in WRITING_ARGUMENTS), *((n, 512) for n in LARGE_PARTS)],
)
def test_what_writes_arguments_holds_no_more_than_eager(name: str, size: int) -> None:
    function = WRITING_ARGUMENTS[name]

    def given() -> list[torch.Tensor]:
        torch.manual_seed(0)
        whole = torch.zeros(size, size, dtype=torch.long)
        return [torch.randn(size, size), torch.randn(size, size), whole]

    compiled = srcjit.jit(function)
    with torch.no_grad():
        for _ in range(3):
            one, other = given(), given()
            results, expected = compiled(*one), function(*other)
            torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-3)
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
            assert [t._version for t in one] == [t._version for t in other]
        wanted = peak_of(lambda: function(*other))
        found = peak_of(lambda: compiled(*one))
    assert found <= wanted + LITTLE


def test_a_segment_at_torch_level_drops_what_nothing_reads() -> None:
    def function(d, s):
        s += d / 2
        y = torch.cumsum(d * 2, 1)
        for _ in range(4):
            y = torch.cumsum(y * 2, 1)
        return y.sum()

    compiled = srcjit.jit(function)
    # Views of one tensor that has a gradient: what is written to is no input of its own.
    whole = torch.randn(SIZE, SIZE, requires_grad=True) * 1
    given = whole[:, 1::2], whole[:, ::2]
    wanted = peak_of(lambda: function(*given))
    assert peak_of(lambda: compiled(*given)) <= wanted + LITTLE


def _tensors(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, tuple | list) else [results]
