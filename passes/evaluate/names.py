"""Name look-up and binding: locals, enclosing functions, cells, globals, builtins."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from ..kinds import is_a
from ..reachable import parts_of
from .breaks import Break
from .frames import Frame
from .lazy import LazyItems
from .sources import Global, Item, Source
from .values import (
    IteratorValue,
    Known,
    Scalar,
    TensorValue,
    Value,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def load(ev: Evaluator, frame: Frame, name: str) -> Value:
    """Returns the value of `name` as CPython would find it.

    Raises:
        Break: SJ030 where CPython raises NameError or UnboundLocalError.
    """
    if name in frame.locals:
        return _local(ev, frame, name)
    if name not in frame.globals_declared:
        owner = owner_of(frame, name)
        if owner is not None:
            return _local(ev, owner, name)
        holder = frame
        while holder.parent is not None:
            holder = holder.parent
        cell = holder.scope.cells.get(name)
        if cell is not None:
            return _cell(ev, holder, name, cell)
    return _global(ev, frame, name)


def owner_of(frame: Frame, name: str) -> Frame | None:
    """Returns the enclosing frame whose local `name` a nested function shares."""
    parent = frame.parent
    while parent is not None:
        if name in parent.locals:
            return parent
        if name in parent.globals_declared:
            return None
        parent = parent.parent
    return None


def _local(ev: Evaluator, frame: Frame, name: str) -> Value:
    value = frame.env.get(name)
    if value is None:
        raise Break("SJ030", f"local variable `{name}` is not bound here")
    looked = ev.look(value)
    if looked is not value:
        ev.journal.set_item(frame.env, name, looked)
    return looked


def _cell(ev: Evaluator, frame: Frame, name: str, cell: object) -> Value:
    source = _cell_source(ev, frame, name, cell)
    written = ev.overlay.get((id(cell), "cell_contents"))
    if written is not None:
        return written
    try:
        contents = cell.cell_contents  # type: ignore[attr-defined]
    except ValueError:
        raise Break("SJ030", f"free variable `{name}` is not bound here") from None
    if source is None or name in frame.scope.compiler_names:
        return Known(contents, None)
    return ev.wrap(contents, source)


def _cell_source(ev: Evaluator, frame: Frame, name: str, cell: object) -> Source | None:
    """The path to a cell's contents: one path for each cell, however it is reached."""
    source = frame.scope.cell_sources.get(name)
    if source is None:
        return None
    key = ("cell", id(cell))
    seen = ev.memo.get(key)
    path = source.guard.removesuffix(".cell_contents")
    if seen is None:
        ev.journal.set_item(ev.memo, key, (Value(), source))
        ev.guards.reached(path, cell)
        return source
    first = seen[1]
    if first.guard != source.guard:
        ev.guards.add(f"{path} is {first.guard.removesuffix('.cell_contents')}")
    return first


def global_source(frame: Frame, name: str) -> Source | None:
    """Returns the source of global `name` of the frame's module; None if it is frozen."""
    scope = frame.scope
    if scope.frozen:
        return None
    return Global(name) if scope.global_base is None else Item(scope.global_base, name)


def _global(ev: Evaluator, frame: Frame, name: str) -> Value:
    table = frame.scope.globals
    written = ev.overlay.get((id(table), name))
    if written is not None:
        return written
    source = global_source(frame, name)
    if name in table:
        obj = table[name]
        if source is None:
            return library_value(ev, obj, table, f"[{name!r}]")
        return ev.wrap(obj, source)
    namespace = table.get("__builtins__", builtins)
    members = namespace if isinstance(namespace, dict) else vars(namespace)
    if name not in members:
        raise Break("SJ030", f"name `{name}` is not defined")
    if source is not None:
        base = (
            "user_globals"
            if frame.scope.global_base is None
            else frame.scope.global_base.guard
        )
        ev.guards.add_absent(base, name)
    return Known(members[name], None)


def library_value(ev: Evaluator, obj: object, holder: object, step: str) -> Known:
    """A global variable of a library: fixed, except for switches, which are guarded."""
    if (obj is None or is_a(obj, bool)) and step.strip(".[]'").islower():
        name = holder.get("__name__") if isinstance(holder, dict) else holder.__name__  # type: ignore[attr-defined]
        hint = f"{str(name).rsplit('.', 1)[-1]}_state"
        ev.guards.add(f"{ev.guards.bind(holder, hint)}{step} is {obj!r}", "a switch")
    return Known(obj, None)


