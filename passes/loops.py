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

Values are hash-consed: two equal values are one object, so `is` is equality, a dict keyed by
values finds common subexpressions, and walks are linear in the number of distinct values.

Rules that printers may rely on (`check` verifies them):

- Sizes, strides and indices are sympy expressions of axis symbols and size symbols, all
  non-negative integers, made of integers, `+`, `*`, and `FloorDiv`/`Mod` of
  `torch.utils._sympy.functions` (floor division and remainder of non-negative numbers).
  A numerator may be negative only where a mask guards the load.
- Indices count elements from the tensor's `data_ptr()`: storage offsets are already in it.
- The operands of an `Op` have the dtypes its primitive asks for; nothing is promoted.
- bfloat16 and float16 values come only from `Load` and `cast` and go only into `cast`,
  `where` and `Store`: arithmetic on them is done in float32, with casts where eager rounds.
- Integer arithmetic wraps around in the width of its dtype.
- Axes have size >= 1 (a kernel with an empty outer space is never made), but a *symbolic*
  size and an inner size may be 0; `Reduce` then yields its identity.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, TypeVar

import sympy
import torch

from .primitives import PRIMITIVES

Expr: TypeAlias = sympy.Expr
"""An index or size: a sympy expression that stands for an integer."""

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
)
"""Element types that have a loop form; operations on others are extern calls."""


def symbol(name: str) -> sympy.Symbol:
    """Returns the symbol of an axis or of a size: a non-negative integer."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory: an input, an output or a temporary of the segment.

    Attributes:
        name: Its name in the host function, a Python identifier.
        dtype: Element type.
        device: Where it lives.
        size: Sizes, outermost first.
        stride: Strides in elements, as long as `size`.
    """

    name: str
    dtype: torch.dtype
    device: torch.device
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]


@dataclass(frozen=True)
class Axis:
    """One dimension of an iteration space: `symbol` runs over `0 .. size - 1`."""

    symbol: sympy.Symbol
    size: Expr


class Value:
    """A scalar computed at each point of the iteration space (immutable, hash-consed).

    Subclasses list their constructor arguments in `fields`; `dtype` is always one of them or
    follows from them.
    """

    __slots__ = ("__weakref__", "dtype")
    fields: ClassVar[tuple[str, ...]] = ()
    dtype: torch.dtype

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that this one is computed from."""
        return ()

    def __repr__(self) -> str:
        return text_of(self)


V = TypeVar("V", bound=Value)

_interned: weakref.WeakValueDictionary[tuple[Any, ...], Value] = (
    weakref.WeakValueDictionary()
)


def _intern(cls: type[V], key: tuple[Any, ...], **attributes: Any) -> V:
    full = (cls, *key)
    found = _interned.get(full)
    if found is None:
        found = object.__new__(cls)
        for name, value in attributes.items():
            object.__setattr__(found, name, value)
        _interned[full] = found
    assert isinstance(found, cls)
    return found


class Const(Value):
    """A number known at compile time. `value` is an int, float or bool as `dtype` asks."""

    __slots__ = ("value",)
    fields = ("value", "dtype")
    value: int | float | bool

    def __new__(cls, value: int | float | bool, dtype: torch.dtype) -> Const:
        """Interns the number; it is converted to what `dtype` stores."""
        if dtype is torch.bool:
            value = bool(value)
        elif dtype.is_floating_point:
            value = float(value)
        else:
            value = int(value)
        # The text tells 0.0 from -0.0 and finds NaN again.
        return _intern(cls, (repr(value), dtype), value=value, dtype=dtype)


class Load(Value):
    """The element of `buffer` at offset `index`.

    Attributes:
        mask: None, or a bool value: where it is false, memory is not touched and the value
            is 0 (False) of the buffer's dtype.
        indirect: Pairs (symbol, int64 value): symbols in `index` that stand for values
            computed at run time, each known to be in range. Empty for almost every load.
    """

    __slots__ = ("buffer", "index", "indirect", "mask")
    fields = ("buffer", "index", "mask", "indirect")
    buffer: Buffer
    index: Expr
    mask: Value | None
    indirect: tuple[tuple[sympy.Symbol, Value], ...]

    def __new__(
        cls,
        buffer: Buffer,
        index: Expr,
        mask: Value | None = None,
        indirect: tuple[tuple[sympy.Symbol, Value], ...] = (),
    ) -> Load:
        """Interns the load."""
        index = sympy.sympify(index)
        return _intern(
            cls,
            (buffer, index, mask, indirect),
            buffer=buffer,
            index=index,
            mask=mask,
            indirect=indirect,
            dtype=buffer.dtype,
        )

    @property
    def operands(self) -> tuple[Value, ...]:
        """The mask, if there is one, and the values in the index."""
        found = tuple(value for _, value in self.indirect)
        return found if self.mask is None else (self.mask, *found)


class IndexValue(Value):
    """An index expression as a number (`arange`, `triu`, the masks of `cat`)."""

    __slots__ = ("index",)
    fields = ("index", "dtype")
    index: Expr

    def __new__(cls, index: Expr, dtype: torch.dtype = torch.int64) -> IndexValue:
        """Interns the expression."""
        index = sympy.sympify(index)
        return _intern(cls, (index, dtype), index=index, dtype=dtype)


class ScalarArg(Value):
    """A number that the host passes to the kernel at each call."""

    __slots__ = ("name",)
    fields = ("name", "dtype")
    name: str

    def __new__(cls, name: str, dtype: torch.dtype) -> ScalarArg:
        """Interns the name."""
        return _intern(cls, (name, dtype), name=name, dtype=dtype)


class Ref(Value):
    """The result of the `Reduce` called `name`, at the current outer point."""

    __slots__ = ("name",)
    fields = ("name", "dtype")
    name: str

    def __new__(cls, name: str, dtype: torch.dtype) -> Ref:
        """Interns the name."""
        return _intern(cls, (name, dtype), name=name, dtype=dtype)


class Op(Value):
    """A primitive of `PRIMITIVES` applied to values. Make it with `op`, which checks."""

    __slots__ = ("args", "name")
    fields = ("name", "args", "dtype")
    name: str
    args: tuple[Value, ...]

    def __new__(cls, name: str, args: tuple[Value, ...], dtype: torch.dtype) -> Op:
        """Interns the application, unchecked."""
        return _intern(cls, (name, args, dtype), name=name, args=args, dtype=dtype)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The arguments."""
        return self.args


