"""Kernels that reduce rows, columns and everything."""

from __future__ import annotations

import math
from collections.abc import Callable

import sympy
import torch

from srcjit.passes.loops import (
    Const,
    Kernel,
    Load,
    Reduce,
    Store,
    Value,
    check,
    op,
)
from tests.backend.examples import Case, axis, buffer


def reduce_rows(
    kind: str,
    rows: int,
    columns: int,
    dtype: torch.dtype = torch.float32,
    *,
    transposed: bool = False,
) -> Case:
    """One reduction of a matrix over its rows, or over its columns."""
    if dtype.is_floating_point:
        x = torch.randint(-9, 9, (rows, columns)).to(dtype)
        if kind in ("max", "min", "argmax", "argmin") and rows > 2:
            x[1, columns // 2] = math.nan
            x[2] = -math.inf if "max" in kind else math.inf
        if kind == "prod":
            x = torch.where(torch.rand(rows, columns) < 0.5, -1.0, 1.0).to(dtype)
    elif dtype is torch.bool:
        x = torch.rand(rows, columns) < (0.02 if kind == "any" else 0.98)
    else:
        info = torch.iinfo(dtype)
        x = torch.randint(info.min, info.max, (rows, columns), dtype=dtype)
    eager: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "sum": lambda t: t.sum(-1, dtype=dtype),
        "prod": lambda t: t.prod(-1, dtype=dtype),
        "max": lambda t: t.amax(-1),
        "min": lambda t: t.amin(-1),
        "argmax": lambda t: t.argmax(-1),
        "argmin": lambda t: t.argmin(-1),
        "any": lambda t: t.any(-1),
        "all": lambda t: t.all(-1),
    }
    y = eager[kind](x)
    memory = x.t().contiguous() if transposed else x
    i, k = axis("i", rows), axis("k", columns)
    index = i.symbol + rows * k.symbol if transposed else columns * i.symbol + k.symbol
    made = torch.int64 if kind.startswith("arg") else dtype
    total = Reduce("total", kind, Load(buffer("x", memory), index), made)
    kernel = Kernel(
        f"row_{kind}",
        (i,),
        (k,),
        (total, Store(buffer("y", y), i.symbol, total.ref, "outer")),
    )
    return Case(check(kernel), {"x": memory}, {"y": y})


def weighted_columns(batch: int, rows: int, columns: int) -> Case:
    """Columns of each matrix, their rows weighted by a vector of each."""
    x = torch.randint(-9, 9, (batch, rows, columns)).float()
    w = torch.randint(-9, 9, (batch, rows)).float()
    y = (x * w[..., None]).sum(1)
    b, i, k = axis("b", batch), axis("i", columns), axis("k", rows)
    place = rows * b.symbol + k.symbol
    element = Load(buffer("x", x), columns * place + i.symbol)
    value = op("mul", element, Load(buffer("w", w), place))
    total = Reduce("total", "sum", value, torch.float32)
    store = Store(buffer("y", y), columns * b.symbol + i.symbol, total.ref, "outer")
    kernel = Kernel("weighted", (b, i), (k,), (total, store))
    return Case(check(kernel), {"x": x, "w": w}, {"y": y})


