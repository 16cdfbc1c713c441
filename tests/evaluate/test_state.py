"""State that models keep: caches, buffers, counters, averages, outputs."""

from __future__ import annotations

import dataclasses
import math
import types
import typing

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


class Rope(nn.Module):
    def __init__(s):
        super().__init__()
        s.cache = {}
        s.calls = 0
        s.seen = []
        s.last = None
        s.register_buffer("ema", torch.zeros(8))
        s.register_buffer("n", torch.tensor(0))
        s.maxlen = 0

    def forward(s, x, offset=0):
        t = x.shape[0]
        s.calls += 1
        if t not in s.cache:
            s.cache[t] = torch.arange(t)[:, None] * 0.1
        if s.maxlen < t:
            s.maxlen = t
        s.seen.append(t)
        s.last = x
        if s.training:
            s.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)
            s.n += 1
        return x * s.cache[t].cos() + offset + s.maxlen, s.calls


@program(Rope(), X, whole=False)
def rotary_cache(m, x):
    a = m(x)
    b = m(x[:2], offset=1)
    return a, b, m(x), len(m.cache), m.seen


class KV(nn.Module):
    def __init__(s):
        super().__init__()
        s.k = None
        s.v = []

    def forward(s, x):
        s.k = x if s.k is None else torch.cat([s.k, x], 0)
        s.v.append(x.sum())
        return s.k.mean(0), torch.stack(s.v)


@program(KV(), X)
def key_value_cache(m, x):
    return m(x), m(x)


@dataclasses.dataclass
class MO:
    logits: torch.Tensor
    hidden: tuple = ()
    loss: typing.Optional[torch.Tensor] = None

    def to_tuple(s):
        return tuple(v for v in (s.logits, s.hidden, s.loss) if v is not None)


class HF(nn.Module):
    def __init__(s):
        super().__init__()
        s.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        s.config = types_ns(output_hidden_states=True, n=3, act="gelu")
        s.acts = {"gelu": F.gelu, "relu": F.relu}

    def forward(
        s, input=None, *, labels=None, output_hidden_states=None, return_dict=True, **kw
    ):
        ohs = (
            output_hidden_states
            if output_hidden_states is not None
            else s.config.output_hidden_states
        )
        hs = () if ohs else None
        for i, l in enumerate(s.layers):
            if ohs:
                hs = hs + (input,)
            input = s.acts[s.config.act](l(input))
        loss = None
        if labels is not None:
            loss = F.mse_loss(input, labels)
        if not return_dict:
            return tuple(v for v in [loss, input, hs] if v is not None)
        return MO(logits=input, hidden=hs, loss=loss)


def types_ns(**k):
    return types.SimpleNamespace(**k)


@program(HF(), X)
def model_outputs(m, x):
    o = m(x, labels=x)
    return (
        o.logits,
        o.loss,
        len(o.hidden),
        o.to_tuple()[0],
        m(x, return_dict=False, output_hidden_states=False),
    )


class DropPath(nn.Module):
    def __init__(s, p):
        super().__init__()
        s.p = p

    def forward(s, x):
        if s.p == 0.0 or not s.training:
            return x
        keep = 1 - s.p
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        m = x.new_empty(shape).bernoulli_(keep)
        if keep > 0.0:
            m.div_(keep)
        return x * m


program(X)(DropPath(0.5))


