"""Operators on instances of user classes, in the order in which Python asks the operands."""

from __future__ import annotations

import dataclasses
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from .breaks import Break
from .special_methods import call_special, defines
from .values import (
    InstanceValue,
    Known,
    TensorValue,
    TupleValue,
    Value,
    constant,
    described,
    is_constant,
    python_type,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_REFLECTED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}

_PLAIN = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


def is_user_object(value: Value) -> bool:
    """Whether operators may mean what a user's class says."""
    if isinstance(value, InstanceValue):
        return True
    return (
        isinstance(value, Known)
        and value.source is not None
        and not is_constant(value.obj)
        and not is_a(value.obj, _PLAIN)
    )


def _not_implemented(value: Value | None) -> bool:
    return value is None or (isinstance(value, Known) and value.obj is NotImplemented)


def binary(ev: Evaluator, name: str, left: Value, right: Value) -> Value:
    """Returns `left <op> right` where one is an instance of a user's class."""
    attempts = [(left, right, f"__{name}__"), (right, left, f"__r{name}__")]
    kinds = python_type(left), python_type(right)
    if None not in kinds and kinds[0] is kinds[1]:
        attempts.pop()
    elif _overrides(kinds[0], kinds[1], f"__r{name}__"):
        attempts.reverse()
    for receiver, other, method in attempts:
        result = call_special(ev, receiver, method, other)
        if not _not_implemented(result):
            return result  # type: ignore[return-value]
        if result is None and _library_defines(receiver, method):
            raise Break("SJ020", f"`{method}` of {described(receiver)}")
    raise Break("SJ030", f"`{name}` is not defined for these operands")


def _overrides(left: Any, right: Any, method: str) -> bool:
    """Whether the right operand is asked first: its class derives from the left one's."""
    return (
        isinstance(left, type)
        and isinstance(right, type)
        and right is not left
        and issubclass(right, left)
        and getattr(right, method, None) is not getattr(left, method, None)
    )


def _library_defines(value: Value, method: str) -> bool:
    """Whether an operand has a method that is no user's function and may answer."""
    if isinstance(value, TensorValue):
        return True
    if isinstance(value, InstanceValue):
        return defines(value, method)
    return (
        isinstance(value, Known)
        and not is_constant(value.obj)
        and defines(value, method)
    )


def in_place(ev: Evaluator, name: str, left: Value, right: Value) -> Value | None:
    """Returns `left <op>= right` by `__iadd__` and the like; None without such a method."""
    result = call_special(ev, left, f"__i{name}__", right)
    return None if _not_implemented(result) else result


def unary(ev: Evaluator, name: str, operand: Value) -> Value:
    """Returns `-x`, `+x` or `~x` of an instance."""
    result = call_special(ev, operand, f"__{name}__")
    if result is None:
        raise Break("SJ030", f"`{name}` is not defined for this operand")
    return result


def compare(ev: Evaluator, name: str, left: Value, right: Value) -> Value:
    """Returns a rich comparison where one side is an instance of a user's class."""
    attempts = [(left, right, name), (right, left, _REFLECTED[name])]
    kinds = python_type(left), python_type(right)
    if None not in kinds and kinds[0] is not kinds[1]:
        if issubclass(kinds[1], kinds[0]):  # type: ignore[arg-type]
            # A class that derives from the other one is asked first, whatever it defines.
            attempts.reverse()
    for receiver, other, operation in attempts:
        result = _ask(ev, receiver, other, operation)
        if not _not_implemented(result):
            return result  # type: ignore[return-value]
    if name in ("eq", "ne"):
        from .comparisons import identical

        same = identical(ev, left, right)
        return constant(same if name == "eq" else not same)
    raise Break("SJ030", f"`{name}` is not defined for these operands")


def _ask(ev: Evaluator, receiver: Value, other: Value, operation: str) -> Value | None:
    method = f"__{operation}__"
    cls = python_type(receiver)
    if cls is None:
        raise Break(
            "SJ020",
            f"a comparison with {described(receiver)}",
            hint="compare the values that the objects hold",
        )
    if not is_user_object(receiver):
        if isinstance(receiver, TensorValue):
            raise Break(
                "SJ020",
                "a comparison of a tensor with an instance",
                hint="compare the tensors that the objects hold",
            )
        return None
    if operation in ("eq", "ne") and _written_by_dataclass(cls, "__eq__"):
        return _dataclass_equality(ev, receiver, other, operation)
    if _written_by_dataclass(cls, method) and operation not in ("eq", "ne"):
        return _dataclass_order(ev, receiver, other, operation)
    result = call_special(ev, receiver, method, other)
    if result is None and operation == "ne":
        # object.__ne__ inverts `__eq__`.
        equal = _ask(ev, receiver, other, "eq")
        if not _not_implemented(equal):
            from .truth import truth

            return constant(not truth(ev, equal))  # type: ignore[arg-type]
        return equal
    if result is None and getattr(cls, method, None) is not getattr(object, method):
        raise Break("SJ020", f"`{cls.__name__}.{method}` is not evaluated")
    return result


def _written_by_dataclass(cls: type, method: str) -> bool:
    code = getattr(getattr(cls, method, None), "__code__", None)
    return (
        dataclasses.is_dataclass(cls)
        and code is not None
        and code.co_filename == "<string>"
    )


def _compared_fields(ev: Evaluator, value: Value) -> list[Value]:
    """The fields that a generated comparison looks at."""
    from . import attributes

    if isinstance(value, Known) and value.source is not None:
        ev.guards.type_of(value.source, value.obj)
    fields = dataclasses.fields(python_type(value))  # type: ignore[arg-type]
    return [attributes.load(ev, value, f.name) for f in fields if f.compare]


def _dataclass_order(ev: Evaluator, left: Value, right: Value, operation: str) -> Value:
    """`<` and the like, written by `dataclass(order=True)`: fields as tuples."""
    from . import class_lookup, comparisons

    cls: Any = python_type(left)
    method = f"__{operation}__"
    class_lookup.user_function(ev, cls, getattr(cls, method), method)
    if cls is not python_type(right):
        return constant(NotImplemented)
    a, b = (TupleValue(_compared_fields(ev, value)) for value in (left, right))
    return comparisons.compare_values(
        ev, operation, *comparisons.by_name(operation), a, b
    )


def _dataclass_equality(
    ev: Evaluator, left: Value, right: Value, operation: str
) -> Value:
    from . import class_lookup
    from .comparisons import same_item

    cls: Any = python_type(left)
    class_lookup.user_function(ev, cls, cls.__eq__, "__eq__")
    if cls is not python_type(right):
        return constant(NotImplemented)
    pairs = zip(_compared_fields(ev, left), _compared_fields(ev, right), strict=True)
    same = all(same_item(ev, a, b) for a, b in list(pairs))
    return constant(same if operation == "eq" else not same)
