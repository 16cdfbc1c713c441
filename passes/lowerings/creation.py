"""Tensors made from indices and numbers, and tensors put together from pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Mod

from ..definitions import Definition, Read
from ..indexing import ZERO, Index, as_expr, flatten, product, unflatten
from ..loops import Const, Expr, IndexValue, Value, cast, op
from .builder import (
    Builder,
    NoLoopForm,
    compute_dtype,
    expression,
    known_number,
    number,
)
from .float8 import stored
from .views import position, slice_start

MAX_PIECES = 4
"""More pieces than this are copied faster by eager's `cat`."""


def full(b: Builder, size: Any, value: Any, **_: Any) -> Definition:
    return _filled(b, value)


def full_like(b: Builder, x: Definition, value: Any, **_: Any) -> Definition:
    return _filled(b, value)


def scalar_tensor(b: Builder, value: Any, **_: Any) -> Definition:
    return _filled(b, value)


def _filled(b: Builder, value: Any) -> Definition:
    dtype = b.fake.dtype
    return b.map(lambda read, index: stored(value, dtype))


def arange(
    b: Builder, start: Any = 0, end: Any = None, step: Any = 1, **_: Any
) -> Definition:
    """`start + step * i`, computed in the output's dtype (integers exactly)."""
    if end is None:
        start = 0
    dtype = b.fake.dtype
    work = compute_dtype(dtype)
    if not dtype.is_floating_point and all(
        not isinstance(v, float) for v in (start, step)
    ):
        first, stride = expression(start), expression(step)
        return b.map(
            lambda read, i: cast(IndexValue(first + stride * i[0], torch.int64), dtype)
        )
    if not dtype.is_floating_point:
        raise NoLoopForm("integer arange of floats")

    def at(read: Read, i: Index) -> Value:
        # ATen accumulates in double on CPU and CUDA: start + step * i, then one cast.
        index = cast(IndexValue(i[0], torch.int64), torch.float64)
        first, stride = number(start, torch.float64), number(step, torch.float64)
        value = op("add", first, op("mul", stride, index))
        return cast(cast(value, work), dtype)

    return b.map(at)


def arange_start(b: Builder, end: Any, **rest: Any) -> Definition:
    return arange(b, 0, end, 1, **rest)


def iota(b: Builder, length: Any, *, start: Any, step: Any, **_: Any) -> Definition:
    return arange(b, start, length, step)


def eye(b: Builder, *_: Any, **__: Any) -> Definition:
    dtype = b.fake.dtype

    def at(read: Read, i: Index) -> Value:
        same = op("eq", IndexValue(i[0]), IndexValue(i[1]))
        return cast(same, dtype)

    return b.map(at)


# ── pieces ────────────────────────────────────────────────────────────────────────────────


def guarded(mask: Value, inside: Value) -> Value:
    """`inside` with every load under it masked by `mask`; see `fuse.masked`."""
    from ..masking import masked

    return masked(inside, mask)


def within(i: Expr, low: Expr, high: Expr | None) -> Value:
    """`low <= i < high`."""
    tests = []
    if low != ZERO:
        tests.append(op("ge", IndexValue(i), IndexValue(low)))
    if high is not None:
        tests.append(op("lt", IndexValue(i), IndexValue(high)))
    result = tests[0]
    for test in tests[1:]:
        result = op("bitwise_and", result, test)
    return result


def cat(b: Builder, tensors: Sequence[Definition], dim: int = 0) -> Definition:
    rank, dtype = len(b.fake.size()), b.fake.dtype
    at_dim = position(dim, rank)
    # Legacy: empty 1-D tensors are skipped whatever the rank of the others.
    pieces = [x for x in tensors if not (len(x.size) == 1 and x.size[0] == 0)]
    pieces = [x for x in pieces if x.size[at_dim] != 0]
    if not 1 <= len(pieces) <= MAX_PIECES:
        raise NoLoopForm("many pieces")
    ends = [ZERO]
    for x in pieces:
        ends.append(ends[-1] + x.size[at_dim])

    def at(read: Read, i: Index) -> Value:
        result: Value | None = None
        for n in reversed(range(len(pieces))):
            last, first = n == len(pieces) - 1, n == 0
            index = (*i[:at_dim], i[at_dim] - ends[n], *i[at_dim + 1 :])
            if first and last:
                return cast(read(pieces[n], index), dtype)
            mask = within(i[at_dim], ends[n], None if last else ends[n + 1])
            value = guarded(mask, cast(read(pieces[n], index), dtype))
            if result is None:
                result = value
            else:
                below = op("lt", IndexValue(i[at_dim]), IndexValue(ends[n + 1]))
                result = op("where", below, value, result)
        assert result is not None
        return result

    return b.map(at)


