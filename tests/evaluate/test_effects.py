"""Effects in order, aliases, rollback, exceptions: what a caller can observe."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import srcjit
from srcjit.passes.evaluate.functions import REIFIED
from tests import harness
from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


class O:
    def __init__(s):
        s.n = 0
        s.l = []
        s.d = {}
        s.t = None


@program(X, O(), whole=False)
def namespace_after_a_store(x, o):
    o.n = 1
    a = o.n
    o.n = a + 1
    b = o.__dict__["n"]
    o.l.append(o.n)
    y = o.l
    o.l = [9]
    y.append(3)
    return a, b, o.n, y, o.l, x


@program(X, O(), whole=False)
def tensor_attribute_aliases(x, o):
    o.t = x * 2
    z = o.t
    o.t.add_(1)
    o.d["k"] = z
    o.d["j"] = o.d["k"]
    z.mul_(2)
    return o.t is z, o.d["k"] is o.d["j"], o.t, z


@program(X, [1, 2, 3], whole=False)
def list_grows_while_iterated(x, l):
    old = l[0]
    l[0] = 5
    l.append(old)
    a = l
    a.append(7)
    b = l + [1]
    b[0] = 0
    for v in l:
        if len(l) < 8:
            l.append(v)
    return l, a is l, b, old


@program(X, [1, 2], whole=False)
def list_effects_around_prints(x, l):
    l.append(3)
    print("hi", len(l))
    l.append(4)
    print(l)
    x = x + len(l)
    l.pop(0)
    return x, l


@program(X, O(), whole=False)
def counter_around_prints(x, o):
    o.n += 1
    print(o.n)
    o.n += 1
    y = x * o.n
    o.l.append(y)
    print(len(o.l))
    return y, o.l[-1] is y, o.n


@program(X, O(), whole=False)
def store_then_raise(x, o):
    o.n = 5
    raise ValueError("x")


@program(X, O(), whole=False)
def effects_before_raise(x, o):
    o.n += 1
    o.l.append(1)
    o.d["a"] = x.sum()
    if o.n == 1:
        raise KeyError(o.n)
    return x


@program(X, O(), whole=False)
def vars_of_an_object(x, o):
    o.l.append(x)
    v = vars(o)
    o.n = 4
    return v["n"], v is o.__dict__, getattr(o, "n"), x


@program(X, O(), whole=False)
def namespace_is_the_object(x, o):
    v = o.__dict__
    o.n = 8
    r = v["n"]
    v["n"] = 9
    return r, o.n, x


@program(X, whole=False)
def rollback_of_list_appends(x):
    out = []
    d = {}

    def f(v):
        out.append(v)
        d[v] = 1
        return v

    a = [f(1), f(2), x.sum().item(), f(3)]
    return a, out, d


@program(X, whole=False)
def rollback_of_nested_calls(x):
    l = [1]
    l.append(l[0] + int(x.sum() > -1e9))
    l.append(5)
    _ = (l.append(7), print(l), l.append(8))
    return l


@program(X, {"a": 1, "b": 2}, whole=False)
def dict_order_after_deletes(x, d):
    for k in d:
        if k == "a":
            print(k)
            d[k] = 3
    e = d.copy()
    del d["a"]
    d["a"] = 9
    return list(d.items()), e, list(e)


@program(X, {"a": 1}, whole=False)
def dict_changes_while_iterated(x, d):
    for k in d:
        d["z"] = 2
    return x


@program(X, whole=False)
def iterator_across_a_break(x):
    it = iter([1, 2, 3])
    next(it)
    print("x")
    return list(it), x


@program(X, whole=False)
def zip_across_a_break(x):
    s = 0
    for a, b in zip([1, 2, 3], enumerate("abc")):
        s += a
        print(b)
        x = x + s
    return x


@program(X, whole=False)
def generator_expression_across_a_break(x):
    g = (t * 2 for t in [x, x])
    a = next(g)
    print(1)
    return a, list(g)


def G(n):
    for i in range(n):
        print("g", i)
        yield i


@program(X, whole=False)
def generator_that_prints(x):
    for i in G(3):
        x = x + i
        print("b", i)
    return x, sum(G(2))


@program(X, whole=False)
def lazy_map_that_prints(x):
    m = map(lambda v: print(v) or v, [1, 2])
    print("s")
    return list(m)


@program(X.clone(), whole=False)
def tensor_aliases(x):
    y = x
    z = x.view(-1)
    y += 1
    w = z * 2
    x = x + 1
    y[0] = 0
    q = x.view(8, 4)
    q.zero_()
    return x, y, z, w, q


@program(X, whole=False)
def list_aliases(x):
    l = [x] * 2
    m = [[0]] * 2
    m[0].append(1)
    t = (l, l)
    d = dict.fromkeys("ab", l)
    d["a"].append(1)
    n = list(l)
    n.append(2)
    return l, m, t, d, n, l is d["a"], m[0] is m[1], t[0] is t[1]


@program(X, whole=False)
def list_rebinding(x):
    a = [1]
    b = a
    a = a + [2]
    c = a
    a += [3]
    return a, b, c


@program(X, whole=False)
def nonlocal_counters(x):
    c = 0

    def inc():
        nonlocal c
        c += 1

        def inc2():
            nonlocal c
            c += 10

        inc2()
        return c

    r = [inc() for _ in range(2)]
    k = [i for i in range(3) if (j := i)]
    return r, c, k, j, x


@program(X, whole=False)
def comprehension_scopes(x):
    i = 5
    l = [i for i in range(3)]
    f = lambda i=i: i
    fs = [lambda: i for _ in range(1)]
    i = 7
    return i, l, f(), fs[0](), x


@program(X, whole=False)
def return_in_try_finally(x):
    try:
        return x
    finally:
        x = x + 1


@program(X, whole=False)
def argument_binding(x):
    def f(a, /, b, *c, d=1, **e):
        return a, b, c, d, e

    return f(1, 2, 3, d=4, z=5), f(*[1, 2], **{"q": 3}), f(1, b=2), x


@program(X, whole=False)
def missing_argument(x):
    def f(a, b):
        return a

    return f(x)


@program(X, whole=False)
def unbound_global(x):
    return undefined_name + x  # noqa: F821


@program(X, whole=False)
def unbound_local(x):
    del x
    return x  # noqa: F821


@program(X, whole=False)
def too_many_values(x):
    a, b = x.unbind(0)
    return a


@program(X, whole=False)
def missing_attribute(x):
    return x.foo


@program(X, whole=False)
def wrong_operand(x):
    return x + "a"


@program(X, whole=False)
def index_error(x):
    return [1, 2][5]


@program(X, whole=False)
def shape_error(x):
    return x @ x


@program(X, whole=False)
def failing_assertion(x):
    if x.dim() != 3:
        raise AssertionError(f"bad {x.dim()}")


@program(X, [3, 1], whole=False)
def value_error_after_an_effect(x, l):
    l.append(1)
    return l.index(7)


@program(X, whole=False)
def breaks_in_with_and_try(x):
    y = x * 2
    print(y.shape)
    with torch.no_grad():
        z = y + 1
        print("in")
    try:
        k = float("q")
    except ValueError as e:
        k = str(e)
    return z, k


@program(X, O(), whole=False)
def chained_assignment(x, o):
    o.a = o.b = x + 1
    o.c: int = 3
    (o.e, o.l), o.f = ([1], [2]), x
    o.l[0:0] = [4]
    return o.a is o.b, o.c, o.e, o.l, o.f is x


@program(X, whole=False)
def method_without_a_result(x):
    x.__setitem__(slice(None, None, 2), 7)
    y = x * 2
    y.__setitem__(0, 5)
    return x, y


@program(X, O(), O(), whole=False)
def object_graph(x, o, p):
    o.n = p
    o.n.n = 3
    p.l = o.l
    p.l.append(1)
    return o.l, p.n, o.n is p, x


@program(X, whole=False)
def in_place_aliases(x):
    a = x
    a *= 2
    b = [x]
    b[0] += 1
    c = {"k": x}
    c["k"] -= 3
    d = (x,)
    return x, a is x, b[0] is x, c["k"] is x, d


@program(X, whole=False)
def new_object(x):
    o = O()
    o.t = x
    o.t += 1
    o.l += [1]
    o.d |= {"a": 1}
    o.n -= 1
    p = o
    p.n = 5
    return o.t is x, o.l, o.d, o.n, vars(o), x


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()


def test_definitions_are_kept_once() -> None:
    """A function that each specialization hands to Python is the same definition."""

    @srcjit.jit(options={"stage": "specialize"})
    def scaled(x, n):
        k = x * n

        def escaping(v):
            return v + k

        return escaping

    for n in range(2, 6):
        x = torch.ones(n)
        assert torch.equal(scaled(x, 1.5)(x), x * 1.5 + x)
    kept = [v for (_, _, name), v in REIFIED.items() if name.startswith("escaping")]
    assert [len(sources) for sources in kept] == [1]


def one_tensor_of_statistics(x: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, both, both, training=True)


def test_statistics_that_are_one_tensor() -> None:
    def make() -> Any:
        x = torch.linspace(-1, 2, 5).reshape(5, 1)
        return one_tensor_of_statistics, (x, torch.ones(1)), {}

    harness.check(make, stage="lower", calls=2)
