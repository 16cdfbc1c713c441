"""Kernels for the Triton printer: those that all printers share, and more.

`CASES` maps a name to a function that makes a `Case`. Values are adversarial where that is
cheap: NaN, infinities, signed zeros, the smallest and largest numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

from srcjit.passes.loops import (
    Axis,
    Buffer,
    Const,
    IndexValue,
    Kernel,
    Load,
    Place,
    Reduce,
    Store,
    Value,
    cast,
    check,
    op,
    symbol,
)
from tests.backend.examples import CASES as SHARED
from tests.backend.examples import CPU, Case, axis, buffer, f32

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.5,
    math.nan,
    math.inf,
    -math.inf,
    1e-40,
    88.0,
    -104.0,
]


def floats(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers of many sizes, and the special ones, in random order."""
    wide = torch.randn(count) * 10 ** torch.empty(count).uniform_(-3, 1)
    wide[: len(SPECIAL)] = torch.tensor(SPECIAL)
    return wide[torch.randperm(count)].to(dtype)


def pointwise(
    name: str,
    inputs: dict[str, torch.Tensor],
    results: dict[str, tuple[Value, torch.Tensor]],
) -> Case:
    """One contiguous axis; each result is stored at the same place."""
    (size,) = {t.numel() for t in inputs.values()}
    i = axis("i", size)
    body = tuple(
        Store(buffer(n, expected), i.symbol, value)
        for n, (value, expected) in results.items()
    )
    kernel = Kernel(name, (i,), (), body)
    return Case(check(kernel), dict(inputs), {n: e for n, (_, e) in results.items()})


def at(name: str, tensor: torch.Tensor) -> Load:
    """The element of a contiguous tensor at `i`."""
    return Load(buffer(name, tensor), symbol("i"))


# --- primitives -----------------------------------------------------------------------------

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "isnan": torch.isnan, "isinf": torch.isinf,
    "signbit": torch.signbit, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "round": torch.round, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "exp": torch.exp,
    "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log10": torch.log10, "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh,
    "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf, "erfc": torch.erfc,
    "erfinv": torch.erfinv, "lgamma": torch.lgamma, "sigmoid": torch.sigmoid,
}  # fmt: skip
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin,
    "fmod": torch.fmod, "pow": torch.pow, "atan2": torch.atan2, "hypot": torch.hypot,
    "copysign": torch.copysign, "nextafter": torch.nextafter,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip


def float_primitives(dtype: torch.dtype) -> Case:
    """Every primitive of floats."""
    x, z = floats(777, dtype), floats(777, dtype)
    a, b = at("x", x), at("z", z)
    results = {f"{n}_out": (op(n, a), f(x)) for n, f in UNARY.items()}
    results |= {f"{n}_out": (op(n, a, b), f(x, z)) for n, f in BINARY.items()}
    results["fma_out"] = (
        op("fma", a, b, a),
        (x.double() * z.double() + x.double()).to(dtype),
    )
    if dtype is torch.float64:
        results["fma_out"] = (op("fma", a, Const(1.0, dtype), b), x + z)
    third = Const(1 / 3, dtype)
    results["constants"] = (
        op("div", op("add", op("mul", a, third), Const(0.1, dtype)), Const(0.7, dtype)),
        (x * torch.tensor(1 / 3, dtype=dtype) + torch.tensor(0.1, dtype=dtype))
        / torch.tensor(0.7, dtype=dtype),
    )
    results["where_constants"] = (
        op("where", op("gt", a, b), third, Const(-0.0, dtype)),
        torch.where(
            x > z, torch.tensor(1 / 3, dtype=dtype), torch.tensor(-0.0, dtype=dtype)
        ),
    )
    results["largest_constant"] = (
        op("maximum", a, Const(1e-40 if dtype is torch.float32 else 1e-310, dtype)),
        torch.maximum(
            x, torch.tensor(1e-40 if dtype is torch.float32 else 1e-310, dtype=dtype)
        ),
    )
    case = pointwise("primitives", {"x": x, "z": z}, results)
    case.tolerance = 2e-6
    return case


