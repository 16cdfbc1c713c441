"""Methods of tensors, constants and the built-in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import tensors
from .breaks import Break, unknown_operand
from .subscripts import effect_if_outside
from .values import (
    DictValue,
    IteratorValue,
    Known,
    ListValue,
    Scalar,
    SetValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def call_method(
    ev: Evaluator,
    receiver: Value,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """Returns `receiver.name(*args, **kwargs)` for a built-in type."""
    receiver = ev.look(receiver)
    args = [ev.look(a) for a in args]
    match receiver:
        case TensorValue():
            return tensors.call_method(ev, receiver, name, args, kwargs)
        case ListValue():
            handler = _LIST.get(name)
        case DictValue():
            handler = _DICT.get(name)
        case SetValue():
            handler = _SET.get(name)
        case TupleValue():
            handler = _TUPLE.get(name)
        case IteratorValue():
            handler = _ITERATOR.get(name)
        case Known():
            return _known(ev, receiver, name, args, kwargs)
        case Unknown():
            raise unknown_operand(f"method `{name}` is called on")
        case _:
            handler = None
    if handler is None:
        raise Break("SJ020", f"method `{name}` of a {type(receiver).__name__}")
    return handler(ev, receiver, *args, **kwargs)


def _known(
    ev: Evaluator,
    receiver: Known,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    from .calls import fold_call

    obj = receiver.obj
    if type(obj) is dict and name in ("get", "keys", "values", "items"):
        return _known_dict(ev, receiver, name, args)
    if not is_constant(obj):
        from .builtin_calls import is_harmless_method

        raise Break(
            "SJ010",
            f"method `{name}` of a `{type(obj).__name__}` has no source",
            harmless=is_harmless_method(obj, name),
        )
    ev.use(receiver)
    if isinstance(obj, str) and name == "join" and len(args) == 1:
        from .loops import iterator_over

        parts = [
            ev.known(item, "`join`") for item in ev.iterate(iterator_over(ev, args[0]))
        ]
        args = [constant(tuple(parts))]
    return fold_call(ev, getattr(obj, name), args, kwargs)


def _known_dict(ev: Evaluator, receiver: Known, name: str, args: list[Value]) -> Value:
    from .operators import contains
    from .subscripts import load

    if name == "get" and args:
        if contains(ev, args[0], receiver):
            return load(ev, receiver, args[0])
        return args[1] if len(args) > 1 else constant(None)
    if receiver.source is None and all(is_constant(k) for k in receiver.obj):
        made = DictValue({k: Known(v, None) for k, v in receiver.obj.items()})
        return call_method(ev, made, name, args, {})
    raise Break("SJ020", f"`{name}` of a large dict")


# ── lists ───────────────────────────────────────────────────────────────────────────


def _append(ev: Evaluator, target: ListValue, item: Value) -> Value:
    if isinstance(item, Unknown):
        raise unknown_operand("`append` takes")
    effect_if_outside(
        ev,
        target,
        lambda r, b: r.emit(f"{b}.append({r.reify(item)})"),
        item,
        overwrites=False,
    )
    ev.journal.append(target.appended if target.items is None else target.items, item)
    return constant(None)


def list_extend(ev: Evaluator, target: ListValue, iterable: Value) -> Value:
    """`target.extend(iterable)`."""
    from .loops import iterator_over

    items = list(ev.iterate(iterator_over(ev, iterable)))

    def action(residual: Any, base: str) -> None:
        residual.emit(f"{base}.extend([{', '.join(residual.reify(i) for i in items)}])")

    effect_if_outside(ev, target, action, *items, overwrites=False)
    for item in items:
        ev.journal.append(
            target.appended if target.items is None else target.items, item
        )
    return constant(None)


def _changed(ev: Evaluator, target: ListValue, items: list[Value], text: str) -> None:
    """Replaces the items after a method whose arguments are plain constants."""
    effect_if_outside(ev, target, lambda r, b: r.emit(f"{b}.{text}"))
    assert target.items is not None
    ev.journal.replace_list(target.items, items)


def _insert(ev: Evaluator, target: ListValue, where: Value, item: Value) -> Value:
    items = list(ev.list_items(target))
    index = ev.known(where, "an index")
    items.insert(index, item)
    effect_if_outside(
        ev, target, lambda r, b: r.emit(f"{b}.insert({index}, {r.reify(item)})"), item
    )
    assert target.items is not None
    ev.journal.replace_list(target.items, items)
    return constant(None)


def _pop(ev: Evaluator, target: ListValue, where: Value | None = None) -> Value:
    items = list(ev.list_items(target))
    index = -1 if where is None else ev.known(where, "an index")
    try:
        item = items.pop(index)
    except IndexError as error:
        raise Break("SJ030", f"raises IndexError: {error}") from error
    _changed(ev, target, items, f"pop({'' if where is None else index})")
    return ev.look(item)


def _clear(ev: Evaluator, target: ListValue) -> Value:
    ev.list_items(target)
    _changed(ev, target, [], "clear()")
    return constant(None)


def _reverse(ev: Evaluator, target: ListValue) -> Value:
    _changed(ev, target, list(ev.list_items(target))[::-1], "reverse()")
    return constant(None)


def _copy_list(ev: Evaluator, target: ListValue) -> Value:
    return ListValue(list(ev.list_items(target)))


def _index(ev: Evaluator, target: ListValue | TupleValue, item: Value) -> Value:
    from .operators import _same_item

    items = ev.list_items(target) if isinstance(target, ListValue) else target.items
    for position, other in enumerate(items):
        if _same_item(ev, other, item):
            return constant(position)
    raise Break("SJ030", "raises ValueError: the item is not in the list")


def _count(ev: Evaluator, target: ListValue | TupleValue, item: Value) -> Value:
    from .operators import _same_item

    items = ev.list_items(target) if isinstance(target, ListValue) else target.items
    return constant(sum(_same_item(ev, other, item) for other in items))


def _remove(ev: Evaluator, target: ListValue, item: Value) -> Value:
    position = ev.known(_index(ev, target, item), "an index")
    items = list(ev.list_items(target))
    del items[position]
    effect_if_outside(ev, target, lambda r, b: r.emit(f"del {b}[{position}]"))
    assert target.items is not None
    ev.journal.replace_list(target.items, items)
    return constant(None)


def _sort(ev: Evaluator, target: ListValue, **kwargs: Value) -> Value:
    from .builtin_calls import sorted_items

    if target.source is not None or target.name is not None:
        raise Break("SJ021", "`sort` of a list that existed before the call")
    items = sorted_items(ev, list(ev.list_items(target)), **kwargs)
    assert target.items is not None
    ev.journal.replace_list(target.items, items)
    return constant(None)


_LIST: dict[str, Any] = {
    "append": _append,
    "extend": list_extend,
    "insert": _insert,
    "pop": _pop,
    "clear": _clear,
    "reverse": _reverse,
    "copy": _copy_list,
    "index": _index,
    "count": _count,
    "remove": _remove,
    "sort": _sort,
}


def _replace_named(ev: Evaluator, target: TupleValue, **changes: Value) -> Value:
    fields = target.cls._fields  # type: ignore[attr-defined]
    if set(changes) - set(fields):
        raise Break("SJ030", "raises ValueError: unexpected field names")
    items = [changes.get(f, item) for f, item in zip(fields, target.items)]
    return TupleValue(items, target.cls)


def _numel(ev: Evaluator, target: TupleValue) -> Value:
    raise Break("SJ020", "`numel` of a size")


_TUPLE: dict[str, Any] = {
    "index": _index,
    "count": _count,
    "_replace": _replace_named,
    "numel": _numel,
}


# ── dicts ───────────────────────────────────────────────────────────────────────────


def _key(ev: Evaluator, value: Value) -> Any:
    from .expressions import key_of

    return key_of(ev, value)


def _get(
    ev: Evaluator, target: DictValue, key: Value, default: Value | None = None
) -> Value:
    found = ev.dict_items(target).get(_key(ev, key))
    return found if found is not None else default or constant(None)


def _keys(ev: Evaluator, target: DictValue) -> Value:
    return IteratorValue([constant(key) for key in target.items])


def _values(ev: Evaluator, target: DictValue) -> Value:
    return IteratorValue(list(ev.dict_items(target).values()))


def _items(ev: Evaluator, target: DictValue) -> Value:
    return IteratorValue(
        [
            TupleValue([constant(key), value])
            for key, value in ev.dict_items(target).items()
        ]
    )


def _set_entry(ev: Evaluator, target: DictValue, key: Any, value: Value) -> None:
    effect_if_outside(
        ev,
        target,
        lambda r, b: r.emit(f"{b}[{r.reify(constant(key))}] = {r.reify(value)}"),
        value,
    )
    ev.journal.set_item(target.items, key, value)


def _pop_key(
    ev: Evaluator, target: DictValue, key: Value, default: Value | None = None
) -> Value:
    name = _key(ev, key)
    entries = ev.dict_items(target)
    if name not in entries:
        if default is None:
            raise Break("SJ030", f"raises KeyError: {name!r}")
        return default
    value = entries[name]
    effect_if_outside(
        ev, target, lambda r, b: r.emit(f"del {b}[{r.reify(constant(name))}]"), value
    )
    ev.journal.delete_item(target.items, name)
    return value


def _setdefault(
    ev: Evaluator, target: DictValue, key: Value, default: Value | None = None
) -> Value:
    name = _key(ev, key)
    entries = ev.dict_items(target)
    if name not in entries:
        _set_entry(ev, target, name, default or constant(None))
    return ev.dict_items(target)[name]


def _update(
    ev: Evaluator, target: DictValue, other: Value | None = None, **kwargs: Value
) -> Value:
    entries: dict[Any, Value] = {}
    if isinstance(other, DictValue):
        entries.update(ev.dict_items(other))
    elif other is not None:
        raise Break("SJ020", "`update` with a value that is not a tracked dict")
    entries.update(kwargs)
    for key, value in entries.items():
        _set_entry(ev, target, key, value)
    return constant(None)


def _copy_dict(ev: Evaluator, target: DictValue) -> Value:
    return DictValue(dict(ev.dict_items(target)), cls=target.cls)


def _clear_dict(ev: Evaluator, target: DictValue) -> Value:
    effect_if_outside(ev, target, lambda r, b: r.emit(f"{b}.clear()"))
    for key in list(target.items):
        ev.journal.delete_item(target.items, key)
    return constant(None)


_DICT: dict[str, Any] = {
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _items,
    "pop": _pop_key,
    "setdefault": _setdefault,
    "update": _update,
    "copy": _copy_dict,
    "clear": _clear_dict,
}


# ── sets and iterators ──────────────────────────────────────────────────────────────


def _outside(target: SetValue) -> None:
    if target.source is not None or target.name is not None:
        raise Break("SJ021", "a change of a set that existed before the call")


def _add(ev: Evaluator, target: SetValue, item: Value) -> Value:
    _outside(target)
    ev.journal.set_item(target.items, _key(ev, item), None)
    return constant(None)


def _discard(ev: Evaluator, target: SetValue, item: Value) -> Value:
    _outside(target)
    key = _key(ev, item)
    if key in target.items:
        ev.journal.delete_item(target.items, key)
    return constant(None)


def _set_method(name: str) -> Any:
    def method(ev: Evaluator, target: SetValue, other: Value) -> Value:
        from .loops import iterator_over

        keys = [_key(ev, item) for item in ev.iterate(iterator_over(ev, other))]
        result = getattr(target.cls(target.items), name)(keys)
        if isinstance(result, bool):
            return constant(result)
        return SetValue(dict.fromkeys(result), target.cls)

    return method


_SET: dict[str, Any] = {
    "add": _add,
    "discard": _discard,
    **{
        name: _set_method(name)
        for name in (
            "union intersection difference symmetric_difference issubset issuperset isdisjoint"
        ).split()
    },
}


def _next(ev: Evaluator, target: IteratorValue) -> Value:
    item = ev.next_item(target)
    if item is None:
        raise Break("SJ030", "raises StopIteration")
    return item


_ITERATOR: dict[str, Any] = {"__next__": _next, "__iter__": lambda ev, target: target}

__all__ = ["Scalar", "call_method", "list_extend"]
