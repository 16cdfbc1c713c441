"""Methods of tensors, constants and the built-in containers."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from . import dict_methods, operators, set_methods, tensors
from .breaks import Break, raising, unknown_operand
from .iterators import index_of, sorted_items
from .lazy import iterate as iterate_over
from .lazy import next_item
from .registry import checked
from .special_calls import SPECIAL
from .subscripts import effect_if_outside
from .values import (
    DictValue,
    IteratorValue,
    Known,
    ListValue,
    SetValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    ViewValue,
    constant,
    described,
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
            handler = dict_methods.METHODS.get(name)
        case SetValue():
            handler = set_methods.METHODS.get(name)
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
        return dict_methods.view_method(ev, receiver, name, args)
    if handler is None:
        raise Break("SJ020", f"method `{name}` of {described(receiver)}")
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
    if is_a(obj, str) and name == "join" and len(args) == 1:
        from .loops import iterator_over

        parts = [
            ev.known(item, "`join`")
            for item in iterate_over(ev, iterator_over(ev, args[0]))
        ]
        args = [constant(tuple(parts))]
    return fold_call(ev, getattr(obj, name), args, kwargs)


def _known_dict(ev: Evaluator, receiver: Known, name: str, args: list[Value]) -> Value:
    from .comparisons import contains
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
    index = index_of(ev, where)
    try:
        items.insert(index, item)
    except OverflowError as error:
        raise raising(error) from error
    effect_if_outside(
        ev, target, lambda r, b: r.emit(f"{b}.insert({index}, {r.reify(item)})"), item
    )
    assert target.items is not None
    ev.journal.replace_list(target.items, items)
    return constant(None)


def _pop(ev: Evaluator, target: ListValue, where: Value | None = None) -> Value:
    items = list(ev.list_items(target))
    index = -1 if where is None else index_of(ev, where)
    try:
        item = items.pop(index)
    except (IndexError, OverflowError) as error:
        raise raising(error) from error
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
    from .comparisons import same_item

    items = ev.list_items(target) if isinstance(target, ListValue) else target.items
    for position, other in enumerate(items):
        if same_item(ev, other, item):
            return constant(position)
    raise Break("SJ030", "raises ValueError: the item is not in the list")


def _count(ev: Evaluator, target: ListValue | TupleValue, item: Value) -> Value:
    from .comparisons import same_item

    items = ev.list_items(target) if isinstance(target, ListValue) else target.items
    return constant(sum(same_item(ev, other, item) for other in items))


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
    items = list(ev.list_items(target))
    assert target.items is not None
    if key is None:
        ordered = sorted_items(ev, items, key, reverse)
    else:
        # NOTE: the list is empty as long as Python sorts, and must not be changed.
        ev.journal.replace_list(target.items, [])
        ordered = sorted_items(ev, items, key, reverse)
        if target.items:
            raise Break("SJ030", "raises ValueError: list modified during sort")
        ev.journal.replace_list(target.items, items)
    replace_items(ev, target, ordered)
    return constant(None)


def replace_items(ev: Evaluator, target: ListValue, items: list[Value]) -> None:
    """`target[:] = items`."""

    def action(residual: Any, base: str) -> None:
        residual.emit(f"{base}[:] = [{', '.join(residual.reify(i) for i in items)}]")

    effect_if_outside(ev, target, action, *items)
    assert target.items is not None
    ev.journal.replace_list(target.items, items)


_LIST: dict[str, Any] = {
    **SPECIAL,
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
    """`x.shape.numel()`: the product of the sizes."""
    product: Value = constant(1)
    for size in target.items:
        product = operators.apply(ev, "mul", operator.mul, product, ev.look(size))
    return product


_TUPLE: dict[str, Any] = {
    **SPECIAL,
    "index": _index,
    "count": _count,
    "_replace": _replace_named,
    "_asdict": _as_dict,
    "numel": _numel,
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
            dict_methods.update(ev, left, right)
            return left
        case SetValue() if name in _SET_IN_PLACE and isinstance(
            right, (SetValue, ViewValue)
        ):
            if left.cls is frozenset:
                return _apply_binary(ev, name, left, right)
            set_methods.METHODS[_SET_IN_PLACE[name]](ev, left, right)
            return left
    return None


def _apply_binary(ev: Evaluator, name: str, left: Value, right: Value) -> Value:
    """A frozenset's in-place operator makes a new one."""
    from .operators import BINARY, apply

    function = next(f for n, f in BINARY.values() if n == name)
    return apply(ev, name, function, left, right)


def _next(ev: Evaluator, target: IteratorValue) -> Value:
    item = next_item(ev, target)
    if item is None:
        raise Break("SJ030", "raises StopIteration")
    return item


def _send(ev: Evaluator, target: IteratorValue, value: Value, /) -> Value:
    from .generators import send

    return send(ev, target, value)


def _close(ev: Evaluator, target: IteratorValue) -> Value:
    from .generators import close

    return close(ev, target)


_ITERATOR: dict[str, Any] = {
    "__next__": _next,
    "__iter__": lambda ev, target: target,
    "send": _send,
    "close": _close,
}