def double() -> Case:
    """What is printed in another way for float64 than for float32."""
    x, z = floats(99, torch.float64), floats(99, torch.float64)
    a, b = at("x", x), at("z", z)
    names = ("div", "maximum", "minimum", "fmax", "fmin", "copysign")
    results = {f"{n}_out": (op(n, a, b), BINARY[n](x, z)) for n in names}
    for n in ("sqrt", "sigmoid", "signbit", "round", "exp", "neg"):
        results[f"{n}_out"] = (op(n, a), UNARY[n](x))
    return pointwise("double", {"x": x, "z": z}, results)


def integer_primitives(dtype: torch.dtype) -> Case:
    """Every primitive of integers, at the ends of the range too."""
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max, (500,), dtype=dtype)
    x[:4] = torch.tensor([info.min, info.max, 0, 1], dtype=dtype)
    z = torch.randint(max(info.min, -9), 9, (500,), dtype=dtype)
    z[z == 0] = 3
    small = x.clone()
    small[0] = 1  # the smallest integer by -1 is undefined
    a, b, s = at("x", x), at("z", z), at("small", small)
    bits = info.bits
    count = z
    inside = (count >= 0) & (count < bits)
    shifted = torch.where(inside, count, torch.tensor(bits - 1, dtype=dtype))
    right = x >> shifted
    if dtype is torch.uint8:
        right = torch.where(inside, right, torch.tensor(0, dtype=dtype))
    results = {
        "add_out": (op("add", a, b), x + z),
        "sub_out": (op("sub", a, b), x - z),
        "mul_out": (op("mul", a, b), x * z),
        "max_out": (op("maximum", a, b), torch.maximum(x, z)),
        "min_out": (op("minimum", a, b), torch.minimum(x, z)),
        "neg_out": (op("neg", a), -x),
        "abs_out": (op("abs", a), x.abs()),
        "truncdiv_out": (
            op("truncdiv", s, b),
            torch.div(small, z, rounding_mode="trunc"),
        ),
        "floordiv_out": (
            op("floordiv", s, b),
            torch.div(small, z, rounding_mode="floor"),
        ),
        "rem_out": (op("rem", s, b), torch.fmod(small, z)),
        "mod_out": (op("mod", s, b), torch.remainder(small, z)),
        "and_out": (op("bitwise_and", a, b), x & z),
        "or_out": (op("bitwise_or", a, b), x | z),
        "xor_out": (op("bitwise_xor", a, b), x ^ z),
        "not_out": (op("bitwise_not", a), ~x),
        "shl_out": (
            op("shl", a, b),
            torch.where(inside, x << shifted, torch.zeros_like(x)),
        ),
        "shr_out": (op("shr", a, b), right),
        "lt_out": (op("lt", a, b), x < z),
        "eq_out": (op("eq", a, Const(1, dtype)), x == 1),
        "where_out": (
            op("where", op("ge", a, b), Const(7, dtype), b),
            torch.where(x >= z, 7, z).to(dtype),
        ),
    }
    return pointwise("integers", {"x": x, "z": z, "small": small}, results)


def bool_primitives() -> Case:
    """Logic."""
    x, z = torch.rand(99) > 0.5, torch.rand(99) > 0.5
    a, b = at("x", x), at("z", z)
    results = {
        "and_out": (op("bitwise_and", a, op("bitwise_not", b)), x & ~z),
        "or_out": (op("bitwise_or", a, b), x | z),
        "xor_out": (op("bitwise_xor", a, b), x ^ z),
        "eq_out": (op("eq", a, b), x == z),
        "lt_out": (op("lt", a, b), x < z),
        "where_out": (
            op("where", a, b, Const(True, torch.bool)),
            torch.where(x, z, True),
        ),
    }
    return pointwise("logic", {"x": x, "z": z}, results)


STORAGE = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip


