"""Attributes: reading, storing and deleting them as CPython's look-up would."""

from __future__ import annotations

import enum
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

from . import function_attributes
from .breaks import Break, unknown_operand
from .frozen import is_frozen
from .names import save_old
from .sources import Attribute, Bound, Item, Source
from .values import (
    BuiltinMethod,
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
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

MISSING = object()

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
    "names",
}
_TENSOR_VIEWS = {"T", "mT", "H", "mH", "real", "imag", "data"}


def load(ev: Evaluator, base: Value, name: str) -> Value:
    """Returns `base.name`.

    Raises:
        Break: When the look-up runs code that is not evaluated, or raises.
    """
    base = ev.look(base)
    match base:
        case Unknown():
            raise unknown_operand(f"attribute `{name}` is read of")
        case TensorValue():
            return _tensor(ev, base, name)
        case Known():
            return _known(ev, base, name)
        case InstanceValue():
            return _instance(ev, base, name)
        case TupleValue() if name in getattr(base.cls, "_fields", ()):
            return ev.look(base.items[base.cls._fields.index(name)])
        case ListValue() | DictValue() | SetValue() | TupleValue() | IteratorValue():
            cls = getattr(base, "cls", list)
            if not isinstance(base, IteratorValue) and not hasattr(cls, name):
                raise Break(
                    "SJ030", f"raises AttributeError: `{cls.__name__}` has no `{name}`"
                )
            return BuiltinMethod(base, name)
        case SuperValue():
            return _super(ev, base, name)
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
        case Scalar():
            raise Break("SJ020", f"`{name}` of a run-time number", harmless=True)
    raise Break("SJ020", f"attribute `{name}` of a {type(base).__name__}")


def has(ev: Evaluator, base: Value, name: str) -> bool:
    """Returns `hasattr(base, name)`, guarded."""
    base = ev.look(base)
    match base:
        case TensorValue():
            if hasattr(torch.Tensor, name) or name in _TENSOR_FACTS:
                return True
            if base.source is not None:
                ev.guards.add(f"not hasattr({base.source.guard}, {name!r})")
            return False
        case Known():
            if ev.overlay.get((id(base.obj), name)) is not None:
                return True
            cls = type(base.obj)
            if _has_hooked_lookup(cls) and not isinstance(base.obj, (type, ModuleType)):
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


def _tensor(ev: Evaluator, base: TensorValue, name: str) -> Value:
    if name in _TENSOR_FACTS:
        return constant(getattr(base.fake, name))
    if name in _TENSOR_VIEWS:
        return ev.builder.call(
            "call_function", getattr, [base, constant(name)], {}, name
        )
    member = getattr(torch.Tensor, name, MISSING)
    if callable(member):
        return BuiltinMethod(base, name)
    if member is MISSING:
        raise Break(
            "SJ030", f"raises AttributeError: a tensor has no attribute `{name}`"
        )
    raise Break(
        "SJ010", f"`{name}` of a tensor is only known to PyTorch", harmless=True
    )


# ── known objects ───────────────────────────────────────────────────────────────────


def _known(ev: Evaluator, base: Known, name: str) -> Value:
    obj = base.obj
    written = ev.overlay.get((id(obj), name))
    if written is not None:
        return written
    if isinstance(obj, ModuleType):
        return _module(ev, base, name)
    if is_constant(obj):
        return _constant(ev, base, name)
    if isinstance(obj, type):
        return _class(ev, base, name)
    if isinstance(obj, (FunctionType, BuiltinFunctionType, MethodType)):
        return _simple(ev, base, name)
    if isinstance(obj, enum.Enum) and name in ("value", "name"):
        return _child(ev, base, getattr(obj, name), name)
    if base.source is None:
        return _frozen_object(base, name)
    return _object(ev, base, name)


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
        return Known(value, None)
    if is_frozen(module.__name__):
        ev.use(base)
        return Known(value, None)
    return ev.wrap(value, Attribute(base.source, name))


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
    value = getattr(cls, name)
    if base.source is None or is_frozen(cls.__module__):
        return Known(value, None)
    return ev.wrap(value, Attribute(base.source, name))


def _function_of(ev: Evaluator, cls: Known, function: Any, name: str) -> Value:
    if cls.source is None or is_frozen(cls.obj.__module__):
        return Known(function, None)
    return user_function(ev, cls.obj, function, name)


