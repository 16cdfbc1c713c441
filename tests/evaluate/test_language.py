"""Strings, numbers, scopes, loops, match: the language itself."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import random

import pytest
import torch

import srcjit
from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


@program(X, [], whole=False)
def handler_whose_class_is_a_call(x, log):
    def asked():
        log.append("asked")
        return KeyError

    try:
        y = x.sin() * 2
    except asked():
        y = x
    return y, len(log)


@program(X, whole=False)
def sequences_longer_than_memory(x):
    first = next(itertools.repeat(x, 10**15))
    return first + 1, list(itertools.repeat(x.shape[0], 3)), [x.shape[0]] * 3


@program(X, whole=False)
def defaultdict_of_no_function(x):
    try:
        made = collections.defaultdict([1])
    except TypeError:
        made = collections.defaultdict(list)
    made["a"].append(x + 1)
    return made["a"]


@program(X)
def formatted_strings(x):
    n = 3
    s = "ab"
    return (
        x,
        f"{n=}",
        f"{n = :>4}",
        f"{s!r:>6}",
        rf"\d{n}",
        f"\x41{n}\n{{}}",
        f"{n:0{n}d}",
        f"{'nested ' + f'{n + 1}'}",
        f"{x.shape[0]:.2f}",
        f"{1e10:,}",
        f"é\u00e9{n}q",
        f'''a"{n}"
b''',
        f"it's {n} \" q",
        s.upper(),
        " a ".strip(),
        "a,b".split(","),
        "-".join(["a", "b"]),
        s.startswith("a"),
        s.replace("a", "b"),
        s * 2,
        s[::-1],
        "a" in s,
        "%d-%s" % (n, s),
        "{}-{k}".format(n, k=2),
        s.encode(),
        b"a" + b"b",
        s == f"a{'b'}",
        ord("a"),
        chr(98),
        str(3.0),
        repr("a"),
        str([1, "a"]),
        str((1,)),
        str({"a": 1}),
        str(None),
        f"{[1, 2]}",
        f"{None}",
        "abc".partition("b"),
        s.zfill(4),
        s.isdigit(),
        "A".lower(),
        f"{3.14159:.3}",
        f"{'x':^5}|",
        "\N{BULLET}",
    )


@program(X)
def comparisons_and_numbers(x):
    a, b = 1, 2
    return (
        x,
        a < b < 3,
        a < b > 3,
        1 == 1.0,
        True == 1,
        (1, 2) < (1, 3),
        [1, 2] == [1, 2],
        [1] < [2, 0],
        1 == None,
        None is None,
        a is not None,
        not a,
        a and b,
        a or b,
        () or 5,
        "a" < "b",
        (1, 2) == (1, 2),
        [x][0] is x,
        x is x,
        ...,
        5 // -2,
        -5 % 3,
        2**-1,
        7 / 2,
        1_000,
        0x10,
        1j * 1j,
        round(2.5),
        round(-1.55, 1),
        divmod(-7, 2),
        abs(-3),
        int("12"),
        int(3.9),
        float("inf"),
        bool([]),
        bool(""),
        int(True),
        True + True,
        ~5,
        5 ^ 3,
        1 << 4,
        -0.0,
        math.floor(-1.5),
        math.ceil(1.2),
        math.sqrt(16),
        math.gcd(12, 18),
        math.prod([1, 2, 3]),
        math.isclose(1.0, 1.0),
        math.log2(8),
        math.inf,
        pow(2, 5, 7),
        hash(1) == 1,
    )


@program(X, 2)
def match_on_values(x, k):
    out = []
    for v in (1, "a", None, True, (1, 2), [1, 2, 3], {"t": "x", "v": 1}, 3.5, 5):
        match v:
            case True:
                out.append("T")
            case 1:
                out.append("one")
            case None:
                out.append("none")
            case str(s):
                out.append("s" + s)
            case [a, b]:
                out.append(("pair", a, b))
            case [a, *r]:
                out.append(("seq", a, r))
            case {"t": t, **rest}:
                out.append((t, rest))
            case float() as f:
                out.append(f)
            case torch.Tensor():
                out.append("tensor")
            case int(n) if n > k:
                out.append(n)
            case _:
                out.append("?")
    return out


class P:
    __match_args__ = ("a", "b")

    def __init__(s, a, b):
        s.a = a
        s.b = b


@program(X)
def match_on_classes(x):
    r = []
    for v in (P(1, 2), P(1, 5), P(3, x), 4, 5 | 8, math.pi):
        match v:
            case P(1, 2):
                r.append("12")
            case P(1, b=y):
                r.append(y)
            case P(a=q):
                r.append(q)
            case 4 | 5:
                r.append("45")
            case math.pi:
                r.append("pi")
            case _:
                r.append(0)
    return r


CNT = 0


class K:
    n = 0


@program(X, whole=False)
def globals_and_closures(x):
    global CNT
    CNT += 1
    K.n += 1

    def f():
        nonlocal x
        x = x + 1
        return x

    y = f()
    f()
    fs = [lambda i=i: i for i in range(3)]
    gs = [lambda: i for i in range(3)]

    def acc(v, l=[]):
        l.append(v)
        return l

    acc(1)
    z = acc(2)
    return x, y, [g() for g in fs], [g() for g in gs], z


def deco(fn):
    @functools.wraps(fn)
    def w(*a, **k):
        return fn(*a, **k) + 1

    return w


@deco
def dfn(x, y=2):
    return x * y


class DM:
    @torch.no_grad()
    def m(s, x):
        return x * 2

    @deco
    def n(s, x):
        return x * 3

    @staticmethod
    def s(x):
        return x

    @functools.lru_cache
    def c(s, k):
        return k + 1

    @functools.cached_property
    def cp(s):
        return 5


@program(X.clone().requires_grad_(), DM())
def decorators(x, o):
    return dfn(x, y=3), o.m(x), o.n(x), o.s(x), dfn.__name__


@program(X, DM(), whole=False)
def cached_methods(x, o):
    return x * o.c(3) * o.cp


@program(X)
def numpy_scalars(x):
    import numpy as np

    return (
        x * np.pi,
        x * np.sqrt(2),
        np.prod((2, 3)),
        np.prod(x.shape),
        int(np.prod(x.shape)),
        np.float32(1.5),
        np.log(2.0),
        np.ceil(2.3),
    )


@program(X, whole=False)
def exceptions_caught(x):
    try:
        v = {"a": 1}["b"]
    except KeyError:
        v = 2
    try:
        y = x + 1
        if v == 2:
            raise ValueError("q")
    except ValueError as e:
        y = x + len(str(e))
    return y


@program(X, whole=False)
def branch_on_data(x):
    if x.sum() > 100:
        return x + 1
    elif x.dim() == 2:
        return x * 2
    return x


@program(X)
def loops_with_else(x):
    i = 0
    while True:
        i += 1
        if i > 3:
            break
        x = x + i
    else:
        x = x * 0
    for j in range(2):
        pass
    else:
        x = x + j
    return x


class P2:
    pass


@program(X, whole=False)
def attributes_of_a_new_object(x):
    o = P2()
    o.a = 1
    setattr(o, "b", 2)
    del o.a
    return hasattr(o, "a"), o.b, x, vars(o), o.__dict__


@program(X)
def string_methods(x):
    return (
        x,
        "a b".title(),
        "x".join("ab"),
        "abc"[1],
        "abc".find("c"),
        "a".ljust(3),
        "%s %5.2f" % ("a", 1.234),
        "ab",
        "{:>3}".format(1),
        "ab".index("b"),
        "{0[a]}".format({"a": 1}),
        "A,B".split(",")[0].lower(),
        b"ab".decode(),
        "a\tb".expandtabs(2),
        "aXb".swapcase(),
        " ".isspace(),
        "layer.0.w".rsplit(".", 1),
        "abc".endswith(("b", "c")),
        max("abc"),
        sorted("bca"),
        list("ab"),
        tuple("ab"),
        set("a"),
        "a" < "b",
    )


class Qualified:
    def names(self, x):
        y = x + 1
        first = random.choice([lambda a: a])

        class Inner:
            def method(self):
                return lambda: self

        messages = []
        for _ in range(int(x.sum() < 1)):
            random.random()
            try:
                (lambda a: a)()
            except TypeError as error:
                messages.append(str(error))
        random.random()
        try:
            (lambda b: b)()
        except TypeError as error:
            messages.append(str(error))
        made = Inner().method, Inner().method(), (i for i in ()), first
        return y, messages, Inner.__qualname__, [each.__qualname__ for each in made]


program(X, whole=False)(Qualified().names)


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()


def test_functions_made_by_other_modules_keep_their_globals():
    from . import elsewhere

    def program(n):
        made = elsewhere.scaled_by(n)
        eval("made", {"made": made})
        return made, made(1), made.__qualname__

    jitted = srcjit.jit(program)
    for n in (2, 2, 3, 50):
        function, value, name = jitted(n)
        assert (value, name) == program(n)[1:]
        assert function(4) == program(n)[0](4)
        assert function.__globals__ is elsewhere.__dict__
