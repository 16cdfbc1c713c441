"""Comparisons, identity and membership, decided as far as structure is known."""

from __future__ import annotations

import enum
import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst
import numpy as np
import torch

from ..kinds import is_a
from . import size_arithmetic, user_operators
from .breaks import Break, raising, unknown_operand
from .enums import members, unboxed
from .lazy import iterate as iterate_over
from .special_methods import call_special, special
from .truth import truth
from .values import (
    BuiltinMethod,
    DictValue,
    FunctionValue,
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    MethodValue,
    Scalar,
    SetValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    ViewValue,
    constant,
    described,
    is_constant,
    python_type,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

from .operators import as_set, fold, operand_text, tuple_items

_COMPARE: dict[type, tuple[str, Callable[..., Any], str]] = {
    cst.Equal: ("eq", operator.eq, "=="),
    cst.NotEqual: ("ne", operator.ne, "!="),
    cst.LessThan: ("lt", operator.lt, "<"),
    cst.LessThanEqual: ("le", operator.le, "<="),
    cst.GreaterThan: ("gt", operator.gt, ">"),
    cst.GreaterThanEqual: ("ge", operator.ge, ">="),
}


def by_name(name: str) -> tuple[Callable[..., Any], str]:
    """The function and the symbol of `lt`, `eq` and so on."""
    return next((f, symbol) for n, f, symbol in _COMPARE.values() if n == name)


def compare(ev: Evaluator, node: Any, left: Value, right: Value) -> Value:
    """Returns `left <op> right` for a comparison operator node."""
    left, right = ev.look(left), ev.look(right)
    if isinstance(node, cst.Is):
        return constant(identical(ev, left, right))
    if isinstance(node, cst.IsNot):
        return constant(not identical(ev, left, right))
    if isinstance(node, cst.In):
        return constant(contains(ev, left, right))
    if isinstance(node, cst.NotIn):
        return constant(not contains(ev, left, right))
    name, function, symbol = _COMPARE[type(node)]
    return compare_values(ev, name, function, symbol, left, right)


def compare_values(
    ev: Evaluator,
    name: str,
    function: Callable[..., Any],
    symbol: str,
    left: Value,
    right: Value,
) -> Value:
    """Returns a rich comparison."""
    left, right = unboxed(ev, left), unboxed(ev, right)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        raise unknown_operand("a comparison needs")
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return ev.builder.call("call_function", function, [left, right], {}, name)
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        if size_arithmetic.all_sized((left, right)):
            return constant(size_arithmetic.compare(ev, function, left, right))
        kinds = [python_type(v) for v in (left, right)]
        if all(kind in (int, float, bool) for kind in kinds):
            texts = [operand_text(ev, v) for v in (left, right)]
            return ev.scalar(f"({texts[0]} {symbol} {texts[1]})", bool, "condition")
        other = right if isinstance(left, Scalar) else left
        raise Break(
            "SJ020",
            f"a comparison of a run-time number with {described(other)}",
            hint="compare the number with a number",
            harmless=True,
        )
    if user_operators.is_user_object(left) or user_operators.is_user_object(right):
        return user_operators.compare(ev, name, left, right)
    if _is_numpy(left) or _is_numpy(right):
        return fold(ev, function, left, right)
    if name in ("eq", "ne"):
        same = equal(ev, left, right)
        return constant(same if name == "eq" else not same)
    if isinstance(left, (SetValue, ViewValue)) and isinstance(
        right, (SetValue, ViewValue)
    ):
        sets = [set(as_set(ev, v).items) for v in (left, right)]
        return constant(function(*sets))
    sequences = (TupleValue, ListValue)
    if isinstance(left, sequences) and type(left) is type(right):
        return _order(ev, name, function, symbol, left, right)
    return fold(ev, function, left, right)


def _is_numpy(value: Value) -> bool:
    """Whether comparisons give `np.bool_`."""
    return isinstance(value, Known) and is_a(value.obj, np.generic)


def _order(
    ev: Evaluator,
    name: str,
    function: Callable[..., Any],
    symbol: str,
    left: ListValue | TupleValue,
    right: Value,
) -> Value:
    """Lexicographic order: the first pair of items that differ decides."""
    assert isinstance(right, (ListValue, TupleValue))
    a = ev.list_items(left) if isinstance(left, ListValue) else left.items
    b = ev.list_items(right) if isinstance(right, ListValue) else right.items
    for x, y in zip(a, b):
        if not same_item(ev, x, y):
            return compare_values(ev, name, function, symbol, ev.look(x), ev.look(y))
    return constant(function(len(a), len(b)))


def equal(ev: Evaluator, left: Value, right: Value) -> bool:
    """Structural equality of what is known."""
    left, right = unboxed(ev, left), unboxed(ev, right)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        raise unknown_operand("a comparison needs")
    if user_operators.is_user_object(left) or user_operators.is_user_object(right):
        return truth(ev, user_operators.compare(ev, "eq", left, right))
    left, right = _as_tuple(left), _as_tuple(right)
    sequences = (TupleValue, ListValue)
    if isinstance(left, sequences) and isinstance(right, sequences):
        if isinstance(left, TupleValue) != isinstance(right, TupleValue):
            return False
        a = ev.list_items(left) if isinstance(left, ListValue) else left.items
        b = ev.list_items(right) if isinstance(right, ListValue) else right.items
        if len(a) != len(b):
            return False
        return all(same_item(ev, x, y) for x, y in zip(a, b))
    if isinstance(left, DictValue) and isinstance(right, DictValue):
        a_items, b_items = ev.dict_items(left), ev.dict_items(right)
        if (
            left.cls is OrderedDict
            and right.cls is OrderedDict
            and list(a_items) != list(b_items)
        ):
            return False  # ordered dicts compare their order too
        return a_items.keys() == b_items.keys() and all(
            same_item(ev, a_items[k], b_items[k]) for k in a_items
        )
    if isinstance(left, (SetValue, ViewValue)) and isinstance(
        right, (SetValue, ViewValue)
    ):
        return set(as_set(ev, left).items) == set(as_set(ev, right).items)
    if size_arithmetic.all_sized((left, right)):
        return size_arithmetic.compare(ev, operator.eq, left, right)
    if size_arithmetic.is_sized(left) or size_arithmetic.is_sized(right):
        return equal(ev, size_arithmetic.pin(ev, left), size_arithmetic.pin(ev, right))
    if isinstance(left, (TensorValue, Scalar)) or isinstance(
        right, (TensorValue, Scalar)
    ):
        raise Break(
            "SJ101", "a comparison of containers that hold tensors or run-time numbers"
        )
    if isinstance(left, Known) and isinstance(right, Known):
        a_obj, b_obj = left.obj, right.obj
        if is_constant(a_obj) and is_constant(b_obj):
            return bool(ev.use(left) == ev.use(right))
        if _identity_equality(a_obj) and _identity_equality(b_obj):
            return identical(ev, left, right)
        raise Break(
            "SJ020",
            f"`==` of a `{type(a_obj).__name__}`",
            hint="compare with `is`",
        )
    if isinstance(left, TupleValue) and isinstance(right, Known):
        return bool(is_constant(right.obj) and ev.known(left, "`==`") == ev.use(right))
    if isinstance(right, TupleValue) and isinstance(left, Known):
        return equal(ev, right, left)
    for one, other in ((left, right), (right, left)):
        if (
            isinstance(one, Known)
            and is_constant(one.obj)
            and not isinstance(other, Known)
        ):
            return False
    methods = (MethodValue, BuiltinMethod)
    if isinstance(left, methods) or isinstance(right, methods):
        return _same_method(ev, left, right)
    return left is right


def _same_method(ev: Evaluator, left: Value, right: Value) -> bool:
    """Bound methods are equal if they are one function of one object."""
    if isinstance(left, MethodValue) and isinstance(right, MethodValue):
        return identical(ev, left.receiver, right.receiver) and equal(
            ev, left.function, right.function
        )
    raise Break(
        "SJ020",
        "`==` of methods",
        hint="compare the objects that the methods belong to",
        harmless=True,
    )


def _as_tuple(value: Value) -> Value:
    """A constant tuple as structure, to be compared item by item with another."""
    if isinstance(value, Known) and type(value.obj) is tuple and value.source is None:
        return TupleValue(tuple_items(value))
    return value


def _identity_equality(obj: Any) -> bool:
    return (
        is_constant(obj)
        or getattr(type(obj), "__eq__", None) is object.__eq__
        or is_a(obj, type)
    )


def same_item(ev: Evaluator, left: Value, right: Value) -> bool:
    left, right = ev.look(left), ev.look(right)
    if isinstance(left, Known) and isinstance(right, Known):
        a, b = left.obj, right.obj
        if type(a) is type(b) is float and a != a and b != b:
            raise Break(
                "SJ020",
                "containers compare NaN by identity",
                hint="ask `math.isnan` of the numbers",
                harmless=True,
            )
    return left is right or equal(ev, left, right)


def identical(ev: Evaluator, left: Value, right: Value) -> bool:
    """Returns `left is right`."""
    if left is right:
        return True
    if isinstance(left, TupleValue) and isinstance(right, TupleValue):
        if left.source is not None and right.source is not None:
            raise Break(
                "SJ020",
                "`is` of two tuples",
                hint="compare with `==`",
                harmless=True,
            )
    sizes_of = [_tuple_size(v) for v in (left, right)]
    if None not in sizes_of and not all(sizes_of):
        return sizes_of == [0, 0]  # there is one empty tuple
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Known) and (one.obj is None or is_a(one.obj, bool)):
            if isinstance(other, Known):
                return _identical_constant(ev, one, other)
            if isinstance(other, Unknown):
                raise unknown_operand("`is` needs")
            if isinstance(other, Scalar) and other.kind is bool and one.obj is not None:
                raise Break(
                    "SJ020",
                    "`is` of a run-time bool",
                    hint="test the value itself, without `is`",
                    needs_known=other,
                )
            return False
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        raise unknown_operand("`is` needs")
    if isinstance(left, Known) and isinstance(right, Known):
        if (
            type(left.obj) in (int, float, str, bytes, complex)
            and left.obj == right.obj
        ):
            raise Break(
                "SJ020",
                "`is` of numbers or strings",
                hint="compare with `==`",
                harmless=True,
            )
        if is_constant(left.obj) or is_constant(right.obj):
            return ev.use(left) is ev.use(right)
        return _same_object(ev, left, right)
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        raise Break(
            "SJ020",
            "`is` of run-time numbers",
            hint="compare with `==`",
            harmless=True,
        )
    if isinstance(left, FunctionValue) or isinstance(right, FunctionValue):
        return False
    return False


