"""Attributes of functions made during evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .breaks import Break
from .values import DictValue, FunctionValue, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator

_SPECIAL = (
    "__code__",
    "__defaults__",
    "__kwdefaults__",
    "__closure__",
    "__globals__",
    "__dict__",
)


def load(ev: Evaluator, function: FunctionValue, name: str) -> Value:
    """Returns `function.name`."""
    from .nested_functions import nested_source

    if name in function.attributes:
        return ev.look(function.attributes[name])
    if name == "__name__":
        return constant(function.function_name)
    if name == "__qualname__":
        return constant(nested_source(function).qualname)
    if name == "__module__":
        return constant(function.frame.scope.globals.get("__name__"))
    if name == "__doc__":
        return constant(_docstring(function))
    if name == "__type_params__" and hasattr(function_type, name):
        # Python 3.12's `functools.wraps` copies it.
        if getattr(function.node, "type_parameters", None) is None:
            return constant(())
    if name == "__annotations__" and not _annotated(function):
        return DictValue({})
    if name in _SPECIAL or hasattr(function_type, name):
        raise Break("SJ020", f"`{name}` of a function made here")
    raise Break("SJ030", f"raises AttributeError: function has no attribute `{name}`")


def store(ev: Evaluator, function: FunctionValue, name: str, value: Value) -> None:
    """`function.name = value`."""
    if function.name is not None or name in _SPECIAL:
        raise Break("SJ021", f"store to attribute `{name}` of a function")
    ev.journal.set_item(function.attributes, name, value)


def _docstring(function: FunctionValue) -> str | None:
    if isinstance(function.node, cst.Lambda):
        return None
    text = function.node.get_docstring(clean=False)
    return None if text is None else str(text)


def _annotated(function: FunctionValue) -> bool:
    if isinstance(function.node, cst.Lambda):
        return False
    params = function.node.params
    found = [*params.posonly_params, *params.params, *params.kwonly_params]
    found += [
        p for p in (params.star_arg, params.star_kwarg) if isinstance(p, cst.Param)
    ]
    return function.node.returns is not None or any(
        p.annotation is not None for p in found
    )


function_type = type(load)
