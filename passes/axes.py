"""Axes of a finished kernel: drop those of size 1, order by stride, merge what is contiguous.

Before:

    kernel over i0 < 16, i1 < 512, i2 < 1024, i3 < 1:
        y[524288*i0 + 1024*i1 + i2] = sin(x[524288*i0 + 1024*i1 + i2])

After:

    kernel over i < 8388608:
        y[i] = sin(x[i])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from .indexing import ONE, ZERO, simplify, substitute
from .loops import (
    Axis,
    Expr,
    IndexValue,
    Kernel,
    Label,
    Load,
    Reduce,
    Store,
    Value,
    rebuild,
    symbol,
    walk,
)

OUTER_NAMES, INNER_NAMES = "ijmnpq", "kl"


def tidy(kernel: Kernel) -> Kernel:
    """Returns an equal kernel with as few axes as its indices allow."""
    kernel = _drop_single(kernel)
    kernel = replace(kernel, outer=_by_stride(kernel, kernel.outer))
    if not any(isinstance(s, Reduce) and s.kind.startswith("arg") for s in kernel.body):
        kernel = replace(kernel, inner=_by_stride(kernel, kernel.inner))
    kernel = _merge(kernel, "outer")
    kernel = _merge(kernel, "inner")
    return _rename(kernel)


def map_indices(kernel: Kernel, change: Callable[[Expr], Expr]) -> Kernel:
    """Applies `change` to every index expression of a kernel."""
    done: dict[Value, Value] = {}

    def value_of(root: Value) -> Value:
        for v in walk([root]):
            if v in done:
                continue
            new = rebuild(v, tuple(done[o] for o in v.operands)) if v.operands else v
            if isinstance(new, Load):
                new = Load(new.buffer, change(new.index), new.mask, new.indirect)
            elif isinstance(new, IndexValue):
                new = IndexValue(change(new.index), new.dtype)
            done[v] = new
        return done[root]

    body: list[Reduce | Store] = []
    for statement in kernel.body:
        value = value_of(statement.value)
        if isinstance(statement, Store):
            body.append(replace(statement, index=change(statement.index), value=value))
        else:
            body.append(replace(statement, value=value))
    labels: dict[Value, Label] = {}
    for v, label in kernel.labels.items():
        labels[done.get(v, v)] = label
    return replace(kernel, body=tuple(body), labels=labels)


def index_expressions(kernel: Kernel) -> list[Expr]:
    """Every distinct index expression of a kernel."""
    found: dict[Expr, None] = {}
    for v in kernel.values:
        if isinstance(v, Load | IndexValue):
            found[v.index] = None
    for statement in kernel.body:
        if isinstance(statement, Store):
            found[sympy.sympify(statement.index)] = None
    return list(found)


def _drop_single(kernel: Kernel) -> Kernel:
    single = {a.symbol: ZERO for a in (*kernel.outer, *kernel.inner) if a.size == ONE}
    if not single:
        return kernel
    inner = tuple(a for a in kernel.inner if a.symbol not in single)
    if kernel.inner and not inner:
        # The reductions still need an axis to run over.
        inner = kernel.inner[:1]
        del single[inner[0].symbol]
    outer = tuple(a for a in kernel.outer if a.symbol not in single)
    kernel = replace(kernel, outer=outer, inner=inner)
    return map_indices(kernel, lambda e: substitute(e, single)) if single else kernel


def coefficient(index: Expr, axis: sympy.Symbol) -> Expr | None:
    """The stride of `axis` in an index, or None where it stands below a `//` or `%`."""
    if axis not in index.free_symbols:
        return ZERO
    for part in index.atoms(FloorDiv, Mod):
        if axis in part.free_symbols:
            return None
    return sympy.expand(index).coeff(axis, 1)


def _by_stride(kernel: Kernel, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Orders axes by their strides in the first access that uses all of them."""
    if len(axes) < 2:
        return tuple(axes)
    stores = [sympy.sympify(s.index) for s in kernel.body if isinstance(s, Store)]
    loads = [v.index for v in kernel.values if isinstance(v, Load)]
    best: tuple[Expr | None, ...] | None = None
    for index in (*stores, *loads):
        strides = tuple(coefficient(index, a.symbol) for a in axes)
        if all(s is not None and s != ZERO for s in strides):
            best = strides
            break
    if best is None:
        return tuple(axes)
    order = sorted(range(len(axes)), key=lambda n: (-_rough(best[n]), n))
    return tuple(axes[n] for n in order)


def _rough(stride: Expr | None) -> float:
    assert stride is not None
    if stride.is_Integer:
        return float(stride)
    return float(stride.xreplace(dict.fromkeys(stride.free_symbols, 4096)))


def _merge(kernel: Kernel, level: str) -> Kernel:
    axes: tuple[Axis, ...] = getattr(kernel, level)
    position = len(axes) - 2
    while position >= 0:
        above, below = axes[position], axes[position + 1]
        if _mergeable(kernel, above, below):
            joined = Axis(below.symbol, sympy.expand(above.size * below.size))
            axes = (*axes[:position], joined, *axes[position + 2 :])
            merged = (
                replace(kernel, outer=axes)
                if level == "outer"
                else replace(kernel, inner=axes)
            )
            kernel = map_indices(merged, _without(above.symbol))
        position -= 1
    return kernel


def _without(axis: sympy.Symbol) -> Callable[[Expr], Expr]:
    return lambda index: substitute(index, {axis: ZERO})


def _mergeable(kernel: Kernel, above: Axis, below: Axis) -> bool:
    """True if the two axes are wanted only as one: `above * size + below`."""
    return all(
        _as_one(sympy.expand(index), above, below)
        for index in index_expressions(kernel)
    )


def _as_one(index: Expr, above: Axis, below: Axis) -> bool:
    high, low = sympy.Integer(0), sympy.Integer(0)
    for term in sympy.Add.make_args(index):
        found = term.free_symbols & {above.symbol, below.symbol}
        if not found:
            continue
        parts = [p for p in term.atoms(FloorDiv, Mod) if found & p.free_symbols]
        if parts:
            # The outermost one contains the others.
            whole = max(parts, key=lambda p: p.count_ops())
            scale = sympy.cancel(term / whole)
            if found & scale.free_symbols or found & whole.args[1].free_symbols:
                return False
            if not _as_one(sympy.expand(whole.args[0]), above, below):
                return False
        else:
            high += term.coeff(above.symbol, 1)
            low += term.coeff(below.symbol, 1)
    return bool(sympy.expand(high - low * below.size) == 0)


def _rename(kernel: Kernel) -> Kernel:
    """Gives the axes the names that a person would: i, j outside and k, l inside."""
    outer, table = _named(kernel.outer, OUTER_NAMES, "i")
    inner, more = _named(kernel.inner, INNER_NAMES, "k")
    table.update(more)
    ranges = {a.symbol: a.size for a in (*outer, *inner)}
    kernel = replace(kernel, outer=outer, inner=inner)
    return map_indices(kernel, lambda e: simplify(e.xreplace(table), ranges))


def _named(
    axes: tuple[Axis, ...], names: str, stem: str
) -> tuple[tuple[Axis, ...], dict[sympy.Symbol, sympy.Symbol]]:
    chosen = (
        names if len(axes) <= len(names) else [f"{stem}{n}" for n in range(len(axes))]
    )
    table = {a.symbol: symbol(c) for a, c in zip(axes, chosen, strict=False)}
    return tuple(Axis(table[a.symbol], a.size) for a in axes), table
