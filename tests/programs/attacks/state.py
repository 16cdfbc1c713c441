"""Globals, attributes and items that change behind the compiler's back."""

from __future__ import annotations

import torch

from .flow import opaque

COUNT = 0
GLOBAL: list[int] = []
G = 1
W = torch.ones(2)


class Inner:
    k = 1


class State:
    def __init__(self):
        self.x = torch.ones(2)
        self.n = 2
        self.items = [3]
        self.t = (1, 2)
        self.inner = Inner()


def change(st):
    exec("st.x = st.x * 0; st.n += 5; st.items = [1]; st.t = (7,)", {"st": st})
    st.inner.k = 9


def set_globals():
    exec("global G, W\nG = 100\nW = W * 50", globals())


def change_and_look(st, v):
    n = st.n
    change(st)
    if n > 3:
        return v + n
    return v - n


def bump():
    global COUNT
    COUNT += 1
    GLOBAL.append(COUNT)


def globals_bound_by_python(x):
    global G
    G = opaque(5)
    print(G)
    x = x * G
    G += opaque(1)
    for G in range(opaque(3)):
        print(G)
    x = x + G
    G = int(x.sum())
    print("z")
    return x * G, G


def global_deleted(x):
    global G, NEWG
    NEWG = x
    print("a")
    del NEWG
    try:
        NEWG
    except NameError as e:
        print(e)
    return x


def globals_of_nested_functions(x):
    global GV
    GV = x
    print("g")
    GV = GV + 1

    def f():
        global GV
        GV = GV * 2
        print("inner")
        return GV

    a = f()
    del GV
    return a


def list_that_grows_in_its_loop(x, xs):
    xs.append(x)
    for v in xs:
        print(len(xs))
        if len(xs) < 4:
            xs.append(v + 1)
    return xs


def attributes_changed_by_python(st):
    y = st.x
    n = st.n
    i = st.items
    t = st.t
    k = st.inner.k
    b = [y, (n, k)]
    change(st)
    return y + 1, n, i, t, k, b, st.n


def globals_changed_by_python(x):
    g = G
    w = W
    set_globals()
    return x * g, w + 1, G


def attributes_changed_in_a_loop(st, xs):
    for x in [st.x, st.inner.k]:
        xs.append(x)
        change(st)
        st.x = st.x + 1
    return xs, st.x


def attributes_changed_in_a_callee(st):
    a = st.n
    x = st.x
    r = change_and_look(st, st.x)
    return r, a, x


def counter_in_a_global(x):
    bump()
    return x, COUNT, list(GLOBAL)


def list_behind_an_attribute(xs, st):
    st.items = xs
    st.items.append(1)
    print(len(xs))
    st.items[0] = xs[1]
    v = st.items[0]
    st.items = None
    return v + 1, xs


def counters(xs, st):
    st.n += 1
    k = st.n
    st.n += 1
    print(k, st.n)
    st.n = k * st.n
    return xs[0] * st.n, k


def items_replaced_in_a_loop(xs, st):
    for i, x in enumerate(xs):
        st.n += i
        xs[i] = x * st.n
        print(i)
        if i > 2:
            break
    return xs


def attribute_and_item(xs, st):
    st.x = xs[0]
    xs[0] = xs[0].sin()
    print("k")
    y = st.x + xs[0]
    st.x.add_(1)
    return y, st.x


def attribute_keeps_the_old_tensor(y, st):
    st.x = y
    y = y.sin()
    print("k")
    return y + st.x


def _one():
    return (torch.ones(2),)


def _pair():
    return ([torch.randn(2), torch.randn(2)],)


def _state():
    return (State(),)


ATTACKS = {
    globals_bound_by_python: [_one],
    global_deleted: [_one],
    globals_of_nested_functions: [_one],
    list_that_grows_in_its_loop: [lambda: (torch.ones(2), [torch.ones(1)])],
    attributes_changed_by_python: [_state],
    globals_changed_by_python: [_one],
    attributes_changed_in_a_loop: [lambda: (State(), [])],
    attributes_changed_in_a_callee: [_state],
    counter_in_a_global: [_one],
    list_behind_an_attribute: [lambda: (*_pair(), State())],
    counters: [lambda: (*_pair(), State())],
    items_replaced_in_a_loop: [lambda: (*_pair(), State())],
    attribute_and_item: [lambda: (*_pair(), State())],
    attribute_keeps_the_old_tensor: [lambda: (torch.randn(2), State())],
}
"""Each program, and what makes its arguments."""


def reset() -> None:
    """Gives the globals the values that they had when the module was loaded."""
    globals().update(COUNT=0, GLOBAL=[], G=1, W=torch.ones(2))
