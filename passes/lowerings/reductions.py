"""Reductions, and what is composed of them: means, variances, norms, softmax, layer norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..definitions import Definition, Read
from ..indexing import Index, product
from ..loops import Const, Expr, IndexValue, Value, cast, op
from .builder import LOW_PRECISION, Builder, NoLoopForm, compute_dtype, known_number
from .views import position

Flags = tuple[bool, ...]

PARTS = {
    "sum": "total",
    "prod": "product",
    "max": "peak",
    "min": "least",
    "argmax": "place",
    "argmin": "place",
    "any": "some",
    "all": "every",
}
"""What a person would call the result of a reduction."""


def folded(x: Definition, dim: Any) -> Flags:
    """Which dimensions of `x` a `dim` argument names; None and () name all."""
    rank = len(x.size)
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return (True,) * rank
    dims = [dim] if isinstance(dim, int) else dim
    gone = {position(d, rank) for d in dims} if rank else set()
    return tuple(d in gone for d in range(rank))


def widened(
    b: Builder, result: Definition, reduced: Flags, like_: Any = None
) -> Definition:
    """The node's output from a reduction: with `keepdim`'s single dimensions and its dtype."""
    fake = b.fake if like_ is None else like_
    keepdim = len(fake.size()) == len(reduced) and any(reduced)

    def at(read: Read, index: Index) -> Value:
        if keepdim:
            index = tuple(i for i, r in zip(index, reduced, strict=True) if not r)
        return cast(read(result, index), fake.dtype)

    return b.map(at, like=fake)


def kept(index: Index, reduced: Flags) -> Index:
    """The index of a reduction's result from one of the space that it folds."""
    return tuple(i for i, r in zip(index, reduced, strict=True) if not r)


def count(size: Sequence[Expr], reduced: Flags) -> Expr:
    """How many elements are folded into one."""
    return product([s for s, r in zip(size, reduced, strict=True) if r])


def amount(n: Expr, dtype: torch.dtype) -> Value:
    """A number of elements as a float value."""
    return Const(int(n), dtype) if n.is_Integer else cast(IndexValue(n), dtype)


def fold(
    b: Builder, kind: str, x: Definition, reduced: Flags, dtype: torch.dtype, name: str
) -> Definition:
    """Folds `x` converted to `dtype`."""
    result = torch.int64 if kind.startswith("arg") else dtype
    starts = kind == "sum" and dtype.is_floating_point and count(x.size, reduced) == 1

    def value(read: Read, index: Index) -> Value:
        element = cast(read(x, index), dtype)
        if starts:
            # Of one number the sum is that number, but eager adds it to 0.0, and -0.0 is lost.
            element = op("add", element, Const(0.0, dtype))
        return element

    return b.reduction(kind, x.size, reduced, value, result, name)


def simple(kind: str) -> Callable[..., Definition]:
    """sum and prod over dimensions; integers and bools fold as int64."""

    def rounds_each(b: Builder) -> bool:
        """Whether eager rounds to the element type after each step."""
        low = b.fake.dtype in LOW_PRECISION
        return kind == "prod" and low and b.fake.device.type == "cpu"

    def lowering(
        b: Builder,
        x: Definition,
        dim: Any = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
    ) -> Definition:
        if rounds_each(b):
            raise NoLoopForm("a product of halves, rounded after each step")
        reduced = folded(x, dim)
        work = compute_dtype(b.fake.dtype)
        return widened(b, fold(b, kind, x, reduced, work, PARTS[kind]), reduced)

    return lowering


def extreme(kind: str) -> Callable[..., Definition]:
    """amax and amin, and max and min of everything."""

    def lowering(
        b: Builder, x: Definition, dim: Any = None, keepdim: bool = False
    ) -> Definition:
        reduced = folded(x, dim)
        chosen, work = _extreme_kind(kind, x.dtype)
        return widened(b, fold(b, chosen, x, reduced, work, PARTS[kind]), reduced)

    return lowering


def _extreme_kind(kind: str, dtype: torch.dtype) -> tuple[str, torch.dtype]:
    if dtype is torch.bool:
        return ("any" if kind == "max" else "all"), dtype
    return kind, compute_dtype(dtype)