def constant_pad(
    b: Builder, x: Definition, pad: Sequence[Any], value: Any = 0
) -> Definition:
    rank = len(x.size)
    before = [ZERO] * rank
    padded = [False] * rank
    for k in range(len(pad) // 2):
        low, high = expression(pad[2 * k]), expression(pad[2 * k + 1])
        d = rank - 1 - k
        before[d] = low
        padded[d] = low != ZERO or high != ZERO
    dtype = x.dtype

    def at(read: Read, i: Index) -> Value:
        index = tuple(k - n for k, n in zip(i, before, strict=True))
        tests = []
        for d in range(rank):
            if padded[d]:
                tests.append(within(i[d], before[d], before[d] + x.size[d]))
        if not tests:
            return read(x, index)
        mask = tests[0]
        for test in tests[1:]:
            mask = op("bitwise_and", mask, test)
        outside = stored(value, dtype)
        return op("where", mask, guarded(mask, read(x, index)), outside)

    return b.map(at)


def slice_scatter(
    b: Builder,
    x: Definition,
    source: Definition,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Definition:
    at_dim = position(dim, len(x.size))
    stride = expression(step)
    first = slice_start(b, x.size[at_dim], start)
    if stride != 1:
        return _strided_slice_scatter(b, x, source, at_dim, first, stride)
    last = first + source.size[at_dim]

    def at(read: Read, i: Index) -> Value:
        index = (*i[:at_dim], i[at_dim] - first, *i[at_dim + 1 :])
        value = cast(read(source, index), x.dtype)
        if first == ZERO and last == x.size[at_dim]:
            return value
        mask = within(i[at_dim], first, None if last == x.size[at_dim] else last)
        return op("where", mask, guarded(mask, value), read(x, i))

    return b.map(at)


def _strided_slice_scatter(
    b: Builder, x: Definition, source: Definition, dim: int, first: Expr, stride: Expr
) -> Definition:
    from torch.utils._sympy.functions import FloorDiv, Mod

    if not (first.is_Integer and stride.is_Integer and source.size[dim].is_Integer):
        raise NoLoopForm("slice_scatter with a symbolic step")

    def at(read: Read, i: Index) -> Value:
        # Shifted up to a multiple of the step, so that the numerator is never negative.
        shift = (-int(first)) % int(stride)
        moved = i[dim] + shift
        place = FloorDiv(moved, stride) - as_expr((int(first) + shift) // int(stride))
        mask = op("eq", IndexValue(Mod(moved, stride)), Const(0, torch.int64))
        inside = within(i[dim], first, first + (source.size[dim] - 1) * stride + 1)
        mask = op("bitwise_and", mask, inside)
        value = cast(read(source, (*i[:dim], place, *i[dim + 1 :])), x.dtype)
        return op("where", mask, guarded(mask, value), read(x, i))

    return b.map(at)


def select_scatter(
    b: Builder, x: Definition, source: Definition, dim: int, index: Any
) -> Definition:
    at_dim = position(dim, len(x.size))
    chosen = expression(index)
    if not chosen.is_Integer:
        raise NoLoopForm("a position that is only known at run time")
    if chosen < 0:
        chosen = x.size[at_dim] + chosen

    def at(read: Read, i: Index) -> Value:
        mask = op("eq", IndexValue(i[at_dim]), IndexValue(chosen))
        value = cast(read(source, (*i[:at_dim], *i[at_dim + 1 :])), x.dtype)
        return op("where", mask, value, read(x, i))

    return b.map(at)


def roll(b: Builder, x: Definition, shifts: Any, dims: Any = ()) -> Definition:
    shifts = shifts if isinstance(shifts, list | tuple) else [shifts]
    shifts = [known_number(s) for s in shifts]
    dims = [dims] if isinstance(dims, int) else list(dims)
    whole = range(len(x.size)) if not dims else (position(d, len(x.size)) for d in dims)
    if any(not x.size[d].is_Integer for d in whole):
        raise NoLoopForm("roll of symbolic sizes")
    if not dims:
        return _roll_flat(b, x, sum(shifts))
    moved: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for d, s in zip(dims, shifts, strict=True):
        d = position(d, len(x.size))
        sizes[d] = max(int(x.size[d]), 1)
        moved[d] = moved.get(d, 0) + s

    def index(i: Index) -> Index:
        return tuple(
            Mod(k + (-moved[d]) % sizes[d], sizes[d]) if d in moved else k
            for d, k in enumerate(i)
        )

    return b.map(lambda read, i: read(x, index(i)))


def _roll_flat(b: Builder, x: Definition, shift: int) -> Definition:
    """The roll of all elements in a row."""
    points = max(int(product(x.size)), 1)

    def at(read: Read, i: Index) -> Value:
        flat = flatten(i, x.size) + (-shift) % points
        ranges: dict[sympy.Symbol, Expr] = {}
        return read(x, unflatten(Mod(flat, points), x.size, ranges))

    return b.map(at)


TABLE: dict[str, Callable[..., Any]] = {
    "aten.full": full,
    "aten.full_like": full_like,
    "aten.scalar_tensor": scalar_tensor,
    "aten.arange.default": arange_start,
    "aten.arange": arange,
    "prims.iota": iota,
    "aten.eye": eye,
    "aten.cat": cat,
    "aten.constant_pad_nd": constant_pad,
    "aten.slice_scatter": slice_scatter,
    "aten.select_scatter": select_scatter,
    "aten.roll": roll,
}
