"""Resizing of images: `upsample_bilinear2d`, `upsample_nearest2d`.

Each element is a mean of the four around the place that it came from, so what is computed
before and after shares the kernel. Where a place lies is known when the kernel is written:
`(2*i + 1)*height // (2*out) - 1/2`, rounded down, in integers; how far behind that it lies is
computed in float32 as eager does. On the CPU eager's own kernels, which go over whole rows,
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from ..definitions import Definition, Read
from ..indexing import Index
from ..loops import Const, Expr, IndexValue, Value, cast, op
from .builder import Builder, NoLoopForm, compute_dtype, expression

GATHERED = {"cuda"}
"""Kinds of devices on which reading four elements for each is as fast as it gets."""


def _require(b: Builder, x: Definition, scales: Sequence[float | None]) -> None:
    if b.fake.device.type not in GATHERED:
        raise NoLoopForm("eager's kernels go over whole rows")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise NoLoopForm(f"elements of {x.dtype}")
    if not all(s.is_Integer for s in x.size[2:]):
        raise NoLoopForm("images of unknown size")
    for scale, size, out in zip(scales, x.size[2:], b.fake.size()[2:], strict=True):
        # Eager computes places from a factor that it is given.
        if not isinstance(out, int) or (scale and float(size) * scale != out):
            raise NoLoopForm("a factor that sizes do not tell")


def _before(i: Expr, size: int, out: int, corners: bool) -> Expr:
    """The last element that is not behind the place of `i`."""
    if corners:
        return FloorDiv(i * (size - 1), out - 1) if out > 1 else sympy.Integer(0)
    first = FloorDiv(size * (2 * i + 1) - out, 2 * out)
    return sympy.Max(first, 0) if size < out else first


def _places(
    i: Expr, size: int, out: int, corners: bool, dtype: torch.dtype
) -> tuple[Expr, Expr, Value]:
    """The element before a place, the one behind it, and how far the place is behind the first."""
    first = _before(i, size, out, corners)
    second = first + 1
    if _before(sympy.Integer(out - 1), size, out, corners) >= size - 1:
        second = sympy.Min(second, sympy.Integer(size - 1))
    position = cast(IndexValue(i, torch.int32), dtype)
    if corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
        place = op("mul", Const(step, dtype), position)
    else:
        half = Const(0.5, dtype)
        place = op("mul", Const(size / out, dtype), op("add", position, half))
        place = op("maximum", op("sub", place, half), Const(0.0, dtype))
    behind = op("sub", place, cast(IndexValue(first, torch.int32), dtype))
    # A place that is rounded down to just before an element is at that element.
    return first, second, op("maximum", behind, Const(0.0, dtype))


def bilinear(
    b: Builder,
    x: Definition,
    output_size: Sequence[Any],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Definition:
    _require(b, x, (scales_h, scales_w))
    height, width = (int(expression(s)) for s in x.size[2:])
    tall, wide = (int(s) for s in b.fake.size()[2:])
    dtype = compute_dtype(x.dtype)

    def value(read: Read, i: Index) -> Value:
        if (height, width) == (tall, wide):
            return read(x, i)  # eager copies, too: -0.0 stays, and NaN does not spread
        one = Const(1.0, dtype)
        top, bottom, below = _places(i[2], height, tall, align_corners, dtype)
        left, right, beside = _places(i[3], width, wide, align_corners, dtype)

        def at(row: Expr, column: Expr) -> Value:
            return cast(read(x, (i[0], i[1], row, column)), dtype)

        def mixed(row: Expr) -> Value:
            near = op("mul", op("sub", one, beside), at(row, left))
            return op("add", near, op("mul", beside, at(row, right)))

        upper = op("mul", op("sub", one, below), mixed(top))
        return cast(op("add", upper, op("mul", below, mixed(bottom))), x.dtype)

    return b.map(value)


def nearest(
    b: Builder,
    x: Definition,
    output_size: Sequence[Any],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Definition:
    """Only by powers of two, where eager's places are exact."""
    _require(b, x, (scales_h, scales_w))
    sizes = [int(expression(s)) for s in x.size[2:]]
    outs = [int(s) for s in b.fake.size()[2:]]
    for size, out in zip(sizes, outs, strict=True):
        more, less = max(size, out), min(size, out)
        if more % less or (more // less) & (more // less - 1):
            raise NoLoopForm("places that eager rounds")

    def value(read: Read, i: Index) -> Value:
        rows = [
            FloorDiv(k * size, out)
            for k, size, out in zip(i[2:], sizes, outs, strict=True)
        ]
        return read(x, (i[0], i[1], *rows))

    return b.map(value)


TABLE: dict[str, Callable[..., Any]] = {
    "aten.upsample_bilinear2d.default": bilinear,
    "aten.upsample_nearest2d.default": nearest,
}
