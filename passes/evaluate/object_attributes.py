"""Attributes of objects from outside, found as `object.__getattribute__` would find them.

First data descriptors of the class, then what the object itself holds, then the rest of the
class, then `__getattr__`. What decided is guarded.
"""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import user_descriptors
from .breaks import Break
from .class_lookup import (
    MISSING,
    class_attribute,
    has_hooked_lookup,
    is_data_descriptor,
    no_attribute,
    refuse_own_lookup,
    stays_absent,
    user_function,
)
from .enums import unboxed
from .frozen import is_frozen
from .modules import MODULE_TABLES, refuse_written
from .registry import evaluates
from .sources import Attribute, Bound, Item, Source
from .values import (
    BuiltinMethod,
    Known,
    MethodValue,
    Value,
    constant,
    described,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def load_object(ev: Evaluator, base: Known, name: str) -> Value:
    from .attributes import load

    plain = unboxed(ev, base)
    if plain is not base and hasattr(type(plain.obj), name):  # type: ignore[attr-defined]
        return load(ev, plain, name)
    obj, source = base.obj, base.source
    assert source is not None
    cls = type(obj)
    ev.guards.type_of(source, obj)
    refuse_own_lookup(cls)
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


def _stays_visible(
    ev: Evaluator, source: Source, own: dict[str, Any], name: str
) -> None:
    """Guards that no attribute of the object itself hides what was found elsewhere."""
    if own is not _NO_DICT:
        ev.guards.add_absent(f"{source.guard}.__dict__", name)


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
        raise Break("SJ020", f"`Module.__getattr__` of {described(module)}")
    return _module_entry(ev, module, str(ev.known(name, "an attribute")))


_NO_DICT: dict[str, Any] = {}


def _own_attributes(obj: Any) -> dict[str, Any]:
    try:
        return object.__getattribute__(obj, "__dict__")  # type: ignore[no-any-return]
    except AttributeError:
        return _NO_DICT


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
        raise Break(
            "SJ020",
            "`__dict__` of an object",
            hint="read the attribute, or use `getattr`",
        )
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