def casts(source: torch.dtype) -> Case:
    """From one dtype to every other."""
    if source.is_floating_point:
        x = (torch.randn(301) * 50).to(source)
        x[:5] = torch.tensor([0.0, -0.0, -1.0, 3.99, 65504.0], dtype=source)
    elif source is torch.bool:
        x = torch.rand(301) > 0.5
    else:
        info = torch.iinfo(source)
        x = torch.randint(info.min, info.max, (301,), dtype=source)
    results = {}
    for target in STORAGE:
        if target is source:
            continue
        if source.is_floating_point and target in (torch.int8, torch.int16):
            continue  # out-of-range conversions are undefined in eager, too
        name = str(target).removeprefix("torch.")
        results[f"as_{name}"] = (cast(at("x", x), target), x.to(target))
    return pointwise("casts", {"x": x}, results)


# --- reductions -----------------------------------------------------------------------------


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


def spread(rows: int, columns: int) -> Case:
    """Means and variances of rows that are far from 0, or that hold what is not finite."""
    x = torch.randn(rows, columns)
    x += torch.linspace(-1000, 1000, rows)[:, None]
    x[0, 3] = math.inf
    x[1, columns - 1] = math.nan
    x[2] = 7.0
    i, k = axis("i", rows), axis("k", columns)
    index = columns * i.symbol + k.symbol
    loaded = Load(buffer("x", x), index)
    total = Reduce("total", "sum", loaded, torch.float32)
    mean = op("div", total.ref, Const(columns, torch.float32))
    distance = op("sub", loaded, mean)
    squares = Reduce("squares", "sum", op("mul", distance, distance), torch.float32)
    variance = op("div", squares.ref, Const(columns - 1, torch.float32))
    y, z = x - x.mean(-1, keepdim=True), x.double().var(-1).float()
    body = (
        total,
        squares,
        Store(buffer("z", z), i.symbol, variance, "outer"),
        Store(buffer("y", y), index, distance),
    )
    made = Case(check(Kernel("spread", (i,), (k,), body)), {"x": x}, {"z": z, "y": y})
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


def counting() -> Case:
    """Reductions of values that do not depend on the inner axis, or on memory."""
    x = torch.randn(9)
    i, k = axis("i", 9), axis("k", 37)
    total = Reduce("total", "sum", Load(buffer("x", x), i.symbol), torch.float32)
    ones = Reduce("ones", "sum", Const(1, torch.int64), torch.int64)
    last = Reduce("last", "max", IndexValue(k.symbol), torch.int64)
    a, b, c = x * 37, torch.full((9,), 37), torch.full((9,), 36)
    body = (
        total, ones, last,
        Store(buffer("a", a), i.symbol, total.ref, "outer"),
        Store(buffer("b", b), i.symbol, ones.ref, "outer"),
        Store(buffer("c", c), i.symbol, last.ref, "outer"),
    )  # fmt: skip
    return Case(
        check(Kernel("counting", (i,), (k,), body)), {"x": x}, {"a": a, "b": b, "c": c}
    )


# --- shapes ---------------------------------------------------------------------------------