def user_function(ev: Evaluator, cls: type, function: Any, name: str) -> Value:
    """A function found in a user's class; a guard fixes that it is still there."""
    class_name = ev.guards.bind(cls, cls.__name__)
    bound = ev.guards.bind(function, name.strip("_") or "method")
    owner = next(c for c in cls.__mro__ if name in c.__dict__)
    static = owner.__dict__[name]
    reader = f"{class_name}.{name}"
    if isinstance(static, classmethod):
        reader += ".__func__"
    elif isinstance(static, property):
        reader += ".fget"
    if name.startswith("__") and not name.endswith("__"):
        reader = f"getattr({class_name}, {name!r})"
    ev.guards.add(f"{reader} is {bound}")
    return Known(function, Bound(bound))


def _simple(ev: Evaluator, base: Known, name: str) -> Value:
    """Attributes of functions and bound methods."""
    if isinstance(base.obj, MethodType) and name == "__func__":
        return _child(ev, base, base.obj.__func__, name)
    if not hasattr(base.obj, name):
        raise Break(
            "SJ030", f"raises AttributeError: function has no attribute `{name}`"
        )
    value = getattr(base.obj, name)
    if isinstance(value, MethodType) and value.__self__ is base.obj:
        raise Break("SJ010", f"method `{name}` of a function")
    return _child(ev, base, value, name)


_PLAIN_LIBRARY_OBJECTS = (torch.finfo, torch.iinfo, torch.Generator)


def _frozen_object(base: Known, name: str) -> Value:
    obj = base.obj
    if isinstance(obj, _PLAIN_LIBRARY_OBJECTS):
        return Known(getattr(obj, name), None)
    static = inspect.getattr_static(obj, name, MISSING)
    if isinstance(static, FunctionType) and name not in getattr(obj, "__dict__", {}):
        return MethodValue(Known(static, None), base, name)
    value = getattr(obj, "__dict__", {}).get(name, MISSING)
    if value is not MISSING:
        return Known(value, None)
    if is_frozen(type(obj).__module__) and not isinstance(static, property):
        value = getattr(obj, name, MISSING)
        if value is not MISSING:
            return Known(value, None)
    raise Break("SJ020", f"attribute `{name}` of a `{type(obj).__name__}`")


_DATA_TABLES = ("_parameters", "_buffers", "_modules")


def _has_hooked_lookup(cls: type) -> bool:
    return cls.__getattribute__ is not object.__getattribute__ or getattr(
        cls, "__getattr__", None
    ) not in (None, torch.nn.Module.__getattr__)


def _object(ev: Evaluator, base: Known, name: str) -> Value:
    obj, source = base.obj, base.source
    assert source is not None
    cls = type(obj)
    ev.guards.type_of(source, obj)
    if cls.__getattribute__ is not object.__getattribute__:
        raise Break("SJ020", f"`{cls.__name__}` defines `__getattribute__`")
    static = _class_attribute(cls, name)
    if static is not MISSING and _is_data_descriptor(static):
        return _descriptor(ev, base, static, name)
    own = _own_attributes(obj)
    if name in own:
        return ev.wrap(own[name], Attribute(source, name))
    if static is not MISSING:
        if name not in ("__class__", "__dict__") and not name.startswith("__"):
            ev.guards.add(
                f"{name!r} not in {source.guard}.__dict__"
                if own is not _NO_DICT
                else "True"
            )
        return _class_member(ev, base, cls, static, name)
    if isinstance(obj, torch.nn.Module):
        for table in _DATA_TABLES:
            entries = obj.__dict__.get(table)
            if entries is not None and name in entries:
                return ev.wrap(entries[name], Item(Attribute(source, table), name))
    if getattr(cls, "__getattr__", None) not in (None, torch.nn.Module.__getattr__):
        return _getattr_hook(ev, base, cls, name)
    raise Break(
        "SJ030", f"raises AttributeError: `{cls.__name__}` has no attribute `{name}`"
    )


_NO_DICT: dict[str, Any] = {}


def _own_attributes(obj: Any) -> dict[str, Any]:
    try:
        return object.__getattribute__(obj, "__dict__")  # type: ignore[no-any-return]
    except AttributeError:
        return _NO_DICT


def _class_attribute(cls: type, name: str) -> Any:
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name]
    return MISSING


def _is_data_descriptor(static: Any) -> bool:
    return hasattr(type(static), "__get__") and (
        hasattr(type(static), "__set__") or hasattr(type(static), "__delete__")
    )


