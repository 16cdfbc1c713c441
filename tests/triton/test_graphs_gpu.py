# mypy: disable-error-code="no-untyped-call"
"""`mode="reduce-overhead"` on a GPU: results are eager's and fresh, whatever happens to them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

import srcjit
from srcjit.runtime.graphs import Graphs

pytestmark = pytest.mark.cuda


class Layers(nn.Module):
    """Enough small kernels that launching them is what takes the time."""

    def __init__(self, count: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(layer(x)) + x
        return x


def graphs_of(function: Any) -> list[Graphs]:
    """The recordings behind a jitted function or module."""
    from srcjit.control import dispatcher_of

    forward = getattr(function, "forward", function)
    dispatcher = dispatcher_of(getattr(forward, "__func__", forward))
    assert dispatcher is not None
    return [
        value
        for s in dispatcher.specializations
        for value in s.guard.__globals__.values()
        if isinstance(value, Graphs)
    ]


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.fixture
def pair() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = Layers().cuda()
    return model, srcjit.jit(copy.deepcopy(model), mode="reduce-overhead")


@torch.no_grad()
def test_replayed_at_the_same_addresses(pair: tuple[nn.Module, Any]) -> None:
    model, fast = pair
    x = torch.randn(8, 64, device="cuda")
    for _ in range(20):
        x.normal_()
        close(fast(x), model(x))
    (graphs,) = graphs_of(fast)
    assert graphs.recorded
    for p, q in zip(model.parameters(), fast.parameters(), strict=True):
        p.add_(0.01)
        q.add_(0.01)
    close(fast(x), model(x))
    # What is swapped behind the parameter is noticed.
    for p, q in zip(model.parameters(), fast.parameters(), strict=True):
        p.data = q.data = p.data * 0.5
    for _ in range(5):
        close(fast(x), model(x))


@torch.no_grad()
def test_results_are_the_callers(pair: tuple[nn.Module, Any]) -> None:
    model, fast = pair
    x = torch.randn(8, 64, device="cuda")
    held = []
    for n in range(120):
        x.fill_(n / 100)
        y = fast(x)
        assert not y._is_view() and y.untyped_storage().nbytes() == 8 * 64 * 4
        held.append((model(x), y, y.t()[3:] if n % 5 else None))
        if n % 3:
            held.pop(n % len(held))
    for wanted, found, part in held:
        close(found, wanted)
        assert part is None or torch.equal(part, found.t()[3:])
    found.resize_(3, 3).zero_()
    close(fast(x), model(x))


@torch.no_grad()
def test_inputs_that_move(pair: tuple[nn.Module, Any]) -> None:
    model, fast = pair
    inputs = [torch.randn(8, 64, device="cuda") for _ in range(60)]
    for x in inputs * 3:
        close(fast(x), model(x))


@torch.no_grad()
def test_streams_and_threads(pair: tuple[nn.Module, Any]) -> None:
    model, fast = pair
    x = torch.randn(8, 64, device="cuda")
    for _ in range(10):
        fast(x)
    wanted = model(x)
    torch.cuda.synchronize()
    for _ in range(3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                y = fast(x)
        stream.synchronize()
        close(y, wanted)
    found: list[torch.Tensor] = []

    def work() -> None:
        with torch.no_grad():
            for _ in range(50):
                found.append(fast(x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        found.append(fast(x))
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert len(found) == 250
    for y in found:
        close(y, wanted)


@torch.no_grad()
def test_inside_of_a_capture(pair: tuple[nn.Module, Any]) -> None:
    model, fast = pair
    x = torch.randn(8, 64, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(10):
            fast(x)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        y = fast(x)
    x.normal_()
    graph.replay()
    close(y, model(x))


def draws(x: torch.Tensor) -> torch.Tensor:
    return torch.dropout(torch.sin(x), 0.5, True) * 2


def writes(x: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5)
    return torch.relu(x).t().contiguous() + 1


def waits(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sin()


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x.sin(), 0).cumsum(1)
    if y.sum() > 1e9:
        return y
    return (y.cos() @ y.t()).exp()


def several(x: torch.Tensor) -> Any:
    y = x @ x.t()
    return (
        y.sin(),
        y,
        y.argmax(1),
        x.t(),
        torch.linalg.inv(y + 100 * torch.eye(8).to(x)),
    )


@pytest.mark.parametrize("function", [draws, writes, waits, breaks, several])
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_not_recorded_is_eagers(
    function: Callable[..., Any], grad: bool
) -> None:
    fast = srcjit.jit(function, mode="reduce-overhead")
    base = torch.randn(8, 8, device="cuda")
    for n in range(12):
        results = []
        for call in (function, fast):
            torch.manual_seed(n)
            x = (base + n).clone()
            if grad and function is not writes:
                x.requires_grad_()
            with torch.set_grad_enabled(grad):
                made = call(x)
                flat = made if isinstance(made, tuple) else (made,)
                if x.requires_grad:
                    flat[0].sum().backward()
            results.append([*(t.detach() for t in flat), x.detach(), x.grad])
        for a, b in zip(*results, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype is b.dtype and a.stride() == b.stride()
                close(a, b)


@torch.no_grad()
def test_memory_is_given_back() -> None:
    torch.cuda.synchronize()
    model = Layers().cuda()
    fast = srcjit.jit(model, mode="reduce-overhead")
    x = torch.randn(8, 64, device="cuda")
    for _ in range(10):
        fast(x)
    before = torch.cuda.memory_allocated()
    for _ in range(100):
        fast(x)
    assert torch.cuda.memory_allocated() == before


@torch.no_grad()
def test_a_failed_recording_leaves_nothing_behind() -> None:
    x = torch.randn(64, device="cuda")

    def launches(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.sin(x)
        if torch.cuda.is_current_stream_capturing():
            float(y.sum())
        return (y,)

    made = Graphs(launches, (None,))
    for _ in range(6):
        close(made.run(x)[0], torch.sin(x))
    assert made.run is launches
    torch.manual_seed(0)
    first = torch.rand(3, device="cuda")
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    state = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(state)
    large = torch.empty(2**28, device="cuda")
    del large
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 2**30
    # The next one is recorded.
    test_memory_is_given_back()