def elementwise(name: str, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Case:
    """y = x * w + 1 with any strides; `w` expanded to the shape of `x`."""
    axes = [axis(f"i{n}", s) for n, s in enumerate(x.shape)]

    def index(t: torch.Tensor) -> sympy.Expr:
        return sympy.Add(*(a.symbol * s for a, s in zip(axes, t.stride(), strict=True)))

    value = op(
        "add",
        op("mul", Load(buffer("x", x), index(x)), Load(buffer("w", w), index(w))),
        f32(1.0),
    )
    kernel = Kernel(name, tuple(axes), (), (Store(buffer("y", y), index(y), value),))
    expected = y.copy_(x * w + 1)
    return Case(check(kernel), {"x": x, "w": w}, {"y": expected})


def shapes(which: str) -> Case:
    """Layouts: permuted, expanded, with gaps, of one element, of many axes."""
    x = torch.randn(6, 5, 4, 3)
    match which:
        case "permuted":
            return elementwise(
                which,
                x.permute(3, 1, 0, 2),
                torch.randn(2).expand(3, 5, 6, 2).repeat(1, 1, 1, 2),
                torch.empty(3, 5, 6, 4),
            )
        case "channels_last":
            y = torch.empty(2, 8, 9, 7).contiguous(memory_format=torch.channels_last)
            return elementwise(
                which,
                torch.randn(2, 8, 9, 7),
                torch.randn(8, 1, 1).expand(2, 8, 9, 7),
                y,
            )
        case "gaps":
            return elementwise(
                which,
                torch.randn(12, 40)[::3, 1::2],
                torch.randn(4, 1).expand(4, 20),
                torch.empty(4, 20),
            )
        case "one":
            return elementwise(
                which, torch.randn(1, 1, 1), torch.randn(1, 1, 1), torch.empty(1, 1, 1)
            )
        case "wide_rows":
            return elementwise(
                which,
                torch.randn(7, 1024),
                torch.randn(1024).expand(7, 1024),
                torch.empty(7, 1024),
            )
        case "batched_transpose":
            return elementwise(
                which,
                torch.randn(3, 70, 65).transpose(1, 2),
                torch.randn(3, 65, 70),
                torch.empty(3, 65, 70),
            )
        case "contiguous":
            return elementwise(
                which,
                torch.randn(5, 41, 13),
                torch.randn(5, 41, 13),
                torch.empty(5, 41, 13),
            )
    raise KeyError(which)


def view_indices() -> Case:
    """Divisions and remainders from views: y[i] = x.view(4, 6).t().reshape(-1)."""
    x = torch.randn(24)
    i = axis("i", 24)
    index = FloorDiv(i.symbol, 4) + 6 * Mod(i.symbol, 4)
    y = x.view(4, 6).t().reshape(-1).clone()
    kernel = Kernel(
        "view",
        (i,),
        (),
        (Store(buffer("y", y), i.symbol, Load(buffer("x", x), index)),),
    )
    return Case(check(kernel), {"x": x}, {"y": y})


def embedding() -> Case:
    """Rows of a table chosen by integers, scaled by a mask of their own."""
    table, ids = torch.randn(10, 21), torch.randint(0, 10, (6,))
    i, j = axis("i", 6), axis("j", 21)
    row = symbol("row")
    chosen = Load(buffer("ids", ids), i.symbol)
    inside = op("ne", chosen, Const(3, torch.int64))
    value = Load(
        buffer("table", table),
        21 * row + j.symbol,
        inside,
        (Place(row, chosen, sympy.Integer(10)),),
    )
    y = torch.where((ids != 3)[:, None], table[ids], torch.tensor(0.0))
    kernel = Kernel(
        "embedding",
        (i, j),
        (),
        (Store(buffer("y", y), 21 * i.symbol + j.symbol, value),),
    )
    return Case(check(kernel), {"table": table, "ids": ids}, {"y": y})


def triangle() -> Case:
    """tril by index values, of numbers of 16 bits."""
    x = torch.randn(19, 23).to(torch.bfloat16)
    i, j = axis("i", 19), axis("j", 23)
    at = 23 * i.symbol + j.symbol
    keep = op("le", IndexValue(j.symbol), IndexValue(i.symbol))
    value = op("where", keep, Load(buffer("x", x), at), Const(0.0, torch.bfloat16))
    y = x.tril()
    return Case(
        check(Kernel("tril", (i, j), (), (Store(buffer("y", y), at, value),))),
        {"x": x},
        {"y": y},
    )


def rounded_chain() -> Case:
    """bfloat16 arithmetic that is rounded after each operation, as eager does."""
    x = (torch.randn(1000) * 2).to(torch.bfloat16)
    h = at("x", x)
    half = torch.bfloat16

    def wide(value: Value) -> Value:
        return cast(value, torch.float32)

    squared = cast(op("mul", wide(h), wide(h)), half)
    cubed = cast(op("mul", wide(squared), wide(h)), half)
    inner = cast(op("mul", wide(cubed), f32(0.044715)), half)
    summed = cast(op("add", wide(h), wide(inner)), half)
    scaled = cast(op("mul", wide(summed), f32((2 / math.pi) ** 0.5)), half)
    bent = cast(op("tanh", wide(scaled)), half)
    shifted = cast(op("add", wide(bent), f32(1.0)), half)
    halved = cast(op("mul", wide(h), f32(0.5)), half)
    out = cast(op("mul", wide(halved), wide(shifted)), half)
    y = 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))
    case = pointwise("gelu", {"x": x}, {"y": (out, y)})
    case.tolerance = 0.0
    return case


