"""Containers, iterators, copies: structure that evaluation tracks."""

from __future__ import annotations

import collections
import copy
import functools
import operator

import pytest
import torch

from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


@program(X, {"a": 1, "b": 2})
def views_of_a_dict(x, d):
    ks = d.keys()
    n = 0
    for k in ks:
        n += len(k)
    for k in ks:
        n += 1
    vs = list(d.values())
    it = [(k, v) for k, v in d.items()]
    return (
        x * n,
        len(ks),
        "a" in ks,
        1 in d.values(),
        ("a", 1) in d.items(),
        ks & {"a"},
        ks | {"z"},
        vs,
        it,
        d.keys() == {"a", "b"},
        sorted(d.items()),
        list(reversed(d)) if False else 0,
        dict(zip(ks, vs)),
        {**d, "c": 3},
        d | {"q": 1},
        d.get("zz", 5),
        d.get("a"),
        max(d, key=d.get),
        sum(d.values()),
    )


@program(X, {"a": 1})
def changes_of_a_dict(x, d):
    d.update(b=2)
    d.update([("c", 3)])
    d.setdefault("d", []).append(x.sum())
    p = d.pop("a", None)
    d |= {"e": 5}
    d.pop("b", 0)
    q = d.popitem()
    return x, d, p, q, list(d)


@program(X, {"a": 1})
def returns_views(x, d):
    return d.keys(), d.items(), x


@program(X, [3, 1, 2])
def changes_of_a_list(x, l):
    l.sort()
    l[1:2] = [7, 8]
    del l[0]
    l *= 2
    l += (9,)
    l.extend(i for i in range(2))
    l.insert(1, x.sum())
    l.reverse()
    z = l[::2]
    l.remove(9)
    c = l.copy()
    l.clear()
    return l, z, c, x


@program(X)
def sets(x):
    s = {1, 2, 3}
    s |= {4}
    s.discard(9)
    s.update([5, 6])
    s.remove(1)
    t = s & {2, 3}
    s -= {2}
    return (
        x * len(s),
        s,
        t,
        t <= s,
        {1} < {1, 2},
        {3} in [{3}],
        frozenset([1, 2]) | {3},
        sorted(s),
        sum(s),
        max(s),
        s.union([99]),
        {i for i in (3, 1, 2)},
        [v for v in {3, 1, 2}],
        {1, 2} == {2, 1},
    )


@program(X)
def itertools_functions(x):
    import itertools as I

    return (
        x,
        list(I.chain([1], (2,), {3: 4})),
        list(I.chain.from_iterable([[1], [2]])),
        list(I.islice(range(10), 2, 8, 3)),
        list(I.islice(I.count(3), 4)),
        list(I.product([1, 2], "ab")),
        list(I.product([0, 1], repeat=2)),
        list(I.repeat(5, 2)),
        list(I.zip_longest([1, 2], [3], fillvalue=0)),
        list(I.accumulate([1, 2, 3])),
        list(I.accumulate([1, 2, 3], lambda a, b: a * b, initial=2)),
        list(I.pairwise([1, 2, 3])),
        list(I.combinations([1, 2, 3], 2)),
        list(I.permutations([1, 2])),
        list(I.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(I.dropwhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(I.starmap(pow, [(2, 3)])),
        [a for a, _ in zip(I.cycle([1, 2]), range(5))],
        list(I.filterfalse(lambda v: v > 1, [1, 2])),
        list(I.compress.__name__),
    )


@program(X)
def built_in_iterators(x):
    it = iter([1, 2, 3, 4])
    a = next(it)
    z = list(zip(it, it))
    b = next(it, None)
    e = enumerate("ab", start=3)
    r = next(e)
    m = map(lambda a, b: a + b, [1, 2], [3, 4])
    f = filter(None, [0, 1, 2])
    return (
        x,
        a,
        z,
        b,
        r,
        list(e),
        list(m),
        list(f),
        list(reversed((1, 2))),
        any(v > 1 for v in [1, 2]),
        all([]),
        min([3, 1], key=lambda v: -v),
        max(1, 2.5),
        max([], default=None),
        sum([[1], [2]], []),
        sorted(["b", "A"], key=str.lower, reverse=True),
        list(map(str, [1, 2])),
        dict(enumerate("ab")),
        tuple(x for x in (1, 2)),
        [*range(3)],
        [*"ab", *(1,)],
        functools.reduce(lambda a, b: a * b, [1, 2, 3]),
        functools.reduce(operator.add, [x, x]),
    )


@program(X)
def operator_functions(x):
    g = operator.itemgetter(1)
    h = operator.itemgetter(0, 1)
    a = operator.attrgetter("shape")
    m = operator.methodcaller("sum")
    return (
        g([1, 2]),
        h([x, 2]),
        a(x),
        m(x),
        operator.mul(x, 2),
        operator.eq(1, 1),
        operator.neg(x),
        operator.getitem([1, 2], 0),
        sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0)),
        functools.partial(torch.add, x)(1),
        functools.partial(functools.partial(lambda a, b, c=1: a + b + c, x), 1, c=2)(),
        operator.contains([1], 1),
        operator.truediv(3, 2),
    )


@program(X, whole=False)
def collections_classes(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"]
    c = collections.Counter("aab")
    c["z"] += 1
    q = collections.deque([1, 2], maxlen=3)
    q.append(3)
    q.appendleft(0)
    o = collections.OrderedDict([("a", 1)])
    o["b"] = 2
    o.move_to_end("a")
    return d, dict(c), c.most_common(1), list(q), list(o.items()), q.popleft()


@program(X, [1, [2]], {"a": [1]})
def copies(x, l, d):
    a = copy.copy(l)
    b = copy.deepcopy(l)
    a.append(3)
    b[1].append(9)
    c = copy.deepcopy(d)
    c["a"].append(2)
    e = list(l)
    f = l[:]
    f[1].append(5)
    return a, b, c, l, d, e, x


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()
