"""The loop form: what lowering and fusion make and what the two printers print.

A `Kernel` is a rectangular iteration space with a straight body. The softmax of the rows of
`x`, a contiguous `float32[2048, 4096]`, is

    kernel softmax over i < 2048, inner k < 4096:
        peak = max(x[4096*i + k])
        total = sum(exp(x[4096*i + k] - peak))
        y[4096*i + k] = exp(x[4096*i + k] - peak) / total

`outer` axes are parallel: no point of the outer space depends on another. The `inner` axes
are reduced over by every `Reduce` of the kernel, once per outer point. Statements stand in
order, and a value may use (`Ref`) the reductions before it. A printer is free to choose
tiles, vector widths, loop order and how many passes over the inner axes it makes, as long as
each statement sees the results of the reductions that its value refers to. It must not
materialize anything: what is shared is a shared node of the value graph.

Values stand in `srcjit.passes.loop_values`.

Rules that printers may rely on (`check` verifies them):

- Sizes, strides and indices are sympy expressions of axis symbols and size symbols, all
  non-negative integers, made of integers, `+`, `*`, and `FloorDiv`/`Mod` of
  `torch.utils._sympy.functions` (floor division and remainder of non-negative numbers).
  A numerator may be negative only where a mask guards the load.
- Indices count elements from the tensor's `data_ptr()`: storage offsets are already in it.
- The operands of an `Op` have the dtypes its primitive asks for; nothing is promoted.
- Floats of 16 and 8 bits come only from `Load` and `cast` and go only into `cast`,
  `where` and `Store`: arithmetic on them is done in float32, with casts where eager rounds.
- Integer arithmetic wraps around in the width of its dtype.
- Axes have size >= 1 (a kernel with an empty outer space is never made), but a *symbolic*
  size and an inner size may be 0; `Reduce` then yields its identity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import sympy
import torch

from .loop_values import (
    Buffer,
    Const,
    Expr,
    IndexValue,
    Load,
    Op,
    Place,
    Ref,
    ScalarArg,
    Value,
    cast,
    op,
    rebuild,
    symbols_of,
    text_of,
    walk,
)
from .primitives import FLOAT8, PRIMITIVES

__all__ = [
    "DTYPES",
    "FLOAT8",
    "REDUCTIONS",
    "Axis",
    "Buffer",
    "Const",
    "Expr",
    "IndexValue",
    "Kernel",
    "Label",
    "Load",
    "Op",
    "Place",
    "ReadsAndWrites",
    "Reduce",
    "Ref",
    "ScalarArg",
    "Statement",
    "Store",
    "Value",
    "cast",
    "check",
    "element_size",
    "kernel_text",
    "moved_bytes",
    "op",
    "rebuild",
    "symbol",
    "symbols_of",
    "text_of",
    "walk",
]

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all")
"""Kinds of `Reduce`.

`max`, `min`, `argmax` and `argmin` treat NaN as the extreme value, as eager does. `argmax`
and `argmin` give the row-major position over the inner axes of the first extreme value, as
int64. `any` and `all` take and give bool. A sum of floats may be reassociated.
"""

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    *FLOAT8,
)
"""Element types that have a loop form; operations on others are extern calls."""


def symbol(name: str) -> sympy.Symbol:
    """Returns the symbol of an axis or of a size: a non-negative integer."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


@dataclass(frozen=True)
class Axis:
    """One dimension of an iteration space: `symbol` runs over `0 .. size - 1`."""

    symbol: sympy.Symbol
    size: Expr


@dataclass(frozen=True, eq=False)
class Reduce:
    """`name = kind(value over the inner axes)`, once per outer point.

    `dtype` is that of the accumulator and the result: that of `value`, but int64 for
    `argmax` and `argmin`.
    """

    name: str
    kind: str
    value: Value
    dtype: torch.dtype

    @property
    def ref(self) -> Ref:
        """The value by which later statements use the result."""
        return Ref(self.name, self.dtype)


