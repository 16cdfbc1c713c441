"""Views: index maps over another tensor's elements. No view is ever a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..definitions import Definition
from ..indexing import ONE, ZERO, Index, as_expr, flatten, unflatten
from ..loops import Expr
from .builder import Builder, NoLoopForm, expression


def position(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim % max(rank, 1)


def _int(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise NoLoopForm("a position that is only known at run time")


def reshape_index(
    source: Sequence[Expr], target: Sequence[Expr]
) -> Callable[[Index], Index]:
    """The index map of `x.view(target)`.

    Dimensions that both shapes share keep their index; only runs of dimensions that became
    others, as (8, 16) of (8, 16, 64) in (128, 64), are flattened and taken apart again.
    """
    if ZERO in source:
        return lambda index: (ZERO,) * len(source)
    runs = _runs(
        [n for n, s in enumerate(source) if s != ONE],
        [n for n, t in enumerate(target) if t != ONE],
        source,
        target,
    )

    def remapped(index: Index) -> Index:
        found: list[Expr] = [ZERO] * len(source)
        for ours, theirs in runs:
            digits: Index = tuple(index[n] for n in theirs)
            if len(ours) > 1 or len(theirs) > 1:
                # NOTE: whoever reads knows the ranges of its axes and simplifies.
                flat = flatten(digits, [target[n] for n in theirs])
                digits = unflatten(flat, [source[n] for n in ours], {})
            for n, digit in zip(ours, digits, strict=True):
                found[n] = digit
        return tuple(found)

    return remapped


def _runs(
    ours: list[int], theirs: list[int], source: Sequence[Expr], target: Sequence[Expr]
) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions of two shapes that have as many elements each."""
    last: list[tuple[list[int], list[int]]] = []
    while ours and theirs and source[ours[-1]] == target[theirs[-1]]:
        last.insert(0, ([ours.pop()], [theirs.pop()]))
    runs: list[tuple[list[int], list[int]]] = []
    while ours and theirs:
        left, right = source[ours[0]], target[theirs[0]]
        m, n = 1, 1
        while left != right and left.is_Integer and right.is_Integer:
            if left < right and m < len(ours):
                left, m = left * source[ours[m]], m + 1
            elif right < left and n < len(theirs):
                right, n = right * target[theirs[n]], n + 1
            else:
                break
        if left != right:
            break  # how many elements a run with symbols has is not asked
        runs.append((ours[:m], theirs[:n]))
        ours, theirs = ours[m:], theirs[n:]
    if ours or theirs:
        runs.append((ours, theirs))
    return runs + last


def view(b: Builder, x: Definition, *_: Any) -> Definition:
    size = tuple(map(as_expr, b.fake.size()))
    return b.view(x, reshape_index(x.size, size))


def permute(b: Builder, x: Definition, dims: Sequence[int]) -> Definition:
    rank = len(x.size)
    order = [position(_int(d), rank) for d in dims]
    back = [order.index(d) for d in range(rank)]
    return b.view(x, lambda i: tuple(i[d] for d in back))


def transpose(b: Builder, x: Definition, first: int, second: int) -> Definition:
    rank = len(x.size)
    if rank == 0:
        return b.view(x, lambda i: i)
    order = list(range(rank))
    m, n = position(first, rank), position(second, rank)
    order[m], order[n] = order[n], order[m]
    return permute(b, x, order)


def t(b: Builder, x: Definition) -> Definition:
    return b.view(x, lambda i: i[::-1])


def expand(b: Builder, x: Definition, size: Any, implicit: bool = False) -> Definition:
    rank = len(x.size)
    target = tuple(map(as_expr, b.fake.size()))
    same = [s == n for s, n in zip(x.size, target[len(target) - rank :], strict=True)]

    def index(i: Index) -> Index:
        tail = i[len(i) - rank :] if rank else ()
        return tuple(k if keep else ZERO for k, keep in zip(tail, same, strict=True))

    return b.view(x, index)


def unsqueeze(b: Builder, x: Definition, dim: int) -> Definition:
    at = dim % (len(x.size) + 1)
    return b.view(x, lambda i: i[:at] + i[at + 1 :])


def squeeze(b: Builder, x: Definition, dim: Any = None) -> Definition:
    rank = len(x.size)
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {
        position(d, rank) for d in dims if rank and x.size[position(d, rank)] == ONE
    }

    def index(i: Index) -> Index:
        digits = iter(i)
        return tuple(ZERO if d in gone else next(digits) for d in range(rank))

    return b.view(x, index)


