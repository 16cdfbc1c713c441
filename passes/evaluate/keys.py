"""Keys of dicts and elements of sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from .breaks import Break, raising
from .enums import is_plain_member
from .frozen import is_frozen
from .values import Value, is_constant

if TYPE_CHECKING:
    from .evaluator import Evaluator


def key_of(ev: Evaluator, value: Value) -> Any:
    """Returns the hashable constant that a dict key or set element stands for."""
    obj = ev.known(value, "a key")
    if not (
        is_constant(obj) or callable(obj) or is_a(obj, type) or is_plain_member(value)
    ):
        raise Break("SJ020", f"a `{type(obj).__name__}` is used as a key")
    if (
        not is_constant(obj)
        and not is_plain_member(value)
        and getattr(type(obj), "__hash__", None) is not object.__hash__
        and not is_frozen(type(obj).__module__)
    ):  # hashing runs code of the user's
        raise Break("SJ020", f"a `{type(obj).__name__}` is used as a key")
    try:
        hash(obj)
    except TypeError as error:
        raise raising(error) from error
    return obj
