"""Index algebra: flat positions, reshapes, and their simplification over known ranges.

A view is an index map. Reading element `(i, j)` of `x.view(8, 128)` where `x` is `[4, 2, 128]`
means reading `x` at `((128*i + j) // 256, (128*i + j) // 128 % 2, (128*i + j) % 128)`, which
`simplify` turns into `(i // 2, i % 2, j)`, because it knows that `i < 8` and `j < 128`:

    >>> i, j = symbol("i"), symbol("j")
    >>> ranges = {i: sympy.Integer(8), j: sympy.Integer(128)}
    >>> flat = flatten((i, j), (sympy.Integer(8), sympy.Integer(128)))
    >>> unflatten(flat, tuple(map(sympy.Integer, (4, 2, 128))), ranges)
    ((i//2), Mod(i, 2), j)
    >>> flatten(_, tuple(map(sympy.Integer, (4, 2, 128))), ranges)
    128*i + j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from .loops import Expr, symbol

Index: TypeAlias = tuple[Expr, ...]
Ranges: TypeAlias = Mapping[sympy.Symbol, Expr]
"""Symbol -> exclusive upper bound; the lower bound is 0."""

ZERO = sympy.Integer(0)
ONE = sympy.Integer(1)
_LARGE = sympy.Integer(2**40)

__all__ = [
    "Index",
    "Ranges",
    "contiguous_strides",
    "flatten",
    "simplify",
    "substitute",
    "symbol",
    "unflatten",
]


def as_expr(value: Any) -> Expr:
    """Turns an int, SymInt or expression into an expression over non-negative symbols."""
    if isinstance(value, int):
        return sympy.Integer(value)
    if isinstance(value, sympy.Expr):
        return value
    expr = value.node.expr
    # The shape environment's symbols may carry other assumptions: map them by name.
    table = {s: symbol(s.name) for s in expr.free_symbols}
    return expr.xreplace(table) if table else sympy.sympify(expr)


def expanded(expr: Expr) -> Expr:
    """As `sympy.expand`, which takes much longer to find that there is nothing to multiply out."""
    return expr if _is_expanded(expr) else sympy.expand(expr)


def _is_expanded(expr: Expr) -> bool:
    """Whether an expression is a sum of products of symbols, numbers, quotients and the like."""
    if expr.is_Atom:
        return True
    if expr.is_Add:
        return all(not t.is_Add and _is_expanded(t) for t in expr.args)
    if expr.is_Mul:
        return all(not (f.is_Add or f.is_Mul) and _is_expanded(f) for f in expr.args)
    if expr.is_Pow:
        return bool(expr.args[0].is_Symbol and expr.args[1].is_Integer)
    return isinstance(expr, FloorDiv | Mod) and all(map(_is_expanded, expr.args))


def substitute(expr: Expr, table: Mapping[sympy.Symbol, Expr]) -> Expr:
    """Puts numbers for symbols, also where the dividend of a remainder gets negative.

    An index like `(i - 1) % 4` is read behind a mask that is false for `i = 0`; sympy's `Mod`
    refuses what it then is, although nobody reads there.
    """
    if expr in table:
        return table[expr]
    if not expr.args:
        return expr
    parts = [substitute(part, table) for part in expr.args]
    if isinstance(expr, Mod) and all(part.is_Integer for part in parts):
        return sympy.Integer(int(parts[0]) % int(parts[1]))
    return expr.func(*parts)


def product(sizes: Sequence[Expr]) -> Expr:
    """The number of elements of a tensor of these sizes."""
    total: Expr = ONE
    for size in sizes:
        total = total * size
    return total


def contiguous_strides(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Row-major strides."""
    strides: list[Expr] = []
    step: Expr = ONE
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def flatten(index: Index, sizes: Sequence[Expr], ranges: Ranges | None = None) -> Expr:
    """The row-major position of `index` in a tensor of these sizes."""
    flat = sympy.Add(
        *(i * s for i, s in zip(index, contiguous_strides(sizes), strict=True))
    )
    flat = expanded(flat)
    return simplify(flat, ranges) if ranges else flat


