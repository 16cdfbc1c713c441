"""Descriptors of the user's own classes, and `functools.cached_property`.

class Unit:
    def __get__(self, obj, owner=None): ...

car.speed                 # Unit.__get__(Car.__dict__["speed"], car, Car), inlined
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from ..kinds import is_a
from .frozen import is_frozen
from .sources import Attribute, Bound, Item
from .values import InstanceValue, Known, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def load(ev: Evaluator, base: Value, cls: type, static: Any, name: str) -> Value | None:
    """Returns `base.name` by way of `static`, which `cls` has under that name.

    Returns:
        None if `static` is no descriptor whose `__get__` is evaluated.
    """
    from .calls import call

    if type(static) is functools.cached_property:
        return _cached(ev, base, cls, static, name)
    descriptor = _descriptor(ev, cls, static, name)
    method = _method(ev, descriptor, static, "__get__")
    if method is None:
        return None
    owner = getattr(base, "cls_value", None)
    if owner is None:
        owner = Known(cls, Bound(ev.guards.bind(cls, cls.__name__)))
    return call(ev, method, [descriptor, base, owner], {})


def store(
    ev: Evaluator, base: Value, cls: type, static: Any, name: str, value: Value
) -> bool:
    """`base.name = value` by `__set__`; False if that is not evaluated."""
    from .calls import call

    descriptor = _descriptor(ev, cls, static, name)
    method = _method(ev, descriptor, static, "__set__")
    if method is None:
        return False
    call(ev, method, [descriptor, base, value], {})
    return True


def _descriptor(ev: Evaluator, cls: type, static: Any, name: str) -> Value:
    """The descriptor itself, reached through the class that holds it."""
    owner = next(c for c in cls.__mro__ if name in c.__dict__)
    for other in cls.__mro__[: cls.__mro__.index(owner)]:
        if not is_frozen(other.__module__):
            holder = ev.guards.bind(other, other.__name__)
            ev.guards.add_absent(f"{holder}.__dict__", name)
    holder = ev.guards.bind(owner, owner.__name__)
    return ev.wrap(static, Item(Attribute(Bound(holder), "__dict__"), name))


def _method(ev: Evaluator, descriptor: Value, static: Any, name: str) -> Value | None:
    """`__get__` or `__set__` of a descriptor's class, if it is the user's function."""
    from .class_lookup import class_attribute, user_function

    kind = type(static)
    function = class_attribute(kind, name)
    if not isinstance(function, FunctionType) or is_frozen(kind.__module__):
        return None
    if not isinstance(descriptor, Known) or descriptor.source is None:
        return None
    ev.guards.type_of(descriptor.source, static)
    return user_function(ev, kind, function, name)


def _cached(
    ev: Evaluator, base: Value, cls: type, static: Any, name: str
) -> Value | None:
    """`cached_property`: computed once, then an attribute of the object."""
    from .attribute_stores import store_plainly
    from .calls import call

    library = isinstance(base, Known) and is_a(base.obj, torch.nn.Module)
    if library or static.attrname != name or not isinstance(static.func, FunctionType):
        return None
    descriptor = _descriptor(ev, cls, static, name)
    if not isinstance(base, (Known, InstanceValue)) or not isinstance(
        descriptor, Known
    ):
        return None
    if is_frozen(cls.__module__) or descriptor.source is None:
        return None
    function = ev.wrap(static.func, Attribute(descriptor.source, "func"))
    value = call(ev, function, [base], {})
    store_plainly(ev, base, name, value)
    return value
