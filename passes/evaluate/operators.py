"""Operators: on tensors one node, on known constants Python itself, on containers by structure."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch

from . import user_operators
from .breaks import Break, unknown_operand
from .enums import members, unboxed
from .lazy import iterate as iterate_over
from .special_methods import call_special, special
from .truth import truth
from .values import (
    DictValue,
    FunctionValue,
    InstanceValue,
    IteratorValue,
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
    is_constant,
    python_type,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

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

_COMPARE: dict[type, tuple[str, Callable[..., Any], str]] = {
    cst.Equal: ("eq", operator.eq, "=="),
    cst.NotEqual: ("ne", operator.ne, "!="),
    cst.LessThan: ("lt", operator.lt, "<"),
    cst.LessThanEqual: ("le", operator.le, "<="),
    cst.GreaterThan: ("gt", operator.gt, ">"),
    cst.GreaterThanEqual: ("ge", operator.ge, ">="),
}

_SAFE_SCALAR = {"add": "+", "sub": "-", "mul": "*"}
"""Arithmetic on run-time numbers that cannot raise and whose type is known."""

_BIG = 10_000_000
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
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return ev.builder.call("call_function", function, [left, right], {}, name)
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        return _scalar(ev, name, left, right)
    if user_operators.is_user_object(left) or user_operators.is_user_object(right):
        return user_operators.binary(ev, name, left, right)
    if isinstance(left, ListValue) and name == "add" and isinstance(right, ListValue):
        return ListValue([*ev.list_items(left), *ev.list_items(right)])
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
        return DictValue(merged, cls=left.cls if left.cls is not dict else right.cls)
    if isinstance(left, (SetValue, ViewValue)) and isinstance(
        right, (SetValue, ViewValue)
    ):
        return _set_operator(name, function, _as_set(ev, left), _as_set(ev, right))
    if name == "mod" and isinstance(left, Known) and isinstance(left.obj, str):
        return constant(ev.use(left) % ev.known(right, "`%` formatting"))
    return fold(ev, function, left, right)


def _is_size(value: Value) -> bool:
    return python_type(value) is torch.Size


def _tuples(left: Value, right: Value) -> bool:
    return all(
        (isinstance(v, TupleValue) and v.cls in (tuple, torch.Size))
        or (isinstance(v, Known) and type(v.obj) in (tuple, torch.Size))
        for v in (left, right)
    ) and not (isinstance(left, Known) and isinstance(right, Known))


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
        raise Break("SJ030", f"raises {type(error).__name__}: {error}") from error
    if not is_constant(result):
        raise Break("SJ020", f"an operation gives a `{type(result).__name__}`")
    return constant(result)


def _check_size(function: Callable[..., Any], objs: list[Any]) -> None:
    if function in (operator.pow, operator.ipow) and all(type(o) is int for o in objs):
        if abs(objs[0]).bit_length() * max(objs[1], 0) > _BIG:
            raise Break("SJ020", "a power too large to fold")
    if function in (operator.lshift, operator.ilshift) and objs[1] > _BIG:
        raise Break("SJ020", "a shift too large to fold")
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
        return ListValue(ev.list_items(sequence) * times)
    assert isinstance(sequence, TupleValue)
    return TupleValue(sequence.items * times)


def _as_set(ev: Evaluator, value: Value) -> SetValue:
    from .containers import view_set

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
                "SJ020", "an operation on a run-time number", harmless=True, result=kind
            )
        texts = [operand_text(ev, v) for v in (left, right)]
        return ev.scalar(
            f"({texts[0]} {_SAFE_SCALAR[name]} {texts[1]})", kind, "number"
        )
    result = None
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
        raise Break("SJ030", f"an in-place `{name}` of a {type(left).__name__}")
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
    if (
        isinstance(operand, Scalar)
        and operand.kind in (int, float)
        and name != "invert"
    ):
        return ev.scalar(
            f"({symbol}{operand_text(ev, operand)})", operand.kind, "number"
        )
    if isinstance(operand, Scalar):
        raise Break(
            "SJ020", f"`{name}` of a run-time number", harmless=True, result=int
        )
    if user_operators.is_user_object(operand):
        return user_operators.unary(ev, name, operand)
    return fold(ev, function, operand)


# ── comparison ──────────────────────────────────────────────────────────────────────


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
        kinds = [python_type(v) for v in (left, right)]
        if all(kind in (int, float, bool) for kind in kinds):
            texts = [operand_text(ev, v) for v in (left, right)]
            return ev.scalar(f"({texts[0]} {symbol} {texts[1]})", bool, "condition")
        raise Break("SJ020", "a comparison of a run-time number", harmless=True)
    if user_operators.is_user_object(left) or user_operators.is_user_object(right):
        return user_operators.compare(ev, name, left, right)
    if name in ("eq", "ne"):
        same = _equal(ev, left, right)
        return constant(same if name == "eq" else not same)
    if isinstance(left, (SetValue, ViewValue)) and isinstance(
        right, (SetValue, ViewValue)
    ):
        sets = [set(_as_set(ev, v).items) for v in (left, right)]
        return constant(function(*sets))
    sequences = (TupleValue, ListValue)
    if isinstance(left, sequences) and type(left) is type(right):
        return _order(ev, name, function, symbol, left, right)
    return fold(ev, function, left, right)


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
        if not _same_item(ev, x, y):
            return compare_values(ev, name, function, symbol, ev.look(x), ev.look(y))
    return constant(function(len(a), len(b)))


def _equal(ev: Evaluator, left: Value, right: Value) -> bool:
    """Structural equality of what is known."""
    left, right = unboxed(ev, left), unboxed(ev, right)
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
        return all(_same_item(ev, x, y) for x, y in zip(a, b))
    if isinstance(left, DictValue) and isinstance(right, DictValue):
        a_items, b_items = ev.dict_items(left), ev.dict_items(right)
        if (
            left.cls is not dict
            and right.cls is not dict
            and list(a_items) != list(b_items)
        ):
            return False  # ordered dicts compare their order too
        return a_items.keys() == b_items.keys() and all(
            _same_item(ev, a_items[k], b_items[k]) for k in a_items
        )
    if isinstance(left, (SetValue, ViewValue)) and isinstance(
        right, (SetValue, ViewValue)
    ):
        return set(_as_set(ev, left).items) == set(_as_set(ev, right).items)
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
        raise Break("SJ020", f"`==` of a `{type(a_obj).__name__}`")
    if isinstance(left, TupleValue) and isinstance(right, Known):
        return bool(is_constant(right.obj) and ev.known(left, "`==`") == ev.use(right))
    if isinstance(right, TupleValue) and isinstance(left, Known):
        return _equal(ev, right, left)
    for one, other in ((left, right), (right, left)):
        if (
            isinstance(one, Known)
            and is_constant(one.obj)
            and not isinstance(other, Known)
        ):
            return False
    return left is right


def _as_tuple(value: Value) -> Value:
    """A constant tuple as structure, to be compared item by item with another."""
    if isinstance(value, Known) and type(value.obj) is tuple and value.source is None:
        return TupleValue(tuple_items(value))
    return value


def _identity_equality(obj: Any) -> bool:
    return (
        is_constant(obj)
        or getattr(type(obj), "__eq__", None) is object.__eq__
        or isinstance(obj, type)
    )


def _same_item(ev: Evaluator, left: Value, right: Value) -> bool:
    left, right = ev.look(left), ev.look(right)
    if isinstance(left, Known) and isinstance(right, Known):
        a, b = left.obj, right.obj
        if type(a) is type(b) is float and a != a and b != b:
            raise Break("SJ020", "containers compare NaN by identity", harmless=True)
    return left is right or _equal(ev, left, right)


def identical(ev: Evaluator, left: Value, right: Value) -> bool:
    """Returns `left is right`."""
    if left is right:
        return True
    if isinstance(left, TupleValue) and isinstance(right, TupleValue):
        if left.source is not None and right.source is not None:
            raise Break("SJ020", "`is` of two tuples", harmless=True)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Known) and (one.obj is None or isinstance(one.obj, bool)):
            if isinstance(other, Known):
                return _identical_constant(ev, one, other)
            if isinstance(other, Unknown):
                raise unknown_operand("`is` needs")
            if isinstance(other, Scalar) and other.kind is bool and one.obj is not None:
                raise Break("SJ020", "`is` of a run-time bool", needs_known=other)
            return False
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        raise unknown_operand("`is` needs")
    if isinstance(left, Known) and isinstance(right, Known):
        if (
            type(left.obj) in (int, float, str, bytes, complex)
            and left.obj == right.obj
        ):
            raise Break("SJ020", "`is` of numbers or strings", harmless=True)
        return ev.use(left) is ev.use(right)
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        raise Break("SJ020", "`is` of run-time numbers", harmless=True)
    if isinstance(left, FunctionValue) or isinstance(right, FunctionValue):
        return False
    return False


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
                raise Break("SJ030", f"raises TypeError: {error}") from error
        case ViewValue() if container.kind == "keys":
            return contains(ev, item, container.receiver)
        case ViewValue():
            from .containers import view_items

            return any(_same_item(ev, v, item) for v in view_items(ev, container))
        case IteratorValue():
            return any(_same_item(ev, v, item) for v in iterate_over(ev, container))
        case Known() | InstanceValue() if (
            special(ev, container, "__contains__") is not None
        ):
            return truth(ev, call_special(ev, container, "__contains__", item))  # type: ignore[arg-type]
        case ListValue():
            return any(_same_item(ev, v, item) for v in ev.list_items(container))
        case TupleValue():
            return any(_same_item(ev, v, item) for v in container.items)
        case Known() if isinstance(container.obj, enum.EnumMeta):
            return any(_same_item(ev, v, item) for v in members(ev, container))
        case Known() if is_constant(container.obj):
            return bool(fold(ev, lambda a, b: a in b, item, container).obj)  # type: ignore[attr-defined]
        case Known() if isinstance(container.obj, (dict, set, frozenset)):
            return _contains_known(ev, item, container)
        case Known() if isinstance(
            container.obj, (torch.nn.ModuleDict, torch.nn.ParameterDict)
        ):
            from .modules import module_keys

            return ev.known(item, "`in`") in module_keys(ev, container)
        case TensorValue():
            raise Break("SJ101", "`in` of a tensor")
    raise Break("SJ020", f"`in` of a {type(container).__name__}")


def _contains_known(ev: Evaluator, item: Value, container: Known) -> bool:
    key = ev.known(item, "`in`")
    try:
        found = key in container.obj
    except TypeError as error:
        raise Break("SJ030", f"raises TypeError: {error}") from error
    if container.source is not None:
        ev.guards.type_of(container.source, container.obj)
        text = (
            repr(key) if is_constant(key) else ev.guards.bind(key, "key")
        )
        word = "in" if found else "not in"
        ev.guards.add(f"{text} {word} {container.source.guard}")
    return found