@dataclass(frozen=True, eq=False)
class Store:
    """`buffer[index] = value`, once per outer point or once per inner point.

    `value.dtype` is the buffer's dtype. With `level == "outer"` neither index nor value
    uses an inner axis. No two points of one kernel store to one element, unless it `adds`:
    then `value` is `add(buffer[index], more)`, whose load says where, each point of a
    pointwise kernel adds at once (atomically), and nothing else of it touches the buffer.
    """

    buffer: Buffer
    index: Expr
    value: Value
    level: str = "inner"
    adds: bool = False


Statement: TypeAlias = Reduce | Store


@dataclass(frozen=True)
class Label:
    """How a reader would call a value, and the user's line that it comes from.

    `comment` is such as `21: y = torch.sin(x) * 2`, or empty.
    """

    name: str
    comment: str = ""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One loop nest.

    Attributes:
        name: What it computes, an identifier unique in its module (`sin_mul_sum`).
        outer: Parallel axes, outermost first. The last one is the one with the smallest
            strides in most of the accesses. Empty: one outer point (a full reduction).
        inner: Axes that the reductions run over, outermost first. Empty: a pointwise
            kernel, whose stores all have level "inner" (there is one inner point).
        body: Statements in order.
        labels: Names and comments for values of the body, keyed by value; a `Reduce` is
            labelled through its `ref`.
        comment: What the host says of the call (`reads 4.0 kB, writes 4.0 kB`).
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    body: tuple[Statement, ...]
    labels: Mapping[Value, Label] = field(default_factory=dict)
    comment: str = ""

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Every distinct value of the body, operands before their users."""
        return tuple(walk(s.value for s in self.body))

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        """Buffers that are loaded from, in order of first use."""
        return tuple(
            dict.fromkeys(v.buffer for v in self.values if isinstance(v, Load))
        )

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Buffers that are stored to, in order. One may be an input too (in place)."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store)))

    @property
    def scalars(self) -> tuple[ScalarArg, ...]:
        """Numbers passed at each call, in order of first use."""
        return tuple(v for v in self.values if isinstance(v, ScalarArg))

    @property
    def sizes(self) -> tuple[sympy.Symbol, ...]:
        """Size symbols that the body or the axes mention, sorted by name."""
        return tuple(sorted(_free_symbols(self) - self._bound(), key=str))

    @property
    def parameters(self) -> tuple[Buffer | ScalarArg | sympy.Symbol, ...]:
        """The kernel's parameters in the order in which the host passes them.

        Inputs, then outputs that are no inputs, then scalars, then sizes. The host passes a
        tensor for a buffer, a Python number for the rest.
        """
        buffers = dict.fromkeys((*self.inputs, *self.outputs))
        return (*buffers, *self.scalars, *self.sizes)

    def _bound(self) -> set[sympy.Symbol]:
        bound = {axis.symbol for axis in (*self.outer, *self.inner)}
        for value in self.values:
            if isinstance(value, Load):
                bound.update(place.symbol for place in value.indirect)
        return bound

    def __str__(self) -> str:
        return kernel_text(self)


def _free_symbols(kernel: Kernel) -> set[Any]:
    found: set[Any] = set()
    for axis in (*kernel.outer, *kernel.inner):
        found |= axis.size.free_symbols
    for value in kernel.values:
        if isinstance(value, Load | IndexValue):
            found |= value.index.free_symbols
        if isinstance(value, Load):
            sizes = (place.size for place in value.indirect)
            found |= {
                s for size in sizes if size is not None for s in size.free_symbols
            }
    for statement in kernel.body:
        if isinstance(statement, Store):
            found |= sympy.sympify(statement.index).free_symbols
    return found | {axis.symbol for axis in (*kernel.outer, *kernel.inner)}


def element_size(dtype: torch.dtype) -> int:
    """Bytes of one element."""
    return dtype.itemsize


# ── text ──────────────────────────────────────────────────────────────────────────────────


def kernel_text(kernel: Kernel) -> str:
    """The kernel as the pseudo-code of this module's docstring."""
    outer = ", ".join(f"{a.symbol} < {a.size}" for a in kernel.outer) or "one point"
    inner = ", ".join(f"{a.symbol} < {a.size}" for a in kernel.inner)
    lines = [
        f"kernel {kernel.name} over {outer}" + (f", inner {inner}:" if inner else ":")
    ]
    for statement in kernel.body:
        if isinstance(statement, Reduce):
            line = f"{statement.name} = {statement.kind}({text_of(statement.value)})"
        else:
            line = f"{statement.buffer.name}[{statement.index}] = {text_of(statement.value)}"
            if statement.adds:
                line += "  (atomically)"
            if statement.level == "outer" and kernel.inner:
                line += "  (outer)"
        lines.append("    " + line)
    return "\n".join(lines)


