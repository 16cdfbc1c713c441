"""Attributes: what `base.name` and `hasattr` are for each kind of value, as in CPython."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import function_attributes, named_tuples, object_attributes
from .breaks import Break, unknown_operand
from .class_lookup import (
    MISSING,
    class_attribute,
    has_hooked_lookup,
    refuse_own_lookup,
    user_function,
)
from .frozen import is_frozen
from .names import library_value
from .size_arithmetic import pin
from .sources import Attribute, Bound, Global, Item
from .values import (
    BuiltinMethod,
    DefaultDictValue,
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

_TENSOR_FACTS = {
    "shape",
    "dtype",
    "device",
    "ndim",
    "layout",
    "requires_grad",
    "is_cuda",
    "is_cpu",
    "is_sparse",
    "is_quantized",
    "is_meta",
    "is_mps",
    "is_nested",
    "itemsize",
    "nbytes",
}
_TENSOR_VIEWS = {"T", "mT", "H", "mH", "real", "imag", "data"}


def load(ev: Evaluator, base: Value, name: str) -> Value:
    """Returns `base.name`.

    Raises:
        Break: When the look-up runs code that is not evaluated, or raises.
    """
    from . import instance_attributes

    base = ev.look(base)
    match base:
        case Unknown():
            raise unknown_operand(f"attribute `{name}` is read of")
        case TensorValue():
            return _tensor(ev, base, name)
        case Known():
            return _known(ev, base, name)
        case InstanceValue():
            return instance_attributes.load_instance(ev, base, name)
        case DefaultDictValue() if name == "default_factory":
            return ev.look(base.factory)
        case TupleValue() if base.cls is not tuple and name != "__class__":
            found = named_tuples.attribute(ev, base, name)
            return found if found is not None else BuiltinMethod(base, name)
        case ListValue() | DictValue() | SetValue() | TupleValue() | IteratorValue():
            cls = getattr(base, "cls", list)
            if name == "__class__":
                if isinstance(base, IteratorValue):
                    raise Break("SJ020", "the class of an iterator")
                return Known(cls, None)
            if not isinstance(base, IteratorValue) and not hasattr(cls, name):
                raise Break(
                    "SJ030", f"raises AttributeError: `{cls.__name__}` has no `{name}`"
                )
            return BuiltinMethod(base, name)
        case SuperValue():
            return instance_attributes.load_super(ev, base, name)
        case FunctionValue():
            return function_attributes.load(ev, base, name)
        case MethodValue():
            if name == "__self__":
                return base.receiver
            if name == "__func__":
                return base.function
            return load(ev, base.function, name)
        case PartialValue():
            if name == "func":
                return base.function
        case ViewValue():
            return BuiltinMethod(base, name)
        case BuiltinMethod():
            if name == "__self__":
                return base.receiver
            if name == "__name__":
                return constant(base.attribute)
        case Scalar() if base.sizes:
            return load(ev, pin(ev, base), name)
        case Scalar():
            raise Break("SJ020", f"`{name}` of a run-time number", harmless=True)
    raise Break("SJ020", f"attribute `{name}` of {described(base)}")


def has(ev: Evaluator, base: Value, name: str) -> bool:
    """Returns `hasattr(base, name)`, guarded."""
    base = ev.look(base)
    match base:
        case TensorValue():
            if hasattr(torch.Tensor, name) or name in _TENSOR_FACTS:
                return True
            if base.source is not None:
                if _user_attribute(ev, base, name):
                    ev.guards.add(f"hasattr({base.source.guard}, {name!r})")
                    return True
                ev.guards.add(f"not hasattr({base.source.guard}, {name!r})")
            return False
        case Known():
            if ev.overlay.get((id(base.obj), name)) is not None:
                return True
            cls = type(base.obj)
            if is_constant(base.obj):
                return hasattr(base.obj, name)
            if has_hooked_lookup(cls) and not is_a(base.obj, (type, ModuleType)):
                raise Break("SJ020", f"`hasattr` of a `{cls.__name__}`")
            if base.source is not None and not is_constant(base.obj):
                static = inspect.getattr_static(base.obj, name, MISSING)
                if isinstance(static, property):
                    raise Break("SJ020", f"`hasattr` of the property `{name}`")
                found = hasattr(base.obj, name)
                no = "" if found else "not "
                ev.guards.type_of(base.source, base.obj)
                ev.guards.add(f"{no}hasattr({base.source.guard}, {name!r})")
                return found
            return hasattr(base.obj, name)
        case InstanceValue():
            static = class_attribute(base.cls, name)
            if isinstance(static, property) or has_hooked_lookup(base.cls):
                raise Break("SJ020", f"`hasattr` of `{name}` runs code")
            if isinstance(static, MemberDescriptorType):
                return name in base.attributes
            return name in base.attributes or hasattr(base.cls, name)
        case Unknown():
            raise unknown_operand("`hasattr` asks")
    try:
        load(ev, base, name)
    except Break as stop:
        if stop.diagnostic.code == "SJ030":
            return False
        raise
    return True


# ── tensors ─────────────────────────────────────────────────────────────────────────


def _user_attribute(ev: Evaluator, base: TensorValue, name: str) -> bool:
    """Whether a tensor from outside has an attribute that the user gave it."""
    tensors = (obj for obj in ev.keep_alive if is_a(obj, torch.Tensor))
    seen = (obj for obj in tensors if ev.memo.get(id(obj), (None,))[0] is base)
    return any(hasattr(obj, name) for obj in seen)


def _tensor(ev: Evaluator, base: TensorValue, name: str) -> Value:
    if name == "__class__":
        return Known(base.cls, None)
    if name in _TENSOR_FACTS:
        return ev.sizes.value(getattr(base.fake, name))
    if name in _TENSOR_VIEWS:
        return ev.builder.call(
            "call_function", getattr, [base, constant(name)], {}, name
        )
    member = getattr(torch.Tensor, name, MISSING)
    if callable(member):
        return BuiltinMethod(base, name)
    if member is MISSING:
        if _user_attribute(ev, base, name):
            raise Break(
                "SJ020", f"`{name}` is an attribute that the user gave a tensor"
            )
        raise Break(
            "SJ030", f"raises AttributeError: a tensor has no attribute `{name}`"
        )
    raise Break(
        "SJ015", f"`{name}` of a tensor is only known to PyTorch", harmless=True
    )


# ── known objects ───────────────────────────────────────────────────────────────────


def _known(ev: Evaluator, base: Known, name: str) -> Value:
    obj = base.obj
    written = ev.overlay.get((id(obj), name))
    if written is not None:
        if not is_a(obj, (type, ModuleType)):
            refuse_own_lookup(type(obj))
        return written
    if is_a(obj, ModuleType):
        return _module(ev, base, name)
    if is_constant(obj):
        return _constant(ev, base, name)
    if is_a(obj, type):
        return _class(ev, base, name)
    if is_a(obj, (FunctionType, BuiltinFunctionType, MethodType)):
        return _simple(ev, base, name)
    if is_a(obj, enum.Enum) and name in ("value", "name"):
        return _child(ev, base, getattr(obj, name), name)
    if base.source is None:
        return _frozen_object(base, name)
    return object_attributes.load_object(ev, base, name)


def _child(ev: Evaluator, base: Known, obj: Any, name: str) -> Value:
    if base.source is None:
        return Known(obj, None)
    return ev.wrap(obj, Attribute(base.source, name))


def _module(ev: Evaluator, base: Known, name: str) -> Value:
    module = base.obj
    if name not in vars(module) and not hasattr(module, name):
        raise Break("SJ030", f"raises AttributeError: module has no attribute `{name}`")
    value = getattr(module, name)
    if base.source is None:
        return library_value(ev, value, module, f".{name}")
    if is_frozen(module.__name__):
        ev.use(base)
        return library_value(ev, value, module, f".{name}")
    if name not in vars(module):
        raise Break("SJ020", f"`{name}` of a module that computes its attributes")
    ev.use(base)
    table = vars(module)
    written = ev.overlay.get((id(table), name))
    if written is not None:
        return written
    # NOTE: the same path by which functions of that module reach the variable.
    if table is ev.function.__globals__:
        return ev.wrap(value, Global(name))
    holder = Bound(ev.guards.bind(table, f"{module.__name__}_globals"))
    return ev.wrap(value, Item(holder, name))


def _constant(ev: Evaluator, base: Known, name: str) -> Value:
    obj = base.obj
    if not hasattr(obj, name):
        raise Break(
            "SJ030", f"raises AttributeError: `{type(obj).__name__}` has no `{name}`"
        )
    value = getattr(obj, name)
    if callable(value) and not isinstance(value, type):
        return BuiltinMethod(base, name)
    ev.use(base)
    return constant(value)


def _class(ev: Evaluator, base: Known, name: str) -> Value:
    cls = base.obj
    _refuse_metaclass(cls, name)
    static = inspect.getattr_static(cls, name, MISSING)
    if static is MISSING:
        if name in ("__name__", "__module__", "__qualname__"):
            return constant(getattr(cls, name))
        raise Break("SJ030", f"raises AttributeError: class has no attribute `{name}`")
    if isinstance(static, classmethod):
        return MethodValue(_function_of(ev, base, static.__func__, name), base, name)
    if isinstance(static, staticmethod):
        return _function_of(ev, base, static.__func__, name)
    if isinstance(static, FunctionType):
        return _function_of(ev, base, static, name)
    if hasattr(type(static), "__get__") and not isinstance(static, _ITSELF_BY_CLASS):
        if not is_frozen(cls.__module__):
            raise Break(
                "SJ020", f"attribute `{name}` of `{cls.__name__}` runs a descriptor"
            )
    value = getattr(cls, name)
    if base.source is None or is_frozen(cls.__module__):
        return Known(value, None)
    return ev.wrap(value, Attribute(base.source, name))


_ITSELF_BY_CLASS = (
    property,
    functools.cached_property,
    MemberDescriptorType,
    GetSetDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
    BuiltinFunctionType,
)
"""Descriptors that a class shows as they are."""


def _refuse_metaclass(cls: type, name: str) -> None:
    """Breaks where a user's metaclass has a say in `cls.name`."""
    meta = type(cls)
    if is_frozen(meta.__module__):
        if name == "__dict__":
            raise Break("SJ020", "`__dict__` of a class is a new object each time")
        return
    own = class_attribute(meta, name)
    for owner in inspect.getmro(meta):
        hooked = "__getattribute__" in vars(owner) or "__getattr__" in vars(owner)
        if not is_frozen(owner.__module__) and hooked:
            raise Break("SJ020", f"`{owner.__name__}` looks attributes up itself")
        if name in vars(owner) and own is vars(owner)[name]:
            if not is_frozen(owner.__module__) and hasattr(type(own), "__get__"):
                raise Break("SJ020", f"`{name}` belongs to a metaclass")
            break


