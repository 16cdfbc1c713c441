"""Generators and context managers."""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.evaluate.support import Program, Programs, X, name_of

program = Programs()


def gen(n, x):
    """doc"""
    for i in range(n):
        if i == 1:
            continue
        yield x * i
    yield from (x, x + 1)


def gen2(a):
    a.append(1)
    yield 1
    a.append(2)
    yield 2


@contextlib.contextmanager
def cm(l):
    l.append("in")
    yield len(l)
    l.append("out")


@program(X, [])
def generators(x, l):
    s = 0
    for v in gen(3, x):
        s = s + v
    g = gen2(l)
    a = next(g)
    l.append("m")
    b = list(g)
    with cm(l) as n:
        x = x * n

    def inner():
        yield from gen2(l)

    c = sum(inner())
    for k in gen2(l):
        if k == 1:
            break
    return (
        s,
        l,
        a,
        b,
        c,
        x,
        sum(t for t in gen(2, x)),
        [p for p in gen(2, x)],
        next(gen(1, x)),
        dict((i, j) for i, j in zip("ab", gen2([]))),
        max(gen2([])),
        any(v == 1 for v in gen2(l)),
    )


@program(X.clone().requires_grad_())
def grad_modes_and_autocast(x):
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = x * 2
    with torch.set_grad_enabled(False):
        c = x * 3
    with torch.autograd.profiler.record_function("q"), contextlib.nullcontext(3) as n:
        d = x * n
    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        e = x @ x.T
        f = e + 1
    with torch.amp.autocast("cpu", enabled=False):
        g = x @ x.T
    return a, b, c, d, e, f, g, torch.is_grad_enabled(), x.detach(), x.data


@program(X.clone().requires_grad_(), whole=False)
def set_grad_enabled_as_a_call(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@program(X, whole=False)
def tensor_facts(x):
    for i, (a, b) in enumerate(zip(x, x.unbind(0))):
        x = x + i * (a - b).sum()
    s = [None] * 3
    s[1:] = [x, x]
    a, (b, *c), d = 1, (2, 3, 4), 5
    x.grad
    x.is_leaf
    return (
        s,
        a,
        b,
        c,
        d,
        x.size(),
        x.size(-1),
        tuple(x.shape),
        x.shape[:-1],
        list(x.shape),
        (*x.shape, 1),
        x.shape + (2,),
        x.numel() // 2,
        x.dtype is torch.float32,
        x.device.type,
        x.ndim,
        len(x),
        x.shape.numel(),
        x.element_size(),
        x.is_contiguous(),
        x.stride(0),
        x.dtype.itemsize,
        x.is_floating_point(),
        torch.is_tensor(x),
        x.dim(),
        x.T.shape,
        x.storage_offset(),
        x.nelement(),
        x.get_device(),
        str(x.device),
        str(x.dtype),
        repr(x.shape),
        f"{x.shape}",
        x.type(),
    )


@pytest.mark.parametrize("case", program, ids=name_of)
def test_like_eager(case: Program) -> None:
    case.check()
