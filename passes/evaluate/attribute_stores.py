"""Storing and deleting attributes: slots, properties, modules, objects from outside."""

from __future__ import annotations

from types import FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from . import class_lookup, function_attributes, user_descriptors
from .breaks import Break, unknown_operand
from .frozen import is_frozen
from .iterators import call
from .names import save_old
from .registry import evaluates
from .sources import Attribute, Item, Source
from .special_methods import special
from .values import (
    FunctionValue,
    InstanceValue,
    Known,
    TensorValue,
    Unknown,
    Value,
    constant,
    described,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_PLAIN_SETATTR = (
    object.__setattr__,
    torch.nn.Module.__setattr__,
    SimpleNamespace.__setattr__,
)
_PLAIN = "store to an attribute of a plain object"


def store(ev: Evaluator, base: Value, name: str, value: Value) -> None:
    """`base.name = value`.

    Raises:
        Break: When the store runs code that is not evaluated.
    """
    base, value = ev.look(base), ev.look(value)
    if isinstance(base, Unknown) or isinstance(value, Unknown):
        raise unknown_operand(f"attribute `{name}` is stored with")
    if isinstance(base, (InstanceValue, Known)):
        hook = special(ev, base, "__setattr__")
        if hook is not None:
            call(ev, hook, constant(name), value)
            return
    if isinstance(base, InstanceValue):
        _check_library(base.cls)
    store_plainly(ev, base, name, value)


def store_plainly(ev: Evaluator, base: Value, name: str, value: Value) -> None:
    """What `object.__setattr__`, or that of a module, does."""
    if not (isinstance(base, InstanceValue) and is_frozen(base.cls.__module__)):
        ev.journal.changes += 1
    if isinstance(base, InstanceValue):
        if _by_property(ev, base, base.cls, name, value):
            return
        if base.name is not None:
            holder = base.name
            cls = base.cls

            def replay() -> None:
                _emit_store(ev, cls, object.__setattr__, holder, name, value)

            ev.effect(replay, value)
        ev.journal.set_item(base.attributes, name, value)
        return
    if isinstance(base, FunctionValue):
        function_attributes.store(ev, base, name, value)
        return
    if isinstance(base, Known) and base.source is not None:
        cls = type(base.obj)
        if is_a(base.obj, (type, ModuleType)):
            raise Break("SJ021", f"store to attribute `{name}` of a {cls.__name__}")
        ev.guards.type_of(base.source, base.obj)
        if _library_setattr(cls) not in _PLAIN_SETATTR:
            raise Break("SJ021", f"`{cls.__name__}` defines `__setattr__`", hint=_PLAIN)
        if not _by_property(ev, base, cls, name, value):
            _store_outside(ev, base, name, value)
        return
    raise Break("SJ021", f"store to attribute `{name}` of {described(base)}")


def _library_setattr(cls: type) -> Any:
    """The `__setattr__` of the library's class that a class derives from."""
    return next(c.__setattr__ for c in cls.__mro__ if is_frozen(c.__module__))


def _check_library(cls: Any) -> None:
    """Breaks where a library's class does something of its own on a store."""
    if cls.__setattr__ is not object.__setattr__ and not is_frozen_dataclass(cls):
        raise Break("SJ021", f"`{cls.__name__}` defines `__setattr__`", hint=_PLAIN)


def is_frozen_dataclass(cls: type) -> bool:
    """Whether `__setattr__` is the one that `dataclass(frozen=True)` wrote."""
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _by_property(
    ev: Evaluator, base: Value, cls: type, name: str, value: Value
) -> bool:
    """Stores through a property or another data descriptor; False if there is none."""
    static = class_lookup.class_attribute(cls, name)
    if cls.__dictoffset__ == 0 and not isinstance(static, MemberDescriptorType):
        if static is class_lookup.MISSING or not class_lookup.takes_stores(static):
            raise Break(
                "SJ030", f"raises AttributeError: `{cls.__name__}` has no slot `{name}`"
            )
    if static is class_lookup.MISSING:
        class_lookup.stays_absent(ev, cls, name)
        return False
    if not class_lookup.takes_stores(static):
        owner = next(c for c in cls.__mro__ if name in c.__dict__)
        if not is_frozen(owner.__module__):
            holder = ev.guards.bind(owner, owner.__name__)
            found = f"type({holder}.__dict__[{name!r}])"
            ev.guards.add(f"not hasattr({found}, '__set__')", "a plain store")
        return False
    if isinstance(static, MemberDescriptorType):
        return False
    if isinstance(static, property):
        if static.fset is None:
            raise Break(
                "SJ030", f"raises AttributeError: property `{name}` has no setter"
            )
        if isinstance(static.fset, FunctionType):
            setter = class_lookup.user_function(
                ev, cls, static.fset, name, reader="fset"
            )
            call(ev, setter, base, value)
            return True
    if user_descriptors.store(ev, base, cls, static, name, value):
        return True
    raise Break("SJ021", f"`{name}` of `{cls.__name__}` is a descriptor", hint=_PLAIN)


@evaluates(object.__setattr__, torch.nn.Module.__setattr__)
def _object_setattr(
    ev: Evaluator, base: Value, attribute: Value, value: Value, /
) -> Value:
    name = ev.known(attribute, "`__setattr__`")
    store_plainly(ev, ev.look(base), str(name), ev.look(value))
    return constant(None)


def _store_outside(ev: Evaluator, base: Known, name: str, value: Value) -> None:
    obj, source = base.obj, base.source
    assert source is not None
    cls = type(obj)
    library = _library_setattr(cls)
    if is_a(obj, torch.nn.Module) and (
        name in obj._parameters
        or name in obj._modules
        or (isinstance(value, TensorValue) and value.cls is torch.nn.Parameter)
        or (isinstance(value, Known) and is_a(value.obj, torch.nn.Module))
    ):
        raise Break("SJ021", f"`{name}` is a parameter or submodule")
    if is_a(obj, torch.nn.Module) and name in obj._buffers:
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
        _emit_store(ev, cls, library, residual.reify(base), name, value)

    ev.effect(replay, value)


def _emit_store(
    ev: Evaluator, cls: type, library: Any, holder: str, name: str, value: Value
) -> None:
    """Emits a plain store: the class's own `__setattr__`, if any, has been evaluated."""
    residual = ev.residual
    if cls.__setattr__ is library:
        residual.emit(f"{holder}.{name} = {residual.reify(value)}")
    else:
        setter = residual.constant_name(library, "set_attribute")
        residual.emit(f"{setter}({holder}, {name!r}, {residual.reify(value)})")


def _target_source(obj: Any, source: Source, name: str) -> Source:
    """Where the old value of an attribute was read from."""
    if is_a(obj, torch.nn.Module) and name in obj._buffers:
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
