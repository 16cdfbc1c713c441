"""Methods of sets and frozensets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .breaks import Break
from .subscripts import effect_if_outside
from .values import (
    SetValue,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

from .keys import key_of
from .special_calls import SPECIAL


def _change_set(
    ev: Evaluator, target: SetValue, name: str, keys: list[Any], text: str
) -> None:
    """Changes a set; one that existed before by the call `text`."""
    if target.cls is frozenset:
        raise Break("SJ030", f"raises TypeError: `set.{name}` of a frozenset")
    effect_if_outside(ev, target, lambda r, b: r.emit(f"{b}.{text}"))
    if name != "add":
        ev.journal.set_attr(target, "plain", False)
    for key in list(target.items):
        if key not in keys:
            ev.journal.delete_item(target.items, key)
    for key in keys:
        if key not in target.items:
            ev.journal.set_item(target.items, key, None)


def _spelled(ev: Evaluator, key: Any) -> str:
    if not is_constant(key):
        raise Break(
            "SJ021",
            "a change of a set of objects",
            hint="keep numbers or strings in the set",
        )
    return ev.residual.reify(constant(key))


def _add(ev: Evaluator, target: SetValue, item: Value, /) -> Value:
    key = key_of(ev, item)
    _change_set(ev, target, "add", [*target.items, key], f"add({_spelled(ev, key)})")
    return constant(None)


def _discard(ev: Evaluator, target: SetValue, item: Value, /) -> Value:
    key = key_of(ev, item)
    left = [k for k in target.items if k != key]
    _change_set(ev, target, "discard", left, f"discard({_spelled(ev, key)})")
    return constant(None)


def _remove_key(ev: Evaluator, target: SetValue, item: Value, /) -> Value:
    if key_of(ev, item) not in target.items:
        raise Break("SJ030", "raises KeyError")
    return _discard(ev, target, item)


def _clear_set(ev: Evaluator, target: SetValue) -> Value:
    _change_set(ev, target, "clear", [], "clear()")
    return constant(None)


def _copy_set(ev: Evaluator, target: SetValue) -> Value:
    return SetValue(dict(target.items), target.cls, plain=False)


def _set_method(name: str) -> Any:
    def method(ev: Evaluator, target: SetValue, *others: Value) -> Value:
        rows = [[key_of(ev, item) for item in _iterated(ev, other)] for other in others]
        result = getattr(target.cls(target.items), name)(*rows)
        if isinstance(result, bool):
            return constant(result)
        return SetValue(dict.fromkeys(result), target.cls, plain=False)

    return method


def _set_update(name: str) -> Any:
    def method(ev: Evaluator, target: SetValue, *others: Value) -> Value:
        rows = [[key_of(ev, item) for item in _iterated(ev, other)] for other in others]
        result = set(target.items)
        getattr(result, name)(*rows)
        spelled = ", ".join(
            f"({''.join(_spelled(ev, k) + ', ' for k in row)})" for row in rows
        )
        _change_set(ev, target, name, list(result), f"{name}({spelled})")
        return constant(None)

    return method


def _iterated(ev: Evaluator, value: Value) -> list[Value]:
    from .iterators import iterate_in_any_order

    return iterate_in_any_order(ev, value)


METHODS: dict[str, Any] = {
    **{name: SPECIAL[name] for name in ("__len__", "__contains__", "__iter__")},
    "add": _add,
    "discard": _discard,
    "remove": _remove_key,
    "clear": _clear_set,
    "copy": _copy_set,
    **{
        name: _set_method(name)
        for name in (
            "union intersection difference symmetric_difference issubset issuperset isdisjoint"
        ).split()
    },
    **{
        name: _set_update(name)
        for name in (
            "update intersection_update difference_update symmetric_difference_update"
        ).split()
    },
}