# ── checks ────────────────────────────────────────────────────────────────────────────────


def check(kernel: Kernel) -> Kernel:
    """Verifies the rules of this module; returns the kernel.

    Raises:
        ValueError: Naming the statement and the rule that it breaks. That is always a fault
            of the compiler.
    """
    inner = {axis.symbol for axis in kernel.inner}
    known: dict[str, torch.dtype] = {}
    for statement in kernel.body:
        where = f"{kernel.name}: {_named(statement)}"
        for value in walk([statement.value]):
            if isinstance(value, Ref) and known.get(value.name) is not value.dtype:
                raise ValueError(f"{where}: {value.name} is used before it is reduced")
            if isinstance(value, Op):
                _check_op(value, where)
        if isinstance(statement, Reduce):
            if statement.kind not in REDUCTIONS:
                raise ValueError(f"{where}: unknown reduction {statement.kind}")
            if statement.name in known:
                raise ValueError(f"{where}: {statement.name} is reduced twice")
            expected = (
                torch.int64
                if statement.kind.startswith("arg")
                else statement.value.dtype
            )
            if statement.dtype is not expected:
                raise ValueError(
                    f"{where}: accumulates {expected} in {statement.dtype}"
                )
            known[statement.name] = statement.dtype
        else:
            if statement.value.dtype is not statement.buffer.dtype:
                raise ValueError(
                    f"{where}: stores {statement.value.dtype} without a cast"
                )
            used = (
                symbols_of(statement.value)
                | sympy.sympify(statement.index).free_symbols
            )
            if statement.level == "outer" and used & inner:
                raise ValueError(f"{where}: an outer store uses an inner axis")
            if statement.adds and not _is_addition(statement, kernel):
                raise ValueError(f"{where}: adds to what it does not read there")
    return kernel


def _named(statement: Statement) -> str:
    """What a message calls a statement; its whole text is long where much is fused."""
    if isinstance(statement, Reduce):
        return f"{statement.name} = {statement.kind}(…)"
    return f"{statement.buffer.name}[{statement.index}] = …"


def _is_addition(store: Store, kernel: Kernel) -> bool:
    """True if a store adds something to what it loads from its own place."""
    if kernel.inner or not isinstance(store.value, Op) or store.value.name != "add":
        return False
    place = store.value.args[0]
    if not isinstance(place, Load) or place.mask is not None:
        return False
    return place.buffer == store.buffer and place.index == store.index


def _check_op(value: Op, where: str) -> None:
    if value.name == "cast":
        return
    result = PRIMITIVES[value.name].result(
        value.name, tuple(a.dtype for a in value.args)
    )
    if result is not value.dtype:
        raise ValueError(f"{where}: {value.name} gives {result}, not {value.dtype}")


class ReadsAndWrites(Protocol):
    """Whatever moves buffers."""

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """What is read."""

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """What is written."""


def moved_bytes(kernel: ReadsAndWrites) -> tuple[Expr, Expr]:
    """Bytes that the kernel reads and writes, each buffer element counted once."""

    def total(buffers: Iterable[Buffer]) -> Expr:
        return sum(
            (
                math.prod(
                    (s for s, t in zip(b.size, b.stride, strict=True) if t != 0),
                    start=sympy.Integer(element_size(b.dtype)),
                )
                for b in buffers
            ),
            start=sympy.Integer(0),
        )

    return total(kernel.inputs), total(kernel.outputs)
