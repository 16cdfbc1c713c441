"""Softmax and the norms: reductions of a row and what is done to each of its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..definitions import Definition, Read
from ..indexing import Index, as_expr
from ..loops import Const, Expr, Value, cast, op
from .builder import Builder, NoLoopForm, compute_dtype, known_number
from .reductions import Flags, amount, count, fold, folded, kept, moments
from .views import reshape_index

# ── softmax ───────────────────────────────────────────────────────────────────────────────


def softmax(
    b: Builder, x: Definition, dim: int, half_to_float: bool = False
) -> Definition:
    return _softmax(b, x, dim, logarithm=False)


def log_softmax(
    b: Builder, x: Definition, dim: int, half_to_float: bool = False
) -> Definition:
    return _softmax(b, x, dim, logarithm=True)


def _softmax(b: Builder, x: Definition, dim: int, *, logarithm: bool) -> Definition:
    if not x.size or not b.fake.dtype.is_floating_point:
        raise NoLoopForm("softmax of a scalar")
    reduced, work = folded(x, dim), compute_dtype(b.fake.dtype)
    peak = fold(b, "max", x, reduced, work, "peak")

    def shifted(read: Read, index: Index) -> Value:
        return op("sub", cast(read(x, index), work), read(peak, kept(index, reduced)))

    def raised(read: Read, index: Index) -> Value:
        return op("exp", shifted(read, index))

    total = b.reduction("sum", x.size, reduced, raised, work, "total")

    def at(read: Read, index: Index) -> Value:
        denominator = read(total, kept(index, reduced))
        if logarithm:
            value = op("sub", shifted(read, index), op("log", denominator))
        else:
            value = op("div", raised(read, index), denominator)
        return cast(value, b.fake.dtype)

    return b.map(at)


def softmax_backward(
    b: Builder, grad: Definition, y: Definition, dim: int, input_dtype: Any
) -> Definition:
    """`y * (grad - sum(grad * y))`."""
    if not y.size:
        raise NoLoopForm("softmax of a scalar")
    reduced, work = folded(y, dim), compute_dtype(y.dtype)

    def product_at(read: Read, index: Index) -> Value:
        return op("mul", cast(read(grad, index), work), cast(read(y, index), work))

    total = b.reduction("sum", y.size, reduced, product_at, work, "total")

    def at(read: Read, index: Index) -> Value:
        scaled = op(
            "mul", cast(read(y, index), work), read(total, kept(index, reduced))
        )
        return cast(op("sub", product_at(read, index), scaled), b.fake.dtype)

    return b.map(at)


def log_softmax_backward(
    b: Builder, grad: Definition, y: Definition, dim: int, input_dtype: Any
) -> Definition:
    """`grad - exp(y) * sum(grad)`."""
    if not y.size:
        raise NoLoopForm("softmax of a scalar")
    reduced, work = folded(y, dim), compute_dtype(y.dtype)
    total = fold(b, "sum", grad, reduced, work, "total")

    def at(read: Read, index: Index) -> Value:
        scale = op("exp", cast(read(y, index), work))
        part = op("mul", scale, read(total, kept(index, reduced)))
        return cast(op("sub", cast(read(grad, index), work), part), b.fake.dtype)

    return b.map(at)


# ── normalization ─────────────────────────────────────────────────────────────────────────


def layer_norm(
    b: Builder,
    x: Definition,
    shape: Sequence[Any],
    weight: Definition | None,
    bias: Definition | None,
    eps: Any,
) -> tuple[Definition, Definition, Definition]:
    """(normalized, mean, 1 / deviation) over the last `len(shape)` dimensions."""
    rank, depth = len(x.size), len(shape)
    reduced = tuple(d >= rank - depth for d in range(rank))
    work = compute_dtype(x.dtype)

    def affine(read: Read, index: Index, value: Value) -> Value:
        tail = index[rank - depth :]
        if weight is not None:
            value = op("mul", value, cast(read(weight, tail), work))
        return value if bias is None else op("add", value, cast(read(bias, tail), work))

    return _normalize(
        b, x.size, reduced, lambda read, i: cast(read(x, i), work), affine, eps, work
    )


def _normalize(
    b: Builder,
    full: tuple[Expr, ...],
    reduced: Flags,
    value: Callable[[Read, Index], Value],
    affine: Callable[[Read, Index, Value], Value],
    eps: Any,
    work: torch.dtype,
    place: Callable[[Index], Index] | None = None,
) -> tuple[Definition, Definition, Definition]:
    """Common to layer norm and group norm; `place` maps an index of the output into `full`."""
    fakes = b.fake
    n = count(full, reduced)
    total, squares = moments(b, full, reduced, value, work)
    small = known_number(eps)

    def centre(read: Read, index: Index) -> Value:
        return op("div", read(total, index), amount(n, work))

    def scale(read: Read, index: Index) -> Value:
        spread = op("div", read(squares, index), amount(n, work))
        return op("rsqrt", op("add", spread, Const(small, work)))

    def normalized(read: Read, index: Index) -> Value:
        point = index if place is None else place(index)
        outer = kept(point, reduced)
        distance = op("sub", value(read, point), centre(read, outer))
        normed = op("mul", distance, scale(read, outer))
        return cast(affine(read, index, normed), fakes[0].dtype)

    def outer_of(index: Index, fake: Any) -> Index:
        return kept(index, reduced) if len(fake.size()) == len(full) else index

    return (
        b.map(normalized, like=fakes[0]),
        b.map(
            lambda read, i: cast(centre(read, outer_of(i, fakes[1])), fakes[1].dtype),
            like=fakes[1],
            name="mean",
        ),
        b.map(
            lambda read, i: cast(scale(read, outer_of(i, fakes[2])), fakes[2].dtype),
            like=fakes[2],
            name="rstd",
        ),
    )


def group_norm(
    b: Builder,
    x: Definition,
    weight: Definition | None,
    bias: Definition | None,
    batch: Any,
    channels: Any,
    pixels: Any,
    groups: int,
    eps: Any,
) -> tuple[Definition, Definition, Definition]:
    work = compute_dtype(x.dtype)
    per_group = as_expr(channels if not hasattr(channels, "expr") else channels.expr)
    if not per_group.is_Integer or x.size[0] == 0:
        raise NoLoopForm("group norm of symbolic channels")
    per_group = per_group // groups
    tail = x.size[2:]
    full = (x.size[0], as_expr(groups), per_group, *tail)
    reduced = (False, False, *(True for _ in full[2:]))
    to_x = reshape_index(x.size, full)
    to_full = reshape_index(full, x.size)

    def affine(read: Read, index: Index, value: Value) -> Value:
        if weight is not None:
            value = op("mul", value, cast(read(weight, (index[1],)), work))
        return (
            value
            if bias is None
            else op("add", value, cast(read(bias, (index[1],)), work))
        )

    return _normalize(
        b,
        full,
        reduced,
        lambda read, i: cast(read(x, to_x(i)), work),
        affine,
        eps,
        work,
        to_full,
    )


def batch_norm_inference(
    b: Builder,
    x: Definition,
    weight: Definition | None,
    bias: Definition | None,
    running_mean: Definition,
    running_var: Definition,
    momentum: Any,
    eps: Any,
) -> Any:
    """`_native_batch_norm_legit_no_training`: the saved statistics are empty tensors."""
    work = compute_dtype(x.dtype)
    if x.dtype in (torch.bfloat16, torch.float16):
        raise NoLoopForm("batch norm of low precision rounds in between")
    small = known_number(eps)
    fakes = b.fake

    def at(read: Read, index: Index) -> Value:
        channel = (index[1],)
        spread = op("add", cast(read(running_var, channel), work), Const(small, work))
        scale = op("div", Const(1.0, work), op("sqrt", spread))
        if weight is not None:
            scale = op("mul", scale, cast(read(weight, channel), work))
        value = op(
            "sub", cast(read(x, index), work), cast(read(running_mean, channel), work)
        )
        value = op("mul", value, scale)
        if bias is not None:
            value = op("add", value, cast(read(bias, channel), work))
        return cast(value, fakes[0].dtype)

    if any(f.numel() for f in fakes[1:]):
        raise NoLoopForm("batch norm with statistics")
    zero = Const(0.0, work)
    return (
        b.map(at, like=fakes[0]),
        b.map(lambda read, i: cast(zero, fakes[1].dtype), like=fakes[1], name="mean"),
        b.map(lambda read, i: cast(zero, fakes[2].dtype), like=fakes[2], name="rstd"),
    )


TABLE: dict[str, Callable[..., Any]] = {
    "aten._softmax": softmax,
    "aten._log_softmax": log_softmax,
    "aten._softmax_backward_data": softmax_backward,
    "aten._log_softmax_backward_data": log_softmax_backward,
    "aten.native_layer_norm": layer_norm,
    "aten.native_group_norm": group_norm,
    "aten._native_batch_norm_legit_no_training": batch_norm_inference,
}
