"""Methods of tensors, constants and the built-in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import tensors
from .breaks import Break, unknown_operand
from .iterators import sorted_items
from .lazy import iterate as iterate_over
from .lazy import next_item
from .registry import checked
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
    ViewValue,
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
    if isinstance(receiver, ViewValue):
        return _view_method(ev, receiver, name, args)
    if handler is None:
        raise Break("SJ020", f"method `{name}` of a {type(receiver).__name__}")
    return checked(handler, ev, receiver, *args, **kwargs)  # type: ignore[no-any-return]


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
            ev.known(item, "`join`") for item in iterate_over(ev, iterator_over(ev, args[0]))
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

    items = list(iterate_over(ev, iterator_over(ev, iterable)))

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


def _sort(
    ev: Evaluator,
    target: ListValue,
    *,
    key: Value | None = None,
    reverse: Value | None = None,
) -> Value:
    replace_items(
        ev, target, sorted_items(ev, list(ev.list_items(target)), key, reverse)
    )
    return constant(None)


def replace_items(ev: Evaluator, target: ListValue, items: list[Value]) -> None:
    """`target[:] = items`."""

    def action(residual: Any, base: str) -> None:
        residual.emit(f"{base}[:] = [{', '.join(residual.reify(i) for i in items)}]")

    effect_if_outside(ev, target, action, *items)
    assert target.items is not None
    ev.journal.replace_list(target.items, items)


def _list_special(name: str) -> Any:
    def method(ev: Evaluator, target: Value, *args: Value) -> Value:
        from . import subscripts
        from .operators import contains
        from .truth import size_of

        if name == "__len__":
            return constant(size_of(ev, target))
        if name == "__contains__":
            return constant(contains(ev, args[0], target))
        if name == "__getitem__":
            return subscripts.load(ev, target, args[0])
        if name == "__setitem__":
            subscripts.store(ev, target, *args)
        elif name == "__delitem__":
            subscripts.delete(ev, target, *args)
        else:
            from .loops import iterator_over

            return iterator_over(ev, target)
        return constant(None)

    return method


_SPECIAL = {
    name: _list_special(name)
    for name in (
        "__len__",
        "__contains__",
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__iter__",
    )
}


_LIST: dict[str, Any] = {
    **_SPECIAL,
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


def _as_dict(ev: Evaluator, target: TupleValue) -> Value:
    return DictValue(dict(zip(target.cls._fields, target.items)))  # type: ignore[attr-defined]


def _numel(ev: Evaluator, target: TupleValue) -> Value:
    raise Break("SJ020", "`numel` of a size")


_TUPLE: dict[str, Any] = {
    **_SPECIAL,
    "index": _index,
    "count": _count,
    "_replace": _replace_named,
    "_asdict": _as_dict,
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


def _view_method(ev: Evaluator, view: ViewValue, name: str, args: list[Value]) -> Value:
    if view.kind == "values" or not hasattr(frozenset, name):
        raise Break("SJ020", f"method `{name}` of a dict view")
    return call_method(ev, view_set(ev, view), name, args, {})


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
    name = _key(ev, key)
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
    name = _key(ev, key)
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
    name = _key(ev, key)
    if name not in ev.dict_items(target):
        _set_entry(ev, target, name, default or constant(None))
    return ev.dict_items(target)[name]


def _update(
    ev: Evaluator, target: DictValue, other: Value | None = None, /, **kwargs: Value
) -> Value:
    from .conversions import entries_of

    entries = {} if other is None else entries_of(ev, other)
    for key, value in {**entries, **kwargs}.items():
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
    **_SPECIAL,
    "keys": _view("keys"),
    "values": _view("values"),
    "items": _view("items"),
    "pop": _pop_key,
    "popitem": _pop_item,
    "move_to_end": _move_to_end,
    "setdefault": _setdefault,
    "update": _update,
    "copy": _copy_dict,
    "clear": _clear_dict,
}


# ── sets and iterators ──────────────────────────────────────────────────────────────


def _change_set(
    ev: Evaluator, target: SetValue, name: str, keys: list[Any], text: str
) -> None:
    """Changes a set; one that existed before by the call `text`."""
    if target.cls is frozenset:
        raise Break("SJ030", f"raises AttributeError: a frozenset has no `{name}`")
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
        raise Break("SJ021", "a change of a set of objects")
    return ev.residual.reify(constant(key))


def _add(ev: Evaluator, target: SetValue, item: Value, /) -> Value:
    key = _key(ev, item)
    _change_set(ev, target, "add", [*target.items, key], f"add({_spelled(ev, key)})")
    return constant(None)


def _discard(ev: Evaluator, target: SetValue, item: Value, /) -> Value:
    key = _key(ev, item)
    left = [k for k in target.items if k != key]
    _change_set(ev, target, "discard", left, f"discard({_spelled(ev, key)})")
    return constant(None)


def _remove_key(ev: Evaluator, target: SetValue, item: Value, /) -> Value:
    if _key(ev, item) not in target.items:
        raise Break("SJ030", "raises KeyError")
    return _discard(ev, target, item)


def _clear_set(ev: Evaluator, target: SetValue) -> Value:
    _change_set(ev, target, "clear", [], "clear()")
    return constant(None)


def _copy_set(ev: Evaluator, target: SetValue) -> Value:
    return SetValue(dict(target.items), target.cls, plain=False)


def _set_method(name: str) -> Any:
    def method(ev: Evaluator, target: SetValue, *others: Value) -> Value:
        rows = [[_key(ev, item) for item in _iterated(ev, other)] for other in others]
        result = getattr(target.cls(target.items), name)(*rows)
        if isinstance(result, bool):
            return constant(result)
        return SetValue(dict.fromkeys(result), target.cls, plain=False)

    return method


def _set_update(name: str) -> Any:
    def method(ev: Evaluator, target: SetValue, *others: Value) -> Value:
        rows = [[_key(ev, item) for item in _iterated(ev, other)] for other in others]
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


_SET: dict[str, Any] = {
    **{name: _SPECIAL[name] for name in ("__len__", "__contains__", "__iter__")},
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


# ── in-place operators ──────────────────────────────────────────────────────────────

_SET_IN_PLACE = {
    "or": "update",
    "and": "intersection_update",
    "sub": "difference_update",
    "xor": "symmetric_difference_update",
}


def in_place(ev: Evaluator, name: str, left: Value, right: Value) -> Value | None:
    """`left <op>= right` for a container that is changed; None where Python raises."""
    match left:
        case ListValue() if name == "add":
            list_extend(ev, left, right)
            return left
        case ListValue() if name == "mul":
            times = ev.known(right, "a repetition")
            if type(times) not in (int, bool):
                return None
            replace_items(ev, left, list(ev.list_items(left)) * times)
            return left
        case DictValue() if name == "or":
            _update(ev, left, right)
            return left
        case SetValue() if name in _SET_IN_PLACE and isinstance(
            right, (SetValue, ViewValue)
        ):
            if left.cls is frozenset:
                return ev_apply(ev, name, left, right)
            _SET[_SET_IN_PLACE[name]](ev, left, right)
            return left
    return None


def ev_apply(ev: Evaluator, name: str, left: Value, right: Value) -> Value:
    """A frozenset's in-place operator makes a new one."""
    from .operators import BINARY, apply

    function = next(f for n, f in BINARY.values() if n == name)
    return apply(ev, name, function, left, right)


def _next(ev: Evaluator, target: IteratorValue) -> Value:
    item = next_item(ev, target)
    if item is None:
        raise Break("SJ030", "raises StopIteration")
    return item


_ITERATOR: dict[str, Any] = {"__next__": _next, "__iter__": lambda ev, target: target}

__all__ = ["Scalar", "call_method", "list_extend"]
