"""Tensors as functions of their index: what lowering makes of an ATen graph.

`z = torch.sin(x.t()) * w` becomes three definitions, none of which is memory yet:

    x_t[i, j]  = x[j, i]                       view
    sin[i, j]  = sin(x_t[i, j])                map
    z[i, j]    = mul(sin[i, j], w[j])          map

`Definition.at(read, index)` gives the value at an index; `read(operand, index)` is asked for
the values that it needs. Fusion decides what `read` answers: the value inlined, the result of
a reduction, or a load from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from .indexing import Index, product, symbol
from .loops import Expr, Op, ScalarArg, Value, walk

if TYPE_CHECKING:
    from .attention import Found

Read: TypeAlias = Callable[["Definition", Index], Value]
At: TypeAlias = Callable[[Read, Index], Value]

SOURCE, MAP, VIEW, REDUCTION, EXTERN = "source", "map", "view", "reduction", "extern"
"""Kinds of definition.

`source` is memory that exists before the segment runs (inputs, constants). `map` computes
each element by itself. `view` is another tensor's memory under an index map; the host can
print it as the ATen call of its node. `reduction` folds a tensor's dimensions away. `extern`
is an ATen call that the host prints; it may stand for one of several results.
"""

DEAR = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma sigmoid pow atan2 fmod hypot div sqrt rsqrt".split()
)
"""Primitives worth more than loading a number from cache."""


@dataclass(frozen=True)
class Access:
    """`operand` is read at `index`, which is written with the axes of the reader."""

    operand: Definition
    index: Index


@dataclass(frozen=True)
class Folding:
    """How a reduction folds `operand`.

    Attributes:
        kind: One of `loops.REDUCTIONS`.
        full: Sizes of the space that it runs over.
        reduced: For each dimension of `full`, whether it is folded. The definition's own
            index is that of the other dimensions, in order.
        value: The value to fold at an index of `full`.
    """

    kind: str
    full: tuple[Expr, ...]
    reduced: tuple[bool, ...]
    value: At


@dataclass(frozen=True, eq=False)
class Addition:
    """Where the elements of a definition are added, instead of being memory themselves.

    Attributes:
        start: The memory, which holds what they are added to.
        place: The index of `start` that the element at an index is added to; several
            elements may go to one place, in any order.
    """

    start: Definition
    place: Callable[[Read, Index], Index]


@dataclass(frozen=True, eq=False)
class Definition:
    """A tensor as a function of its index (or, for `extern`, as a call of the host).

    Attributes:
        name: A name for people, unique in the graph.
        kind: See the constants of this module.
        size: Sizes.
        dtype: Element type.
        device: Device.
        stride: Strides that eager gives it, used if it is put into memory.
        node: The fx node that it belongs to.
        at: The value at an index (`map`, `view`).
        folding: What a `reduction` folds.
        position: Position among all definitions, which is topological.
        known: The value of all its elements, for a constant of the program.
        addition: Where its elements are added, for a `map` that is no memory of its own.
        added: For an `extern` that is no call, the definition whose elements are added up
            in the memory that it then is (`lowerings.scatters`).
    """

    name: str
    kind: str
    size: tuple[Expr, ...]
    dtype: torch.dtype
    device: torch.device
    stride: tuple[Expr, ...]
    node: fx.Node
    at: At | None = None
    folding: Folding | None = None
    position: int = 0
    known: int | float | bool | None = None
    addition: Addition | None = None
    added: Definition | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}{list(self.size)} {self.dtype}>"

    @property
    def computed(self) -> bool:
        """True for what a kernel computes."""
        return self.kind in (MAP, REDUCTION)

    @cached_property
    def numel(self) -> Expr:
        """Number of elements."""
        return product(self.size)

    @property
    def bytes(self) -> Expr:
        """Size in memory."""
        return self.numel * self.dtype.itemsize

    @cached_property
    def _template(self) -> tuple[tuple[Access, ...], Value | None]:
        """Accesses and value at a general index, with the operands left open."""
        accesses: list[Access] = []

        def read(operand: Definition, index: Index) -> Value:
            if operand.dtype.is_complex:
                raise TypeError("complex operand")
            accesses.append(Access(operand, index))
            return ScalarArg(f"operand{len(accesses) - 1}", operand.dtype)

        space = self.folding.full if self.folding else self.size
        index = tuple(symbol(f"d{k}") for k in range(len(space)))
        function = self.folding.value if self.folding else self.at
        value = function(read, index) if function else None
        if self.addition is not None:
            start = self.addition.start
            accesses.append(Access(start, self.addition.place(read, index)))
        return tuple(accesses), value

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What it reads directly, at the index `(d0, d1, …)` of its (full) space."""
        return self._template[0]

    @cached_property
    def operands(self) -> tuple[Definition, ...]:
        """The definitions that it reads directly, in order of first use."""
        return tuple(dict.fromkeys(a.operand for a in self.accesses))

    @cached_property
    def dear(self) -> int:
        """Number of costly primitives per element."""
        value = self._template[1]
        if value is None:
            return 0
        return sum(isinstance(v, Op) and v.name in DEAR for v in walk([value]))

    @cached_property
    def primitives(self) -> int:
        """Number of primitives per element."""
        value = self._template[1]
        return 0 if value is None else sum(isinstance(v, Op) for v in walk([value]))

    @cached_property
    def constant(self) -> bool:
        """True if it reads nothing (`zeros`, `arange`)."""
        return self.computed and not self.accesses

    @property
    def summed(self) -> Addition | None:
        """What it is the result of, if it is no call but memory that was added to."""
        return None if self.added is None else self.added.addition

    @property
    def placeless(self) -> bool:
        """True if its elements are known without reading memory, so on any device."""
        base = self
        while base.kind == VIEW:
            base = base.accesses[0].operand
        return base.known is not None or base.constant


@dataclass(frozen=True, eq=False)
class Number:
    """A number that the host knows only when it runs (`SymInt`, `SymFloat`, `.item()`).

    Attributes:
        node: The node that computes it.
        expr: Its expression over size symbols, if it is an integer, else None.
        dtype: int64, float64 or bool.
    """

    node: fx.Node
    expr: Expr | None
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Lowered:
    """An ATen graph with a definition for each node.

    Attributes:
        values: Node -> Definition, Number, tuple of Definitions (several results) or None.
        definitions: All definitions in topological order.
        results: What the graph returns: Definition, Number, None or a Python number.
        notes: What has no loop form and why, for the log.
        streams: Products that are computed as attention (`passes.attention`).
        reasons: Products that look like attention and stay what they are, and why.
    """

    values: dict[fx.Node, Any]
    definitions: tuple[Definition, ...]
    results: tuple[Any, ...]
    notes: tuple[str, ...] = ()
    streams: Mapping[fx.Node, Found] = field(default_factory=dict)
    reasons: Mapping[fx.Node, str] = field(default_factory=dict)
