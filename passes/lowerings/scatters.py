"""Sums at places that integer tensors choose: `index_add`, `scatter_add`.

Before, what eager does for `torch.zeros_like(x).index_add_(0, target, w * x[source])`:

    messages = w * x[source]                            memory of each edge
    total = index_add_kernel(zeros, target, messages)   adds atomically

After (definitions; `start` is memory, `added` is none of its own):

    index_add_start[n, c] = 0.0
    index_add_added[e, c] = mul(w[e], x[⟨source[e]⟩, c])   added to start[⟨target[e]⟩, c]
    index_add             = start, when all has been added

and in Triton, in the kernel that computes what is added:

    tl.atomic_add(index_add_start_ptr + 128 * target + k, product, sem="relaxed")

So what is added is not written to memory and read again. `start` is an ordinary definition: a
fill, a computation fused into its kernel, or, where the old values may be written over, no
work at all (`passes.in_place`, `passes.reuse`). `added` is one, too, that shares loops with what
reads the same; it waits for `start`, and the result waits for it, as for an extern call.

Floats are added in an order that differs from call to call, as eager's CUDA kernels do. Where
eager's order is fixed the call stays eager's: on the CPU, where deterministic algorithms are
asked for (which is part of what a specialization is guarded by), and for
`index_put(accumulate=True)` and the gradient of an embedding, which sort. It also stays for 16
bits, for which eager's kernels have vector instructions, and where elements of what is added to
are read elsewhere and fewer are added than there are: to keep the old values is dearer.

Measured on an H200, a million rows of 128 float32 added to 131,072: with the gather of the rows
405 us in all kernels, 1,738 in eager; of rows in memory 439, and 1,073 in eager, since Triton adds
four neighbours by one instruction. Of 64 bits it adds each by itself: 262,144 rows in memory took
380 us and in eager 345 (int64: 360 and 346), so what is in memory is left to eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..definitions import EXTERN, SOURCE, Definition, Read
from ..groups import base_of
from ..indexing import Index, product
from ..loops import Const, Expr, Value, op
from ..peaks import amount
from .builder import Builder, NoLoopForm, number
from .gathers import chosen
from .views import position

ATOMIC = {"cuda"}
"""Kinds of devices whose eager kernels add atomically."""

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
"""What a GPU adds by one instruction. Integers have one sum in any order."""


def index_add(
    b: Builder,
    x: Definition,
    dim: int,
    index: Definition,
    source: Definition,
    *,
    alpha: Any = 1,
) -> Definition:
    """`x[…, index[i], …] += alpha * source[…, i, …]`."""
    if len(index.size) != 1 or len(source.size) != len(x.size):
        raise NoLoopForm("a scalar")
    _require(b, x, index, source, source.size)
    at = position(dim, len(x.size))
    factor = number(alpha, x.dtype)

    def value(read: Read, i: Index) -> Value:
        one = isinstance(factor, Const) and factor.value == 1
        element = read(source, i)
        return element if one else op("mul", element, factor)

    def place(read: Read, i: Index) -> Index:
        return (*i[:at], chosen(read(index, (i[at],)), x.size[at]), *i[at + 1 :])

    return b.sum_at(_start(b, x), source.size, value, place)


def scatter_add(
    b: Builder, x: Definition, dim: int, index: Definition, source: Definition
) -> Definition:
    """`x[…, index[i], …] += source[i]`, over the space of `index`."""
    if len(index.size) != len(x.size) or len(source.size) != len(x.size):
        raise NoLoopForm("a scalar")
    _require(b, x, index, source, index.size)
    at = position(dim, len(x.size))

    def place(read: Read, i: Index) -> Index:
        return (*i[:at], chosen(read(index, i), x.size[at]), *i[at + 1 :])

    def value(read: Read, i: Index) -> Value:
        return read(source, i)

    return b.sum_at(_start(b, x), index.size, value, place)


def scatter_reduce(
    b: Builder,
    x: Definition,
    dim: int,
    index: Definition,
    source: Definition,
    reduce: str,
    *,
    include_self: bool = True,
) -> Definition:
    if reduce != "sum" or not include_self:
        raise NoLoopForm("not a sum")
    return scatter_add(b, x, dim, index, source)


def _start(b: Builder, x: Definition) -> Definition:
    return b.map(lambda read, i: read(x, i), name=f"{b.node.name}_start")


def _require(
    b: Builder,
    x: Definition,
    index: Definition,
    source: Definition,
    size: tuple[Expr, ...],
) -> None:
    if b.fake.device.type not in ATOMIC:
        raise NoLoopForm("eager adds in a fixed order")
    if not x.size or x.dtype not in DTYPES or source.dtype is not x.dtype:
        raise NoLoopForm(f"{x.dtype} is not added atomically")
    if x.dtype.is_floating_point and torch.are_deterministic_algorithms_enabled():
        raise NoLoopForm("deterministic algorithms are asked for")
    if index.dtype not in (torch.int64, torch.int32):
        raise NoLoopForm("not an index")
    if x.dtype.itemsize > 4 and base_of(source).kind in (SOURCE, EXTERN):
        raise NoLoopForm("nothing that is added would be computed here")
    if any(s == 0 for s in (*x.size, *size)):
        raise NoLoopForm("nothing to add")
    if amount(product(size)) < amount(x.numel) and _reads(source, base_of(x)):
        raise NoLoopForm("the old values are read, and few are added")


def _reads(d: Definition, memory: Definition) -> bool:
    """Whether what computes `d` reads `memory`, as far back as calls."""
    stack, seen = [d], {d}
    while stack:
        d = stack.pop()
        if d is memory:
            return True
        if d.kind != EXTERN:
            new = [o for o in d.operands if o not in seen]
            stack += new
            seen.update(new)
    return False


TABLE: dict[str, Callable[..., Any]] = {
    "aten.index_add": index_add,
    "aten.scatter_add": scatter_add,
    "aten.scatter_reduce.two": scatter_reduce,
}
