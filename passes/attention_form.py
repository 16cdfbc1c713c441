"""The loop form of attention: two products with a softmax between them, in one sweep.

    attention softmax_matmul over z < 128, rows i < 2048, columns j < 2048, depth d < 64:
        product = sum(q[131072*z + 64*i + d] * k[131072*z + 64*j + d] over d)
        score = 30.0 * tanh(product / 240.0)
        out[131072*z + 64*i + e] = sum(softmax(score over j) * v[131072*z + 64*j + e] over j)

`score` is a value of the loop form (`passes.loop_values`) at the point `(z, i, j)`, in which
the product is the load of a buffer that does not exist. A printer walks over blocks of `j`
and keeps the maximum and the sum of what it has seen, so that neither scores nor weights are
ever in memory.

A mask that hides what is right of a diagonal hides whole blocks. `visible` finds the columns
that a row can see at all:

    >>> import sympy
    >>> i, j = symbol("i"), symbol("j")
    >>> seen = op("le", IndexValue(j), IndexValue(i + 5))
    >>> hidden = Const(float("-inf"), torch.float32)
    >>> score = op("where", seen, Const(1.0, torch.float32), hidden)
    >>> visible(score, i, j)
    Visible(first=(), last=(i + 5,))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import sympy
import torch

from .loops import (
    Axis,
    Buffer,
    Const,
    Expr,
    IndexValue,
    Label,
    Load,
    Op,
    ScalarArg,
    Value,
    op,
    symbol,
    walk,
)

__all__ = ["PRODUCT", "Attention", "Visible", "op", "symbol", "visible"]

PRODUCT = "product"
"""Name of the buffer by which a score function reads the product of query and key."""


@dataclass(frozen=True, eq=False)
class Attention:
    """One streaming attention.

    Attributes:
        name: Of the kernel.
        batch: Axis of independent problems (heads of all batches).
        rows: Axis of queries.
        columns: Axis of keys and values, over which the softmax runs.
        depth: Axis that the first product sums over.
        width: Axis of the elements of a value.
        query: The load of a query at (batch, rows, depth).
        key: The load of a key at (batch, columns, depth).
        value: The load of a value at (batch, columns, width).
        product: The float32 load that stands for the first product in `score`.
        score: What the softmax is taken of, in float32.
        output: The result, of 16 bits an element.
        place: Offset in `output` at (batch, rows, width).
        labels: Names and comments of values of `score`.
        comment: What the host says of the call.
        product_label: Name and user's line of the first product.
        result_label: The same for the second.
    """

    name: str
    batch: Axis
    rows: Axis
    columns: Axis
    depth: Axis
    width: Axis
    query: Load
    key: Load
    value: Load
    product: Load
    score: Value
    output: Buffer
    place: Expr
    labels: Mapping[Value, Label] = field(default_factory=dict)
    comment: str = ""
    product_label: Label = field(default_factory=lambda: Label("product"))
    result_label: Label = field(default_factory=lambda: Label("mixed"))

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Every distinct value of the score function, operands before their users."""
        return tuple(walk([self.score]))

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        """Buffers that are loaded from."""
        loads = [v for v in self.values if isinstance(v, Load) and v != self.product]
        first = (self.query.buffer, self.key.buffer, self.value.buffer)
        return tuple(dict.fromkeys((*first, *(v.buffer for v in loads))))

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The result."""
        return (self.output,)

    @property
    def scalars(self) -> tuple[ScalarArg, ...]:
        """Numbers passed at each call."""
        return tuple(v for v in self.values if isinstance(v, ScalarArg))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes."""
        return (self.batch, self.rows, self.columns, self.depth, self.width)

    @property
    def sizes(self) -> tuple[sympy.Symbol, ...]:
        """Size symbols, sorted by name."""
        found = set(sympy.sympify(self.place).free_symbols)
        for axis in self.axes:
            found |= sympy.sympify(axis.size).free_symbols
        for value in (self.query, self.key, self.value, *self.values):
            if isinstance(value, Load | IndexValue) and value is not self.product:
                found |= value.index.free_symbols
        return tuple(sorted(found - {a.symbol for a in self.axes}, key=str))

    @property
    def parameters(self) -> tuple[Buffer | ScalarArg | sympy.Symbol, ...]:
        """The kernel's parameters in the order in which the host passes them."""
        return (*self.inputs, *self.outputs, *self.scalars, *self.sizes)


# ── what a row can see ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Visible:
    """Columns outside of `max(first) .. min(last)` (inclusive) have the score -inf.

    The expressions are linear in the row, whose coefficient is an integer.
    """

    first: tuple[Expr, ...] = ()
    last: tuple[Expr, ...] = ()


def visible(score: Value, row: sympy.Symbol, column: sympy.Symbol) -> Visible:
    """Finds bounds of the columns in which a row's score is not -inf for certain.

    NOTE: only a `where` whose other branch is the constant -inf is evidence. `x + mask` is
    NaN where `x` is, whatever the mask.
    """
    first: list[Expr] = []
    last: list[Expr] = []
    while isinstance(score, Op) and score.name in ("cast", "where"):
        if score.name == "cast":
            score = score.args[0]
            continue
        condition, chosen, other = score.args
        if _is_hidden(other):
            seen, score = True, chosen
        elif _is_hidden(chosen):
            seen, score = False, other
        else:
            break
        for bound in _at_most_zero(condition, seen):
            step = bound.coeff(column, 1)
            rest = sympy.expand(bound - step * column)
            slope = rest.coeff(row, 1)
            plain = not (rest - slope * row).has(row) and slope.is_Integer
            if rest.has(column) or not plain:
                continue
            if step == 1:
                last.append(-rest)
            elif step == -1:
                first.append(rest)
    return Visible(tuple(dict.fromkeys(first)), tuple(dict.fromkeys(last)))