def op(name: str, *args: Value) -> Op:
    """Applies a primitive; the result's dtype follows from the primitive and the operands.

    Raises:
        TypeError: If the operands are not what the primitive takes.
    """
    return Op(name, args, PRIMITIVES[name].result(name, tuple(a.dtype for a in args)))


def cast(value: Value, dtype: torch.dtype) -> Value:
    """Converts as `Tensor.to(dtype)` does (floats to integers truncate); no-op if equal."""
    return value if value.dtype is dtype else Op("cast", (value,), dtype)


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
    uses an inner axis. No two points of one kernel store to one element.
    """

    buffer: Buffer
    index: Expr
    value: Value
    level: str = "inner"


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
                bound.update(s for s, _ in value.indirect)
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
    for statement in kernel.body:
        if isinstance(statement, Store):
            found |= sympy.sympify(statement.index).free_symbols
    return found | {axis.symbol for axis in (*kernel.outer, *kernel.inner)}


def walk(roots: Iterable[Value]) -> Iterator[Value]:
    """Yields every distinct value under `roots`, each after its operands, in a fixed order."""
    seen: set[Value] = set()
    for root in roots:
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, done = stack.pop()
            if done:
                yield value
            elif value not in seen:
                seen.add(value)
                stack.append((value, True))
                stack.extend((operand, False) for operand in reversed(value.operands))


def symbols_of(value: Value) -> frozenset[sympy.Symbol]:
    """Axis and size symbols that a value depends on (not through a `Ref`)."""
    found: set[Any] = set()
    for v in walk([value]):
        if isinstance(v, IndexValue):
            found |= v.index.free_symbols
        elif isinstance(v, Load):
            found |= v.index.free_symbols - {s for s, _ in v.indirect}
    return frozenset(found)


def rebuild(value: Value, operands: tuple[Value, ...]) -> Value:
    """Returns `value` with its operands replaced (same number, same order)."""
    if isinstance(value, Op):
        return Op(value.name, operands, value.dtype)
    if isinstance(value, Load) and operands:
        mask, rest = (
            (None, operands) if value.mask is None else (operands[0], operands[1:])
        )
        indirect = tuple((s, v) for (s, _), v in zip(value.indirect, rest, strict=True))
        return Load(value.buffer, value.index, mask, indirect)
    return value


def element_size(dtype: torch.dtype) -> int:
    """Bytes of one element."""
    return dtype.itemsize


# ── text ──────────────────────────────────────────────────────────────────────────────────


def text_of(value: Value) -> str:
    """One line of text for a value, for people and for tests."""
    match value:
        case Const(value=number):
            return repr(number)
        case Load(buffer=buffer, index=index, mask=mask):
            tail = "" if mask is None else f" if {text_of(mask)}"
            return f"{buffer.name}[{index}{tail}]"
        case IndexValue(index=index):
            return f"({index})"
        case ScalarArg(name=name) | Ref(name=name):
            return name
        case Op(name="cast", args=(arg,)):
            return f"{str(value.dtype).removeprefix('torch.')}({text_of(arg)})"
        case Op(name=name, args=args):
            return f"{name}({', '.join(map(text_of, args))})"
    raise TypeError(type(value))


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
        where = f"{kernel.name}: {statement}"
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
    return kernel


def _check_op(value: Op, where: str) -> None:
    if value.name == "cast":
        return
    result = PRIMITIVES[value.name].result(
        value.name, tuple(a.dtype for a in value.args)
    )
    if result is not value.dtype:
        raise ValueError(f"{where}: {value.name} gives {result}, not {value.dtype}")


def moved_bytes(kernel: Kernel) -> tuple[Expr, Expr]:
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
