"""Elements chosen by integer tensors: `gather`, `index_select`, `x[i, j]`, `embedding`.

Eager reports an index that is out of range. Kernels for CUDA check it as eager's do (a
device-side assertion); on the CPU eager raises, which a kernel cannot, so the call stays
eager's unless something has checked the index before (`srcjit.runtime.checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from srcjit.runtime.checks import CHECKED as CHECKED_TARGETS

from ..definitions import Definition, Read
from ..indexing import Index
from ..indirect import CHECKED, RunTimeIndex
from ..loops import Const, Expr, IndexValue, Value, cast, op
from .builder import Builder, NoLoopForm, broadcast
from .views import position

aten = torch.ops.aten

_SAME_ELEMENTS = (aten.unsqueeze.default, aten.view.default)


def chosen(value: Value, size: Expr, *, wraps: bool = False) -> Expr:
    """The part of an index that a value of an integer tensor chooses."""
    value = cast(value, torch.int64)
    if wraps:
        below = op("lt", value, Const(0, torch.int64))
        value = op("where", below, op("add", value, IndexValue(size)), value)
    return RunTimeIndex(value, size)


def _require(b: Builder, x: Definition, *indices: Definition) -> None:
    if b.fake.device.type not in CHECKED and not _is_checked(b.node):
        raise NoLoopForm("eager raises for an index out of range")
    if x.placeless:
        raise NoLoopForm("nothing in memory to check the index against")
    if any(i.dtype not in (torch.int64, torch.int32) for i in indices):
        raise NoLoopForm("a mask as an index")
    if any(s == 0 for s in x.size):
        raise NoLoopForm("nothing to choose from")


def _is_checked(node: fx.Node) -> bool:
    """Whether a gather's index comes, through views, from a check that raises as eager."""
    index = node.args[2] if node.target is aten.gather.default else None
    while isinstance(index, fx.Node) and index.target in _SAME_ELEMENTS:
        index = index.args[0]
    return isinstance(index, fx.Node) and index.target is CHECKED_TARGETS


def gather(
    b: Builder, x: Definition, dim: int, index: Definition, *, sparse_grad: bool = False
) -> Definition:
    _require(b, x, index)
    if not x.size or len(index.size) != len(x.size):
        raise NoLoopForm("gather of a scalar")
    at = position(dim, len(x.size))

    def value(read: Read, i: Index) -> Value:
        place = chosen(read(index, i), x.size[at])
        return read(x, (*i[:at], place, *i[at + 1 :]))

    return b.map(value)


def index_select(b: Builder, x: Definition, dim: int, index: Definition) -> Definition:
    _require(b, x, index)
    if not x.size or len(index.size) != 1:
        raise NoLoopForm("a scalar")
    at = position(dim, len(x.size))

    def value(read: Read, i: Index) -> Value:
        place = chosen(read(index, (i[at],)), x.size[at])
        return read(x, (*i[:at], place, *i[at + 1 :]))

    return b.map(value)


def embedding(
    b: Builder,
    weight: Definition,
    indices: Definition,
    padding_idx: Any = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Definition:
    _require(b, weight, indices)
    rank = len(indices.size)

    def value(read: Read, i: Index) -> Value:
        place = chosen(read(indices, i[:rank]), weight.size[0])
        return read(weight, (place, *i[rank:]))

    return b.map(value)


def index(
    b: Builder, x: Definition, indices: Sequence[Definition | None]
) -> Definition:
    """`x[i, :, j]`: the indices broadcast; their dimensions stand where the first stood.

    If there is a slice between them, the dimensions come first.
    """
    used = [(d, t) for d, t in enumerate(indices) if t is not None]
    if not used:
        raise NoLoopForm("no index")
    _require(b, x, *(t for _, t in used))
    dims = [d for d, _ in used]
    together = dims == list(range(dims[0], dims[-1] + 1))
    rank = max(len(t.size) for _, t in used)
    front = dims[0] if together else 0

    def value(read: Read, i: Index) -> Value:
        picked = i[front : front + rank]
        rest = iter((*i[:front], *i[front + rank :]))
        by_dim = {
            d: chosen(broadcast(read, t, picked), x.size[d], wraps=True)
            for d, t in used
        }
        place = tuple(
            by_dim[d] if d in by_dim else next(rest) for d in range(len(x.size))
        )
        return read(x, place)

    return b.map(value)


TABLE: dict[str, Callable[..., Any]] = {
    "aten.gather": gather,
    "aten.index_select": index_select,
    "aten.embedding": embedding,
    "aten.index.Tensor": index,
}
