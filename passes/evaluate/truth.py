"""Truth values: decides conditions, or says why Python must."""

from __future__ import annotations

import enum
import operator
import sys
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from .breaks import Break, raising, unknown_operand
from .enums import unboxed
from .frozen import is_frozen
from .size_arithmetic import compare
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
    ModuleSlice,
    PartialValue,
    Scalar,
    SetValue,
    SliceValue,
    SuperValue,
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

_ALWAYS_TRUE = (
    FunctionValue,
    MethodValue,
    BuiltinMethod,
    PartialValue,
    IteratorValue,
    SliceValue,
    ContextValue,
    SuperValue,
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
        case ViewValue():
            return size_of(ev, value) > 0
        case TensorValue():
            raise Break("SJ101", "branch on tensor data")
        case Scalar() if value.sizes:
            return compare(ev, operator.ne, value, constant(0))
        case Scalar():
            raise Break("SJ101", "branch on a number that is only known at run time")
        case ListValue() | DictValue() | SetValue() | TupleValue() | ModuleSlice():
            return size_of(ev, value) > 0
        case Unknown():
            raise unknown_operand("a condition tests")
        case InstanceValue():
            decided = _by_methods(ev, value)
            return True if decided is None else decided
    assert isinstance(value, _ALWAYS_TRUE), value
    return True


def _by_methods(ev: Evaluator, value: Value) -> bool | None:
    """Asks `__bool__`, or `__len__`, of a user's class; None if it has neither."""
    from .special_methods import call_special

    for name in ("__bool__", "__len__"):
        result = call_special(ev, value, name)
        if result is not None:
            if name == "__len__":
                return checked_size(ev, result) > 0
            decided = ev.known(result, f"`{name}`")
            if type(decided) is not bool:
                raise Break("SJ030", "raises TypeError: __bool__ should return bool")
            return decided
        if (
            isinstance(value, InstanceValue)
            and getattr(value.cls, name, None) is not None
        ):
            raise Break(
                "SJ020",
                f"a condition calls `{value.cls.__name__}.{name}`",
                hint="test what the object holds, or `is not None`",
            )
    return None


def checked_size(ev: Evaluator, result: Value) -> int:
    """What `len` makes of the result of `__len__`."""
    size = ev.known(result, "`__len__`")
    if not isinstance(size, int):
        raise Break("SJ030", "raises TypeError: __len__ should return an int")
    if not 0 <= size <= sys.maxsize:
        raise Break("SJ030", "raises: __len__() should return >= 0")
    return int(size)


def _known(ev: Evaluator, value: Known) -> bool:
    plain = unboxed(ev, value)
    if plain is not value and isinstance(plain, Known):
        value = plain
    obj = value.obj
    if obj is NotImplemented:
        raise Break("SJ020", "Python warns of the truth of `NotImplemented`")
    if is_constant(obj):
        return bool(ev.use(value))
    cls = type(obj)
    decided = _by_methods(ev, value)
    if decided is not None:
        return decided
    if hasattr(cls, "__bool__") or hasattr(cls, "__len__"):
        return _sized(ev, value)
    if value.source is not None:
        ev.guards.type_of(value.source, obj)
        if not is_frozen(cls.__module__):
            name = ev.guards.bind(cls, cls.__name__)
            for method in ("__bool__", "__len__"):
                ev.guards.add(f"not hasattr({name}, {method!r})", "always true")
    return True


_SIZED = tuple(
    getattr(torch.nn, name).__len__
    for name in (
        "ModuleList",
        "Sequential",
        "ModuleDict",
        "ParameterList",
        "ParameterDict",
    )
)


def _has_library_size(obj: Any) -> bool:
    """Whether `len` of a module is that of PyTorch's container modules."""
    return getattr(type(obj), "__len__", None) in _SIZED


def _sized(ev: Evaluator, value: Known) -> bool:
    known = type(value.obj) in (dict, list, set, frozenset) or _has_library_size(
        value.obj
    )
    if known and not hasattr(type(value.obj), "__bool__"):
        return size_of(ev, value) > 0
    raise Break("SJ020", f"a condition calls a method of `{type(value.obj).__name__}`")


def size_of(ev: Evaluator, value: Value) -> int:
    """Returns `len(value)`, guarded."""
    value = ev.look(value)
    match value:
        case ListValue():
            return len(ev.list_items(value))
        case TupleValue() | DictValue() | SetValue() | ModuleSlice():
            return len(value.items)
        case ViewValue():
            return size_of(ev, value.receiver)
        case TensorValue():
            if value.fake.dim() == 0:
                raise Break("SJ030", "raises TypeError: len() of a 0-d tensor")
            return int(value.fake.shape[0])
        case Known():
            obj: Any = value.obj
            if is_a(obj, enum.EnumMeta):
                return len(ev.use(value))
            if is_constant(obj):
                try:
                    return len(ev.use(value))
                except TypeError as error:
                    raise raising(error) from error
            if type(obj) in (dict, list, set, frozenset) or _has_library_size(obj):
                if value.source is not None:
                    ev.guards.type_of(value.source, obj)
                    ev.guards.add(f"len({value.source.guard}) == {len(obj)}")
                return len(obj)
        case Unknown():
            raise unknown_operand("`len` is asked of")
    raise Break("SJ020", f"`len` of {described(value)}")