def store(ev: Evaluator, frame: Frame, name: str, value: Value) -> None:
    """Binds `name`, also where it is declared global or nonlocal."""
    if name in frame.locals:
        ev.journal.set_item(frame.env, name, value)
    elif name in frame.globals_declared:
        ev.journal.changes += 1
        _store_global(ev, frame, name, value)
    else:
        ev.journal.changes += 1
        owner = owner_of(frame, name)
        if owner is not None:
            ev.journal.set_item(owner.env, name, value)
        else:
            _store_cell(ev, frame, name, value)


def _store_global(ev: Evaluator, frame: Frame, name: str, value: Value) -> None:
    source = global_source(frame, name)
    if source is None:
        raise Break(
            "SJ021",
            f"library code assigns its global `{name}`",
            hint="make the call outside the function",
        )
    ev.journal.set_item(ev.overlay, (id(frame.scope.globals), name), value)
    residual = ev.residual

    def replay() -> None:
        save_old(ev, source)
        if frame.scope.global_base is None:
            table = residual.constant_name(frame.scope.globals, "user_globals")
            residual.emit(f"{table}[{name!r}] = {residual.reify(value)}")
        else:
            residual.emit(f"{source.residual} = {residual.reify(value)}")

    ev.effect(replay, value)


def _store_cell(ev: Evaluator, frame: Frame, name: str, value: Value) -> None:
    holder = frame
    while holder.parent is not None:
        holder = holder.parent
    cell = holder.scope.cells[name]  # `nonlocal`: Python has made it a free variable
    source = _cell_source(ev, holder, name, cell)
    if source is None:
        raise Break(
            "SJ021",
            f"library code assigns its variable `{name}`",
            hint="make the call outside the function",
        )
    ev.guards.mutated(source.guard.removesuffix(".cell_contents"), type(cell))
    ev.journal.set_item(ev.overlay, (id(cell), "cell_contents"), value)
    residual = ev.residual

    def replay() -> None:
        save_old(ev, source)
        holder_name = residual.constant_name(cell, f"{name}_cell")
        residual.emit(f"{holder_name}.cell_contents = {residual.reify(value)}")

    ev.effect(replay, value)


def held_by_variables(ev: Evaluator) -> frozenset[int]:
    """Returns the ids of the objects that only live because variables hold them.

    Tensors are not among them: they may go as soon as nothing computes with them.
    """
    stack = [value for frame in ev.frames for value in frame.env.values()]
    found: set[int] = set()
    looked: set[int] = set()
    while stack:
        value = stack.pop()
        if id(value) in looked or isinstance(value, TensorValue | Scalar):
            continue
        looked.add(id(value))
        if isinstance(value, IteratorValue) and isinstance(value.items, LazyItems):
            # To look at its items is to take them all; what it has yielded it does not hold.
            continue
        if getattr(value, "source", None) is None:
            stack += () if isinstance(value, Known) else parts_of(value)
        elif not (isinstance(value, Known) and is_constant(value.obj)):
            found.add(id(value))
    return frozenset(found)


def save_old(
    ev: Evaluator,
    target: Source,
    below_only: bool = False,
    held: Callable[[], Container[int]] = tuple,
) -> None:
    """Before `target` is overwritten: holds what was read from it in residual variables.

    Values are printed by their source path; after the write the path leads elsewhere. With
    `below_only` the object at `target` stays, and its items or attributes change. Those
    whose ids are `held` are, even if nothing reads them any more.
    """
    reads = ev.unsaved.reached_by(target, below_only)
    if not reads:
        return
    kept = held()
    for _, _, path, value, first in reads:
        if (
            isinstance(value, Known)
            and is_constant(value.obj)
            and ev.guards.decided(first)
        ):
            ev.journal.set_attr(value, "source", None)  # its value is known: a literal
            continue
        name = ev.residual.fresh(first.hint)
        ev.residual.emit(f"{name} = {path}")
        if id(value) not in kept:
            ev.residual.saved.add(name)
        ev.journal.set_attr(value, "name", name)
    ev.unsaved.forget_saved(target)


def delete(ev: Evaluator, frame: Frame, name: str) -> None:
    """`del name` for a local variable.

    Raises:
        Break: For other scopes, and where CPython raises.
    """
    if name in frame.locals and name in frame.env:
        ev.journal.delete_item(frame.env, name)
        return
    raise Break("SJ030", f"`del {name}` of a name that is not a bound local")
