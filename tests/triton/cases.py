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
from tests.triton.primitive_cases import (
    STORAGE,
    at,
    bool_primitives,
    casts,
    double,
    float_primitives,
    integer_primitives,
    pointwise,
)
from tests.triton.reduction_cases import (
    batch_norm_sums,
    full_reduction,
    log_softmax,
    normalize_in_place,
    online,
    reduce_rows,
    spread,
    weighted_columns,
)


def counting(name: str = "counting", count: int = 37) -> Case:
    """Reductions of values that do not depend on the inner axis, or on memory."""
    x = torch.randn(9)
    i, k = axis("i", 9), axis("k", count)
    total = Reduce("total", "sum", Load(buffer("x", x), i.symbol), torch.float32)
    ones = Reduce("ones", "sum", Const(1, torch.int64), torch.int64)
    last = Reduce("last", "max", IndexValue(k.symbol), torch.int64)
    some = Reduce("some", "any", Const(True, torch.bool), torch.bool)
    a, b, c = x * count, torch.full((9,), count), torch.full((9,), count - 1)
    d = torch.full((9,), True)
    body = (
        total, ones, last, some,
        Store(buffer("a", a), i.symbol, total.ref, "outer"),
        Store(buffer("b", b), i.symbol, ones.ref, "outer"),
        Store(buffer("c", c), i.symbol, last.ref, "outer"),
        Store(buffer("d", d), i.symbol, some.ref, "outer"),
    )  # fmt: skip
    results = {"a": a, "b": b, "c": c, "d": d}
    return Case(check(Kernel(name, (i,), (k,), body)), {"x": x}, results)


def alone() -> Case:
    """Two results of no dimension."""
    x = torch.tensor(3.0)
    y, z = x + 1, x * 2
    loaded = Load(buffer("x", x), sympy.Integer(0))
    body = tuple(
        Store(buffer(name, t), sympy.Integer(0), op(kind, loaded, f32(number)))
        for name, t, kind, number in (("y", y, "add", 1.0), ("z", z, "mul", 2.0))
    )
    return Case(check(Kernel("alone", (), (), body)), {"x": x}, {"y": y, "z": z})


def pairs(dtype: torch.dtype, rows: int, columns: int) -> Case:
    """y = stack([a + w, a * w], -1) and z = stack([a, -a], -1), as pairs of stores."""
    a, w = torch.randn(rows, columns).to(dtype), torch.randn(columns).to(dtype)
    a.view(-1)[:4] = torch.tensor([math.nan, math.inf, -0.0, 3e38]).to(dtype)
    y = torch.stack([a + w, a * w], -1).flatten(1)
    z = torch.stack([a, -a], -1).flatten(1)
    i, j = axis("i", rows), axis("j", columns)
    loaded = cast(Load(buffer("a", a), columns * i.symbol + j.symbol), torch.float32)
    weight = cast(Load(buffer("w", w), j.symbol), torch.float32)
    body = [
        Store(
            buffer(name, t), t.stride(0) * i.symbol + 2 * j.symbol + n, cast(v, dtype)
        )
        for name, t, values in (
            ("y", y, (op("add", loaded, weight), op("mul", loaded, weight))),
            ("z", z, (loaded, op("neg", loaded))),
        )
        for n, v in enumerate(values)
    ]
    kernel = Kernel("pairs", (i, j), (), tuple(body))
    return Case(check(kernel), {"a": a, "w": w}, {"y": y, "z": z})


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


def masked_remainder(rows: int) -> Case:
    """A remainder whose dividend is negative where the load is masked."""
    x = torch.randn(8)
    y = torch.zeros(rows, 5)
    y.view(-1)[1:] = x[torch.arange(5 * rows - 1) % 8]
    i, j = axis("i", rows), axis("j", 5)
    flat = 5 * i.symbol + j.symbol
    inside = op("gt", IndexValue(flat), Const(0, torch.int64))
    value = op(
        "where",
        inside,
        Load(buffer("x", x), Mod(flat - 1, 8), inside),
        f32(0.0),
    )
    kernel = Kernel("tail", (i, j), (), (Store(buffer("y", y), flat, value),))
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