def long_chain() -> Case:
    """Three hundred operations: no limit of recursion, no line without end."""
    x = torch.rand(40)
    value: Value = at("x", x)
    y = x
    for n in range(150):
        value = op("add", op("mul", value, f32(0.99)), f32(n / 100))
        y = y * 0.99 + n / 100
    return pointwise("chain", {"x": x}, {"y": (value, y)})


# --- symbolic sizes -------------------------------------------------------------------------


def symbolic(which: str) -> Case:
    """Sizes that are arguments: of a flat loop, of rows and columns, of the inner axis."""
    s0, s1 = symbol("s0"), symbol("s1")
    x = torch.randn(13, 37)
    i, j = axis("i", s0), axis("j", s1)
    source = Buffer("x", x.dtype, CPU, (s0, s1), (s1, sympy.Integer(1)))
    w = torch.randn(37)
    weights = Buffer("w", w.dtype, CPU, (s1,), (sympy.Integer(1),))
    sizes: dict[str, object] = {"s0": 13, "s1": 37}
    at = s1 * i.symbol + j.symbol
    loaded = Load(source, at)
    if which == "tiles":
        target = Buffer("y", x.dtype, CPU, (s0, s1), (s1, sympy.Integer(1)))
        value = op("mul", loaded, Load(weights, j.symbol))
        kernel = Kernel("scale", (i, j), (), (Store(target, at, value),))
        return Case(check(kernel), {"x": x, "w": w, **sizes}, {"y": x * w})
    if which == "flat":
        n = axis("n", s0)
        x, target = (
            torch.randn(1300),
            Buffer("y", x.dtype, CPU, (s0,), (sympy.Integer(1),)),
        )
        value = op(
            "mul",
            Load(Buffer("x", x.dtype, CPU, (s0,), (sympy.Integer(1),)), n.symbol),
            f32(2.0),
        )
        kernel = Kernel("double", (n,), (), (Store(target, n.symbol, value),))
        return Case(check(kernel), {"x": x, "s0": 1300}, {"y": x * 2})
    if which in ("argmin", "log_softmax"):
        return symbolic_rows(which)
    target = Buffer("y", x.dtype, CPU, (s0,), (sympy.Integer(1),))
    total = Reduce("total", "max", loaded, torch.float32)
    kernel = Kernel(
        "peak", (i,), (j,), (total, Store(target, i.symbol, total.ref, "outer"))
    )
    return Case(check(kernel), {"x": x, **sizes}, {"y": x.amax(-1)})


def symbolic_limits() -> Case:
    """`x[: min(s, 6)].sum(1)` beside `max(s - 3, 1)` columns: sizes that are not polynomials."""
    x = torch.randn(9, 40)
    s0 = symbol("s0")
    rows, columns = Min(s0, sympy.Integer(6)), Max(s0 - 3, sympy.Integer(1))
    i, k = Axis(symbol("i"), rows), Axis(symbol("k"), columns)
    loaded = Load(buffer("x", x), 40 * i.symbol + k.symbol + columns)
    total = Reduce("total", "sum", loaded, torch.float32)
    y = x[:6, 6:12].sum(1)
    store = Store(buffer("y", y), i.symbol, total.ref, "outer")
    kernel = Kernel("limits", (i,), (k,), (total, store))
    return Case(check(kernel), {"x": x, "s0": 9}, {"y": y})


def symbolic_rows(kind: str) -> Case:
    """Rows of unknown length: several passes over the row."""
    x = torch.randint(-50, 50, (3, 5000)).float()
    x[1, 4321] = math.nan
    s1 = symbol("s1")
    i, k = axis("i", 3), axis("k", s1)
    size, strides = (sympy.Integer(3), s1), (s1, sympy.Integer(1))
    at = s1 * i.symbol + k.symbol
    loaded = Load(Buffer("x", x.dtype, CPU, size, strides), at)
    inputs: dict[str, object] = {"x": x, "s1": 5000}
    if kind == "argmin":
        best = Reduce("best", "argmin", loaded, torch.int64)
        y = x.argmin(-1)
        store = Store(buffer("y", y), i.symbol, best.ref, "outer")
        return Case(
            check(Kernel("argmin", (i,), (k,), (best, store))), inputs, {"y": y}
        )
    peak = Reduce("peak", "max", loaded, torch.float32)
    shifted = op("sub", loaded, peak.ref)
    total = Reduce("total", "sum", op("exp", shifted), torch.float32)
    value = op("sub", shifted, op("log", total.ref))
    store = Store(Buffer("y", x.dtype, CPU, size, strides), at, value)
    kernel = Kernel("log_softmax", (i,), (k,), (peak, total, store))
    return Case(check(kernel), inputs, {"y": torch.log_softmax(x, -1)})