def slice_start(b: Builder, size: Expr, start: Any) -> Expr:
    """The first element that a slice takes, as Python clamps it."""
    first = ZERO if start is None else expression(start)
    if first.is_Integer and size.is_Integer:
        number = int(first)
        if number < 0:
            number += int(size)
        return as_expr(min(max(number, 0), int(size)))
    if first.is_Integer and first >= 0:
        return first
    if first.is_Integer:
        return size + first
    return first


def slice_(
    b: Builder,
    x: Definition,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Definition:
    at = position(dim, len(x.size))
    first, stride = slice_start(b, x.size[at], start), expression(step)
    return b.view(x, lambda i: (*i[:at], i[at] * stride + first, *i[at + 1 :]))


def select(b: Builder, x: Definition, dim: int, position_: Any) -> Definition:
    at = position(dim, len(x.size))
    chosen = expression(position_)
    if chosen.is_Integer and chosen < 0:
        chosen = x.size[at] + chosen
    elif not chosen.is_Integer:
        raise NoLoopForm("a position that is only known at run time")
    return b.view(x, lambda i: (*i[:at], chosen, *i[at:]))


def diagonal(
    b: Builder, x: Definition, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Definition:
    rank = len(x.size)
    first, second = position(dim1, rank), position(dim2, rank)
    down, right = as_expr(max(-offset, 0)), as_expr(max(offset, 0))

    def index(i: Index) -> Index:
        rest = iter(i[:-1])
        place = {first: i[-1] + down, second: i[-1] + right}
        return tuple(place[d] if d in place else next(rest) for d in range(rank))

    return b.view(x, index)


def unfold(b: Builder, x: Definition, dim: int, size: Any, step: Any) -> Definition:
    if not x.size:
        raise NoLoopForm("unfold of a scalar")
    at, stride = position(dim, len(x.size)), expression(step)
    return b.view(x, lambda i: (*i[:at], i[at] * stride + i[-1], *i[at + 1 : -1]))


def flip(b: Builder, x: Definition, dims: Sequence[int]) -> Definition:
    """Not a view in memory (torch has no negative strides), but an index map all the same."""
    gone = {position(d, len(x.size)) for d in dims}

    def index(i: Index) -> Index:
        return tuple(x.size[d] - 1 - k if d in gone else k for d, k in enumerate(i))

    return b.map(lambda read, i: read(x, index(i)))


def pixel_shuffle(b: Builder, x: Definition, factor: int) -> Definition:
    """`[.., c*r*r, h, w]` to `[.., c, h*r, w*r]`."""
    *lead, channels, height, width = x.size
    r = as_expr(factor)
    if not channels.is_Integer:
        raise NoLoopForm("symbolic channels")
    split = (*lead, channels // r**2, height, r, width, r)
    to_split = reshape_index(split, tuple(map(as_expr, b.fake.size())))

    def index(i: Index) -> Index:
        *front, c, h, a, w, d = to_split(i)
        return (*front, c * r * r + a * r + d, h, w)

    return b.map(lambda read, i: read(x, index(i)))


def pixel_unshuffle(b: Builder, x: Definition, factor: int) -> Definition:
    """`[.., c, h*r, w*r]` to `[.., c*r*r, h, w]`."""
    *lead, channels, height, width = x.size
    r = as_expr(factor)
    if not (height.is_Integer and width.is_Integer):
        raise NoLoopForm("symbolic height and width")
    split = (*lead, channels, r, r, height // r, width // r)
    to_split = reshape_index(split, tuple(map(as_expr, b.fake.size())))

    def index(i: Index) -> Index:
        *front, c, a, d, h, w = to_split(i)
        return (*front, c, h * r + a, w * r + d)

    return b.map(lambda read, i: read(x, index(i)))


def view_dtype(b: Builder, x: Definition, dtype: torch.dtype) -> Definition:
    raise NoLoopForm("a view with another dtype")


TABLE: dict[str, Callable[..., Any]] = {
    "aten.view": view,
    "aten.view.dtype": view_dtype,
    "aten.permute": permute,
    "aten.transpose": transpose,
    "aten.t": t,
    "aten.expand": expand,
    "aten.unsqueeze": unsqueeze,
    "aten.squeeze": squeeze,
    "aten.slice": slice_,
    "aten.select": select,
    "aten.diagonal": diagonal,
    "aten.unfold": unfold,
    "aten.flip": flip,
    "aten.pixel_shuffle": pixel_shuffle,
    "aten.pixel_unshuffle": pixel_unshuffle,
}
"""Tables are looked up by overload first, then by packet."""
