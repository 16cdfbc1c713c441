"""Arguments of another kind than those of the first call: the result is always eager's."""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import srcjit
from tests.evaluate.changes import Cases, Plain, check_changes, x
from tests.harness import no_faults, run

case = Cases()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@case
def tensor_facts():
    given = [x()]

    def f(t):
        return (
            t.sum(0) if t.shape[0] == 2 else t * 2,
            t.dtype,
            t.requires_grad,
            t.stride(),
        )

    tensors = [
        torch.ones(3, 2),
        torch.ones(2, 3, dtype=torch.float64),
        torch.ones(3, 2).t(),
        torch.ones(2, 3, requires_grad=True),
        torch.ones(2, 3)[:, ::2],
        torch.ones(0, 3),
        nn.Parameter(torch.ones(2, 3)),
    ]
    return (
        f,
        lambda: (given[0],),
        [lambda t=t: given.__setitem__(0, t) for t in tensors],
    )


@case
def aliased_arguments():
    a, b = x(), x()
    given = [(a, b)]

    def f(s, t):
        s.add_(1)
        return t * 2, s is t

    return (
        f,
        lambda: given[0],
        [
            lambda: given.__setitem__(0, (a, a)),
            lambda: given.__setitem__(0, (a, a.t().t())),
        ],
    )


@case
def aliased_lists():
    one, two = [1], [1]
    given = [(one, two)]

    def f(t, p, q):
        p.append(5)
        return t * len(q), q[-1]

    return f, lambda: (x(), *given[0]), [lambda: given.__setitem__(0, (one, one))]


@case
def aliased_objects():
    one, two = Plain(), Plain()
    given = [(one, two)]

    def f(t, p, q):
        p.value = 7
        return t * q.value

    return f, lambda: (x(), *given[0]), [lambda: given.__setitem__(0, (one, one))]


@case
def named_tuple_and_enum_globals():
    Pair = collections.namedtuple("Pair", "a b")
    given = [Pair(1, 2)]

    def f(t, p):
        return t * p.a + p[1], type(p).__name__

    return (
        f,
        lambda: (x(), given[0]),
        [lambda: given.__setitem__(0, v) for v in (Pair(1, 3), Pair(2.0, 3))],
    )


@case
def unused_arguments_cost_nothing():
    def f(t, unused, used):
        return t + used

    values: Iterator[Any] = iter(range(100))
    return f, lambda: (x(), next(values), 2), [lambda: None] * 4


@pytest.mark.parametrize("name", case)
def test_change_is_noticed(name: str) -> None:
    jitted = check_changes(case[name])
    if name.startswith("unused"):
        assert len(jitted.__srcjit__.specializations) == 1


ARGUMENTS = [
    1,
    True,
    1.0,
    -0.0,
    0.0,
    math.nan,
    math.inf,
    2**70,
    None,
    "s",
    (1, 2),
    [1, 2],
    {"a": 1},
    Color.RED,
    Color.BLUE,
    torch.float32,
    torch.float64,
    torch.device("cpu"),
    range(3),
    int,
    1j,
    b"s",
    frozenset([1]),
    slice(0, 1),
]


@pytest.mark.parametrize("first", range(0, len(ARGUMENTS), 5))
def test_argument_of_another_kind(first: int) -> None:
    def f(t, k):
        if k is None:
            return t
        if isinstance(k, bool):
            return t + 1, k
        if isinstance(k, (int, float)):
            return t * k, str(k), k == 0
        if isinstance(k, (tuple, list)):
            return t + sum(k), len(k)
        if isinstance(k, dict):
            return t + k["a"]
        if isinstance(k, Color):
            return t * k.value, k is Color.RED
        if isinstance(k, torch.dtype):
            return t.to(k)
        if isinstance(k, torch.device):
            return t.to(k), k
        if isinstance(k, slice):
            return t[k]
        return k, t

    jitted = srcjit.jit(f, options={"stage": "specialize"})
    with no_faults():
        for k in [ARGUMENTS[first], *ARGUMENTS, ARGUMENTS[first]]:
            _compare(f, jitted, (x(), k))


def _compare(plain: Any, jitted: Any, args: tuple[Any, ...]) -> None:
    expected = run(plain, (plain, args, {}))
    actual = run(jitted, (plain, args, {}))
    assert actual.failure == expected.failure
    assert actual.structure == expected.structure
    assert [repr(n) for n in actual.numbers] == [repr(n) for n in expected.numbers]
    assert actual.layout == expected.layout
    for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
        assert torch.equal(got.nan_to_num(7.5), wanted.nan_to_num(7.5))