def _sweep() -> dict[str, Callable[[], Case]]:
    cases: dict[str, Callable[[], Case]] = dict(SHARED)
    for dtype in (torch.float32, torch.float64):
        cases[f"primitives {dtype}"] = partial(float_primitives, dtype)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        cases[f"integers {dtype}"] = partial(integer_primitives, dtype)
    for dtype in STORAGE:
        cases[f"casts {dtype}"] = partial(casts, dtype)
    kinds: Sequence[tuple[str, torch.dtype]] = (
        ("sum", torch.float32), ("sum", torch.int64), ("sum", torch.int8), ("prod", torch.float64),
        ("max", torch.float32), ("min", torch.float64), ("max", torch.int64), ("min", torch.uint8),
        ("argmax", torch.float32), ("argmin", torch.int32), ("argmax", torch.bool),
        ("any", torch.bool), ("all", torch.bool), ("max", torch.bool),
    )  # fmt: skip
    for kind, dtype in kinds:
        for rows, columns, transposed in (
            (9, 50, False), (300, 16, False), (4, 70000, False), (70, 100, True), (5, 900, True),
        ):  # fmt: skip
            if kind.startswith("arg") and dtype is torch.bool:
                continue  # eager has none
            if columns > 1000 and kind == "prod":
                continue
            if dtype is torch.bool and kind in ("max",) and transposed:
                continue
            name = (
                f"{kind} {dtype} {rows}x{columns}{' transposed' if transposed else ''}"
            )
            cases[name] = partial(
                reduce_rows, kind, rows, columns, dtype, transposed=transposed
            )
    cases["looped max"] = partial(reduce_rows, "max", 265, 33000)
    for kind in ("sum", "variance", "max", "argmax"):
        for size in (40, 20000, 2**17, 100_003):
            cases[f"full {kind} {size}"] = partial(full_reduction, size, kind)
    # Rows that are sooner read again than held.
    cases["normalize 9x5000"] = partial(normalize_in_place, 9, 5000)
    for rows, columns in ((3, 50_000), (600, 12), (50, 1000)):
        cases[f"log_softmax {rows}x{columns}"] = partial(log_softmax, rows, columns)
        cases[f"normalize {rows}x{columns}"] = partial(
            normalize_in_place, rows, columns
        )
    for form in ("plain", "guarded", "weighted"):
        shapes_ = ((9, 100_001), (265, 33_001))[: 2 if form == "plain" else 1]
        for rows, columns in shapes_:
            cases[f"online {form} {rows}x{columns}"] = partial(
                online, form, rows, columns
            )
        cases[f"online {form} columns"] = partial(
            online, form, 40, 3000, transposed=True
        )
    for rows, columns in ((3, 50_000), (20, 33_000), (4, 9000)):
        cases[f"spread {rows}x{columns}"] = partial(spread, rows, columns)
    for which in (
        "permuted",
        "channels_last",
        "gaps",
        "one",
        "wide_rows",
        "batched_transpose",
        "contiguous",
    ):
        cases[f"shape {which}"] = partial(shapes, which)
    for which in ("tiles", "flat", "inner", "argmin", "log_softmax"):
        cases[f"symbolic {which}"] = partial(symbolic, which)
    for made in (
        symbolic_limits, double, bool_primitives, batch_norm_sums, counting, view_indices, embedding, triangle,
        rounded_chain, long_chain,
    ):  # fmt: skip
        cases[made.__name__] = made
    return cases


CASES: dict[str, Callable[[], Case]] = _sweep()
"""Every case by name."""

assert Axis and SHARED  # re-exported
