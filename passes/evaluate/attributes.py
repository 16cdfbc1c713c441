"""Attributes: reading, storing and deleting them as CPython's look-up would."""

from __future__ import annotations

import collections
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
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import function_attributes, named_tuples, user_descriptors
from .breaks import Break, unknown_operand
from .enums import unboxed
from .frozen import is_frozen
from .modules import MODULE_TABLES, refuse_written
from .names import library_value
from .registry import evaluates
from .sizes import pin
from .sources import Attribute, Bound, Global, Item, Source
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
            _refuse_own_lookup(type(obj))
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


def user_function(
    ev: Evaluator, cls: type, function: Any, name: str, reader: str = "fget"
) -> Known:
    """A function found in a user's class; a guard fixes that it is still there."""
    class_name = ev.guards.bind(cls, cls.__name__)
    bound = ev.guards.bind(function, name.strip("_") or "method")
    owner = next(c for c in cls.__mro__ if name in c.__dict__)
    static = owner.__dict__[name]
    path = f"{class_name}.{name}"
    if name.startswith("__") and not name.endswith("__"):
        path = f"getattr({class_name}, {name!r})"
    if isinstance(static, classmethod):
        path += ".__func__"
    elif isinstance(static, property):
        path += f".{reader}"
    ev.guards.add(f"{path} is {bound}")
    return Known(function, Bound(bound))


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


def has_hooked_lookup(cls: type) -> bool:
    hooks = (None, torch.nn.Module.__getattr__)
    return has_own_lookup(cls) or getattr(cls, "__getattr__", None) not in hooks


_PLAIN_LOOKUPS = tuple(
    cls.__getattribute__
    for cls in (
        *(object, SimpleNamespace, dict, list, tuple, set, frozenset),
        *(int, float, complex, str, bytes, bytearray, range, BaseException),
        *(collections.deque, collections.defaultdict, collections.OrderedDict),
    )
)
"""Look-ups of the usual kind: each type in C has one of its own."""


def has_own_lookup(cls: type) -> bool:
    """Whether a class replaces the look-up of attributes altogether."""
    lookup: Any = cls.__getattribute__
    return not any(lookup is plain for plain in _PLAIN_LOOKUPS)


def _refuse_own_lookup(cls: type) -> None:
    if has_own_lookup(cls):
        raise Break("SJ020", f"`{cls.__name__}` defines `__getattribute__`")


def _object(ev: Evaluator, base: Known, name: str) -> Value:
    plain = unboxed(ev, base)
    if plain is not base and hasattr(type(plain.obj), name):  # type: ignore[attr-defined]
        return load(ev, plain, name)
    obj, source = base.obj, base.source
    assert source is not None
    cls = type(obj)
    ev.guards.type_of(source, obj)
    _refuse_own_lookup(cls)
    stays_absent(ev, cls, "__getattribute__")
    static = class_attribute(cls, name)
    if static is not MISSING and is_data_descriptor(static):
        return _descriptor(ev, base, static, name)
    own = _own_attributes(obj)
    if name in own:
        if name in MODULE_TABLES and is_a(obj, torch.nn.Module):
            refuse_written(ev, obj, name)
        return ev.wrap(own[name], Attribute(source, name))
    if static is not MISSING:
        if name not in ("__class__", "__dict__") and not name.startswith("__"):
            _stays_visible(ev, source, own, name)
        return _class_member(ev, base, cls, static, name)
    if has_hooked_lookup(cls):
        _stays_visible(ev, source, own, name)
        stays_absent(ev, cls, name)
        return _getattr_hook(ev, base, cls, name)
    if is_a(obj, torch.nn.Module):
        _stays_visible(ev, source, own, name)
        for hidden in (name, "__getattr__"):
            stays_absent(ev, cls, hidden)
        return _module_entry(ev, base, name)
    raise no_attribute(cls, name)


def stays_absent(ev: Evaluator, cls: type, name: str) -> None:
    """Guards that no user's class among the bases of `cls` gets an attribute `name`."""
    for owner in cls.__mro__:
        if not is_frozen(owner.__module__):
            ev.guards.add_absent(
                f"{ev.guards.bind(owner, owner.__name__)}.__dict__", name
            )


def _stays_visible(
    ev: Evaluator, source: Source, own: dict[str, Any], name: str
) -> None:
    """Guards that no attribute of the object itself hides what was found elsewhere."""
    if own is not _NO_DICT:
        ev.guards.add_absent(f"{source.guard}.__dict__", name)


def no_attribute(cls: type, name: str) -> Break:
    return Break(
        "SJ030", f"raises AttributeError: `{cls.__name__}` has no attribute `{name}`"
    )


def _module_entry(ev: Evaluator, base: Known, name: str) -> Value:
    """What `nn.Module.__getattr__` finds: a parameter, buffer or submodule."""
    assert base.source is not None
    for table in MODULE_TABLES:
        entries = base.obj.__dict__.get(table)
        if entries is not None and name in entries:
            return ev.wrap(entries[name], Item(Attribute(base.source, table), name))
    raise no_attribute(type(base.obj), name)


@evaluates(torch.nn.Module.__getattr__)
def _module_getattr(ev: Evaluator, module: Value, name: Value, /) -> Value:
    module = ev.look(module)
    if not isinstance(module, Known) or not is_a(module.obj, torch.nn.Module):
        raise Break("SJ020", "`Module.__getattr__` of a module made here")
    return _module_entry(ev, module, str(ev.known(name, "an attribute")))


_NO_DICT: dict[str, Any] = {}


def _own_attributes(obj: Any) -> dict[str, Any]:
    try:
        return object.__getattribute__(obj, "__dict__")  # type: ignore[no-any-return]
    except AttributeError:
        return _NO_DICT


def class_attribute(cls: type, name: str) -> Any:
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name]
    return MISSING


def is_data_descriptor(static: Any) -> bool:
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
        try:
            member = static.__get__(base.obj)
        except AttributeError as error:
            raise Break("SJ030", f"raises AttributeError: {error}") from error
        return ev.wrap(member, Attribute(base.source, name))
    if name == "__class__":
        return _class_member(ev, base, type(base.obj), static, name)
    made = user_descriptors.load(ev, base, type(base.obj), static, name)
    if made is not None:
        return made
    if name == "__dict__":
        # Another way to the attributes: stores would have to be seen by both.
        raise Break("SJ020", "`__dict__` of an object")
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
    made = user_descriptors.load(ev, base, cls, static, name)
    if made is not None:
        return made
    if hasattr(type(static), "__get__"):
        raise Break(
            "SJ020", f"attribute `{name}` runs a descriptor of `{cls.__name__}`"
        )
    assert base.source is not None
    return (
        Known(static, None) if frozen else ev.wrap(static, Attribute(base.source, name))
    )


def _getattr_hook(ev: Evaluator, base: Known, cls: type, name: str) -> Value:
    from .calls import call
    from .special_methods import special

    hook = special(ev, base, "__getattr__")
    if hook is None:
        raise Break("SJ020", f"`{cls.__name__}.__getattr__` answers for `{name}`")
    return call(ev, hook, [constant(name)], {})
