"""How long objects live that only variables hold, in a `with` that breaks.

What Python calls of its body is a function of its own; nobody can tell by what it binds.
"""

# ruff: noqa: F811, F841, RUF059, SIM108 (variables that nothing reads are the subject)

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from tests.seeing.lifetimes import FOUND, Manager, Noted, check_lifetimes, note, opaque

pytestmark = pytest.mark.usefixtures("frozen", "uncollected")


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
]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_objects_live_as_long_as_in_eager(function: Callable[[Tensor], Any]) -> None:
    check_lifetimes(function)
