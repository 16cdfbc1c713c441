"""The table of callables that evaluation knows by heart, and how an entry is called.

    @evaluates(builtins.len)
    def _len(ev, value, /): ...

An entry has the parameters of the callable that it stands for, so that a call that does not
fit is Python's TypeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from .breaks import raising
from .frozen import is_frozen
from .values import Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

Handler = Callable[["Evaluator", list[Value], dict[str, Value]], Value]

HANDLERS: dict[Any, Handler] = {}


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls `function`; arguments that do not fit are the user's TypeError.

    Raises:
        Break: SJ030 when the arguments do not fit.
    """
    try:
        _signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise raising(error) from error
    return function(*args, **kwargs)


def evaluates(
    *callables: Any,
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Registers a function as the evaluation of calls of `callables`."""

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        def entry(ev: Evaluator, args: list[Value], kwargs: dict[str, Value]) -> Value:
            return checked(function, ev, *args, **kwargs)  # type: ignore[no-any-return]

        for one in callables:
            HANDLERS[one] = entry
        return function

    return register


def handler(obj: Any) -> Handler | None:
    """Returns the evaluation of a callable, if it has one here."""
    if not is_frozen(type(obj).__module__):
        return None  # its hash may be the user's code
    try:
        found = HANDLERS.get(obj)
    except TypeError:
        return None
    if found is None and is_a(obj, FunctionType):
        # PyTorch wraps some of its own functions when it is first asked to compile.
        wrapped = vars(obj).get("__wrapped__")
        if wrapped is not None and str(obj.__globals__.get("__name__")).startswith(
            "torch."
        ):
            return HANDLERS.get(wrapped)
    return found
