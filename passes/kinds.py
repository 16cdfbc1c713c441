"""What an object is, asked of its class alone.

    isinstance(obj, Module)    may run `obj.__getattribute__("__class__")`
    is_a(obj, Module)          runs nothing

The compiler looks at the program's objects more often than the program does. `isinstance`
believes `obj.__class__` where the class of `obj` says no, and that can be the user's code.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

from typing_extensions import TypeIs

_T = TypeVar("_T")


@overload
def is_a(obj: Any, kinds: type[_T]) -> TypeIs[_T]: ...
@overload
def is_a(obj: Any, kinds: Any) -> bool: ...
def is_a(obj: Any, kinds: Any) -> bool:
    """Whether the class of `obj` is one of `kinds` or derives from one."""
    return issubclass(type(obj), kinds)


def namespace_of(obj: Any) -> Any:
    """The `__dict__` of an object, whatever its class makes of attributes; None without."""
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


__all__ = ["is_a", "namespace_of"]
