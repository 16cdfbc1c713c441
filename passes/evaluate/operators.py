"""Operators: on tensors one node, on known constants Python itself, on containers by structure."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch

from ..kinds import is_a
from . import size_arithmetic, user_operators
from .breaks import Break, raising, unknown_operand
from .enums import unboxed
from .values import (
    DictValue,
    Known,
    ListValue,
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

_MOST_ITEMS = 100_000
"""Items of a sequence that is repeated."""

BINARY: dict[type, tuple[str, Callable[..., Any]]] = {
    cst.Add: ("add", operator.add),
    cst.Subtract: ("sub", operator.sub),
    cst.Multiply: ("mul", operator.mul),
    cst.Divide: ("truediv", operator.truediv),
    cst.FloorDivide: ("floordiv", operator.floordiv),
    cst.Modulo: ("mod", operator.mod),
    cst.Power: ("pow", operator.pow),
    cst.MatrixMultiply: ("matmul", operator.matmul),
    cst.LeftShift: ("lshift", operator.lshift),
    cst.RightShift: ("rshift", operator.rshift),
    cst.BitAnd: ("and", operator.and_),
    cst.BitOr: ("or", operator.or_),
    cst.BitXor: ("xor", operator.xor),
}

IN_PLACE: dict[type, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    cst.AddAssign: ("add", operator.iadd, operator.add),
    cst.SubtractAssign: ("sub", operator.isub, operator.sub),
    cst.MultiplyAssign: ("mul", operator.imul, operator.mul),
    cst.DivideAssign: ("truediv", operator.itruediv, operator.truediv),
    cst.FloorDivideAssign: ("floordiv", operator.ifloordiv, operator.floordiv),
    cst.ModuloAssign: ("mod", operator.imod, operator.mod),
    cst.PowerAssign: ("pow", operator.ipow, operator.pow),
    cst.MatrixMultiplyAssign: ("matmul", operator.imatmul, operator.matmul),
    cst.LeftShiftAssign: ("lshift", operator.ilshift, operator.lshift),
    cst.RightShiftAssign: ("rshift", operator.irshift, operator.rshift),
    cst.BitAndAssign: ("and", operator.iand, operator.and_),
    cst.BitOrAssign: ("or", operator.ior, operator.or_),
    cst.BitXorAssign: ("xor", operator.ixor, operator.xor),
}

_UNARY: dict[type, tuple[str, Callable[..., Any], str]] = {
    cst.Minus: ("neg", operator.neg, "-"),
    cst.Plus: ("pos", operator.pos, "+"),
    cst.BitInvert: ("invert", operator.invert, "~"),
}

_SAFE_SCALAR = {"add": "+", "sub": "-", "mul": "*"}
"""Arithmetic on run-time numbers that cannot raise and whose type is known."""

_BIG = 10_000_000
_LARGE = "compute the number once, outside the function"
"""Largest container or integer (in bits) that folding may build."""


def binary(ev: Evaluator, node_type: type, left: Value, right: Value) -> Value:
    """Returns `left <op> right`."""
    name, function = BINARY[node_type]
    return apply(ev, name, function, left, right)


def apply(
    ev: Evaluator, name: str, function: Callable[..., Any], left: Value, right: Value
) -> Value:
    """Returns `function(left, right)` for a binary operator."""
    left, right = unboxed(ev, left), unboxed(ev, right)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        raise unknown_operand(f"`{name}` needs")
    if user_operators.is_user_object(left) and isinstance(right, TensorValue):
        return user_operators.binary(ev, name, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return ev.builder.call("call_function", function, [left, right], {}, name)
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        if size_arithmetic.all_sized((left, right)):
            result = size_arithmetic.binary(ev, name, left, right)
            if result is not None:
                return result
            return fold(ev, function, left, right)
        return _scalar(ev, name, left, right)
    if user_operators.is_user_object(left) or user_operators.is_user_object(right):
        return user_operators.binary(ev, name, left, right)
    if isinstance(left, ListValue) and name == "add" and isinstance(right, ListValue):
        return ListValue([*ev.list_items(left), *ev.list_items(right)])
    if name == "add" and _tuples(left, right) and _has_numbers(left, right):
        cls = type(function(_empty(left), _empty(right)))
        return TupleValue([*tuple_items(left), *tuple_items(right)], cls)
    if _is_size(left) or _is_size(right):
        return fold(ev, function, left, right)
    if name == "add" and _tuples(left, right):
        return TupleValue([*tuple_items(left), *tuple_items(right)])
    if name == "mul" and (isinstance(left, (ListValue, TupleValue))):
        return _repeat(ev, left, right)
    if name == "mul" and (isinstance(right, (ListValue, TupleValue))):
        return _repeat(ev, right, left)
    if name == "or" and isinstance(left, DictValue) and isinstance(right, DictValue):
        merged = {**ev.dict_items(left), **ev.dict_items(right)}
        return (left if left.cls is not dict else right).like(merged)
    if isinstance(left, (SetValue, ViewValue)) and isinstance(
        right, (SetValue, ViewValue)
    ):
        return _set_operator(name, function, as_set(ev, left), as_set(ev, right))
    if name == "mod" and isinstance(left, Known) and is_a(left.obj, str):
        operand = ev.known(right, "`%` formatting")
        if not is_constant(operand):  # its `__str__` may be the user's
            raise Break("SJ020", f"`%` formats a `{type(operand).__name__}`")
        try:
            return constant(ev.use(left) % operand)
        except Exception as error:
            raise raising(error) from error
    return fold(ev, function, left, right)


def _is_size(value: Value) -> bool:
    return python_type(value) is torch.Size


def _tuples(left: Value, right: Value) -> bool:
    return all(
        (isinstance(v, TupleValue) and v.cls in (tuple, torch.Size))
        or (isinstance(v, Known) and type(v.obj) in (tuple, torch.Size))
        for v in (left, right)
    ) and not (isinstance(left, Known) and isinstance(right, Known))


def _has_numbers(*values: Value) -> bool:
    return any(
        isinstance(v, TupleValue) and any(isinstance(i, Scalar) for i in v.items)
        for v in values
    )


def _empty(value: Value) -> Any:
    cls = python_type(value)
    assert cls is not None
    return cls()


def tuple_items(value: Value) -> list[Value]:
    """Items of a tuple, also of a known constant one."""
    if isinstance(value, TupleValue):
        return list(value.items)
    assert isinstance(value, Known)
    return [constant(item) for item in value.obj]


def fold(ev: Evaluator, function: Callable[..., Any], *operands: Value) -> Value:
    """Applies a pure function to known constants.

    Raises:
        Break: SJ030 when it raises, so that Python raises at the user's line.
    """
    objs = [ev.known(operand, "an operation") for operand in operands]
    if not all(is_constant(obj) for obj in objs):
        names = [type(o).__name__ for o in objs if not is_constant(o)]
        raise Break("SJ020", f"an operator of `{names[0]}`")
    _check_size(function, objs)
    try:
        result = function(*objs)
    except Exception as error:
        raise raising(error) from error
    if not is_constant(result):
        raise Break("SJ020", f"an operation gives a `{type(result).__name__}`")
    return constant(result)


def _check_size(function: Callable[..., Any], objs: list[Any]) -> None:
    if function in (operator.pow, operator.ipow) and all(type(o) is int for o in objs):
        if abs(objs[0]).bit_length() * max(objs[1], 0) > _BIG:
            raise Break("SJ020", "a power too large to fold", hint=_LARGE)
    if function in (operator.lshift, operator.ilshift) and objs[1] > _BIG:
        raise Break("SJ020", "a shift too large to fold", hint=_LARGE)
    if function in (operator.mul, operator.imul):
        for a, b in (objs, objs[::-1]):
            if (
                isinstance(a, (str, bytes, tuple))
                and type(b) is int
                and len(a) * b > _BIG
            ):
                raise Break("SJ020", "a repetition too large to fold")


def _repeat(ev: Evaluator, sequence: Value, count: Value) -> Value:
    times = ev.known(count, "a repetition")
    if type(times) not in (int, bool):
        raise Break("SJ030", "raises TypeError: can't multiply sequence by non-int")
    if isinstance(sequence, ListValue):
        return ListValue(repeated(ev, ev.list_items(sequence), times))
    assert isinstance(sequence, TupleValue)
    return TupleValue(repeated(ev, sequence.items, times))


def repeated(ev: Evaluator, items: list[Value], times: int) -> list[Value]:
    """Returns `items * times`.

    Raises:
        Break: SJ020 for more items than are worth a value each.
    """
    if len(items) * times > _MOST_ITEMS:
        raise Break("SJ020", f"a sequence of {len(items) * times} items")
    return items * times


def as_set(ev: Evaluator, value: Value) -> SetValue:
    from .dict_methods import view_set

    if isinstance(value, ViewValue):
        return view_set(ev, value)
    assert isinstance(value, SetValue)
    return value


def _set_operator(
    name: str, function: Callable[..., Any], left: SetValue, right: SetValue
) -> Value:
    if name not in ("and", "or", "sub", "xor"):
        raise Break("SJ030", f"`{name}` of two sets")
    result = function(left.cls(left.items), right.cls(right.items))
    return SetValue(dict.fromkeys(result), left.cls, plain=False)


def _scalar(ev: Evaluator, name: str, left: Value, right: Value) -> Value:
    kinds = [python_type(v) for v in (left, right)]
    if name in _SAFE_SCALAR and all(kind in (int, float, bool) for kind in kinds):
        kind = float if float in kinds else int
        if kind is float and int in kinds and not _small(left, right):
            raise Break(
                "SJ020",
                f"`{name}` of a float and an int that may be too large for one",
                hint="convert the tensor to floats before its value is read",
                harmless=True,
                result=kind,
            )
        texts = [operand_text(ev, v) for v in (left, right)]
        return ev.scalar(
            f"({texts[0]} {_SAFE_SCALAR[name]} {texts[1]})", kind, "number", wide=True
        )
    result: type | None = None
    if all(kind in (int, float, bool) for kind in kinds):
        if name == "truediv" or (float in kinds and name != "pow"):
            result = float
        elif name in ("floordiv", "mod", "lshift", "rshift"):
            result = int
    raise Break(
        "SJ020",
        f"`{name}` of a number that is only known at run time",
        harmless=True,
        result=result,
    )


def _small(left: Value, right: Value) -> bool:
    """int to float conversion cannot overflow: a known small int, or a dynamic 64-bit one."""
    for value in (left, right):
        if (
            isinstance(value, Known)
            and type(value.obj) is int
            and abs(value.obj) > 2**62
        ):
            return False
        if (
            isinstance(value, Scalar)
            and value.kind is int
            and not value.text.isidentifier()
        ):
            return False
    return True


def operand_text(ev: Evaluator, value: Value) -> str:
    """The text of a number as an operand."""
    if isinstance(value, Known):
        text = ev.residual.reify(constant(ev.use(value)))
        return f"({text})" if text.startswith("-") else text
    return ev.residual.reify(value)


def in_place(ev: Evaluator, node_type: type, left: Value, right: Value) -> Value:
    """Returns what `left <op>= right` binds: the mutated object or a new one."""
    name, in_place_function, function = IN_PLACE[node_type]
    left, right = ev.look(left), ev.look(right)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        raise unknown_operand(f"`{name}` needs")
    if isinstance(left, TensorValue):
        return ev.builder.call(
            "call_function", in_place_function, [left, right], {}, name
        )
    if isinstance(left, (ListValue, DictValue, SetValue)):
        from .containers import in_place as change

        changed = change(ev, name, left, right)
        if changed is not None:
            return changed
        raise Break("SJ030", f"an in-place `{name}` of {described(left)}")
    if user_operators.is_user_object(left):
        result = user_operators.in_place(ev, name, left, right)
        if result is not None:
            return result
    return apply(ev, name, function, left, right)


def unary(ev: Evaluator, node_type: type, operand: Value) -> Value:
    """Returns `-x`, `+x` or `~x`."""
    name, function, symbol = _UNARY[node_type]
    if isinstance(operand, Unknown):
        raise unknown_operand(f"`{name}` needs")
    if isinstance(operand, TensorValue):
        return ev.builder.call("call_function", function, [operand], {}, name)
    if isinstance(operand, Scalar) and operand.sizes and name == "neg":
        result = size_arithmetic.negated(ev, operand)
        return result if result is not None else fold(ev, function, operand)
    if (
        isinstance(operand, Scalar)
        and operand.kind in (int, float)
        and not operand.sizes
        and name != "invert"
    ):
        return ev.scalar(
            f"({symbol}{operand_text(ev, operand)})", operand.kind, "number", wide=True
        )
    if isinstance(operand, Scalar) and operand.sizes:
        return fold(ev, function, operand)
    if isinstance(operand, Scalar):
        raise Break(
            "SJ020", f"`{name}` of a run-time number", harmless=True, result=int
        )
    if user_operators.is_user_object(operand):
        return user_operators.unary(ev, name, operand)
    return fold(ev, function, operand)
