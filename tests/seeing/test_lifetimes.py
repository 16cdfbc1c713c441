"""How long objects live that only variables hold, in `try`, loops and recursion that break."""

# ruff: noqa: F841 (variables that nothing reads are the subject)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from tests.seeing.lifetimes import Manager, Noted, check_lifetimes, note, opaque

pytestmark = pytest.mark.usefixtures("frozen", "uncollected")


TABLE: list[Noted] = []


def match_(x: Tensor) -> Tensor:
    match opaque([Noted("a"), Noted("b"), 3]):
        case [a, *_, 3]:
            note("case")
        case _:
            note("other")
    note("behind")
    return x + 1


def try_plain(x: Tensor) -> Tensor:
    try:
        one = Noted("one")
        note("has")
        y = x * 2
        note("y")
    except ValueError:
        y = x
    note("behind")
    return y + 1


def try_raised(x: Tensor) -> Tensor:
    try:
        one = Noted("one")
        note("has")
        raise ValueError("no")
    except ValueError as e:
        two = Noted("two")
        note("handler")
    note("behind")
    return x + 1


def try_live(x: Tensor) -> Tensor:
    n = 0
    try:
        one = Noted("one")
        note("has")
        int("no")
        n = one.name
    except ValueError:
        note("handler")
    note("behind")
    return x + 1, n


def try_else(x: Tensor) -> Tensor:
    try:
        one = Noted("one")
        note("has")
    except ValueError:
        pass
    else:
        two = Noted("two")
        note("else")
    finally:
        three = Noted("three")
        note("finally")
    note("behind")
    return x + 1


def try_finally(x: Tensor) -> Tensor:
    try:
        one = Noted("one")
        note("has")
        y = x + 1
    finally:
        two = Noted("two")
        note("finally")
    note("behind")
    return y * 2


def try_kept_error(x: Tensor) -> Tensor:
    err = None
    try:
        one = Noted("one")
        note("has")
        int("no")
    except ValueError as e:
        err = e
    note("behind")
    return x + 1


def try_in_loop(x: Tensor) -> Tensor:
    for i in range(8):
        try:
            one = Noted(f"one{i}")
            note(i)
            if i % 2:
                raise KeyError(i)
            two = Noted(f"two{i}")
            note("two")
        except KeyError as error:
            three = Noted(f"three{i}")
            note("caught")
    note("behind")
    return x + 1


def with_in_loop(x: Tensor) -> Tensor:
    for i in range(8):
        with Manager() as m:
            one = Noted(f"one{i}")
            note(i)
    note("behind")
    return x + 1


def while_(x: Tensor) -> Tensor:
    while x.sum() < 100:
        one = Noted("one")
        note("has")
        x = x * 2
    note("behind")
    return x + 1


def held_twice(x: Tensor) -> Tensor:
    one = Noted("one")
    other = one
    del one
    note("goes on")
    return x + 1


def held_by_a_list(x: Tensor) -> Tensor:
    one = Noted("one")
    if x.sum().item() < 1e9:
        several = [one]
        del one
        note("in")
    note("behind")
    return x + 1


def taken_out(x: Tensor) -> Tensor:
    TABLE[:] = [Noted("one")]
    note("made")
    one = TABLE.pop()
    note("taken")
    return x + 1


def recursion(x: Tensor) -> Tensor:
    return recursive(x, 2)


def raised(x: Tensor) -> Tensor:
    one = Noted("one")
    note("has")
    raise ValueError(f"no {x.sum().item()}")


def recursive(y: Tensor, n: int) -> Tensor:
    with Manager():
        one = Noted(f"one{n}")
        note("in")
    if n == 0:
        return y + 1
    return recursive(y * 2, n - 1)


PROGRAMS: list[Callable[[Tensor], Any]] = [
    match_,
    try_plain,
    try_raised,
    try_live,
    try_else,
    try_finally,
    try_kept_error,
    try_in_loop,
    with_in_loop,
    while_,
    held_twice,
    held_by_a_list,
    taken_out,
    recursion,
    raised,
]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_objects_live_as_long_as_in_eager(function: Callable[[Tensor], Any]) -> None:
    check_lifetimes(function)
