"""Named tuples: tuples whose items have names, and whose class may have methods.

p = Point(x, y)           # a tuple of two items
p.norm()                  # a method of the user's class, inlined
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from .breaks import Break
from .frozen import is_frozen
from .sources import Attribute, Bound
from .values import Known, MethodValue, TupleValue, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

_PROTOCOLS = (
    *(n for n in vars(tuple) if n[:2] == "__" and n not in ("__new__", "__doc__")),
    *("__bool__", "__setattr__", "__getattr__", "__radd__", "__rmul__"),
)
"""Methods by which operators and built-in functions look at a tuple."""

_GENERATED = ("__repr__", "__getnewargs__")
"""Of these, what `namedtuple` writes into each class."""


def is_plain(ev: Evaluator, cls: Any, *, made: bool = False) -> bool:
    """Whether operators take an instance for the tuple of its items; guarded.

    Args:
        ev: The evaluator.
        cls: The class of the named tuple.
        made: Whether an instance is made, so that `__new__` matters, too.
    """
    from .class_lookup import stays_absent

    if is_frozen(cls.__module__):
        return True
    for owner in cls.__mro__:
        if is_frozen(owner.__module__):
            continue
        own = vars(owner)
        if any(name in own and name not in _GENERATED for name in _PROTOCOLS):
            return False
    for name in _PROTOCOLS:
        if name not in _GENERATED:
            stays_absent(ev, cls, name)
    if made:
        new = cls.__new__
        if not str(new.__code__.co_filename).startswith("<") or "__init__" in {
            name for c in cls.__mro__ if not is_frozen(c.__module__) for name in vars(c)
        }:
            return False
        stays_absent(ev, cls, "__init__")
        holder = ev.guards.bind(cls, cls.__name__)
        ev.guards.add(f"{holder}.__new__ is {ev.guards.bind(new, 'new')}")
        if new.__defaults__:
            fixed = ev.guards.bind(new.__defaults__, "defaults")
            ev.guards.add(f"{holder}.__new__.__defaults__ is {fixed}")
    return True


def attribute(ev: Evaluator, base: TupleValue, name: str) -> Value | None:
    """Returns `base.name`, or None if it is a method of tuples or of all named tuples."""
    from .calls import call
    from .class_lookup import class_attribute, no_attribute, user_function

    cls: Any = base.cls
    fields = getattr(cls, "_fields", ())
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    if owner is None:
        raise no_attribute(cls, name)
    static = class_attribute(cls, name)
    if name in fields and (
        is_frozen(cls.__module__) or type(static).__name__ == "_tuplegetter"
    ):
        if not is_frozen(cls.__module__):
            holder = ev.guards.bind(cls, cls.__name__)
            ev.guards.add(f"{holder}.{name} is {ev.guards.bind(static, name)}")
        return ev.look(base.items[fields.index(name)])
    if is_frozen(owner.__module__) or name in ("_replace", "_asdict"):
        return None
    receiver = Known(cls, Bound(ev.guards.bind(cls, cls.__name__)))
    if isinstance(static, FunctionType):
        return MethodValue(user_function(ev, cls, static, name), base, name)
    if isinstance(static, property) and isinstance(static.fget, FunctionType):
        return call(ev, user_function(ev, cls, static.fget, name), [base], {})
    if isinstance(static, staticmethod) and isinstance(static.__func__, FunctionType):
        return user_function(ev, cls, static.__func__, name)
    if isinstance(static, classmethod) and isinstance(static.__func__, FunctionType):
        return MethodValue(
            user_function(ev, cls, static.__func__, name), receiver, name
        )
    if hasattr(type(static), "__get__"):
        raise Break(
            "SJ020", f"attribute `{name}` runs a descriptor of `{cls.__name__}`"
        )
    assert receiver.source is not None
    return ev.wrap(static, Attribute(receiver.source, name))