def _descriptor(ev: Evaluator, base: Known, static: Any, name: str) -> Value:
    from .calls import call

    assert base.source is not None
    if isinstance(static, property) and isinstance(static.fget, FunctionType):
        owner = next(c for c in type(base.obj).__mro__ if name in c.__dict__)
        if is_frozen(owner.__module__):
            return call(ev, Known(static.fget, None), [base], {})
        getter = user_function(ev, type(base.obj), static.fget, name)
        return call(ev, getter, [base], {})
    if isinstance(static, MemberDescriptorType):
        return ev.wrap(static.__get__(base.obj), Attribute(base.source, name))
    if isinstance(static, GetSetDescriptorType) and name in ("__dict__", "__class__"):
        return ev.wrap(getattr(base.obj, name), Attribute(base.source, name))
    raise Break(
        "SJ020", f"attribute `{name}` runs a descriptor of `{type(base.obj).__name__}`"
    )


def _class_member(
    ev: Evaluator, base: Known, cls: type, static: Any, name: str
) -> Value:
    owner = next(c for c in cls.__mro__ if name in c.__dict__)
    frozen = is_frozen(owner.__module__)
    if name == "__class__":
        return Known(cls, Bound(ev.guards.bind(cls, cls.__name__)))
    if isinstance(static, FunctionType):
        function = (
            Known(static, None) if frozen else user_function(ev, cls, static, name)
        )
        return MethodValue(function, base, name)
    if isinstance(static, staticmethod):
        inner = static.__func__
        if not isinstance(inner, FunctionType) or frozen:
            return Known(inner, None)
        return user_function(ev, cls, inner, name)
    if isinstance(static, classmethod):
        receiver = Known(cls, Bound(ev.guards.bind(cls, cls.__name__)))
        inner = static.__func__
        function = Known(inner, None) if frozen else user_function(ev, cls, inner, name)
        return MethodValue(function, receiver, name)
    if isinstance(
        static, (MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType)
    ):
        return BuiltinMethod(base, name)
    if hasattr(type(static), "__get__"):
        raise Break(
            "SJ020", f"attribute `{name}` runs a descriptor of `{cls.__name__}`"
        )
    assert base.source is not None
    return (
        Known(static, None) if frozen else ev.wrap(static, Attribute(base.source, name))
    )


def _getattr_hook(ev: Evaluator, base: Known, cls: type, name: str) -> Value:
    raise Break("SJ020", f"`{cls.__name__}.__getattr__` answers for `{name}`")


def _super(ev: Evaluator, base: SuperValue, name: str) -> Value:
    receiver = ev.look(base.receiver)
    cls = _receiver_class(receiver)
    if cls is None:
        raise Break("SJ020", "`super()` of a value that is not known")
    mro = cls.__mro__
    for owner in mro[mro.index(base.owner) + 1 :]:
        if name in owner.__dict__:
            static = owner.__dict__[name]
            if isinstance(static, FunctionType):
                if is_frozen(owner.__module__):
                    return MethodValue(Known(static, None), receiver)
                return MethodValue(user_function(ev, owner, static, name), receiver)
            if (
                owner is object
                and isinstance(receiver, InstanceValue)
                and name == "__init__"
            ):
                return constant_noop()
            break
    raise Break("SJ020", f"`super().{name}`")


def _receiver_class(receiver: Value) -> type | None:
    match receiver:
        case Known():
            return (
                receiver.obj if isinstance(receiver.obj, type) else type(receiver.obj)
            )
        case InstanceValue():
            return receiver.cls
    return None


def _nothing(*args: object, **kwargs: object) -> None:
    """Stands for `object.__init__`."""


def constant_noop() -> Known:
    """The value of `super().__init__` at the top of a class tree."""
    return Known(_nothing, None)


# ── instances made during evaluation ────────────────────────────────────────────────


def _instance(ev: Evaluator, base: InstanceValue, name: str) -> Value:
    from .calls import call

    cls = base.cls
    static = _class_attribute(cls, name)
    owner_value = base.cls_value or Known(cls, Bound(ev.guards.bind(cls, cls.__name__)))
    if isinstance(static, property) and isinstance(static.fget, FunctionType):
        return call(ev, user_function(ev, cls, static.fget, name), [base], {})
    if name in base.attributes:
        return ev.look(base.attributes[name])
    if name == "__class__":
        return owner_value
    if static is MISSING:
        raise Break("SJ030", f"raises AttributeError: `{cls.__name__}` has no `{name}`")
    if isinstance(static, FunctionType):
        return MethodValue(user_function(ev, cls, static, name), base, name)
    if isinstance(static, staticmethod) and isinstance(static.__func__, FunctionType):
        return user_function(ev, cls, static.__func__, name)
    if isinstance(static, classmethod) and isinstance(static.__func__, FunctionType):
        return MethodValue(
            user_function(ev, cls, static.__func__, name), owner_value, name
        )
    if hasattr(type(static), "__get__"):
        raise Break(
            "SJ020", f"attribute `{name}` runs a descriptor of `{cls.__name__}`"
        )
    holder = ev.guards.bind(cls, cls.__name__)
    return ev.wrap(static, Attribute(Bound(holder), name))