def full_reduction(size: int, kind: str) -> Case:
    """Everything to one number, in parts."""
    if kind == "variance":
        x = torch.randn(size, dtype=torch.float64) + 3
        y = x.var(correction=0)
    else:
        x = torch.randint(-50, 50, (size,)).double()
        x[size // 3] = math.nan if kind == "max" else 1000.0
        y = {"argmax": x.argmax(), "max": x.amax(), "sum": x.sum()}[kind]
    k = axis("k", size)
    loaded = Load(buffer("x", x), k.symbol)
    n = Const(float(size), torch.float64)
    if kind == "variance":
        total = Reduce("total", "sum", loaded, torch.float64)
        centred = op("sub", loaded, op("div", total.ref, n))
        squares = Reduce("squares", "sum", op("mul", centred, centred), torch.float64)
        body = (
            total,
            squares,
            Store(buffer("y", y), sympy.Integer(0), op("div", squares.ref, n), "outer"),
        )
    else:
        total = Reduce(
            "total", kind, loaded, torch.int64 if kind == "argmax" else x.dtype
        )
        body = (total, Store(buffer("y", y), sympy.Integer(0), total.ref, "outer"))
    return Case(check(Kernel(kind, (), (k,), body)), {"x": x}, {"y": y})


def log_softmax(rows: int, columns: int) -> Case:
    """Rows that are too long for one program's registers: one pass for each reduction."""
    x = torch.randn(rows, columns) * 3
    i, k = axis("i", rows), axis("k", columns)
    index = columns * i.symbol + k.symbol
    loaded = Load(buffer("x", x), index)
    peak = Reduce("peak", "max", loaded, torch.float32)
    total = Reduce(
        "total", "sum", op("exp", op("sub", loaded, peak.ref)), torch.float32
    )
    logsum = op("add", op("log", total.ref), peak.ref)
    y, z = torch.log_softmax(x, -1), torch.logsumexp(x, -1)
    kernel = Kernel(
        "log_softmax",
        (i,),
        (k,),
        (
            peak,
            total,
            Store(buffer("z", z), i.symbol, logsum, "outer"),
            Store(buffer("y", y), index, op("sub", loaded, logsum)),
        ),
    )
    return Case(check(kernel), {"x": x}, {"z": z, "y": y})


def online(form: str, rows: int, columns: int, *, transposed: bool = False) -> Case:
    """Sums relative to a maximum of values that are hard on one that is still running."""
    x = torch.randn(rows, columns) * 3
    half = columns // 2
    x[0] = -math.inf
    x[1, :half] = -math.inf
    x[2, half] = math.inf
    x[3, half] = math.nan
    x[4] = torch.linspace(-90, 90, columns)
    x[5] = torch.linspace(3e38, -3e38, columns)
    x[6, 1:] = -math.inf
    x[7] = -1e-45
    x[8, ::7] = -math.inf
    w = torch.randn(rows, columns)
    i, k = axis("i", rows), axis("k", columns)
    index = i.symbol + rows * k.symbol if transposed else columns * i.symbol + k.symbol
    kept = x.t().contiguous() if transposed else x
    other = w.t().contiguous() if transposed else w
    loaded = Load(buffer("x", kept), index)
    peak = Reduce("peak", "max", loaded, torch.float32)
    shift: Value = peak.ref
    if form == "guarded":
        infinite = op("eq", op("abs", shift), Const(math.inf, torch.float32))
        shift = op("where", infinite, Const(0.0, torch.float32), shift)
    raised: Value = op("exp", op("sub", loaded, shift))
    top = x.amax(-1, keepdim=True)
    eager = torch.exp(
        x - (torch.where(top.isinf(), 0.0, top) if form == "guarded" else top)
    )
    if form == "weighted":
        raised = op("mul", Load(buffer("w", other), index), raised)
        eager = eager * w
    total = Reduce("total", "sum", raised, torch.float32)
    y, z = eager.sum(-1), top[:, 0].clone()
    body = (
        peak,
        total,
        Store(buffer("z", z), i.symbol, peak.ref, "outer"),
        Store(buffer("y", y), i.symbol, total.ref, "outer"),
    )
    kernel = Kernel("online", (i,), (k,), body)
    inputs: dict[str, object] = {"x": kept}
    if form == "weighted":
        inputs["w"] = other
    return Case(check(kernel), inputs, {"z": z, "y": y})


def spread(
    rows: int, columns: int, *, transposed: bool = False, stores: bool = True
) -> Case:
    """Means and variances of rows that are far from 0, or that hold what is not finite."""
    x = torch.randn(rows, columns)
    x += torch.linspace(-1000, 1000, rows)[:, None]
    x[0, 3] = math.inf
    x[1, columns - 1] = math.nan
    x[2] = 7.0
    i, k = axis("i", rows), axis("k", columns)
    index = i.symbol + rows * k.symbol if transposed else columns * i.symbol + k.symbol
    memory = x.t().contiguous() if transposed else x
    loaded = Load(buffer("x", memory), index)
    total = Reduce("total", "sum", loaded, torch.float32)
    mean = op("div", total.ref, Const(columns, torch.float32))
    distance = op("sub", loaded, mean)
    squares = Reduce("squares", "sum", op("mul", distance, distance), torch.float32)
    variance = op("div", squares.ref, Const(columns - 1, torch.float32))
    z = x.double().var(-1).float()
    wanted = {"z": z}
    body = [total, squares, Store(buffer("z", z), i.symbol, variance, "outer")]
    if stores:
        y = x - x.mean(-1, keepdim=True)
        wanted["y"] = y.t().contiguous() if transposed else y
        body.append(Store(buffer("y", wanted["y"]), index, distance))
    kernel = Kernel("spread", (i,), (k,), tuple(body))
    made = Case(check(kernel), {"x": memory}, wanted)
    made.tolerance = 1e-3  # type: ignore[attr-defined]
    return made


def normalize_in_place(rows: int, columns: int) -> Case:
    """x /= x.sum(-1): the output is the input."""
    x = torch.rand(rows, columns) + 0.1
    expected = x / x.sum(-1, keepdim=True)
    i, k = axis("i", rows), axis("k", columns)
    index = columns * i.symbol + k.symbol
    loaded = Load(buffer("x", x), index)
    total = Reduce("total", "sum", loaded, torch.float32)
    body = (total, Store(buffer("x", x), index, op("div", loaded, total.ref)))
    case = Case(check(Kernel("normalize", (i,), (k,), body)), {}, {"x": expected})
    case.arguments = lambda: [case.outputs.setdefault("x", x)]  # type: ignore[method-assign]
    return case


def batch_norm_sums() -> Case:
    """Two sums over batch and space for each channel: inner axes apart in memory."""
    x = torch.randn(5, 7, 33)
    n, c, s = axis("n", 5), axis("c", 7), axis("s", 33)
    loaded = Load(buffer("x", x), 231 * n.symbol + 33 * c.symbol + s.symbol)
    total = Reduce("total", "sum", loaded, torch.float32)
    squares = Reduce("squares", "sum", op("mul", loaded, loaded), torch.float32)
    a, b = x.sum((0, 2)), (x * x).sum((0, 2))
    body = (
        total,
        squares,
        Store(buffer("a", a), c.symbol, total.ref, "outer"),
        Store(buffer("b", b), c.symbol, squares.ref, "outer"),
    )
    return Case(check(Kernel("sums", (c,), (n, s), body)), {"x": x}, {"a": a, "b": b})
