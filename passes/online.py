"""Online reductions: what a reduction needs of another, it gets while both run.

Before (two sweeps over a row, because `total` needs the finished `peak`):

    peak  = max(x[k])
    total = sum(exp(x[k] - peak))

After (one sweep; each part of the row has a peak and a total of its own):

    peak_p  = max(x[k])                      for k in part p
    total_p = sum(exp(x[k] - peak_p))
    peak    = max(peak_p)                    when the parts are merged
    total   = sum(total_p * exp(peak_p - peak))

The same for squares of distances, which a variance is made of:

    squares = sum((x[k] - c)**2)             with any c that is one number a row
    squares = sum(squares_p + n_p * (mean_p - c)**2)

with `squares_p` taken around the part's own mean: Chan's formula. Both are found by what the
values are, not by what the user called; `print_triton_split` makes parts that run in parallel,
`print_triton_body` makes parts of the lanes of one program. What it takes to be right:

- `exp(a - peak)` where `peak` is the maximum of the same `a`, so that `a - peak_p <= 0`: no
  term overflows that would not have, and a term is rescaled by at most 1. Otherwise the sum is
  left alone.
- An infinite peak: `exp(inf - inf)` is NaN in eager too, but a part of a row may be all `-inf`
  where the row is not. A part subtracts 0 in place of an infinite peak, and the merge
  multiplies by `exp(peak_p - peak)`, which is 0, or NaN where eager's result is.
- A sum of squares needs nothing: the formula holds for every `c`, and no term is negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy

from .loops import (
    Const,
    IndexValue,
    Kernel,
    Op,
    Reduce,
    Ref,
    Value,
    op,
    rebuild,
    symbols_of,
    walk,
)

MAX_FACTORS = 64
"""More factors than these are one."""


@dataclass(frozen=True, eq=False)
class Raised:
    """`total = sum(exp(argument - shift) * weight)`.

    Attributes:
        total: The sum.
        peak: The maximum of `argument`.
        argument: What is raised.
        shift: `peak`, or a number in its place where that is infinite.
        weight: The other factors, or None.
    """

    total: Reduce
    peak: Reduce
    argument: Value
    shift: Value
    weight: Value | None

    def part(self) -> Value:
        """What a part folds, relative to its own peak, which has the name of the whole's."""
        made: Value = op("exp", op("sub", self.argument, finite(self.peak.ref)))
        return made if self.weight is None else op("mul", made, self.weight)

    def merged(self, total: Value, peak: Value) -> Value:
        """What merging folds, of the results of a part."""
        return op("mul", total, op("exp", op("sub", peak, self.shift)))


@dataclass(frozen=True, eq=False)
class Centred:
    """`squares = sum((argument - centre)**2)` with a `centre` that is one number a row.

    Attributes:
        squares: The sum.
        argument: What is as far from `centre` as is squared.
        centre: A number for each row.
        live: Where elements count, up to some place in the row; None if all do.
    """

    squares: Reduce
    argument: Value
    centre: Value
    live: Value | None = None

    def part(self, total: Value, count: Value) -> Value:
        """What a part folds: squares of distances from its own mean."""
        distance = op("sub", self.argument, op("div", total, count))
        return op("mul", distance, distance)

    def merged(self, squares: Value, total: Value, count: Value) -> Value:
        """What merging folds, of the results of a part of `count` elements."""
        distance = op("sub", op("div", total, count), self.centre)
        return op("add", squares, op("mul", count, op("mul", distance, distance)))


Form = Raised | Centred


def finite(peak: Value) -> Value:
    """The peak, or 0 where it is infinite."""
    return op("where", op("isinf", peak), Const(0.0, peak.dtype), peak)


def online_forms(kernel: Kernel, *, guarded: bool = False) -> dict[str, Form]:
    """The sums of a kernel that need not wait for another reduction, by name.

    Args:
        kernel: What is searched.
        guarded: Find squares, too, of which only those up to some place count.
    """
    inner = {axis.symbol for axis in kernel.inner}
    reduces = {s.name: s for s in kernel.body if isinstance(s, Reduce)}
    found: dict[str, Form] = {}
    for reduce in reduces.values():
        if reduce.kind != "sum" or not reduce.dtype.is_floating_point:
            continue
        if not _references(reduce.value):
            continue
        form = _raised(reduce, reduces, inner) or _centred(reduce, inner)
        if form is None and guarded:
            form = _guarded(reduce, inner)
        if form is not None:
            found[reduce.name] = form
    return found