# ── stores ──────────────────────────────────────────────────────────────────────────


def store(ev: Evaluator, base: Value, name: str, value: Value) -> None:
    """`base.name = value`.

    Raises:
        Break: When the store runs code that is not evaluated.
    """
    base, value = ev.look(base), ev.look(value)
    if isinstance(base, Unknown) or isinstance(value, Unknown):
        raise unknown_operand(f"attribute `{name}` is stored with")
    if not (isinstance(base, InstanceValue) and is_frozen(base.cls.__module__)):
        ev.journal.changes += 1
    if isinstance(base, InstanceValue):
        static = _class_attribute(base.cls, name)
        if (
            static is not MISSING
            and _is_data_descriptor(static)
            and not isinstance(static, MemberDescriptorType)
        ):
            raise Break("SJ021", f"`{name}` of `{base.cls.__name__}` is a descriptor")
        if base.cls.__setattr__ is not object.__setattr__:
            raise Break("SJ021", f"`{base.cls.__name__}` defines `__setattr__`")
        if base.name is not None:
            residual = ev.residual
            holder = base.name
            ev.effect(
                lambda: residual.emit(f"{holder}.{name} = {residual.reify(value)}"),
                value,
            )
        ev.journal.set_item(base.attributes, name, value)
        return
    if isinstance(base, FunctionValue):
        function_attributes.store(ev, base, name, value)
        return
    if isinstance(base, Known) and base.source is not None:
        _store_outside(ev, base, name, value)
        return
    raise Break("SJ021", f"store to attribute `{name}` of a {type(base).__name__}")


def _store_outside(ev: Evaluator, base: Known, name: str, value: Value) -> None:
    obj, source = base.obj, base.source
    assert source is not None
    cls = type(obj)
    if isinstance(obj, (type, ModuleType)):
        raise Break("SJ021", f"store to attribute `{name}` of a {cls.__name__}")
    ev.guards.type_of(source, obj)
    if cls.__setattr__ not in (object.__setattr__, torch.nn.Module.__setattr__):
        raise Break("SJ021", f"`{cls.__name__}` defines `__setattr__`")
    static = _class_attribute(cls, name)
    if static is not MISSING and _is_data_descriptor(static):
        if not isinstance(static, MemberDescriptorType):
            raise Break("SJ021", f"`{name}` of `{cls.__name__}` is a descriptor")
    if isinstance(obj, torch.nn.Module) and (
        name in obj._parameters
        or name in obj._modules
        or (isinstance(value, TensorValue) and value.cls is torch.nn.Parameter)
        or (isinstance(value, Known) and isinstance(value.obj, torch.nn.Module))
    ):
        raise Break("SJ021", f"`{name}` is a parameter or submodule")
    if isinstance(obj, torch.nn.Module) and name in obj._buffers:
        if not isinstance(value, TensorValue) and not (
            isinstance(value, Known) and value.obj is None
        ):
            raise Break("SJ030", f"raises TypeError: cannot assign to buffer `{name}`")
    target = _target_source(obj, source, name)
    ev.guards.mutated(source.guard, cls)
    ev.journal.set_item(ev.overlay, (id(obj), name), value)
    residual = ev.residual

    def replay() -> None:
        save_old(ev, target)
        residual.emit(f"{residual.reify(base)}.{name} = {residual.reify(value)}")

    ev.effect(replay, value)


def _target_source(obj: Any, source: Source, name: str) -> Source:
    """Where the old value of an attribute was read from."""
    if isinstance(obj, torch.nn.Module) and name in obj._buffers:
        return Item(Attribute(source, "_buffers"), name)
    return Attribute(source, name)


def delete(ev: Evaluator, base: Value, name: str) -> None:
    """`del base.name`."""
    if (
        isinstance(base, InstanceValue)
        and base.name is None
        and name in base.attributes
    ):
        ev.journal.delete_item(base.attributes, name)
        return
    raise Break("SJ021", f"`del` of attribute `{name}`")
