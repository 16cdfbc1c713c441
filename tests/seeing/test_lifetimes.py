"""How long objects live that only variables hold, in functions that break.

Eager is the oracle: when `__del__` and finalizers run, and weak references die, between the
things that the program does. What Python calls of a broken `with`, `try` or loop is a function
of its own; nobody can tell by what it binds.
"""

# ruff: noqa: F811, F841, RUF059, SIM108 (variables that nothing reads are the subject)

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import srcjit

FOUND: list[Any] = []

_without_source: dict[str, Any] = {"FOUND": FOUND}
exec(
    "def note(*what):\n    FOUND.append(what)\n    return len(FOUND)\n"
    "def opaque(x):\n    return x\n",
    _without_source,
)
note, opaque = _without_source["note"], _without_source["opaque"]


class Noted:
    """Notes when it is dropped."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        FOUND.append(f"drops {self.name}")


class Manager:
    def __enter__(self) -> Manager:
        note("enter")
        return self

    def __exit__(self, *exception: object) -> None:
        note("exit")


class Swallow:
    def __enter__(self) -> Noted:
        note("enter")
        return Noted("entered")

    def __exit__(self, *exception: object) -> bool:
        note("exit")
        return True


TABLE: list[Noted] = []


def live() -> list[bool]:
    """Which of the weak references in `FOUND` are alive."""
    return [r() is not None for r in FOUND if isinstance(r, weakref.ref)]


def with_plain(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")
        note("has")
        y = x * 2
    note("goes on")
    return y + 1


def with_rebound(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")
        note("has")
    note("goes on")
    one = Noted("two")
    note("two")
    y = x * 2
    note("end")
    return y


def with_rebound_known(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")
        note("has")
    note("goes on")
    one = None
    note("none")
    return x * 2


def with_rebound_in_body(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")
        note("has")
        one = x.sin()
        note("rebound")
        y = one + 1
        note("y")
    note("goes on")
    return y + 1


def with_del(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")
        note("has")
        del one
        note("deleted")
    note("goes on")
    return x + 1


def with_del_later(x: Tensor) -> Tensor:
    with Manager():
        t = Noted("t")
        note("in")
    note("mid")
    del t
    note("behind")
    return x + 1


def with_as(x: Tensor) -> Tensor:
    with Swallow() as s:
        note("in")
        y = x + 1
        note("y")
    note("behind")
    return x * 2


def with_swallow(x: Tensor) -> Tensor:
    with Swallow():
        one = Noted("one")
        note("has")
        raise ValueError
    note("behind")
    return x * 2


def with_swallow_tensor(x: Tensor) -> Tensor:
    t = None
    with contextlib.suppress(ValueError):
        t = x * 2
        r = weakref.ref(t)
        FOUND.append(r)
        note("has")
        u = t * 2
        FOUND.append(weakref.ref(u))
        note("has")
        raise ValueError
    note(live())
    return x * 2


def with_nested(x: Tensor) -> Tensor:
    with Manager():
        a = Noted("a")
        note("a")
        with Manager():
            b = Noted("b")
            note("b")
        note("mid")
        c = Noted("c")
        note("c")
    note("goes on")
    return x + 1


def with_nested_rebound(x: Tensor) -> Tensor:
    with Manager():
        with Manager():
            b = Noted("b1")
            note("b")
        note("mid")
        b = Noted("b2")
        note("b2")
    note("goes on")
    return x + 1


def with_nested_live(x: Tensor) -> Tensor:
    with Manager():
        with Manager():
            b = Noted("b1")
            note("b")
        note("mid")
        b = Noted("b2")
        note("b2")
    note("goes on")
    return x + 1, b.name


def with_walrus(x: Tensor) -> Tensor:
    with Manager():
        if (one := Noted("one")).name == "one":
            note("has")
        y = x + 1
    note("behind")
    return y + 1


def with_match(x: Tensor) -> Tensor:
    with Manager():
        match [Noted("a"), Noted("b"), 3]:
            case [a, *_, 3]:
                note("case")
            case _:
                note("other")
        note("in")
    note("behind")
    return x + 1


def match_(x: Tensor) -> Tensor:
    match opaque([Noted("a"), Noted("b"), 3]):
        case [a, *_, 3]:
            note("case")
        case _:
            note("other")
    note("behind")
    return x + 1


def with_unpack(x: Tensor) -> Tensor:
    with Manager():
        a, (b, c) = Noted("a"), (Noted("b"), 3)
        note("has")
        [d, *e] = opaque([Noted("d"), Noted("e"), Noted("f")])
        note("has2")
    note("behind")
    return x + 1


def with_closure(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")

        def g():
            return one.name

        note(g())
    note("behind")
    return x + 1


def with_gen(x: Tensor) -> Tensor:
    def gen():
        try:
            yield 1
            yield 2
        finally:
            note("closed")

    with Manager():
        g = gen()
        note(next(g))
    note("behind")
    return x + 1


def with_held_global(x: Tensor) -> Tensor:
    with Manager():
        TABLE[:] = [Noted("a")]
        note("made")
        one = TABLE[0]
        note("one")
        TABLE.clear()
        note("cleared")
    note("behind")
    return x + 1


def with_list_grows(x: Tensor) -> Tensor:
    with Manager():
        ls = []
        ls.append(opaque(Noted("a")))
        note("a")
        ls.append(opaque(Noted("b")))
        note("b")
        n = len(ls)
    note("behind")
    return x + n


def with_conditional(x: Tensor) -> Tensor:
    with Manager():
        if len(FOUND) > 1000:
            one = Noted("never")
        else:
            one = Noted("one")
        note("in")
        if x.sum() > 1000:
            one = None
        note("mid")
    note("behind")
    return x


def with_return(x: Tensor) -> Tensor:
    with Manager():
        one = Noted("one")
        note("has")
        return x + 1


def built(x: Tensor) -> Tensor:
    with Manager():
        d = {"a": x * 2, "n": opaque(Noted("n"))}
        note(len(d))
        y = x + 1
    note("behind")
    return y + 1


def aug(x: Tensor) -> Tensor:
    with Manager():
        a = opaque([Noted("a")])
        note("has")
        a += [Noted("b")]
        note("more")
    note("behind")
    return x + 1


def klass(x: Tensor) -> Tensor:
    with Manager():

        class A:
            n = Noted("n")

        note("A")
        a = A()
        FOUND.append(weakref.ref(a))
    note(live())
    return x + 1


def finalize(x: Tensor) -> Tensor:
    with Manager():
        s = opaque({1, 2})
        weakref.finalize(s, FOUND.append, "s dies")
        note("has")
        t = x * 2
        weakref.finalize(t, FOUND.append, "t dies")
        note("t")
    note("behind")
    return x + 1


def except_rebinds(x: Tensor) -> Tensor:
    with Manager():
        e = Noted("e")
        note("e")
        try:
            raise KeyError
        except KeyError as e:
            note("handler")
        note("after")
    note("behind")
    return x + 1


def if_data_in_with(x: Tensor) -> Tensor:
    with Manager():
        if x.sum() > 0:
            one = Noted("one")
            note("one")
        else:
            two = Noted("two")
        note("joined")
    note("behind")
    return x + 1


def with_rebound_later_tensor(x: Tensor) -> Tensor:
    with Manager():
        t = x * 2
        FOUND.append(weakref.ref(t))
        note("in")
    note(live())
    t = x * 3
    note(live())
    return t + 1


def with_rebound_by_loop(x: Tensor) -> Tensor:
    with Manager():
        t = Noted("t")
        note("in")
    for t in range(3):
        note(t)
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
    with_plain,
    with_rebound,
    with_rebound_known,
    with_rebound_in_body,
    with_del,
    with_del_later,
    with_as,
    with_swallow,
    with_swallow_tensor,
    with_nested,
    with_nested_rebound,
    with_nested_live,
    with_walrus,
    with_match,
    match_,
    with_unpack,
    with_closure,
    with_gen,
    with_held_global,
    with_list_grows,
    with_conditional,
    with_return,
    built,
    aug,
    klass,
    finalize,
    except_rebinds,
    if_data_in_with,
    with_rebound_later_tensor,
    with_rebound_by_loop,
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


def observed(function: Callable[[Tensor], Any]) -> tuple[str, list[Any]]:
    """What a call returns or raises, and what was seen to happen, in order."""
    FOUND.clear()
    try:
        result = str(function(torch.ones(3)))
    except Exception as problem:
        result = repr(problem)
        del problem
    FOUND.append("over")
    found = [what for what in FOUND if not isinstance(what, weakref.ref)]
    FOUND.clear()
    return result, found


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """What other tests have made need not be walked over in front of each of these."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected: what is dropped late because it refers to itself is seen."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    FOUND.clear()


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.usefixtures("uncollected")
def test_objects_live_as_long_as_in_eager(function: Callable[[Tensor], Any]) -> None:
    expected = observed(function)
    jitted = srcjit.jit(function, backend="eager")
    for _ in range(2):
        assert observed(jitted) == expected
