"""Values that look equal, names that hide others, and objects that answer for themselves."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import srcjit
from tests.harness import no_faults, run

Case = tuple[Callable[..., Any], list[tuple[Any, ...]]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Registers a function and the arguments of its successive calls."""
    CASES[make.__name__] = make
    return make


def x() -> torch.Tensor:
    return torch.arange(4)


@case
def equal_keys_of_other_types() -> Case:
    def f(t, table):
        for key in table:
            t = t + key
        return t

    return f, [(x(), keys) for keys in ({1: 0}, {1.0: 0}, {True: 0}, {1: 0})]


@case
def equal_sets_of_other_types() -> Case:
    def f(t, names):
        for name in names:
            t = t + name
        return t

    return f, [(x(), names) for names in ({1}, {1.0}, {True}, set())]


@case
def equal_ranges() -> Case:
    def f(t, r):
        return t + r.stop

    return f, [(x(), range(0, 3, 2)), (x(), range(0, 4, 2))]


@case
def complex_numbers() -> Case:
    def f(t, c):
        return t * c

    numbers = [1 + 2j, 1 + 2j, 2j, complex(0.0, -0.0)]
    return f, [(x(), number) for number in numbers]


@case
def object_that_equals_everything() -> Case:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        def __call__(self, t: torch.Tensor) -> torch.Tensor:
            return t * 2

    def f(t, o):
        return o(t)

    return f, [(x(), Same())]


@case
def dict_that_takes_up_keys() -> Case:
    def f(t, table):
        seen = [(key, value * t) for key, value in table.items()]
        table["new"] = t
        return seen, list(table), table

    tables = [{"a": 1, "b": 2}, {"b": 2}, collections.defaultdict(int, {"b": 1})]
    return f, [(x(), table) for table in tables]


@case
def parameters_called_like_builtins() -> Case:
    def f(t, type, len=1, id=2, float=2.5, str=0.0, tuple=(1, 2), dict=None, repr=None):
        for key in dict or ():
            t = t + key
        return t * type + len + id + float + str + tuple[1]

    return f, [
        (x(), 2),
        (x(), 3),
        (x(), 3, 1, 2, 2.5, -0.0, (5, 6)),
        (x(), 3, 1, 2, 2.5, -0.0, (5, 6), {2: 0}),
        (x(), 3, 1, 2, 2.5, -0.0, (5, 6), {2.0: 0}),
    ]


@case
def parameters_called_like_the_compilers_names() -> Case:
    def f(t, user_globals, cells, torch, guard=1, miss=2, segment_0=3, guard_0=4):
        print(end="")
        return (
            t.sin() * user_globals + cells + torch + guard + miss + segment_0 + guard_0
        )

    return f, [(x(), 1, 2, 3), (x(), 2, 2, 3), (x(), 2, 2, 3, 5), (x(), 2, 2, 4, 5)]


@case
def operators_of_a_user() -> Case:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        def __add__(self, other: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return other + self.calls

        def __radd__(self, other: torch.Tensor) -> torch.Tensor:
            self.calls += 10
            return other - self.calls

        def __index__(self) -> int:
            self.calls += 100
            return 1

        def __call__(self) -> int:
            return 3

    def f(t, o):
        return o + t, t + o, t[o], torch.full((2,), int(o)), o.calls, o()

    return f, [(x(), Counter())] * 2


@pytest.mark.parametrize("name", CASES)
def test_each_call_is_like_eager(name: str) -> None:
    function, calls = CASES[name]()
    jitted = srcjit.jit(function, options={"stage": "specialize"})
    with no_faults():
        for args in calls:
            copied = copy.deepcopy(args)
            expected = run(function, (function, copied, {}))
            actual = run(jitted, (function, args, {}))
            assert actual.failure == expected.failure
            assert actual.structure == expected.structure
            # Copying writes to the copy: versions, which are last, differ.
            assert [facts[:-1] for facts in actual.layout] == [
                facts[:-1] for facts in expected.layout
            ]
            for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
                assert torch.equal(got, wanted)


def test_default_moves_to_another_parameter() -> None:
    def helper(t, a, b=2):
        return t * a + b

    def f(t):
        return helper(t, 3)

    jitted = srcjit.jit(f, options={"stage": "specialize"})
    with no_faults():
        for defaults in ((2,), (2, 7), (2,)):
            helper.__defaults__ = defaults
            assert torch.equal(jitted(x()), f(x()))


def test_class_gets_a_truth_value() -> None:
    class Plain:
        pass

    def f(t, o):
        return t + 1 if o else t - 1

    jitted = srcjit.jit(f, options={"stage": "specialize"})
    with no_faults():
        assert torch.equal(jitted(x(), Plain()), x() + 1)
        Plain.__len__ = lambda self: 0  # type: ignore[attr-defined]
        assert torch.equal(jitted(x(), Plain()), x() - 1)


class Buffered(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, how: str, t: torch.Tensor) -> Any:
        if how == "dict":
            self._buffers["steps"] = t * 3
            seen = self.steps + 1
            self._buffers.update(steps=t * 4)
            return seen, self.steps
        self.steps = self.steps + t
        if how == "table":
            return self._buffers["steps"] * 2
        if how == "names":
            return [(name, buffer * 2) for name, buffer in self.named_buffers()]
        return [buffer * 2 for buffer in self.buffers()]


@pytest.mark.parametrize("how", ["table", "names", "list", "dict"])
def test_stores_to_buffers_are_seen_by_every_path(how: str) -> None:
    plain, other = Buffered(), Buffered()
    jitted = srcjit.jit(other, options={"stage": "specialize"})
    with no_faults():
        for _ in range(2):
            expected = run(plain, (plain, (how, x()), {}))
            actual = run(jitted, (other, (how, x()), {}))
            assert actual.failure == expected.failure
            assert actual.structure == expected.structure
            for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
                assert torch.equal(got, wanted)
            assert torch.equal(other.steps, plain.steps)