def extreme_dim(kind: str) -> Callable[..., tuple[Definition, Definition]]:
    """`max.dim` and `min.dim`: values and the positions of the first of them."""

    def lowering(
        b: Builder, x: Definition, dim: int, keepdim: bool = False
    ) -> tuple[Definition, Definition]:
        reduced = folded(x, dim)
        chosen, work = _extreme_kind(kind, x.dtype)
        values = fold(b, chosen, x, reduced, work, PARTS[kind])
        places = fold(b, f"arg{kind}", x, reduced, _ordered(work), "place")
        return (
            widened(b, values, reduced, b.fake[0]),
            widened(b, places, reduced, b.fake[1]),
        )

    return lowering


def _ordered(dtype: torch.dtype) -> torch.dtype:
    return torch.uint8 if dtype is torch.bool else dtype


def arg_extreme(kind: str) -> Callable[..., Definition]:
    def lowering(
        b: Builder, x: Definition, dim: Any = None, keepdim: bool = False
    ) -> Definition:
        reduced = folded(x, dim)
        work = _ordered(compute_dtype(x.dtype))
        return widened(b, fold(b, kind, x, reduced, work, PARTS[kind]), reduced)

    return lowering


def truth(kind: str) -> Callable[..., Definition]:
    def lowering(
        b: Builder, x: Definition, dim: Any = None, keepdim: bool = False
    ) -> Definition:
        reduced = folded(x, dim)
        return widened(b, fold(b, kind, x, reduced, torch.bool, PARTS[kind]), reduced)

    return lowering


# ── moments ───────────────────────────────────────────────────────────────────────────────


def moments(
    b: Builder,
    full: tuple[Expr, ...],
    reduced: Flags,
    value: Callable[[Read, Index], Value],
    work: torch.dtype,
) -> tuple[Definition, Definition]:
    """The sum of `value`, and the sum of squares of its distance from the mean."""
    n = count(full, reduced)
    total = b.reduction("sum", full, reduced, value, work, "total")

    def squared(read: Read, index: Index) -> Value:
        centre = op("div", read(total, kept(index, reduced)), amount(n, work))
        distance = op("sub", value(read, index), centre)
        return op("mul", distance, distance)

    return total, b.reduction("sum", full, reduced, squared, work, "squares")


def _variance(
    b: Builder, x: Definition, dim: Any, correction: Any, dtype: torch.dtype
) -> tuple[Flags, Definition, Callable[[Read, Index], Value], torch.dtype]:
    reduced, work = folded(x, dim), compute_dtype(dtype)
    n = count(x.size, reduced)
    total, squares = moments(b, x.size, reduced, lambda r, i: cast(r(x, i), work), work)
    minus = 1 if correction is None else known_number(correction)

    def variance(read: Read, index: Index) -> Value:
        # NOTE: eager divides by max(0, n - correction): 0 / 0 is NaN.
        if n.is_Integer:
            divisor: Value = Const(max(0.0, int(n) - minus), work)
        else:
            difference = op("sub", amount(n, work), Const(minus, work))
            divisor = op("maximum", difference, Const(0.0, work))
        return op("div", read(squares, index), divisor)

    return reduced, total, variance, work


def variance_mean(
    b: Builder,
    x: Definition,
    dim: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> tuple[Definition, Definition]:
    fakes = b.fake
    reduced, total, variance_at, work = _variance(b, x, dim, correction, fakes[0].dtype)
    n = count(x.size, reduced)
    keepdim = len(fakes[0].size()) == len(reduced) and any(reduced)

    def spread(read: Read, index: Index) -> Value:
        index = kept(index, reduced) if keepdim else index
        return cast(variance_at(read, index), fakes[0].dtype)

    def centre(read: Read, index: Index) -> Value:
        index = kept(index, reduced) if keepdim else index
        return cast(op("div", read(total, index), amount(n, work)), fakes[1].dtype)

    return (
        b.map(spread, like=fakes[0], name="var"),
        b.map(centre, like=fakes[1], name="mean"),
    )


TABLE: dict[str, Callable[..., Any]] = {
    "aten.sum": simple("sum"),
    "aten.prod.default": simple("prod"),
    "aten.prod.dim_int": simple("prod"),
    "aten.amax": extreme("max"),
    "aten.amin": extreme("min"),
    "aten.max.default": extreme("max"),
    "aten.min.default": extreme("min"),
    "aten.max.dim": extreme_dim("max"),
    "aten.min.dim": extreme_dim("min"),
    "aten.argmax": arg_extreme("argmax"),
    "aten.argmin": arg_extreme("argmin"),
    "aten.any": truth("any"),
    "aten.all": truth("all"),
    "aten.var_mean.correction": variance_mean,
}