def _is_hidden(value: Value) -> bool:
    while isinstance(value, Op) and value.name == "cast":
        value = value.args[0]
    return (
        isinstance(value, Const)
        and value.dtype.is_floating_point
        and value.value == -float("inf")
    )


_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def _at_most_zero(condition: Value, holds: bool) -> Iterator[Expr]:
    """Integer expressions that are certainly <= 0 where a condition holds (or does not)."""
    stack = [(condition, holds)]
    seen: set[tuple[Value, bool]] = set()
    while stack:
        condition, holds = stack.pop()
        if not isinstance(condition, Op) or (condition, holds) in seen:
            continue
        seen.add((condition, holds))
        parts = _parts(condition, holds)
        if parts is None:
            yield from _compared_at_most_zero(condition, holds)
        else:
            stack.extend(reversed(parts))


def _parts(condition: Op, holds: bool) -> list[tuple[Value, bool]] | None:
    """Conditions that hold or do not where this one does, if it is made of conditions."""
    name, args = condition.name, condition.args
    if name == "bitwise_not" and condition.dtype is torch.bool:
        return [(args[0], not holds)]
    if name in ("bitwise_and", "bitwise_or"):
        certain = name == "bitwise_and"
        return [
            (one, holds)
            for one, other in (args, args[::-1])
            if holds == certain
            or (isinstance(other, Const) and bool(other.value) is certain)
        ]
    if name == "where" and all(isinstance(a, Const) for a in args[1:]):
        # where(c, True, False)
        yes, no = (bool(a.value) for a in args[1:] if isinstance(a, Const))
        return [(args[0], holds == yes)] if yes != no else []
    if name == "cast":
        return [(args[0], holds)]
    if name not in _NEGATED:
        return []
    flag = _compared_flag(name, args)
    return None if flag is None else [(flag[0], holds == flag[1])]


def _compared_at_most_zero(condition: Op, holds: bool) -> Iterator[Expr]:
    compared = compared_index(condition)
    if compared is None:
        return
    name, left, right = compared
    if not holds:
        name = _NEGATED[name]
    difference = sympy.expand(left - right)
    if name in ("le", "eq"):
        yield difference
    if name == "lt":
        yield difference + 1
    if name in ("ge", "eq"):
        yield -difference
    if name == "gt":
        yield 1 - difference


def compared_index(value: Op) -> tuple[str, Expr, Expr] | None:
    """A comparison of indices as (name, left, right) with nothing subtracted, else None."""
    if value.name not in _NEGATED:
        return None
    parts = [_linear(a) for a in value.args]
    if parts[0] is None or parts[1] is None:
        return None
    difference = sympy.expand(parts[0] - parts[1])
    terms = sympy.Add.make_args(difference)
    above = [t for t in terms if not t.as_coeff_Mul()[0].is_negative]
    below = [-t for t in terms if t.as_coeff_Mul()[0].is_negative]
    return value.name, sympy.Add(*above), sympy.Add(*below)


def _compared_flag(name: str, args: tuple[Value, ...]) -> tuple[Value, bool] | None:
    """`(c, b)` for a comparison that is true where the bool value `c` is `b`: `c == 0`."""
    for one, other in (args, args[::-1]):
        casts: list[torch.dtype] = []
        while isinstance(one, Op) and one.name == "cast":
            casts.insert(0, one.dtype)
            one = one.args[0]
        if name in ("eq", "ne") and isinstance(other, Const) and isinstance(one, Op):
            number = other.value
            if one.dtype is torch.bool and number in (0, 1):
                return one, bool(number) == (name == "eq")
            if one.name == "where" and all(isinstance(a, Const) for a in one.args[1:]):
                yes, no = (
                    _cast_number(a.value, casts)
                    for a in one.args[1:]
                    if isinstance(a, Const)
                )
                if (yes == number) != (no == number):
                    return one.args[0], (yes == number) == (name == "eq")
    return None


def _cast_number(number: float, casts: list[torch.dtype]) -> float:
    """A number after casts, which may make one of two different ones."""
    tensor = torch.tensor(number)
    for dtype in casts:
        tensor = tensor.to(dtype)
    made: float = tensor.item()
    return made


def _linear(value: Value) -> Expr | None:
    """An integer value as an expression of axes and sizes."""
    made: dict[Value, Expr | None] = {}
    for v in walk([value]):
        parts = [made[o] for o in v.operands]
        made[v] = None if None in parts else _linear_of(v, parts)
    return made[value]


def _linear_of(value: Value, parts: list[Expr]) -> Expr | None:
    if isinstance(value, IndexValue):
        return value.index
    if isinstance(value, Const) and float(value.value).is_integer():
        return sympy.Integer(int(value.value))
    if not isinstance(value, Op):
        return None
    if value.dtype not in (torch.int32, torch.int64, torch.float64):
        return None
    match value.name:
        case "cast":
            return parts[0]
        case "neg":
            return -parts[0]
        case "add":
            return parts[0] + parts[1]
        case "sub":
            return parts[0] - parts[1]
        case "mul":
            return sympy.expand(parts[0] * parts[1])
    return None