def online_levels(kernel: Kernel, forms: Mapping[str, Form]) -> dict[str, int]:
    """How many sweeps each reduction takes, its own included, if these forms are used."""
    levels: dict[str, int] = {}

    def level_of(value: Value) -> int:
        return max((levels[name] for name in _references(value)), default=0)

    for statement in kernel.body:
        if not isinstance(statement, Reduce):
            continue
        match forms.get(statement.name):
            case Raised(peak=peak, weight=weight):
                weighs = 0 if weight is None else level_of(weight) + 1
                levels[statement.name] = max(levels[peak.name], weighs)
            case Centred(argument=argument, centre=centre):
                own = level_of(argument) + 1
                levels[statement.name] = max(own, level_of(centre))
            case None:
                levels[statement.name] = 1 + level_of(statement.value)
    return levels


def _references(value: Value) -> set[str]:
    return {v.name for v in walk([value]) if isinstance(v, Ref)}


def _raised(
    reduce: Reduce, reduces: Mapping[str, Reduce], inner: set[sympy.Symbol]
) -> Raised | None:
    factors = _factors(reduce.value)
    for position, factor in enumerate(factors):
        match factor:
            case Op(name="exp", args=(Op(name="sub", args=(argument, shift)),)):
                peak = _peak_of(shift)
                made = reduces.get(peak.name) if peak is not None else None
                if made is None or made.kind != "max" or made.value is not argument:
                    continue
                rest = [*factors[:position], *factors[position + 1 :]]
                if any(made.name in _references(r) for r in rest):
                    continue
                if rest and not isinstance(shift, Ref):
                    continue
                weight = None
                for other in rest:
                    weight = other if weight is None else op("mul", weight, other)
                return Raised(reduce, made, argument, shift, weight)
    return None


def _factors(value: Value) -> list[Value]:
    """The factors of a product, from left to right; of a long one, the product itself."""
    found: list[Value] = []
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, Op) and part.name == "mul":
            stack.extend(reversed(part.args))
        else:
            found.append(part)
        # A square of a square of … has more factors than values.
        if len(found) + len(stack) > MAX_FACTORS:
            return [value]
    return found


def _peak_of(shift: Value) -> Ref | None:
    """The reference of `peak`, or of `where(peak is infinite, number, peak)`."""
    match shift:
        case Ref():
            return shift
        case Op(name="where", args=(test, Const(value=number), Ref() as peak)):
            if _tests_infinite(test, peak) and math.isfinite(number):
                return peak
    return None


def _tests_infinite(test: Value, peak: Ref) -> bool:
    match test:
        case Op(name="isinf", args=(value,)):
            return value is peak
        case Op(name="eq", args=(Op(name="abs", args=(value,)), Const(value=number))):
            return value is peak and number == math.inf
    return False


def _centred(reduce: Reduce, inner: set[sympy.Symbol]) -> Centred | None:
    match reduce.value:
        case Op(name="mul", args=(Op(name="sub", args=(argument, centre)) as d, other)):
            if other is not d or not symbols_of(argument) & inner:
                return None
            if symbols_of(centre) & inner or not _references(centre):
                return None
            return Centred(reduce, argument, centre)
    return None


def _guarded(reduce: Reduce, inner: set[sympy.Symbol]) -> Centred | None:
    """As `_centred`, of `where(position < end, square, 0)`."""
    match reduce.value:
        case Op(
            name="where",
            args=(
                Op(name="lt", args=(IndexValue(index=index), Const())) as live,
                square,
                Const(value=0),
            ),
        ):
            steps = [sympy.diff(index, s) for s in index.free_symbols & inner]
            if not all(step.is_positive for step in steps):
                return None
            form = _centred(replace(reduce, value=square), inner)
            return form and replace(form, squares=reduce, live=live)
    return None


def renamed(value: Value, table: Mapping[str, Value]) -> Value:
    """The value with references replaced."""
    made: dict[Value, Value] = {}
    for v in walk([value]):
        if isinstance(v, Ref) and v.name in table:
            made[v] = table[v.name]
        else:
            made[v] = rebuild(v, tuple(made[o] for o in v.operands))
    return made[value]
