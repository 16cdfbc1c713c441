"""Attributes by way of `super()`, and of instances made during evaluation."""

from __future__ import annotations

from types import (
    FunctionType,
    MemberDescriptorType,
)
from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from . import user_descriptors
from .attributes import load
from .breaks import Break
from .class_lookup import (
    MISSING,
    class_attribute,
    has_own_lookup,
    is_data_descriptor,
    no_attribute,
    stays_absent,
    user_function,
)
from .frozen import is_frozen
from .sources import Attribute, Bound
from .values import (
    InstanceValue,
    Known,
    MethodValue,
    SuperValue,
    Value,
    constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def load_super(ev: Evaluator, base: SuperValue, name: str) -> Value:
    receiver = ev.look(base.receiver)
    cls = _receiver_class(receiver)
    if cls is None:
        raise Break("SJ020", "`super()` of a value that is not known")
    mro = cls.__mro__
    if base.owner not in mro:
        raise Break("SJ030", "raises TypeError: `super` of another class's object")
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
            if name == "__setattr__":
                return MethodValue(Known(static, None), receiver)
            if isinstance(static, property) and isinstance(static.fget, FunctionType):
                getter = Known(static.fget, None)
                if not is_frozen(owner.__module__):
                    getter = user_function(ev, owner, static.fget, name)
                from .calls import call

                return call(ev, getter, [receiver], {})
            if isinstance(static, (classmethod, staticmethod)):
                return _super_method(ev, owner, static, receiver, name)
            break
    raise Break("SJ020", f"`super().{name}`")


def _super_method(
    ev: Evaluator,
    owner: type,
    static: classmethod[Any, Any, Any] | staticmethod[Any, Any],
    receiver: Value,
    name: str,
) -> Value:
    inner: Any = static.__func__
    if not isinstance(inner, FunctionType):
        raise Break("SJ020", f"`super().{name}`")
    function = Known(inner, None)
    if not is_frozen(owner.__module__):
        function = user_function(ev, owner, inner, name)
    if isinstance(static, staticmethod):
        return function
    cls = receiver
    if not (isinstance(receiver, Known) and is_a(receiver.obj, type)):
        cls = load(ev, receiver, "__class__")
    return MethodValue(function, cls)


def _receiver_class(receiver: Value) -> type | None:
    match receiver:
        case Known():
            return receiver.obj if is_a(receiver.obj, type) else type(receiver.obj)
        case InstanceValue():
            return receiver.cls
    return None


def _nothing(*args: object, **kwargs: object) -> None:
    """Stands for `object.__init__`."""


def constant_noop() -> Known:
    """The value of `super().__init__` at the top of a class tree."""
    return Known(_nothing, None)


# ── instances made during evaluation ────────────────────────────────────────────────


def load_instance(ev: Evaluator, base: InstanceValue, name: str) -> Value:
    from .calls import call

    cls = base.cls
    if has_own_lookup(cls):
        raise Break("SJ020", f"`{cls.__name__}` defines `__getattribute__`")
    stays_absent(ev, cls, "__getattribute__")
    if name == "__dict__":
        raise Break(
            "SJ020",
            "`__dict__` of an instance",
            hint="read the attribute, or use `getattr`",
        )
    static = class_attribute(cls, name)
    owner_value = base.cls_value or Known(cls, Bound(ev.guards.bind(cls, cls.__name__)))
    if isinstance(static, property) and isinstance(static.fget, FunctionType):
        return call(ev, user_function(ev, cls, static.fget, name), [base], {})
    if static is not MISSING and is_data_descriptor(static):
        made = user_descriptors.load(ev, base, cls, static, name)
        if made is not None:
            return made
    if name in base.attributes:
        if static is MISSING:
            stays_absent(ev, cls, name)
        return ev.look(base.attributes[name])
    if name == "__class__":
        return owner_value
    if isinstance(static, MemberDescriptorType):
        raise no_attribute(cls, name)
    if static is MISSING and isinstance(
        class_attribute(cls, "__getattr__"), FunctionType
    ):
        hook = user_function(
            ev, cls, class_attribute(cls, "__getattr__"), "__getattr__"
        )
        return call(ev, hook, [base, constant(name)], {})
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
    made = user_descriptors.load(ev, base, cls, static, name)
    if made is not None:
        return made
    if hasattr(type(static), "__get__"):
        raise Break(
            "SJ020", f"attribute `{name}` runs a descriptor of `{cls.__name__}`"
        )
    holder = ev.guards.bind(cls, cls.__name__)
    return ev.wrap(static, Attribute(Bound(holder), name))
