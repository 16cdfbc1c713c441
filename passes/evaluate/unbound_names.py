"""Variables that are not bound where Python runs a statement, and that it must find so.

def f(x, flag):
    if flag: y = x
    print(y)       # `y` is not bound: its statement is to raise what it would raise there
"""

from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING, Any

from ..flow import deleted
from ..program import NOT_BOUND
from ..reachable import roots
from ..scopes import captured, reads, writes
from . import names, resuming
from .frames import Frame
from .values import Scalar, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def unbound_locals(
    frame: Frame, statements: list[Any], values: dict[str, Value]
) -> list[str]:
    """Locals that statements read or delete and that are not bound."""
    used = reads(statements).union(*(deleted(s) for s in statements))
    return sorted((used & frame.locals) - set(values))


def missing_cells(frame: Frame, statements: list[Any]) -> dict[str, CellType]:
    """Empty cells for variables of the functions around that are read and not bound."""
    found = {}
    for name in reads(statements) | captured(statements):
        owner = None if name in frame.locals else names.owner_of(frame, name)
        if owner is not None and name not in owner.env:
            found[name] = CellType()
    return found


def must_be_missing(
    ev: Evaluator, frame: Frame, statements: list[Any]
) -> tuple[set[str], set[str]]:
    """Names in `missing_cells` that need cells, and those that are bound or deleted, too.

    If the program has a variable of that name, it is another one, and a variable that is
    bound must not become a local one: that would raise another error.
    """
    missing = set(missing_cells(frame, statements))
    bound = missing & writes(statements).union(*(deleted(s) for s in statements))
    return names_in_use(ev, missing) | bound, bound


def names_in_use(ev: Evaluator, missing: set[str]) -> set[str]:
    """Those of the names by which the program has a variable: it is another one."""
    constants = ev.residual.constants
    return {n for n in missing - ev.own_locals if constants.get(n) is not NOT_BOUND}


def leave_unbound(ev: Evaluator, missing: set[str]) -> None:
    """Has the program find such variables not bound, if it has none of that name."""
    for name in missing & ev.own_locals:
        ev.own_locals.discard(name)
        ev.residual.constants[name] = NOT_BOUND


def taken_names(ev: Evaluator, names: list[str], values: dict[str, Value]) -> set[str]:
    """Names that are not bound but are variables by which the program reaches something.

    The message of the error says the name, so it is to be unbound under it. What was made
    by the program moves to another variable; arguments stay in theirs.
    """
    residual = ev.residual
    for name in names:
        live = [*values.values(), *resuming.live_values(ev), *ev.effect_values]
        holders = [v for v in live if v.name == name and not isinstance(v, Scalar)]
        if holders:
            other = residual.fresh(name)
            residual.emit(f"{other} = {name}")
            for holder in holders:
                ev.journal.set_attr(holder, "name", other)
    live = [*values.values(), *resuming.live_values(ev), *ev.effect_values]
    return roots(ev, [*live, *ev.overlay.values()]) & set(names) if names else set()


def unbind(ev: Evaluator, names: list[str], values: dict[str, Value]) -> dict[str, str]:
    """Makes variables that are not bound of names that are not; returns the variables."""
    residual = ev.residual
    taken = taken_names(ev, names, values)
    variables = {}
    for name in names:
        variable = residual.fresh(name) if name in taken else name
        residual.emit(f"{variable} = None")
        residual.emit(f"del {variable}")
        residual.overwritten(variable)
        variables[name] = variable
    return variables
