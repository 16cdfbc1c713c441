"""Enum classes and their members: constants with a name, found in their class."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from .breaks import Break, raising
from .frozen import is_frozen
from .sources import Attribute
from .values import Known, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator

_MIXED_IN: dict[type, Any] = {
    int: int.__index__,
    float: float.__float__,
    str: str.__str__,
}
_OPERATOR_METHODS = {
    name
    for kind in _MIXED_IN
    for name in dir(kind)
    if name[:2] == "__" and name not in vars(object)
} | {"__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__", "__hash__"}


def unboxed(ev: Evaluator, value: Value) -> Value:
    """A member of `IntEnum` and the like as the number or text that operators see."""
    value = ev.look(value)
    if not isinstance(value, Known) or not is_a(value.obj, enum.Enum):
        return value
    for kind, plain in _MIXED_IN.items():
        if isinstance(value.obj, kind) and is_plain(value.obj, *_OPERATOR_METHODS):
            return constant(plain(ev.use(value)))
    return value


def is_plain(obj: Any, *methods: str) -> bool:
    """Whether a member has no methods of these names that the user wrote."""
    own = [vars(c) for c in type(obj).__mro__ if not is_frozen(c.__module__)]
    library = (enum.Enum, *_MIXED_IN)
    return not any(
        name in table and not any(table[name] is vars(c).get(name) for c in library)
        for table in own
        for name in methods
    )


def is_plain_member(value: Value) -> bool:
    """Whether a value is a member that hashes and compares by identity or as its mixin."""
    return (
        isinstance(value, Known)
        and is_a(value.obj, enum.Enum)
        and is_plain(value.obj, "__hash__", "__eq__")
    )


def text(
    ev: Evaluator, value: Value, function: Any, spec: str | None = None
) -> str | None:
    """`str`, `repr` or `format` of a member; None for other values."""
    if not isinstance(value, Known) or not is_a(value.obj, enum.Enum):
        return None
    if not is_plain(value.obj, "__str__", "__repr__", "__format__"):
        return None
    member = ev.use(value)
    return str(function(member) if spec is None else format(member, spec))


def member(ev: Evaluator, cls: Known, obj: Any) -> Value:
    """The value of a member of an enum class."""
    if cls.source is None or is_frozen(cls.obj.__module__):
        return Known(obj, None)
    return ev.wrap(obj, Attribute(cls.source, obj.name))


def members(ev: Evaluator, cls: Known) -> list[Value]:
    """The members of an enum class in order, guarded."""
    ev.use(cls)
    return [member(ev, cls, obj) for obj in cls.obj]


def by_value(
    ev: Evaluator, cls: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """`Color(1)`: the member with that value."""
    missing = cls.obj._missing_.__func__
    if len(args) != 1 or kwargs or missing is not enum.Enum._missing_.__func__:  # type: ignore[attr-defined]
        raise Break("SJ015", f"`{cls.obj.__name__}` is called in an unusual way")
    given = ev.look(args[0])
    if isinstance(given, Known) and is_a(given.obj, cls.obj):
        return given
    value = ev.known(given, "an enum value")
    try:
        return member(ev, cls, cls.obj(value))
    except ValueError as error:
        raise raising(error) from error


def by_name(ev: Evaluator, cls: Known, index: Value) -> Value:
    """`Color["RED"]`."""
    name = ev.known(index, "an enum name")
    if name not in cls.obj.__members__:
        raise Break("SJ030", f"raises KeyError: {name!r}")
    ev.use(cls)
    return member(ev, cls, cls.obj[name])
