"""Iteration over a module's tree: `parameters()`, `named_modules()`, `children()`, `buffers()`.

    next(self.parameters()).device        # reads one parameter, guards one path

The tree is walked as it is now; what is handed out is guarded, piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .breaks import Break
from .lazy import at_hand, lazy_iterator
from .modules import refuse_written
from .registry import evaluates
from .sources import Attribute, Item, Source
from .truth import truth
from .values import (
    Known,
    TupleValue,
    Value,
    constant,
    described,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

Module = torch.nn.Module


@dataclass
class _Entry:
    """One thing to hand out, and the conditions under which it comes next."""

    name: str
    obj: Any
    source: Source
    guards: list[Callable[[], None]] = field(default_factory=list)


def _receiver(value: Value, *methods: str) -> tuple[Module, Source]:
    if not isinstance(value, Known) or value.source is None:
        raise Break(
            "SJ020",
            f"the modules in {described(value)}",
            hint="keep the module in an attribute, a global variable or an argument of "
            "your own",
        )
    module = value.obj
    for name in methods:
        if getattr(type(module), name) is not getattr(Module, name):
            raise Break("SJ020", f"`{type(module).__name__}` defines `{name}` itself")
    return module, value.source


def _structure(
    ev: Evaluator, module: Module, source: Source, table: str
) -> Callable[[], None]:
    def guard() -> None:
        ev.guards.type_of(source, module)
        keys = tuple(getattr(module, table))
        path = f"{source.guard}.{table}"
        ev.guards.add(f"tuple({path}) == {keys!r}" if keys else f"not {path}")

    return guard


def _presence(ev: Evaluator, obj: Any, source: Source) -> Callable[[], None]:
    word = "is" if obj is None else "is not"
    return lambda: ev.guards.add(f"{source.guard} {word} None")


def _children(ev: Evaluator, module: Module, source: Source) -> Iterator[_Entry]:
    pending = [_structure(ev, module, source, "_modules")]
    seen: set[int] = set()
    for name, child in module._modules.items():
        where = Item(Attribute(source, "_modules"), name)
        pending.append(_presence(ev, child, where))
        if child is not None and id(child) not in seen:
            seen.add(id(child))
            yield _Entry(name, child, where, pending)
            pending = []


def _walk(
    ev: Evaluator, module: Module, source: Source, prefix: str, memo: set[int] | None
) -> Iterator[_Entry]:
    """The modules of a tree, the root first, as `named_modules` yields them."""
    if memo is not None:
        if id(module) in memo:
            return
        memo.add(id(module))
    yield _Entry(prefix, module, source)
    pending = [_structure(ev, module, source, "_modules")]
    for name, child in module._modules.items():
        where = Item(Attribute(source, "_modules"), name)
        pending.append(_presence(ev, child, where))
        if child is None:
            continue
        if type(child).named_modules is not Module.named_modules:
            raise Break(
                "SJ020", f"`{type(child).__name__}` defines `named_modules` itself"
            )
        path = f"{prefix}.{name}" if prefix else name
        for entry in _walk(ev, child, where, path, memo):
            entry.guards[:0] = pending
            pending = []
            yield entry


def _members(
    ev: Evaluator,
    module: Module,
    source: Source,
    table: str,
    prefix: str,
    recurse: bool,
    distinct: bool,
) -> Iterator[_Entry]:
    seen: set[int] = set()
    owners = (
        _walk(ev, module, source, prefix, set() if distinct else None)
        if recurse
        else iter([_Entry(prefix, module, source)])
    )
    pending: list[Callable[[], None]] = []
    for owner in owners:
        pending += [*owner.guards, _structure(ev, owner.obj, owner.source, table)]
        refuse_written(ev, owner.obj, table)
        for name, member in getattr(owner.obj, table).items():
            where = Item(Attribute(owner.source, table), name)
            pending.append(_presence(ev, member, where))
            if member is None or (distinct and id(member) in seen):
                continue
            seen.add(id(member))
            path = f"{owner.name}.{name}" if owner.name else name
            yield _Entry(path, member, where, pending)
            pending = []


def _hand_out(
    ev: Evaluator, entries: list[_Entry], last: Callable[[], None], named: bool
) -> Value:
    def pull() -> Value | None:
        index = len(at_hand(made))
        if index >= len(entries):
            last()
            return None
        entry = entries[index]
        for guard in entry.guards:
            guard()
        value = ev.wrap(entry.obj, entry.source)
        return TupleValue([constant(entry.name), value]) if named else value

    made = lazy_iterator(ev, pull)
    return made


def _tree_guard(
    ev: Evaluator,
    module: Module,
    source: Source,
    tables: tuple[str, ...],
    entries: list[_Entry],
) -> Callable[[], None]:
    """What must hold for the walk to end where it ended: all tables, all objects distinct."""

    def guard() -> None:
        for entry in _walk(ev, module, source, "", set()):
            for one in entry.guards:
                one()
            for table in ("_modules", *tables):
                _structure(ev, entry.obj, entry.source, table)()
        _distinct(ev, entries)

    return guard


def _distinct(ev: Evaluator, entries: list[_Entry]) -> None:
    paths = [entry.source.guard for entry in entries]
    if len({id(entry.obj) for entry in entries}) == len(paths) > 1:
        ids = ", ".join(f"id({path})" for path in paths)
        ev.guards.add(f"len({{{ids}}}) == {len(paths)}", "no object twice")


def _flag(ev: Evaluator, value: Value | None, default: bool = True) -> bool:
    return default if value is None else truth(ev, value)


def _text(ev: Evaluator, value: Value | None) -> str:
    return "" if value is None else str(ev.known(value, "a prefix"))


def _named_members(table: str, named: bool) -> Callable[..., Value]:
    method = "named_parameters" if table == "_parameters" else "named_buffers"
    checked = ("named_modules", "_named_members", method)

    def members(
        ev: Evaluator,
        module: Value,
        prefix: Value | None,
        recurse: Value | None,
        remove_duplicate: Value | None,
    ) -> Value:
        root, source = _receiver(module, *checked)
        deep, distinct = _flag(ev, recurse), _flag(ev, remove_duplicate)
        start = _text(ev, prefix)
        entries = list(_members(ev, root, source, table, start, deep, distinct))

        def last() -> None:
            if deep:
                _tree_guard(ev, root, source, (table,), entries)()
            else:
                _structure(ev, root, source, table)()
                _distinct(ev, entries)

        return _hand_out(ev, entries, last, named)

    return members


_PARAMETERS = _named_members("_parameters", False)
_NAMED_PARAMETERS = _named_members("_parameters", True)
_BUFFERS = _named_members("_buffers", False)
_NAMED_BUFFERS = _named_members("_buffers", True)


@evaluates(Module.parameters)
def _parameters(ev: Evaluator, self: Value, recurse: Value | None = None) -> Value:
    return _PARAMETERS(ev, self, None, recurse, None)


@evaluates(Module.buffers)
def _buffers(ev: Evaluator, self: Value, recurse: Value | None = None) -> Value:
    return _BUFFERS(ev, self, None, recurse, None)


@evaluates(Module.named_parameters)
def _named_parameters(
    ev: Evaluator,
    self: Value,
    prefix: Value | None = None,
    recurse: Value | None = None,
    remove_duplicate: Value | None = None,
) -> Value:
    return _NAMED_PARAMETERS(ev, self, prefix, recurse, remove_duplicate)


@evaluates(Module.named_buffers)
def _named_buffers(
    ev: Evaluator,
    self: Value,
    prefix: Value | None = None,
    recurse: Value | None = None,
    remove_duplicate: Value | None = None,
) -> Value:
    return _NAMED_BUFFERS(ev, self, prefix, recurse, remove_duplicate)


def _modules_of(
    ev: Evaluator, module: Value, prefix: str, distinct: bool, named: bool
) -> Value:
    root, source = _receiver(module, "named_modules")
    entries = list(_walk(ev, root, source, prefix, set() if distinct else None))
    return _hand_out(ev, entries, _tree_guard(ev, root, source, (), entries), named)


@evaluates(Module.modules)
def _modules(ev: Evaluator, self: Value) -> Value:
    return _modules_of(ev, self, "", True, False)


@evaluates(Module.named_modules)
def _named_modules(
    ev: Evaluator,
    self: Value,
    memo: Value | None = None,
    prefix: Value | None = None,
    remove_duplicate: Value | None = None,
) -> Value:
    if memo is not None and not (isinstance(memo, Known) and memo.obj is None):
        raise Break("SJ020", "`named_modules` with a memo")
    return _modules_of(ev, self, _text(ev, prefix), _flag(ev, remove_duplicate), True)


def _children_of(ev: Evaluator, module: Value, named: bool) -> Value:
    root, source = _receiver(module, "named_children")
    entries = list(_children(ev, root, source))

    def last() -> None:
        _structure(ev, root, source, "_modules")()
        for name, child in root._modules.items():
            _presence(ev, child, Item(Attribute(source, "_modules"), name))()
        _distinct(ev, entries)

    return _hand_out(ev, entries, last, named)


@evaluates(Module.children)
def _children_method(ev: Evaluator, self: Value) -> Value:
    return _children_of(ev, self, False)


@evaluates(Module.named_children)
def _named_children(ev: Evaluator, self: Value) -> Value:
    return _children_of(ev, self, True)
