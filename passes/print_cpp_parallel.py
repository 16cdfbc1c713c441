"""Which loops the cores share, as OpenMP pragmas."""

from __future__ import annotations

import sympy

from .loops import Axis, Expr
from .print_cpp_body import Body
from .print_cpp_schedule import PARALLEL_WORK, hint

_ENOUGH = 32
"""Iterations that can be shared evenly among the cores."""


def condition(body: Body, work: Expr) -> str | None:
    """The `if` clause of a parallel loop; None: too little work, "": always."""
    work = sympy.sympify(work)
    if work.is_Integer:
        return "" if int(work) >= PARALLEL_WORK else None
    return f" if(parallel : {body.index(work).within(6)} >= {PARALLEL_WORK})"


def shared_loops(axes: tuple[Axis, ...]) -> int:
    """How many of the outermost loops to collapse so that there is enough to share."""
    count, points = 0, 1
    while count < len(axes) and points < _ENOUGH:
        points *= hint(axes[count].size)
        count += 1
    return count


def parallel_for(
    body: Body, axes: tuple[Axis, ...], work: Expr, clauses: str = ""
) -> int:
    """Emits `#pragma omp parallel for` for the loops over `axes`, if it pays.

    Returns:
        The number of loops that must follow without anything between them.
    """
    when = condition(body, work)
    if when is None or not axes:
        return 1
    count = shared_loops(axes)
    collapse = f" collapse({count})" if count > 1 else ""
    body.pragma(f"parallel for{collapse}{clauses}{when}")
    return count
