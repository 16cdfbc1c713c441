"""The form of a crossed pass: work on rows, and reductions over columns of the same rows.

The backward pass of a norm, over `grad` and `x` of `float32[16384, 4096]`,

    kernel norm over i < 16384, inner k < 4096:
        total = sum(mul(grad[4096*i + k], x[4096*i + k]))
        y[4096*i + k] = mul(grad[4096*i + k], total)
    kernel sum over k < 4096, inner i < 16384:
        weight = sum(mul(grad[4096*i + k], x[4096*i + k]))
        z[k] = weight  (outer)

is one `Crossed`: the outer axes of each kernel are the inner axes of the other, under the same
symbols, so that equal loads are equal values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy

from .loops import (
    Buffer,
    Kernel,
    Label,
    Load,
    Reduce,
    ScalarArg,
    Statement,
    Store,
    Value,
    symbols_of,
    walk,
)


@dataclass(frozen=True, eq=False)
class Crossed:
    """Two kernels that read each row once.

    Attributes:
        name: What it computes, an identifier unique in its module.
        rows: What is done with each row. Its inner axis is one of static size.
        columns: Reductions over the outer axes of `rows`, at each of its inner points; then
            stores of what they give.
        saved: Bytes at each point that the reductions need not read for themselves.
        comment: What the host says of the call.
    """

    name: str
    rows: Kernel
    columns: Kernel
    saved: int = 0
    comment: str = ""

    @property
    def body(self) -> tuple[Statement, ...]:
        """All statements, those of the rows first."""
        return (*self.rows.body, *self.columns.body)

    @property
    def labels(self) -> Mapping[Value, Label]:
        """As `Kernel.labels`."""
        return {**self.columns.labels, **self.rows.labels}

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        """Buffers that are loaded from."""
        return tuple(dict.fromkeys((*self.rows.inputs, *self.columns.inputs)))

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        """Buffers that are stored to."""
        return (*self.rows.outputs, *self.columns.outputs)

    @property
    def parameters(self) -> tuple[Buffer | ScalarArg | sympy.Symbol, ...]:
        """What the host passes, as `Kernel.parameters`."""
        sizes = dict.fromkeys((*self.rows.sizes, *self.columns.sizes))
        buffers = dict.fromkeys((*self.inputs, *self.outputs))
        return (*buffers, *self.scalars, *sizes)

    @property
    def scalars(self) -> tuple[ScalarArg, ...]:
        """Numbers passed at each call."""
        return tuple(dict.fromkeys((*self.rows.scalars, *self.columns.scalars)))

    @property
    def reduces(self) -> tuple[Reduce, ...]:
        """The reductions over columns."""
        return tuple(s for s in self.columns.body if isinstance(s, Reduce))

    @property
    def stores(self) -> tuple[Store, ...]:
        """What is stored of them."""
        return tuple(s for s in self.columns.body if isinstance(s, Store))

    @property
    def streams(self) -> tuple[Load, ...]:
        """Loads of elements of the rows, each once."""
        values = (*self.rows.values, *walk(r.value for r in self.reduces))
        found = dict.fromkeys(v for v in values if isinstance(v, Load))
        return tuple(v for v in found if is_stream(v, self.rows))


def is_stream(load: Load, rows: Kernel) -> bool:
    """Whether a load is of another element at each row and column."""
    symbols = symbols_of(load)
    return rows.inner[0].symbol in symbols and any(
        a.symbol in symbols for a in rows.outer
    )
