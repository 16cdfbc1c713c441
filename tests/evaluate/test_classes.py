"""Classes of the user: special methods, dataclasses, enums, named tuples, modules."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing
from typing import NamedTuple

import pytest
import torch
from torch import nn

from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


class V:
    def __init__(s, x):
        s.x = x

    def __add__(s, o):
        return V(s.x + (o.x if isinstance(o, V) else o))

    def __radd__(s, o):
        return V(o + s.x)

    def __mul__(s, k):
        return V(s.x * k)

    def __iadd__(s, o):
        s.x = s.x + o
        return s

    def __neg__(s):
        return V(-s.x)

    def __eq__(s, o):
        return isinstance(o, V) and s.x is o.x

    def __hash__(s):
        return 1

    def __len__(s):
        return len(s.x)

    def __getitem__(s, i):
        return s.x[i]

    def __setitem__(s, i, v):
        s.x[i] = v

    def __iter__(s):
        return iter(s.x)

    def __contains__(s, o):
        return o == 3

    def __call__(s, y, *, k=1):
        return s.x + y * k

    def __bool__(s):
        return len(s.x) > 2

    def __lt__(s, o):
        return len(s) < len(o)

    def __enter__(s):
        s.x = s.x + 1
        return s

    def __exit__(s, *a):
        s.x = s.x * 2

    def __abs__(s):
        return V(abs(s.x))

    def __str__(s):
        return "V!"

    def gen(s):
        for i in range(3):
            yield s.x[i]


@program(X, V(X.clone()))
def special_methods(x, v):
    a = v + 1
    b = 1 + v
    c = a + b
    c *= 2
    d = -c
    e = v == v
    f = len(v)
    g = v[0]
    v[1] = 5.0
    h = [t.sum() for t in v]
    i = 3 in v
    j = v(x, k=2)
    k = "y" if v else "n"
    w = V(x)
    w += 1
    m = w < v
    with w as q:
        r = q.x * 2
    return (
        a.x,
        b.x,
        c.x,
        d.x,
        e,
        f,
        g,
        h,
        i,
        j,
        k,
        m,
        w.x,
        r,
        list(v.gen()),
        abs(w).x,
        str(w),
        v != w,
        w(x),
    )


@program(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), X)
def slices_and_trees_of_modules(m, x):
    for l in m[1:]:
        x = l(x)
    return (
        m[:2](x),
        len(m[1:]),
        m[1:][0](x),
        [n for n, _ in m.named_parameters()],
        sum(p.numel() for p in m.parameters()),
        next(m.parameters()).dtype,
        [type(c).__name__ for c in m.children()],
        [n for n, _ in m.named_modules()],
        [b for b in m.buffers()],
        dict(m.named_children()).keys(),
    )


class MyML(nn.ModuleList):
    def forward(s, x):
        for l in s:
            x = l(x)
        return x, len(s), s[0](x), s[-1:][0](x)


@program(MyML([nn.Linear(8, 8), nn.Tanh()]), X)
def subclass_of_module_list(m, x):
    return m(x)


class PD(nn.Module):
    def __init__(s):
        super().__init__()
        s.p = nn.ParameterDict({"a": torch.ones(8), "b": torch.ones(8)})
        s.d = nn.ModuleDict({"x": nn.Tanh()})
        s.pl = nn.ParameterList([torch.ones(8)])
        s.cnt = 0
        s.register_buffer("buf", torch.zeros(8))
        s.hist = []

    def forward(s, x):
        x = x * s.p["a"]
        for k in s.p:
            x = x + s.p[k]
        for k, v in s.p.items():
            x = x + v
        for k, v in s.d.items():
            x = v(x)
        for p in s.pl:
            x = x * p
        if "a" in s.p and "x" in s.d:
            x = x + 1
        s.cnt += 1
        s.buf = s.buf + x[0].detach()
        s.hist.append(s.cnt)
        s.last = x
        return x, s.cnt, s.buf, len(s.p), list(s.d.keys()), s.last


program(X)(PD())


program(X)(PD().eval())


def self_name(s):
    return type(s).__name__


class A(nn.Module):
    k = 2

    def __init__(s):
        super().__init__()
        s.l = nn.Linear(8, 8)
        s.cfg = {"a": 1}
        s.fn = lambda t: t * 2
        s.act = torch.relu
        s._v = 1.0

    @property
    def v(s):
        return s._v

    @v.setter
    def v(s, x):
        s._v = x * 2

    def __getattr__(s, n):
        if n == "magic":
            return 7
        return super().__getattr__(n)

    def forward(s, x):
        s.v = s._v
        A.k
        type(s).k
        return (
            s.fn(s.act(s.l(x))) * s.k * s.cfg["a"] + s.v,
            getattr(s, "l").weight.shape,
            hasattr(s, "nope"),
            getattr(s, "nope", 3),
            s.training,
            s.__class__.__name__,
            isinstance(s, nn.Module),
            s.extra(),
            s.magic,
        )

    def extra(s):
        return self_name(s)


program(X, whole=False)(A())


class H(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.Linear(8, 8)
        s.l.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
        s.l.register_forward_hook(lambda m, a, o: o * 2)
        s.l.register_forward_hook(lambda m, a, k, o: None, with_kwargs=True)

    def forward(s, x):
        return s.l(x)


program(X)(H())


class HB(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.Linear(8, 8)
        s.l.register_full_backward_hook(lambda m, gi, go: None)

    def forward(s, x):
        return s.l(x) * 2


program(X, whole=False)(HB())


@dataclasses.dataclass(frozen=True)
class Cfg:
    n: int = 2
    s: str = "a"
    t: tuple = (1, 2)


@dataclasses.dataclass
class Mut:
    x: typing.Any
    y: list = dataclasses.field(default_factory=list)
    z: int = dataclasses.field(default=3, kw_only=True)

    def __post_init__(s):
        s.w = s.z + 1


class Slots:
    __slots__ = ("a", "b")

    def __init__(s, a):
        s.a = a
        s.b = 1


@program(X, Cfg())
def dataclasses_in_use(x, c):
    m = Mut(x, z=4)
    m.y.append(1)
    d = dataclasses.replace(c, n=5)
    e = Cfg(3)
    q = Slots(x)
    q.b += 1
    return (
        x * c.n * d.n * e.n,
        m.w,
        m.y,
        dataclasses.asdict(Cfg(1)),
        Cfg(2) == c,
        [f.name for f in dataclasses.fields(c)],
        c.t,
        q.b,
        q.a,
        dataclasses.is_dataclass(c),
    )


class E1(enum.Enum):
    A = "a"
    B = "b"

    def sc(s):
        return 2 if s is E1.A else 3


class E2(enum.IntEnum):
    P = 1
    Q = 2


class E3(str, enum.Enum):
    U = "u"


@program(X, E1.A, E2.Q)
def enums_in_use(x, e, f):
    return (
        x * e.sc() * f.value,
        e == E1.A,
        e.name,
        [m.value for m in E1],
        e in (E1.A, E1.B),
        {E1.A: 1}[e],
        E3.U == "u",
        f == 2,
        E1["B"].value,
        E1("a") is E1.A,
        f + 1,
    )


class NT(NamedTuple):
    a: typing.Any
    b: int = 1


PT = collections.namedtuple("PT", "p q")


@program(X, PT(1, 2), NT(X))
def named_tuples(x, p, n):
    r = NT(x, b=3)
    a, b = r
    t = PT(p=1, q=2)
    return (
        r,
        a + b,
        t._asdict(),
        p.p + p[1],
        n.a * n.b,
        n._replace(b=9),
        len(r),
        t == (1, 2),
        r._fields,
        isinstance(r, tuple),
        sum(p),
    )


class Base(nn.Module):
    def __init__(s):
        super().__init__()
        s.w = nn.Parameter(torch.ones(8))

    def forward(s, x, *a, k=1, **kw):
        return x * s.w * k + len(a) + len(kw)


class Mix:
    def forward(s, x, **kw):
        return super().forward(x, 1, **kw) + 1


class Child(Mix, Base):
    def forward(s, *args, **kwargs):
        return (
            super().forward(*args, **kwargs) * super(Child, s).w
            if False
            else super().forward(*args, **kwargs)
        )


program(X, k=3, z=1)(Child())


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()
