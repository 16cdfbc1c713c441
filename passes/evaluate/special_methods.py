"""Special methods (`__len__`, `__eq__`, ...) of user classes, found on the class as Python does."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING

from .breaks import Break
from .frozen import is_frozen
from .values import InstanceValue, Known, MethodValue, Value, is_constant

if TYPE_CHECKING:
    from .evaluator import Evaluator


def special(ev: Evaluator, receiver: Value, name: str) -> Value | None:
    """Returns the bound special method `name`, or None if no user's function defines it.

    Raises:
        Break: When the class says that there is none (`__hash__ = None`), or defines it by
            something other than a function.
    """
    from . import class_lookup

    match receiver:
        case InstanceValue():
            cls = receiver.cls
        case Known() if receiver.source is not None and not is_constant(receiver.obj):
            cls = type(receiver.obj)
        case _:
            return None
    for owner in cls.__mro__:
        if name not in owner.__dict__:
            continue
        static = owner.__dict__[name]
        if is_frozen(owner.__module__):
            break
        if not isinstance(static, FunctionType):
            raise Break("SJ020", f"`{cls.__name__}.{name}` is not a function")
        if isinstance(receiver, Known):
            assert receiver.source is not None
            ev.guards.type_of(receiver.source, receiver.obj)
        return MethodValue(
            class_lookup.user_function(ev, cls, static, name), receiver, name
        )
    _stays_absent(ev, cls, name)
    return None


def _stays_absent(ev: Evaluator, cls: type, name: str) -> None:
    """Guards that a user's class gets no such method later."""
    if is_frozen(cls.__module__):
        return
    holder = ev.guards.bind(cls, cls.__name__)
    inherited = getattr(cls, name, None)
    if inherited is None:
        ev.guards.add(f"not hasattr({holder}, {name!r})")
    else:
        library = ev.guards.bind(inherited, name.strip("_"))
        ev.guards.add(f"{holder}.{name} is {library}")


def call_special(
    ev: Evaluator, receiver: Value, name: str, *args: Value
) -> Value | None:
    """Calls a special method; None if no user's function defines it."""
    from .calls import call

    method = special(ev, receiver, name)
    return None if method is None else call(ev, method, list(args), {})


def defines(value: Value, name: str) -> bool:
    """Whether the class of an object gives `name` a meaning of its own."""
    cls = (
        value.cls
        if isinstance(value, InstanceValue)
        else type(getattr(value, "obj", None))
    )
    return getattr(cls, name, None) is not getattr(object, name, None)