def repeated(which: str) -> Case:
    """Rows that are multiplied by what others are multiplied by as well."""
    heads, rows, columns = {
        "even": (6, 8, 128),
        "short": (4, 24, 64),
        "odd": (5, 8, 128),
    }[which]
    x, w = torch.randn(heads, rows, columns), torch.randn(rows, columns)
    h, j, m = axis("h", heads), axis("j", rows), axis("m", columns)
    row = columns * j.symbol + m.symbol
    at = rows * columns * h.symbol + row
    below = op("lt", IndexValue(m.symbol), Const(columns // 2, torch.int64))
    value = op("mul", Load(buffer("x", x), at), Load(buffer("w", w), row))
    value = op("where", below, value, Load(buffer("x", x), at))
    y = torch.where(torch.arange(columns) < columns // 2, x * w, x)
    kernel = Kernel("repeated", (h, j, m), (), (Store(buffer("y", y), at, value),))
    return Case(check(kernel), {"x": x, "w": w}, {"y": y})


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


def whole(make: Callable[..., Case], *sizes: int) -> Case:
    """A case whose rows one program walks over, however few they are."""
    case = make(*sizes)
    case.part_count = 1  # type: ignore[attr-defined]
    return case


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
            (48, 1000, True),
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
    for dtype, *sizes in (
        (torch.float32, 9, 100), (torch.bfloat16, 33, 128), (torch.float16, 7, 64),
        (torch.bfloat16, 65, 4096), (torch.float32, 3, 1000),
    ):  # fmt: skip
        cases[f"pairs {dtype} {sizes}"] = partial(pairs, dtype, *sizes)
    cases["alone"] = alone
    cases["looped max"] = partial(reduce_rows, "max", 265, 33000)
    for kind in ("sum", "variance", "max", "argmax"):
        for size in (40, 20000, 2**17, 100_003):
            cases[f"full {kind} {size}"] = partial(full_reduction, size, kind)
    for sizes in ((1, 4100, 64), (3, 300, 128), (2, 70, 100)):
        cases[f"weighted columns {sizes}"] = partial(weighted_columns, *sizes)
    # Rows that are sooner read again than held.
    cases["normalize 9x5000"] = partial(normalize_in_place, 9, 5000)
    for rows, columns in ((3, 50_000), (600, 12), (50, 1000)):
        cases[f"log_softmax {rows}x{columns}"] = partial(log_softmax, rows, columns)
        cases[f"normalize {rows}x{columns}"] = partial(
            normalize_in_place, rows, columns
        )
    forms = ("plain", "guarded", "weighted")
    for form in forms:
        shapes_ = ((9, 100_001), (265, 33_001))[: 2 if form == "plain" else 1]
        for rows, columns in shapes_:
            cases[f"online {form} {rows}x{columns}"] = partial(
                online, form, rows, columns
            )
        cases[f"online {form} columns"] = partial(
            online, form, 40, 3000, transposed=True
        )
    # Rows that begin anywhere, not cut into parts: their ends fit into a block smaller than
    # the others, or they do not.
    walked: Sequence[tuple[str, Callable[..., Case], int, int]] = (
        *((f"online {f}", partial(online, f), 9, 33_001) for f in forms),
        ("online plain", partial(online, "plain"), 9, 40_001),
        ("log_softmax", log_softmax, 3, 66_001),
        ("spread", spread, 3, 66_001),
    )
    for kind, make, rows, columns in walked:
        cases[f"whole {kind} {rows}x{columns}"] = partial(whole, make, rows, columns)
    for rows in (1, 7):
        cases[f"masked remainder {rows}"] = partial(masked_remainder, rows)
    for rows, columns in ((3, 50_000), (20, 33_000), (4, 9000)):
        cases[f"spread {rows}x{columns}"] = partial(spread, rows, columns)
    # Held whole, walked over, and cut into parts; with a last block or part that is not full.
    for rows, columns, stores in (
        (40, 120, True), (40, 400, True), (40, 3000, True), (7, 90, False),
        (40, 1000, False), (32, 1024, False), (64, 10_000, False),
    ):  # fmt: skip
        name = f"spread {rows}x{columns} columns{'' if stores else ', not stored'}"
        cases[name] = partial(spread, rows, columns, transposed=True, stores=stores)
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
    for which in ("even", "short", "odd"):
        cases[f"repeated {which}"] = partial(repeated, which)
    for which in ("tiles", "flat", "inner", "argmin", "log_softmax"):
        cases[f"symbolic {which}"] = partial(symbolic, which)
    for made in (
        symbolic_limits, double, bool_primitives, batch_norm_sums, counting, view_indices, embedding, triangle,
        rounded_chain, long_chain,
    ):  # fmt: skip
        cases[made.__name__] = made
    cases["counting 32"] = partial(counting, "counting_32", 32)
    return cases


CASES: dict[str, Callable[[], Case]] = _sweep()

"""Every case by name."""
