"""Hand-built kernels, each with its inputs and with eager's answer: fixtures for printers.

`CASES` maps a name to a function that returns a `Case`. A printer's test prints
`case.kernel`, calls it with `case.arguments()` and compares the outputs with
`case.expected`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sympy
import torch

from srcjit.passes.loops import (
    Axis,
    Buffer,
    Const,
    IndexValue,
    Kernel,
    Label,
    Load,
    Reduce,
    ScalarArg,
    Store,
    cast,
    check,
    op,
    symbol,
)

CPU = torch.device("cpu")


@dataclass
class Case:
    """A kernel and what it must compute.

    Attributes:
        kernel: The kernel, checked.
        inputs: Name of input buffer, scalar or size -> tensor or number.
        expected: Name of output buffer -> eager's tensor.
    """

    kernel: Kernel
    inputs: dict[str, object]
    expected: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)

    def arguments(self) -> list[object]:
        """Arguments in the order of `kernel.parameters`, with fresh outputs."""
        self.outputs = {n: torch.empty_like(t) for n, t in self.expected.items()}
        both = {**self.outputs, **self.inputs}
        return [both[getattr(p, "name", str(p))] for p in self.kernel.parameters]


def buffer(name: str, tensor: torch.Tensor) -> Buffer:
    """Describes a tensor with static sizes."""
    return Buffer(
        name,
        tensor.dtype,
        tensor.device,
        tuple(sympy.Integer(s) for s in tensor.size()),
        tuple(sympy.Integer(s) for s in tensor.stride()),
    )


def axis(name: str, size: int | sympy.Expr) -> Axis:
    return Axis(symbol(name), sympy.sympify(size))


def f32(value: float) -> Const:
    return Const(value, torch.float32)


def pointwise_broadcast(rows: int = 37, columns: int = 65) -> Case:
    """y = where(x > 0, x * w, exp(x) - 1) + b, w per column, b per row (stride 2)."""
    x, w = torch.randn(rows, columns), torch.randn(columns)
    b = torch.randn(rows, 2)[:, :1]
    y = torch.where(x > 0, x * w, torch.exp(x) - 1) + b
    i, j = axis("i", rows), axis("j", columns)
    at = columns * i.symbol + j.symbol
    loaded = Load(buffer("x", x), at)
    scaled = op("mul", loaded, Load(buffer("w", w), j.symbol))
    chosen = op(
        "where",
        op("gt", loaded, f32(0.0)),
        scaled,
        op("sub", op("exp", loaded), f32(1.0)),
    )
    shifted = op("add", chosen, Load(buffer("b", b), 2 * i.symbol))
    kernel = Kernel(
        "where_add",
        (i, j),
        (),
        (Store(buffer("y", y), at, shifted),),
        {
            scaled: Label("scaled", "3: scaled = x * w"),
            shifted: Label(
                "y", "4: y = torch.where(x > 0, scaled, torch.exp(x) - 1) + b"
            ),
        },
    )
    return Case(check(kernel), {"x": x, "w": w, "b": b}, {"y": y})


def softmax(rows: int = 19, columns: int = 133) -> Case:
    """Softmax of the rows."""
    x = torch.randn(rows, columns) * 5
    i, k = axis("i", rows), axis("k", columns)
    at = columns * i.symbol + k.symbol
    loaded = Load(buffer("x", x), at)
    peak = Reduce("peak", "max", loaded, torch.float32)
    raised = op("exp", op("sub", loaded, peak.ref))
    total = Reduce("total", "sum", raised, torch.float32)
    out = op("div", raised, total.ref)
    y = torch.softmax(x, -1)
    kernel = Kernel(
        "softmax",
        (i,),
        (k,),
        (peak, total, Store(buffer("y", y), at, out)),
        {out: Label("y", "7: y = torch.softmax(x, -1)")},
    )
    return Case(check(kernel), {"x": x}, {"y": y})


def column_sum(rows: int = 133, columns: int = 71) -> Case:
    """Sum of each column: the inner axis has the large stride."""
    x = torch.randn(rows, columns)
    j, k = axis("j", columns), axis("k", rows)
    total = Reduce(
        "total", "sum", Load(buffer("x", x), columns * k.symbol + j.symbol), x.dtype
    )
    y = x.sum(0)
    kernel = Kernel(
        "column_sum",
        (j,),
        (k,),
        (total, Store(buffer("y", y), j.symbol, total.ref, "outer")),
    )
    return Case(check(kernel), {"x": x}, {"y": y})


def layer_norm(
    rows: int = 23, columns: int = 96, dtype: torch.dtype = torch.float32
) -> Case:
    """Layer norm with weight and bias, and the reciprocal deviation as a second output."""
    x = torch.randn(rows, columns).to(dtype)
    weight, bias = torch.randn(columns).to(dtype), torch.randn(columns).to(dtype)
    y, _, rstd = torch.native_layer_norm(x, [columns], weight, bias, 1e-5)
    rstd = rstd.reshape(rows)
    i, k = axis("i", rows), axis("k", columns)
    at = columns * i.symbol + k.symbol
    loaded = cast(Load(buffer("x", x), at), torch.float32)
    total = Reduce("total", "sum", loaded, torch.float32)
    mean = op("div", total.ref, f32(float(columns)))
    centred = op("sub", loaded, mean)
    squares = Reduce("squares", "sum", op("mul", centred, centred), torch.float32)
    scale = op(
        "rsqrt", op("add", op("div", squares.ref, f32(float(columns))), f32(1e-5))
    )
    normed = op("mul", centred, scale)
    weighted = op(
        "add",
        op(
            "mul", normed, cast(Load(buffer("weight", weight), k.symbol), torch.float32)
        ),
        cast(Load(buffer("bias", bias), k.symbol), torch.float32),
    )
    kernel = Kernel(
        "layer_norm",
        (i,),
        (k,),
        (
            total,
            squares,
            Store(buffer("rstd", rstd), i.symbol, cast(scale, rstd.dtype), "outer"),
            Store(buffer("y", y), at, cast(weighted, dtype)),
        ),
        {
            mean: Label("mean"),
            scale: Label("rstd"),
            weighted: Label("y", "9: y = self.norm(x)"),
        },
    )
    inputs: dict[str, object] = {"x": x, "weight": weight, "bias": bias}
    return Case(check(kernel), inputs, {"rstd": rstd, "y": y})


def layer_norm_bf16() -> Case:
    """The same in bfloat16 (arithmetic in float32, one rounding at the end)."""
    return layer_norm(dtype=torch.bfloat16)


def full_mean(size: int = 5003) -> Case:
    """Mean of everything: no outer axis."""
    x = torch.randn(size)
    k = axis("k", size)
    total = Reduce("total", "sum", Load(buffer("x", x), k.symbol), torch.float32)
    y = x.mean()
    kernel = Kernel(
        "mean",
        (),
        (k,),
        (
            total,
            Store(
                buffer("y", y),
                sympy.Integer(0),
                op("div", total.ref, f32(size)),
                "outer",
            ),
        ),
    )
    return Case(check(kernel), {"x": x}, {"y": y})


def argmax_rows(rows: int = 9, columns: int = 50) -> Case:
    """argmax (int64) with ties and a NaN row."""
    x = torch.randint(0, 7, (rows, columns)).float()
    x[3, 17] = float("nan")
    i, k = axis("i", rows), axis("k", columns)
    best = Reduce(
        "best",
        "argmax",
        Load(buffer("x", x), columns * i.symbol + k.symbol),
        torch.int64,
    )
    y = x.argmax(-1)
    kernel = Kernel(
        "argmax", (i,), (k,), (best, Store(buffer("y", y), i.symbol, best.ref, "outer"))
    )
    return Case(check(kernel), {"x": x}, {"y": y})


def concatenate(rows: int = 11) -> Case:
    """cat([a, b], 1): masked loads, an index that would be negative, an index value."""
    a, b = torch.randn(rows, 5), torch.randn(rows, 9)
    y = torch.cat([a, b], 1)
    i, j = axis("i", rows), axis("j", 14)
    left = op("lt", IndexValue(j.symbol), Const(5, torch.int64))
    right = op("bitwise_not", left)
    value = op(
        "where",
        left,
        Load(buffer("a", a), 5 * i.symbol + j.symbol, left),
        Load(buffer("b", b), 9 * i.symbol + j.symbol - 5, right),
    )
    kernel = Kernel(
        "cat", (i, j), (), (Store(buffer("y", y), 14 * i.symbol + j.symbol, value),)
    )
    return Case(check(kernel), {"a": a, "b": b}, {"y": y})


def transpose(rows: int = 40, columns: int = 33) -> Case:
    """y = x.T.contiguous() * s, with a number that is passed at each call."""
    x = torch.randn(rows, columns)
    y = x.T.contiguous() * 3.5
    i, j = axis("i", columns), axis("j", rows)
    scale = ScalarArg("s", torch.float32)
    value = op("mul", Load(buffer("x", x), columns * j.symbol + i.symbol), scale)
    kernel = Kernel(
        "transpose",
        (i, j),
        (),
        (Store(buffer("y", y), rows * i.symbol + j.symbol, value),),
    )
    return Case(check(kernel), {"x": x, "s": 3.5}, {"y": y})


def symbolic_rows(rows: int = 13, columns: int = 32) -> Case:
    """Row sums with a symbolic number of rows (`s0`, passed last) and integers."""
    x = torch.randint(-100, 100, (rows, columns), dtype=torch.int32)
    y = x.sum(-1)
    s0 = symbol("s0")
    i, k = axis("i", s0), axis("k", columns)
    source = Buffer(
        "x",
        x.dtype,
        CPU,
        (s0, sympy.Integer(columns)),
        (sympy.Integer(columns), sympy.Integer(1)),
    )
    target = Buffer("y", y.dtype, CPU, (s0,), (sympy.Integer(1),))
    loaded = cast(Load(source, columns * i.symbol + k.symbol), torch.int64)
    total = Reduce("total", "sum", loaded, torch.int64)
    kernel = Kernel(
        "row_sum", (i,), (k,), (total, Store(target, i.symbol, total.ref, "outer"))
    )
    return Case(check(kernel), {"x": x, "s0": rows}, {"y": y})


CASES: dict[str, Callable[[], Case]] = {
    f.__name__: f
    for f in (
        pointwise_broadcast,
        softmax,
        column_sum,
        layer_norm,
        layer_norm_bf16,
        full_mean,
        argmax_rows,
        concatenate,
        transpose,
        symbolic_rows,
    )
}
