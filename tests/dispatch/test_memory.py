"""Calls leave nothing behind: neither objects nor tensors, whatever a program does."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import srcjit
from srcjit.passes import flow, scopes

CALLS: dict[str, Callable[[], Callable[[int], Any]]] = {}
"""What makes a function that is called with the number of the call."""


def many(make: Callable[[], Callable[[int], Any]]) -> Callable[[], Any]:
    CALLS[make.__name__] = make
    return make


class Net(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear(x)
        return made * self.scale


def wave(x: Tensor) -> Tensor:
    return (x * 2).sin()


def breaking(x: Tensor, log: list[float]) -> Tensor:
    y = x * 2
    log.append(float(y.sum()))
    eval("0")
    return y + log[-1]


def raising(x: Tensor, n: int) -> Tensor:
    y = x * 2
    try:
        if n % 2:
            raise ValueError(y)
        y = y @ torch.ones(9)
    except (ValueError, RuntimeError) as error:
        kept = error
    return y[torch.tensor([7 + len(kept.args)])]


def numbers(x: Tensor, n: int) -> Iterator[Tensor]:
    for k in range(n):
        yield x * k


def generating(x: Tensor) -> Any:
    given = numbers(x, 3)
    first = next(given)
    return first + sum(given), (first * k for k in range(3)), numbers(x, 2)


def deciding(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    while x.sum() < 5:
        x = x + 1
    return x


def nesting(x: Tensor) -> Any:
    def inner(y: Tensor, n: int = 3) -> Tensor:
        return y if n == 0 else inner(y * 2, n - 1)

    class Own:
        def __init__(self, value: Tensor) -> None:
            self.value = value
            self.me = self

    return Own(inner(x))


def apply(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x) + 1


@many
def plain() -> Any:
    jitted = srcjit.jit(wave)
    return lambda n: jitted(torch.ones(4))


@many
def changing_shapes() -> Any:
    jitted = srcjit.jit(wave)
    return lambda n: jitted(torch.ones(n % 37 + 1, *[1] * (n % 3)))


@many
def breaks() -> Any:
    jitted = srcjit.jit(breaking)
    return lambda n: jitted(torch.ones(4), [])


@many
def exceptions() -> Any:
    jitted = srcjit.jit(raising)

    def call(n: int) -> None:
        with contextlib.suppress(IndexError):
            jitted(torch.ones(4), n)

    return call


@many
def generators() -> Any:
    jitted = srcjit.jit(generating)
    return lambda n: [next(made) for made in jitted(torch.ones(4))[1:]]


@many
def data() -> Any:
    jitted = srcjit.jit(deciding)
    return lambda n: jitted(torch.full((3,), n % 3 - 1.0))


@many
def nested_definitions() -> Any:
    jitted = srcjit.jit(nesting)
    return lambda n: jitted(torch.ones(3))


@many
def new_closures() -> Any:
    def call(n: int) -> None:
        weight = torch.ones(4)
        srcjit.jit(lambda x: x * weight)(torch.ones(4))

    return call


@many
def new_closures_as_arguments() -> Any:
    jitted = srcjit.jit(apply)

    def call(n: int) -> None:
        weight = torch.ones(4)
        jitted(lambda x: x * weight, torch.ones(4))

    return call


@many
def new_modules() -> Any:
    jitted = srcjit.jit(apply)

    def call(n: int) -> None:
        srcjit.jit(Net())(torch.ones(2, 4)).sum().backward()
        jitted(Net(n % 3), torch.ones(2, 4))

    return call


@many
def copies_of_a_module() -> Any:
    jitted = srcjit.jit(Net())
    return lambda n: copy.deepcopy(jitted)(torch.ones(2, 4))


@many
def new_classes() -> Any:
    jitted = srcjit.jit(apply)

    def call(n: int) -> None:
        class Triple(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x * 3

        jitted(Triple(), torch.ones(3))
        srcjit.jit(Triple())(torch.ones(3))

    return call


def alive() -> tuple[int, int]:
    """How many objects there are that the collector knows, and how many tensors."""
    # What passes remember of the last texts that they have seen is bounded.
    scopes._uses.cache_clear()
    flow._deleted.cache_clear()
    gc.collect()
    objects = gc.get_objects()
    # Asking an object for its class may run code of its own.
    return len(objects), sum(issubclass(type(o), Tensor) for o in objects)


@pytest.mark.parametrize("name", CALLS)
def test_calls_leave_nothing(name: str) -> None:
    call = CALLS[name]()
    for n in range(50):
        call(n)
    before = alive()
    # Those that jit something in each call take longer.
    for n in range(50, 350 if name.startswith(("new", "copies")) else 1050):
        call(n)
    after = alive()
    assert after[1] <= before[1]
    assert after[0] - before[0] < 100


def test_compiling_again_leaves_nothing() -> None:
    """Neither the graphs' text, which PyTorch keeps, nor what passes made of the tree."""
    explained = srcjit.explain(breaking)
    texts = torch.fx.graph_module._loader.eval_cache
    for _ in range(3):
        explained(torch.ones(4), [])
    before, written = alive(), len(texts)
    for _ in range(10):
        explained(torch.ones(4), [])
    after = alive()
    assert len(texts) == written
    assert after[1] <= before[1]
    assert after[0] - before[0] < 100


def test_what_is_jitted_dies_with_its_user() -> None:
    x = torch.ones(2, 4)
    module = srcjit.jit(Net())
    module(x).sum().backward()
    weight = torch.ones(4)

    def scaled(y: Tensor, weight: Tensor = weight) -> Tensor:
        return y * weight + breaking(y, [])

    function = srcjit.jit(scaled)
    function(x)
    argument = srcjit.jit(apply)
    net = Net(7.0)
    argument(net, x)
    gone = [
        weakref.ref(o)
        for o in (module, module.linear.weight, weight, scaled, function, net, x)
    ]
    del module, weight, scaled, function, net, x
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)
