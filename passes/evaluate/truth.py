"""Truth values: decides conditions, or says why Python must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .breaks import Break, unknown_operand
from .values import (
    BuiltinMethod,
    ContextValue,
    DictValue,
    FunctionValue,
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    MethodValue,
    PartialValue,
    Scalar,
    SetValue,
    SliceValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_ALWAYS_TRUE = (
    FunctionValue,
    MethodValue,
    BuiltinMethod,
    PartialValue,
    IteratorValue,
    SliceValue,
    ContextValue,
)


def truth(ev: Evaluator, value: Value) -> bool:
    """Returns `bool(value)`, guarded.

    Raises:
        Break: SJ101 when it depends on tensor data or another run-time number.
    """
    value = ev.look(value)
    match value:
        case Known():
            return _known(ev, value)
        case TensorValue():
            raise Break("SJ101", "branch on tensor data")
        case Scalar():
            raise Break("SJ101", "branch on a number that is only known at run time")
        case ListValue() | DictValue() | SetValue() | TupleValue():
            return size_of(ev, value) > 0
        case Unknown():
            raise unknown_operand("a condition tests")
        case InstanceValue():
            for name in ("__bool__", "__len__"):
                if getattr(value.cls, name, None) is not None:
                    raise Break("SJ020", f"a condition calls `{value.cls.__name__}.{name}`")
            return True
    if isinstance(value, _ALWAYS_TRUE):
        return True
    raise Break("SJ020", "a condition tests a value that is not known")


def _known(ev: Evaluator, value: Known) -> bool:
    obj = value.obj
    if is_constant(obj):
        return bool(ev.use(value))
    cls = type(obj)
    if issubclass(cls, torch.nn.Module) or callable(obj) or value.source is None:
        if hasattr(cls, "__bool__") or hasattr(cls, "__len__"):
            return _sized(ev, value)
        if value.source is not None:
            ev.guards.type_of(value.source, obj)
        return True
    if hasattr(cls, "__bool__") or hasattr(cls, "__len__"):
        return _sized(ev, value)
    if value.source is not None:
        ev.guards.type_of(value.source, obj)
    return True


_SIZED = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict, torch.nn.ParameterList)


def _sized(ev: Evaluator, value: Known) -> bool:
    if type(value.obj) in (*_SIZED, dict, list, set):
        return size_of(ev, value) > 0
    raise Break("SJ020", f"a condition calls a method of `{type(value.obj).__name__}`")


def size_of(ev: Evaluator, value: Value) -> int:
    """Returns `len(value)`, guarded."""
    value = ev.look(value)
    match value:
        case ListValue():
            return len(ev.list_items(value))
        case TupleValue() | DictValue() | SetValue():
            return len(value.items)
        case TensorValue():
            if value.fake.dim() == 0:
                raise Break("SJ030", "raises TypeError: len() of a 0-d tensor")
            return int(value.fake.shape[0])
        case Known():
            obj: Any = value.obj
            if is_constant(obj):
                return len(ev.use(value))
            if isinstance(obj, (dict, list, set, frozenset)) or type(obj) in _SIZED:
                if value.source is not None:
                    ev.guards.type_of(value.source, obj)
                    ev.guards.add(f"len({value.source.guard}) == {len(obj)}")
                return len(obj)
        case Unknown():
            raise unknown_operand("`len` is asked of")
    raise Break("SJ020", f"`len` of a {type(value).__name__}")
