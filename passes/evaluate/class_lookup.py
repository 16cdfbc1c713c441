"""What classes say of attributes: who defines one, who looks it up, and that this stays so.

The guards here are on classes; those on the object itself are in `attributes`.
"""

from __future__ import annotations

import collections
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from .breaks import Break
from .frozen import is_frozen
from .sources import Bound
from .values import Known

if TYPE_CHECKING:
    from .evaluator import Evaluator

MISSING = object()


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


def refuse_own_lookup(cls: type) -> None:
    if has_own_lookup(cls):
        raise Break("SJ020", f"`{cls.__name__}` defines `__getattribute__`")


def stays_absent(ev: Evaluator, cls: type, name: str) -> None:
    """Guards that no user's class among the bases of `cls` gets an attribute `name`."""
    for owner in cls.__mro__:
        if not is_frozen(owner.__module__):
            ev.guards.add_absent(
                f"{ev.guards.bind(owner, owner.__name__)}.__dict__", name
            )


def no_attribute(cls: type, name: str) -> Break:
    return Break(
        "SJ030", f"raises AttributeError: `{cls.__name__}` has no attribute `{name}`"
    )


def class_attribute(cls: type, name: str) -> Any:
    for owner in cls.__mro__:
        if name in owner.__dict__:
            return owner.__dict__[name]
    return MISSING


def takes_stores(static: Any) -> bool:
    """Whether a class attribute is asked when the attribute of an object is stored."""
    return hasattr(type(static), "__set__") or hasattr(type(static), "__delete__")


def is_data_descriptor(static: Any) -> bool:
    """Whether a class attribute hides what an object has under its name."""
    return hasattr(type(static), "__get__") and takes_stores(static)
