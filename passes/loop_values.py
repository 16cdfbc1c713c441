"""The values of a kernel: scalars computed at each point of an iteration space.

    y[4096*i + k] = exp(x[4096*i + k] - peak) / total

is a store of

    div(exp(sub(x[4096*i + k], peak)), total)

where `x[…]` is a `Load`, `peak` and `total` are `Ref`s of reductions, and the rest are `Op`s.

Values are hash-consed: two equal values are one object, so `is` is equality, a dict keyed by
values finds common subexpressions, and walks are linear in the number of distinct values.
`srcjit.passes.loops` has the rules that they follow.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import sympy
import torch

from .primitives import PRIMITIVES

Expr: TypeAlias = sympy.Expr
"""An index or size: a sympy expression that stands for an integer."""


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
            if torch.finfo(dtype).max < abs(value) < math.inf:
                value = float(torch.tensor(value, dtype=dtype))  # rounds, or overflows
        else:
            value = int(value)
        # The text tells 0.0 from -0.0 and finds NaN again.
        return _intern(cls, (repr(value), dtype), value=value, dtype=dtype)


class Place(NamedTuple):
    """A part of an index that is computed at run time.

    Attributes:
        symbol: What stands for it in the index.
        value: The int64 value.
        size: What it must be below (and at least 0), which the kernel checks; None where
            that is known.
    """

    symbol: sympy.Symbol
    value: Value
    size: Expr | None = None


class Load(Value):
    """The element of `buffer` at offset `index`.

    Attributes:
        mask: None, or a bool value: where it is false, memory is not touched and the value
            is 0 (False) of the buffer's dtype.
        indirect: Parts of the index that are computed at run time. Empty for almost every
            load.
    """

    __slots__ = ("buffer", "index", "indirect", "mask")
    fields = ("buffer", "index", "mask", "indirect")
    buffer: Buffer
    index: Expr
    mask: Value | None
    indirect: tuple[Place, ...]

    def __new__(
        cls,
        buffer: Buffer,
        index: Expr,
        mask: Value | None = None,
        indirect: tuple[Place, ...] = (),
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
        found = tuple(place.value for place in self.indirect)
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


def walk(roots: Iterable[Value], done: Container[Value] = ()) -> Iterator[Value]:
    """Yields every distinct value under `roots`, each after its operands, in a fixed order.

    Args:
        roots: Values.
        done: Values to stop at, whose operands the caller knows too.
    """
    seen: set[Value] = set()
    for root in roots:
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, entered = stack.pop()
            if entered:
                yield value
            elif value not in seen and value not in done:
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
            found |= v.index.free_symbols - {p.symbol for p in v.indirect}
    return frozenset(found)


def rebuild(value: Value, operands: tuple[Value, ...]) -> Value:
    """Returns `value` with its operands replaced (same number, same order)."""
    if isinstance(value, Op):
        return Op(value.name, operands, value.dtype)
    if isinstance(value, Load) and operands:
        mask, rest = (
            (None, operands) if value.mask is None else (operands[0], operands[1:])
        )
        indirect = tuple(
            place._replace(value=v)
            for place, v in zip(value.indirect, rest, strict=True)
        )
        return Load(value.buffer, value.index, mask, indirect)
    return value


LONGEST_TEXT = 2000
"""Characters of a value's text; of the parts of a longer one, `…` stands for the longest."""


def text_of(value: Value) -> str:
    """One line of text for a value, for people and for tests."""
    made: dict[Value, str] = {}
    for v in walk([value]):
        text = _text_of(v, made)
        if len(text) > LONGEST_TEXT:
            longest = max(v.operands, key=lambda o: len(made[o]), default=None)
            if longest is not None:
                text = _text_of(v, {**{o: made[o] for o in v.operands}, longest: "…"})
        made[v] = text
    return made[value]


def _text_of(value: Value, made: Mapping[Value, str]) -> str:
    match value:
        case Const(value=number):
            return repr(number)
        case Load(buffer=buffer, index=index, mask=mask):
            tail = "" if mask is None else f" if {made[mask]}"
            return f"{buffer.name}[{index}{tail}]"
        case IndexValue(index=index):
            return f"({index})"
        case ScalarArg(name=name) | Ref(name=name):
            return name
        case Op(name="cast", args=(arg,)):
            return f"{str(value.dtype).removeprefix('torch.')}({made[arg]})"
        case Op(name=name, args=args):
            return f"{name}({', '.join(made[a] for a in args)})"
    raise TypeError(type(value))
