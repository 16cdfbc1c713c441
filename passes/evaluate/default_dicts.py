"""`collections.defaultdict`: a dict that makes the value of a missing key.

groups = defaultdict(list)
groups[key].append(x)     # groups[key] = list(), then .append(x)
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from .breaks import Break, unknown_operand
from .registry import evaluates
from .values import DefaultDictValue, Known, Unknown, Value, constant, python_type

if TYPE_CHECKING:
    from .evaluator import Evaluator


@evaluates(collections.defaultdict)
def _make(
    ev: Evaluator,
    default_factory: Value | None = None,
    /,
    *args: Value,
    **kwargs: Value,
) -> Value:
    from .conversions import entries_of

    factory = constant(None) if default_factory is None else ev.look(default_factory)
    if isinstance(factory, Unknown):
        raise unknown_operand("`defaultdict` calls")
    kind = python_type(factory)
    none = isinstance(factory, Known) and factory.obj is None
    if kind and not none and not any("__call__" in vars(c) for c in kind.__mro__):
        raise Break("SJ030", "raises TypeError: first argument must be callable")
    if len(args) > 1:
        raise Break("SJ030", "raises TypeError: too many arguments for a dict")
    items = dict(entries_of(ev, args[0])) if args else {}
    items.update(kwargs)
    return DefaultDictValue(items, cls=collections.defaultdict, factory=factory)


def missing(ev: Evaluator, table: DefaultDictValue, key: Any) -> Value:
    """What `table[key]` makes of a key that is not there."""
    from .calls import call
    from .subscripts import store

    factory = ev.look(table.factory)
    if isinstance(factory, Known) and factory.obj is None:
        ev.use(factory)
        raise Break("SJ030", f"raises KeyError: {key!r}")
    value = ev.look(call(ev, factory, [], {}))
    store(ev, table, constant(key), value)
    return value