@program(torch.randn(2, 4, 4, 3))
def window_partition(x):
    B, H, W, C = x.shape
    w = 2
    x = (
        x.view(B, H // w, w, W // w, w, C)
        .permute(0, 1, 3, 2, 4, 5)
        .contiguous()
        .view(-1, w, w, C)
    )
    pos = torch.stack(torch.meshgrid([torch.arange(w), torch.arange(w)], indexing="ij"))
    rel = pos.flatten(1)[:, :, None] - pos.flatten(1)[:, None, :]
    return (
        x,
        rel.permute(1, 2, 0).contiguous().sum(-1),
        torch.roll(x, shifts=(-1, -1), dims=(1, 2)),
    )


@program(X)
def masks_and_indices(x):
    m = torch.full((4, 4), float("-inf")).triu(1)
    lens = torch.tensor([1, 2, 3, 4])
    k = torch.arange(8)[None, :] < lens[:, None]
    x = torch.where(k, x, torch.zeros_like(x))
    x[k] = 1.0
    x[:, ::2] *= 2
    x[0, 0] = x[1, 1]
    x[[0, 1]] = 0.5
    x[lens - 1, 0] += 1
    return x, m, k.float().masked_fill(k, 0.3), x.masked_fill_(k, 2), ~k


@program(X)
def aggregates(x):
    stats = {}
    for name, fn in [("m", torch.mean), ("s", torch.std), ("x", lambda t: t.max())]:
        stats[name] = fn(x)
    stats.update({f"{k}_2": v**2 for k, v in stats.items()})
    best = max(stats, key=lambda k: len(k))
    r = [stats[k] for k in sorted(stats)]
    return stats, best, torch.stack(r), {**stats}.keys() == stats.keys()


class Ema:
    decay = 0.9

    def __init__(s, m):
        s.shadow = {n: p.detach().clone() for n, p in m.named_parameters()}

    def update(s, m):
        with torch.no_grad():
            for n, p in m.named_parameters():
                s.shadow[n].mul_(s.decay).add_(p, alpha=1 - s.decay)
        return s.shadow


LIN = nn.Linear(8, 8)


@program(Ema(LIN), LIN)
def moving_average(e, m):
    return list(e.update(m).values())


@program(X)
def nested_functions(x):
    def block(depth):
        def inner(t, scale=depth):
            nonlocal x
            x = x + scale
            return t * depth if depth == 0 else block(depth - 1)(t) + depth

        return inner

    return block(3)(x), x


class Meta(type):
    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.tag = "m"
        return o


class WithMeta(metaclass=Meta):
    def __init__(s, v):
        s.v = v


@program(X, whole=False)
def metaclass(x):
    o = WithMeta(x)
    return o.tag, o.v


class Desc:
    def __get__(s, o, t=None):
        return 5

    def __set__(s, o, v):
        o.__dict__["z"] = v


class UseD:
    d = Desc()

    def __init__(s, x):
        s.x = x


@program(X, whole=False)
def descriptor(x):
    u = UseD(x)
    u.d = 3
    return u.d, u.__dict__.get("z")


class Singleton:
    _i = None

    def __new__(cls, *a):
        if cls._i is None:
            cls._i = super().__new__(cls)
        return cls._i

    def __init__(s, v):
        s.v = v


@program(X, whole=False)
def singleton(x):
    a = Singleton(1)
    b = Singleton(2)
    return a is b, a.v, x


@program(X, 3)
def integer_arithmetic(x, n):
    return (
        x * (n // 2) + n % 2 - n**2 / 2,
        -n // 2,
        n / 2,
        n & 1,
        n << 2,
        divmod(n, 2),
        float(n),
        n == 3.0,
        str(n),
        n * "ab",
        [0] * n,
        range(n)[::-1],
        list(range(n, 0, -1)),
        bool(n),
        not n,
        n > 2 > 1,
        2 < n < 3,
        n if n else 0,
        min(n, 2.5),
        round(n / 7, 3),
        abs(-n),
        n.bit_length(),
        (n).__add__(1),
        isinstance(n, int),
        n is None,
    )


@program(X, 0.1)
def float_arithmetic(x, p):
    return (
        x * p,
        p * 3,
        1 - p,
        p == 0.1,
        int(p * 10),
        p // 0.03,
        math.exp(p),
        math.log(p),
        f"{p:.3f}",
        p.is_integer(),
        p.hex(),
        max(p, 0),
        round(p, 1),
        -p,
        p**2,
        1 / p,
    )


@program(X, (2, 3), [4, 5], {"k": 6, "j": [7]})
def packing_and_unpacking(x, t, l, d):
    a, b = t
    c, *e = l
    f = lambda *args, **kw: (args, kw)
    t2 = t + (a,)
    l2 = [*l, *t]
    d2 = {**d, "k": 0}
    (m, n), [o, p] = t, l
    for i, (q, r) in enumerate(zip(t, l), 1):
        x = x + i * q * r
    d["j"].append(8)
    l[0], l[1] = l[1], l[0]
    return (
        x,
        f(*t, **d),
        t2,
        l2,
        d2,
        m + n + o + p,
        d,
        l,
        e,
        t[::-1],
        l[-1],
        len(d["j"]),
        t.index(3),
        t.count(2),
        sorted(t, reverse=True),
        dict(zip("ab", t)),
    )


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()
