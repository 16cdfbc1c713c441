"""Methods of dicts and of their views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .breaks import Break
from .subscripts import effect_if_outside
from .values import (
    DictValue,
    SetValue,
    TupleValue,
    Value,
    ViewValue,
    constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

from .keys import key_of
from .registry import checked
from .special_calls import SPECIAL


def _get(
    ev: Evaluator, target: DictValue, key: Value, default: Value | None = None
) -> Value:
    found = ev.dict_items(target).get(key_of(ev, key))
    return found if found is not None else default or constant(None)


def _view(kind: str) -> Any:
    def method(ev: Evaluator, target: DictValue) -> Value:
        return ViewValue(target, f"{kind}()")

    return method


def view_items(ev: Evaluator, view: ViewValue) -> list[Value]:
    """What iteration over a dict view yields."""
    target = view.receiver
    assert isinstance(target, DictValue)
    if view.kind == "keys":
        return [constant(key) for key in target.items]
    entries = ev.dict_items(target)
    if view.kind == "values":
        return list(entries.values())
    return [TupleValue([constant(key), value]) for key, value in entries.items()]


def view_method(ev: Evaluator, view: ViewValue, name: str, args: list[Value]) -> Value:
    if view.kind == "values" or not hasattr(frozenset, name):
        raise Break("SJ020", f"method `{name}` of a dict view")
    from . import set_methods

    handler = set_methods.METHODS.get(name)
    if handler is None:
        raise Break("SJ020", f"method `{name}` of a dict view")
    return checked(handler, ev, view_set(ev, view), *args)  # type: ignore[no-any-return]


def view_set(ev: Evaluator, view: ViewValue) -> SetValue:
    """The set that a view of keys stands for in a set operation."""
    if view.kind != "keys":
        raise Break("SJ020", f"a set operation on `{view.kind}`")
    return SetValue(dict.fromkeys(keys_of(view)), plain=False)


def keys_of(view: ViewValue) -> list[Any]:
    """The keys behind a view."""
    assert isinstance(view.receiver, DictValue)
    return list(view.receiver.items)


def _set_entry(ev: Evaluator, target: DictValue, key: Any, value: Value) -> None:
    effect_if_outside(
        ev,
        target,
        lambda r, b: r.emit(f"{b}[{r.reify(constant(key))}] = {r.reify(value)}"),
        value,
    )
    ev.journal.set_item(target.items, key, value)


def _delete_entry(ev: Evaluator, target: DictValue, key: Any) -> None:
    effect_if_outside(
        ev, target, lambda r, b: r.emit(f"del {b}[{r.reify(constant(key))}]")
    )
    ev.journal.delete_item(target.items, key)


def _pop_key(
    ev: Evaluator, target: DictValue, key: Value, default: Value | None = None, /
) -> Value:
    name = key_of(ev, key)
    entries = ev.dict_items(target)
    if name not in entries:
        if default is None:
            raise Break("SJ030", f"raises KeyError: {name!r}")
        return default
    value = entries[name]
    _delete_entry(ev, target, name)
    return value


def _pop_item(ev: Evaluator, target: DictValue, last: Value | None = None) -> Value:
    entries = ev.dict_items(target)
    if not entries:
        raise Break("SJ030", "raises KeyError: the dictionary is empty")
    if last is not None and target.cls is dict:
        raise Break("SJ030", "raises TypeError: popitem() takes no arguments")
    newest = last is None or bool(ev.known(last, "`popitem`"))
    key = list(entries)[-1] if newest else next(iter(entries))
    value = entries[key]
    _delete_entry(ev, target, key)
    return TupleValue([constant(key), value])


def _move_to_end(
    ev: Evaluator, target: DictValue, key: Value, last: Value | None = None
) -> Value:
    name = key_of(ev, key)
    entries = ev.dict_items(target)
    if target.cls is dict or name not in entries:
        raise Break("SJ030", "raises: `move_to_end`")
    end = last is None or bool(ev.known(last, "`move_to_end`"))

    def action(residual: Any, base: str) -> None:
        residual.emit(f"{base}.move_to_end({residual.reify(constant(name))}, {end})")

    effect_if_outside(ev, target, action)
    value = entries[name]
    others = {k: v for k, v in entries.items() if k != name}
    ordered = {**others, name: value} if end else {name: value, **others}
    for other in list(target.items):
        ev.journal.delete_item(target.items, other)
    for other, item in ordered.items():
        ev.journal.set_item(target.items, other, item)
    return constant(None)


def _setdefault(
    ev: Evaluator, target: DictValue, key: Value, default: Value | None = None, /
) -> Value:
    name = key_of(ev, key)
    if name not in ev.dict_items(target):
        _set_entry(ev, target, name, default or constant(None))
    return ev.dict_items(target)[name]


def update(
    ev: Evaluator, target: DictValue, other: Value | None = None, /, **kwargs: Value
) -> Value:
    from .conversions import entries_of

    entries = {} if other is None else entries_of(ev, other)
    for key, value in {**entries, **kwargs}.items():
        _set_entry(ev, target, key, value)
    return constant(None)


def _copy_dict(ev: Evaluator, target: DictValue) -> Value:
    return target.like(dict(ev.dict_items(target)))


def _clear_dict(ev: Evaluator, target: DictValue) -> Value:
    effect_if_outside(ev, target, lambda r, b: r.emit(f"{b}.clear()"))
    for key in list(target.items):
        ev.journal.delete_item(target.items, key)
    return constant(None)


METHODS: dict[str, Any] = {
    "get": _get,
    **SPECIAL,
    "keys": _view("keys"),
    "values": _view("values"),
    "items": _view("items"),
    "pop": _pop_key,
    "popitem": _pop_item,
    "move_to_end": _move_to_end,
    "setdefault": _setdefault,
    "update": update,
    "copy": _copy_dict,
    "clear": _clear_dict,
}