def unflatten(flat: Expr, sizes: Sequence[Expr], ranges: Ranges) -> Index:
    """The index with row-major position `flat` in a tensor of these sizes."""
    if ZERO in sizes:
        return (ZERO,) * len(sizes)
    index: list[Expr] = []
    rest = expanded(flat)
    strides = contiguous_strides(sizes)
    for position, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if size == ONE:
            index.append(ZERO)
            continue
        digit = floordiv(rest, stride, ranges)
        if any(s != ONE for s in sizes[:position]):
            digit = modulo(digit, size, ranges)
        index.append(digit)
    return tuple(index)


def upper_bound(expr: Expr, ranges: Ranges) -> Expr | None:
    """An inclusive upper bound of `expr`, or None if none is found."""
    total: Expr = ZERO
    for term in sympy.Add.make_args(expr):
        coefficient, rest = term.as_coeff_Mul()
        if not (isinstance(rest, FloorDiv) or lower_bound_is_zero(rest)):
            return None
        if coefficient.is_negative:
            # NOTE: the least value of `rest` is 0: symbols are non-negative.
            if not lower_bound_is_zero(rest):
                return None
            continue
        bound = coefficient
        for factor in sympy.Mul.make_args(rest):
            if factor in ranges:
                bound = bound * (ranges[factor] - 1)
            elif isinstance(factor, Mod):
                bound = bound * (factor.args[1] - 1)
            elif isinstance(factor, FloorDiv):
                top = upper_bound(factor.args[0], ranges)
                if top is None or not (top.is_Integer and factor.args[1].is_Integer):
                    return None
                bound = bound * (top // factor.args[1])
            elif factor.is_Integer or _is_size(factor, ranges):
                bound = bound * factor
            else:
                return None
        total = total + bound
    return expanded(total)


def _is_size(factor: Expr, ranges: Ranges) -> bool:
    """True for a size symbol or a power of one (`s**2` elements of a square)."""
    base, exponent = factor.as_base_exp()
    positive = bool(exponent.is_Integer and exponent > 0)
    return bool(base.is_Symbol and base not in ranges and positive)


def lower_bound_is_zero(expr: Expr) -> bool:
    """True if no term of `expr` is subtracted, nor one of what it divides.

    A dividend is below zero where nobody reads, behind the mask of a `cat` or of padding.
    """
    if any(t.as_coeff_Mul()[0].is_negative for t in sympy.Add.make_args(expr)):
        return False
    return all(lower_bound_is_zero(q.args[0]) for q in expr.atoms(FloorDiv))


def is_less(expr: Expr, bound: Expr, ranges: Ranges) -> bool:
    """True if `0 <= expr < bound` is certain."""
    if not lower_bound_is_zero(expr):
        return False
    top = upper_bound(expr, ranges)
    if top is None:
        return False
    gap = expanded(bound - 1 - top)
    return not _negative_for_large(gap) and bool(gap.is_nonnegative)


def _negative_for_large(expr: Expr) -> bool:
    """Whether an expression is negative where its symbols are large.

    Nothing keeps them from it, so that it might be is out of the question then, which costs
    sympy thousands of steps to find out.
    """
    large = dict.fromkeys(expr.free_symbols, _LARGE)
    return bool(large) and bool(expr.xreplace(large).is_negative)


def _quotient(term: Expr, divisor: Expr) -> Expr | None:
    """`term / divisor` if that is an integer polynomial, else None."""
    if divisor == ONE:
        return term
    if divisor.is_Integer:
        coefficient, rest = term.as_coeff_Mul()
        if coefficient.is_Integer and coefficient % divisor == 0:
            return (coefficient // divisor) * rest
        return None
    ratio = sympy.cancel(term / divisor)
    numerator, denominator = ratio.as_numer_denom()
    return numerator if denominator == ONE else None


def _split(expr: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """Writes `expr` as `divisor * whole + rest`; returns (whole, rest)."""
    whole, rest = [], []
    for term in sympy.Add.make_args(expr):
        ratio = _quotient(term, divisor)
        if ratio is None:
            rest.append(term)
        else:
            whole.append(ratio)
    return sympy.Add(*whole), sympy.Add(*rest)


def floordiv(expr: Expr, divisor: Expr, ranges: Ranges) -> Expr:
    """`expr // divisor`, simplified."""
    if divisor == ONE or expr == ZERO:
        return expr
    whole, rest = _split(expr, divisor)
    if is_less(rest, divisor, ranges):
        return whole
    steps, rest = _least_number(rest, divisor)
    if _is_subtracted(rest, divisor):
        # The dividends of what is printed must not be below zero: kernels round to it.
        return whole + steps - floordiv(expanded(divisor - 1 - rest), divisor, ranges)
    if lower_bound_is_zero(rest):
        whole += steps
        if is_less(rest, divisor, ranges):
            return whole
    else:
        whole, rest = ZERO, expr
    rest, divisor = _cancel(rest, divisor, ranges)
    if isinstance(rest, FloorDiv):
        rest, divisor = rest.args[0], rest.args[1] * divisor
        return whole + floordiv(rest, divisor, ranges)
    return whole + FloorDiv(rest, divisor)


def modulo(expr: Expr, divisor: Expr, ranges: Ranges) -> Expr:
    """`expr % divisor`, simplified."""
    if divisor == ONE or expr == ZERO:
        return ZERO
    _, rest = _split(_without_mods(expr, divisor), divisor)
    _, rest = _least_number(rest, divisor)
    if _is_subtracted(rest, divisor):
        return expanded(
            divisor - 1 - modulo(expanded(divisor - 1 - rest), divisor, ranges)
        )
    if not lower_bound_is_zero(rest):
        return Mod(expr, divisor)
    if is_less(rest, divisor, ranges):
        return rest
    if isinstance(rest, Mod) and _quotient(rest.args[1], divisor) is not None:
        return modulo(rest.args[0], divisor, ranges)
    common = _common(rest, divisor)
    if common != ONE:
        small = modulo(
            _quotient_all(rest, common), sympy.cancel(divisor / common), ranges
        )
        return expanded(common * small)
    return Mod(rest, divisor)


def _least_number(expr: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """`expr` as a multiple of `divisor` and a rest whose number is within it.

    Of `j - 310`, by 9, -35 and `j + 5`.
    """
    number, others = expr.as_coeff_Add()
    if not (number.is_Integer and divisor.is_Integer):
        return ZERO, expr
    return number // divisor, others + number % divisor


def _is_subtracted(expr: Expr, divisor: Expr) -> bool:
    """Whether `divisor - 1 - expr` has no term that is subtracted, but `expr` has."""
    return not lower_bound_is_zero(expr) and lower_bound_is_zero(
        expanded(divisor - 1 - expr)
    )


def _without_mods(expr: Expr, divisor: Expr) -> Expr:
    """`expr` plus a multiple of `divisor`: `a % (2*d) + b` is `a + b`, up to multiples of `d`."""
    if not isinstance(expr, sympy.Add):
        return expr
    terms = []
    for term in expr.args:
        coefficient, rest = term.as_coeff_Mul()
        if isinstance(rest, Mod) and coefficient.is_positive:
            if _quotient(coefficient * rest.args[1], divisor) is not None:
                term = expanded(coefficient * rest.args[0])
        terms.append(term)
    return sympy.Add(*terms)


def _common(expr: Expr, divisor: Expr) -> Expr:
    """The largest integer that divides `divisor` and every term of `expr`."""
    if not divisor.is_Integer:
        return ONE
    common = divisor
    for term in sympy.Add.make_args(expr):
        coefficient = term.as_coeff_Mul()[0]
        common = sympy.igcd(common, coefficient) if coefficient.is_Integer else 1
    return sympy.Integer(common)


def _quotient_all(expr: Expr, divisor: Expr) -> Expr:
    return sympy.Add(*(_quotient(t, divisor) for t in sympy.Add.make_args(expr)))


def _cancel(expr: Expr, divisor: Expr, ranges: Ranges) -> tuple[Expr, Expr]:
    """Divides both by their common factor; drops terms too small to change the quotient."""
    if not divisor.is_Integer:
        return expr, divisor
    # (128*i + j) // 256 == i // 2 if j < 128.
    terms = sympy.Add.make_args(expr)
    steps = sorted(
        {
            abs(int(c))
            for t in terms
            if (c := t.as_coeff_Mul()[0]).is_Integer and abs(c) != 1
        }
    )
    for step in reversed(steps):
        common = sympy.igcd(step, divisor)
        if common <= 1:
            continue
        whole, rest = _split(expr, sympy.Integer(common))
        if whole != ZERO and is_less(rest, sympy.Integer(common), ranges):
            return whole, divisor / common
    return expr, divisor


@lru_cache(maxsize=100_000)
def _simplify(expr: Expr, ranges: tuple[tuple[sympy.Symbol, Expr], ...]) -> Expr:
    if not expr.has(FloorDiv, Mod):
        return expanded(expr)
    table = dict(ranges)

    def visit(node: Expr) -> Expr:
        if node.is_Atom:
            return node
        args = [visit(a) for a in node.args]
        if isinstance(node, FloorDiv | Mod):
            whole = _recombine(expanded(args[0]), table)
            reduced = floordiv if isinstance(node, FloorDiv) else modulo
            return reduced(whole, args[1], table)
        return node.func(*args)

    return _recombine(expanded(visit(expr)), table)


def _recombine(expr: Expr, ranges: Ranges) -> Expr:
    """Rewrites `c*d*(x // d) + c*(x % d)` as `c*x`, until nothing changes."""
    changed = True
    while changed and isinstance(expr, sympy.Add):
        changed = False
        terms = list(expr.args)
        for m, term in enumerate(terms):
            remainders = [f for f in sympy.Mul.make_args(term) if isinstance(f, Mod)]
            if len(remainders) != 1:
                continue
            whole, divisor = remainders[0].args
            scale = sympy.Mul(
                *(f for f in sympy.Mul.make_args(term) if f != remainders[0])
            )
            above = floordiv(whole, divisor, ranges)
            partner = expanded(scale * divisor * above)
            # The quotient may itself stand below a remainder: x//d % e is x%(d*e) // d.
            for n, other in enumerate(terms):
                if n == m:
                    continue
                if other == partner:
                    merged = scale * whole
                elif (
                    longer := _same_digits(other, scale, remainders[0], ranges)
                ) is not None:
                    merged = scale * longer
                elif (outer := _digit_above(other, scale * divisor, above)) is not None:
                    merged = scale * Mod(whole, divisor * outer)
                else:
                    continue
                kept = [t for k, t in enumerate(terms) if k not in (m, n)]
                expr = expanded(sympy.Add(*kept, merged))
                changed = True
                break
            if changed:
                break
    return expr


def _same_digits(term: Expr, scale: Expr, rest: Expr, ranges: Ranges) -> Expr | None:
    """`x` if `term` is `scale * d * (x // d)` and `rest` is `x % d`, else None.

    The digits below `d` may have been simplified: of `x = 512*i + j`, `rest` is `j % 512`.
    """
    divisor = rest.args[1]
    for part in sympy.Mul.make_args(term):
        if isinstance(part, FloorDiv) and part.args[1] == divisor:
            alike = expanded(term - scale * divisor * part) == ZERO
            if alike and modulo(part.args[0], divisor, ranges) == rest:
                return part.args[0]
    return None


def _digit_above(term: Expr, step: Expr, above: Expr) -> Expr | None:
    """`e` if `term` is `step * (above % e)`, else None."""
    for factor in sympy.Mul.make_args(term):
        if isinstance(factor, Mod) and factor.args[0] == above:
            others = sympy.Mul(*(f for f in sympy.Mul.make_args(term) if f != factor))
            if expanded(others - step) == ZERO:
                return factor.args[1]
    return None


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """Returns `expr` in a normal form that uses the ranges of its symbols."""
    if expr.is_Atom:
        return expr
    used = tuple(
        (s, ranges[s]) for s in sorted(expr.free_symbols, key=str) if s in ranges
    )
    return _simplify(expr, used)