def _same_object(ev: Evaluator, left: Known, right: Known) -> bool:
    """Whether two objects are one, guarded as that: which ones they are does not matter.

    A guard on an object would keep it, and hold for no other.
    """
    same = left.obj is right.obj
    if left.source is not None or right.source is not None:
        one, other = (
            known.source.guard
            if known.source is not None
            else ev.guards.bind(known.obj, type(known.obj).__name__.strip("_").lower())
            for known in (left, right)
        )
        ev.guards.add(f"{one} is {'' if same else 'not '}{other}")
    return same


def _tuple_size(value: Value) -> int | None:
    if isinstance(value, TupleValue):
        return len(value.items) if value.cls is tuple else None
    if isinstance(value, Known) and type(value.obj) is tuple:
        return len(value.obj)
    return None


def _identical_constant(ev: Evaluator, one: Known, other: Known) -> bool:
    """`other is None` (or True, False), guarded as weakly as the answer allows."""
    ev.use(one)
    if other.obj is one.obj:
        ev.use(other)
        return True
    if other.source is not None:
        if is_constant(other.obj):
            ev.guards.add(f"{other.source.guard} is not {one.obj!r}")
        else:
            ev.guards.type_of(other.source, other.obj)
    return False


def contains(ev: Evaluator, item: Value, container: Value) -> bool:
    """Returns `item in container`."""
    if isinstance(container, Unknown) or isinstance(item, Unknown):
        raise unknown_operand("`in` needs")
    match container:
        case DictValue() | SetValue():
            key = ev.known(item, "`in`")
            try:
                return key in container.items
            except TypeError as error:
                raise raising(error) from error
        case ViewValue() if container.kind == "keys":
            return contains(ev, item, container.receiver)
        case ViewValue():
            from .dict_methods import view_items

            return any(same_item(ev, v, item) for v in view_items(ev, container))
        case IteratorValue():
            return any(same_item(ev, v, item) for v in iterate_over(ev, container))
        case Known() | InstanceValue() if (
            special(ev, container, "__contains__") is not None
        ):
            return truth(ev, call_special(ev, container, "__contains__", item))  # type: ignore[arg-type]
        case ListValue():
            return any(same_item(ev, v, item) for v in ev.list_items(container))
        case TupleValue():
            return any(same_item(ev, v, item) for v in container.items)
        case Known() if is_a(container.obj, enum.EnumMeta):
            return any(same_item(ev, v, item) for v in members(ev, container))
        case Known() if is_constant(container.obj):
            return bool(fold(ev, lambda a, b: a in b, item, container).obj)  # type: ignore[attr-defined]
        case Known() if is_a(container.obj, (dict, set, frozenset)):
            return _contains_known(ev, item, container)
        case Known() if is_a(
            container.obj, (torch.nn.ModuleDict, torch.nn.ParameterDict)
        ):
            from .modules import module_keys

            return ev.known(item, "`in`") in module_keys(ev, container)
        case TensorValue():
            raise Break("SJ101", "`in` of a tensor")
    raise Break("SJ020", f"`in` of {described(container)}")


def _contains_known(ev: Evaluator, item: Value, container: Known) -> bool:
    key = ev.known(item, "`in`")
    try:
        found = key in container.obj
    except TypeError as error:
        raise raising(error) from error
    if container.source is not None:
        ev.guards.type_of(container.source, container.obj)
        text = repr(key) if is_constant(key) else ev.guards.bind(key, "key")
        word = "in" if found else "not in"
        ev.guards.add(f"{text} {word} {container.source.guard}")
    return found
