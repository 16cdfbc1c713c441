"""Makes abstract values of real objects: arguments, globals, attributes and items.

Guards are recorded when a value is used, not when it is reached; only what decides the kind of
the value (its exact type, the metadata of a tensor) is guarded here.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..kinds import is_a, namespace_of
from ..reify import literal
from . import named_tuples
from .breaks import Break
from .size_bounds import LARGE_NUMBER
from .sources import Argument, Attribute, Item, Source
from .values import (
    DefaultDictValue,
    DictValue,
    Known,
    ListValue,
    SetValue,
    TensorValue,
    TupleValue,
    Value,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_NUMBERS = (int, float)
_FIXED = (
    Enum,
    torch.Tensor,
    tuple,
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
)
"""Objects that no store changes as far as evaluation knows."""
_BUILTIN = (dict, list, tuple, set, frozenset, torch.Tensor, torch.nn.Parameter)
_LARGE_CONTAINER = 1024


def wrap(ev: Evaluator, obj: Any, source: Source) -> Value:
    """Returns the value for `obj`, which the running program reaches by `source`.

    One object is one value: when a second source reaches an object that was seen before, a guard
    fixes that both are the same.
    """
    if type(obj) in _NUMBERS and source.guard in ev.dynamic and abs(obj) < LARGE_NUMBER:
        return _dynamic_number(ev, obj, source)
    if is_constant(obj) and type(obj) is not tuple:
        return _constant(ev, obj, source)
    seen = ev.memo.get(id(obj))
    if seen is not None:
        value, first = seen
        fixed = isinstance(value, TupleValue) or (
            isinstance(value, Known) and is_a(obj, _FIXED)
        )
        if first.guard != source.guard and not fixed:
            # NOTE: one object has one path, or a store by one would be missed by the other.
            ev.guards.add(f"{source.guard} is {first.guard}")
        if isinstance(value, TensorValue) and value.lost:
            ev.journal.set_attr(value, "source", source)
            ev.journal.set_attr(value, "name", None)
            ev.journal.set_attr(value, "lost", False)
            ev.unsaved.add(id(obj), value, source)
        if first.guard == source.guard or not fixed:
            return value
    _refuse_namespaces(ev, obj)
    value = _wrap_new(ev, obj, source)
    ev.journal.set_item(ev.memo, id(obj), (value, source))
    ev.unsaved.add(id(obj), value, source)
    ev.keep_alive.append(obj)
    if not is_a(obj, _FIXED):
        ev.guards.reached(source.guard, obj)
    return value


def _refuse_namespaces(ev: Evaluator, obj: Any) -> None:
    """A dict that is the `__dict__` of a tracked object would be a second way to it."""
    if type(obj) is dict:
        others = [other for other in ev.keep_alive if type(other) not in _BUILTIN]
        twice = any(namespace_of(other) is obj for other in others)
    elif type(obj) not in _BUILTIN and any(type(o) is dict for o in ev.keep_alive):
        namespace = namespace_of(obj)
        twice = namespace is not None and any(o is namespace for o in ev.keep_alive)
    else:
        return
    if twice:
        raise Break(
            "SJ020",
            "an object and its `__dict__` are both used",
            hint="read and store the attributes of the object",
        )


def _constant(ev: Evaluator, obj: Any, source: Source) -> Value:
    """A constant is one value for each path: it may have to be saved before a write."""
    key = ("constant", source.guard)
    seen = ev.memo.get(key)
    if seen is not None and isinstance(seen[0], Known) and seen[0].obj is obj:
        return seen[0]
    value = Known(obj, source)
    ev.journal.set_item(ev.memo, key, (value, source))
    ev.unsaved.add(key, value, source)
    return value


def _wrap_new(ev: Evaluator, obj: Any, source: Source) -> Value:
    if is_a(obj, torch.Tensor):
        return wrap_tensor(ev, obj, source)
    kind = type(obj)
    if kind is tuple or (
        is_a(obj, tuple)
        and hasattr(kind, "_fields")
        and named_tuples.is_plain(ev, kind)
    ):
        ev.guards.type_of(source, obj)
        ev.guards.add(f"len({source.guard}) == {len(obj)}")
        items = [wrap(ev, item, Item(source, i)) for i, item in enumerate(obj)]
        return TupleValue(items, kind, source)
    if kind is list:
        ev.guards.type_of(source, obj)
        return ListValue(None, source, obj)
    if kind in (dict, OrderedDict, defaultdict):
        return _wrap_dict(ev, obj, source)
    if kind in (set, frozenset) and all(is_constant(item) for item in obj):
        ev.guards.type_of(source, obj)
        # Equal sets may differ in the order in which they are gone over.
        ev.guards.keys_of(source, obj)
        return SetValue(dict.fromkeys(obj), kind, source=source, plain=False)
    return Known(obj, source)


def wrap_tensor(ev: Evaluator, tensor: torch.Tensor, source: Source) -> TensorValue:
    """Returns the value for a tensor that exists before the call, as a fake with its facts."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        traceable = bool(is_traceable_wrapper_subclass(tensor))
        kind = "a traceable subclass" if traceable else "a subclass"
        raise Break(
            "SJ110", f"`{source.residual}` is of {kind} `{type(tensor).__name__}`"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise Break("SJ110", f"`{source.residual}` has layout {tensor.layout}")
    if tensor.is_conj() or tensor.is_neg():
        raise Break(
            "SJ110", f"`{source.residual}` has a pending conjugation or negation"
        )
    ev.guards.add_tensor(source, tensor)
    symbolic = ev.sizes.dims(tensor, source)
    try:
        with torch.no_grad():
            if symbolic:
                fake = ev.sizes.fake(tensor, source, symbolic)
            else:
                fake = ev.fake_mode.from_tensor(tensor, static_shapes=True)
    except AssertionError as error:
        # Such as a view that has got the data of an inference tensor.
        raise Break(
            "SJ110", f"`{source.residual}` has no like in PyTorch's fakes"
        ) from error
    return TensorValue(fake, source=source, cls=type(tensor))


def _wrap_dict(ev: Evaluator, obj: dict[Any, Any], source: Source) -> Value:
    ev.guards.type_of(source, obj)
    if len(obj) > _LARGE_CONTAINER or not all(is_constant(key) for key in obj):
        return Known(obj, source)
    ev.guards.keys_of(source, obj)
    value = DictValue({}, source, cls=type(obj))
    if is_a(obj, defaultdict):
        factory = ev.lazy(obj.default_factory, Attribute(source, "default_factory"))
        value = DefaultDictValue({}, source, cls=defaultdict, factory=factory)
    for key, item in obj.items():
        value.items[key] = ev.lazy(item, dict_item(ev, source, key))
    return value


def dict_item(ev: Evaluator, source: Source, key: Any) -> Item:
    """How the running program reaches the entry of the dict at `source` under `key`."""
    if literal(key) == repr(key):
        return Item(source, key)
    # Such as `inf` and `torch.float32`: their text means something only to who imports it.
    return Item(source, key, ev.guards.bind(key, "key"))


def _dynamic_number(ev: Evaluator, obj: int | float, source: Source) -> Value:
    kind = type(obj)
    if kind is bool:
        return Known(obj, source)
    key = ("scalar", source.guard)
    seen = ev.memo.get(key)
    if seen is not None:
        return seen[0]
    ev.guards.add(f"type({source.guard}) is {kind.__name__}")
    if kind is int:
        ev.guards.add(f"-{LARGE_NUMBER} < {source.guard} < {LARGE_NUMBER}")
    text = source.residual
    if not isinstance(source, Argument):
        # The path may lead to another number once the program has written there.
        text = ev.residual.fresh(source.hint)
        ev.residual.emit_tracked(f"{text} = {source.residual}")
    if is_a(obj, int) and ev.sizes.takes(obj):
        scalar = ev.sizes.number(obj, source, text)
    else:
        scalar = ev.scalar(text, kind, source.hint)
    ev.journal.set_item(ev.memo, key, (scalar, source))
    ev.unsaved.add(key, scalar, source)
    # NOTE: not undone with the statement, which may break because of this very number.
    ev.scalar_sources[scalar.text] = source.guard
    return scalar