def _function_of(ev: Evaluator, cls: Known, function: Any, name: str) -> Value:
    if cls.source is None or is_frozen(cls.obj.__module__):
        return Known(function, None)
    return user_function(ev, cls.obj, function, name)


def _simple(ev: Evaluator, base: Known, name: str) -> Value:
    """Attributes of functions and bound methods."""
    if is_a(base.obj, MethodType) and name == "__func__":
        return _child(ev, base, base.obj.__func__, name)
    if not hasattr(base.obj, name):
        raise Break(
            "SJ030", f"raises AttributeError: function has no attribute `{name}`"
        )
    value = getattr(base.obj, name)
    if isinstance(value, MethodType) and value.__self__ is base.obj:
        raise Break("SJ015", f"method `{name}` of a function")
    return _child(ev, base, value, name)


_PLAIN_LIBRARY_OBJECTS = (
    torch.finfo,
    torch.iinfo,
    dataclasses.Field,
    inspect.Parameter,
)


def _frozen_object(base: Known, name: str) -> Value:
    obj = base.obj
    if is_a(obj, _PLAIN_LIBRARY_OBJECTS):
        return Known(getattr(obj, name), None)
    static = inspect.getattr_static(obj, name, MISSING)
    if isinstance(static, FunctionType) and name not in getattr(obj, "__dict__", {}):
        return MethodValue(Known(static, None), base, name)
    if is_a(obj, enum.Enum) or name not in getattr(obj, "__dict__", {}):
        if is_frozen(type(obj).__module__) and not isinstance(static, property):
            value = getattr(obj, name, MISSING)
            if value is not MISSING and not isinstance(static, MemberDescriptorType):
                return Known(value, None)
    # NOTE: what an object of the library holds may change at any time.
    raise Break("SJ020", f"attribute `{name}` of a `{type(obj).__name__}`")
