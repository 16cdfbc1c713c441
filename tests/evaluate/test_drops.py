"""`del` drops an object where eager does: its finalizer and weak references tell.

Behind a break the function's caller would hold it until the end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import srcjit

LOG: list[Any] = []


class Noted:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(f"drops {self.name}")


class Plain:
    pass


def opaque(text: str) -> Any:
    return eval(text)


def of_python(x: Tensor) -> Tensor:
    t = opaque("Noted('a')")
    y = x.sin()
    LOG.append("before")
    del t
    LOG.append("after")
    return y


def an_instance(x: Tensor) -> Tensor:
    t = Noted("a")
    y = x.sin()
    LOG.append("before")
    del t
    LOG.append("after")
    return y


def two_breaks_before(x: Tensor) -> Tensor:
    t = Noted("a")
    u = Noted("b")
    y = x * opaque("3")
    LOG.append(t.name)
    y = y * opaque("2")
    del t
    LOG.append("after")
    y = y * opaque("2")
    LOG.append(u.name)
    return y


def in_one_way(x: Tensor) -> Tensor:
    t = Noted("a")
    y = x.sin()
    if y.sum() > 0:
        LOG.append("positive")
        del t
    else:
        y = y + 1
    LOG.append("after")
    return y * opaque("2")


def below_no_grad(x: Tensor) -> Tensor:
    t = Noted("a")
    with torch.no_grad():
        x = x + 1
        del t
        LOG.append("after")
    return x


def aliased(x: Tensor) -> Tensor:
    t = Noted("a")
    u = t
    y = x * opaque("3")
    del t
    LOG.append(u.name)
    return y


def two_names(x: Tensor) -> Tensor:
    t = x.sin()
    u = t
    y = u * opaque("3")
    del t
    LOG.append(1)
    return y + u


def read_before(x: Tensor) -> Tensor:
    t = x.sin()
    y = x * opaque("3")
    z = t * y
    del t
    return z


def again(x: Tensor) -> Tensor:
    t = x.sin()
    y = x * opaque("3") + t
    del t
    return y + t  # type: ignore[name-defined]  # noqa: F821


def bound_again(x: Tensor) -> Tensor:
    t = Noted("a")
    y = x * opaque("3")
    del t
    LOG.append("between")
    t = Noted("b")
    LOG.append("after")
    return y * len(t.name)


def in_a_loop(x: Tensor) -> Tensor:
    for i in range(3):
        t = Noted(str(i))
        x = x * opaque("2")
        del t
        LOG.append("after")
    return x


def weak(x: Tensor) -> Tensor:
    t = Plain()
    r = weakref.ref(t)
    y = x.sin()
    LOG.append(r() is None)
    del t
    LOG.append(r() is None)
    return y


def weak_tensor(x: Tensor) -> Tensor:
    t = x.sin()
    r = weakref.ref(t)
    y = t.cos()
    LOG.append(r() is None)
    del t
    LOG.append(r() is None)
    return y


def finalized(x: Tensor) -> Tensor:
    t = x.sin()
    weakref.finalize(t, LOG.append, "gone")
    y = t.cos()
    LOG.append("before")
    del t
    LOG.append("after")
    return y


def inner(x: Tensor) -> Tensor:
    t = Noted("a")
    y = x * opaque("3")
    del t
    LOG.append("after")
    return y


def inlined(x: Tensor) -> Tensor:
    y = inner(x.sin())
    LOG.append("back")
    return y + 1


def outcome(function: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    LOG.clear()
    try:
        result: Any = function(x)
    except UnboundLocalError as error:
        result = str(error)
    shown = result.tolist() if isinstance(result, Tensor) else result
    del result
    return shown, [*LOG]


PROGRAMS = [
    *(of_python, an_instance, two_breaks_before, in_one_way, below_no_grad, aliased),
    *(two_names, read_before, again, bound_again, in_a_loop, weak, weak_tensor),
    *(finalized, inlined),
]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_del_drops_where_eager_does(function: Callable[[Tensor], Tensor]) -> None:
    jitted = srcjit.jit(function, backend="eager")
    for sign in (1, 1, -1, -1):
        x = torch.ones(3) * sign
        assert outcome(jitted, x) == outcome(function, x)
