"""Programs that read variables which are not bound, where a break has moved the reading."""

# ruff: noqa: F821, F841
from __future__ import annotations

import contextlib

import torch


def opaque(value):
    return eval("value", {"value": value})


def read_in_try(x, k):
    try:
        print("t")
        y = q + 1
    except ArithmeticError:
        pass
    q = x
    return y


def read_in_loopaque(x, k):
    for i in opaque([1]):
        print(i)
        x = x + z
    z = 1
    return x


def read_in_with(x, k):
    with contextlib.nullcontext():
        print("w")
        x = x + z
    z = 1
    return x


def free_in_a_callee(x, k):
    def inner():
        print("i")
        return x + free

    r = inner()
    free = 1
    return r


def deleted_in_a_loopaque(x, k):
    while opaque(True):
        print("w")
        if k:
            w = 1
        k = 0
        x = x + w
        del w
    return x


def nonlocal_in_with(x, k):
    view1 = x[0]
    with torch.no_grad():
        print("w")

        def inner(p):
            nonlocal view1
            view1 = view1 + 1
            return p

        with contextlib.suppress(ValueError):
            print("s")
            y = inner(x)
            view1 = view1 * 2
    return view1, y


def nonlocal_across_a_break(x, k):
    view1 = x[0]

    def inner(p):
        nonlocal view1
        with opaque(contextlib.nullcontext()):
            print("in")
            view1 = view1 + p
        return view1

    r = inner(x)
    print("mid")
    return r, view1


def nonlocal_across_breaks(x, k):
    v = x

    def inner(p):
        nonlocal v
        for i in opaque([1, 2]):
            print(i)
            v = v + p
            if i == 2:
                break
        try:
            print("t")
            v = v * 2
        finally:
            print("f")
        return v

    r = inner(x)
    return r, v


def deleted_unbound(x, k):
    try:
        print("a")
        del zz
    finally:
        print("b")
    zz = 1


def read_in_match(x, k):
    match opaque(k):
        case 1:
            y = undefd
    undefd = 2
    return y


def read_in_a_class(x, k):
    class A:
        print("cls")
        v = later

    later = 1
    return A


def free_in_a_lambda(x, k):
    f2 = lambda: later + x
    try:
        print("x")
        return f2()
    except NameError as ex:
        print(type(ex), ex, ex.name)
        raise
    later = 1


def name_of_a_handler(x, k):
    try:
        print("p")
        raise ValueError("v")
    except ValueError as ex:
        print(ex)
    print(ex)


def read_in_a_comprehension(x, k):
    g = [print(later) for _ in opaque([1])]
    later = 2
    return g


def free_beside_nonlocal(x, k):
    x.add_(1)
    print("q")

    def gg():
        nonlocal x
        print(1)
        x = x + u

    gg()
    u = 1
    return x


class C:
    def method(self, x, k):
        try:
            print("t")
            y = self.__z + zz
        except AttributeError as ex:
            print(ex)
            y = zz
        zz = 1
        return y


def read_in_a_method(x, k):
    return C().method(x, k)


def nonlocal_bound_in_a_loopaque(x, k):
    with torch.no_grad():
        for t in opaque([1, 2]):

            def inner(p):
                nonlocal acc
                acc = acc + p

            if t == 1:
                acc = x
            inner(x)
            print(t)
    return acc


def strings_over_several_lines(x, k):
    print("""a
    b
  c""")
    y = x + 1
    print(f"""{y.sum().item()}
   k""")
    return (
        y
        + """
   m""".count("m")
    )


def number_held_on_the_way_that_raises(x, k):
    n = k + opaque(5)
    n += ((n << 65) + 2) % 1000003
    if n < opaque(2):
        raise ValueError(str(n + 1))
    return x, [n, 1], n + 1


UNBOUND = [
    value
    for value in list(globals().values())
    if getattr(value, "__code__", None) is not None
    and value.__code__.co_varnames[:2] == ("x", "k")
]
