"""Arithmetic and comparisons of numbers that are computed from symbolic sizes.

    n = x.size(0)
    half = n // 2 + 1                 # an int: exact, as text `x_size_0 // 2 + 1`
    scale = 1 / math.sqrt(n)          # a float: computed as it is written, so rounded alike
    if n > 8: ...                     # decided for this call, which is a condition

What PyTorch's symbols do not compute exactly is pinned: the number is that of this call, which
is a condition as well.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .values import Known, Scalar, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator

_EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}
"""Operations on two ints that give an int and that PyTorch's symbols compute exactly."""


def all_sized(values: Iterable[Value]) -> bool:
    """Whether all are numbers at hand, at least one of them computed from a size."""
    values = list(values)
    return any(is_sized(v) for v in values) and all(
        is_sized(v) or (isinstance(v, Known) and type(v.obj) in (int, float, bool))
        for v in values
    )


def is_sized(value: Value) -> bool:
    """Whether `value` is a number computed from symbolic sizes."""
    return isinstance(value, Scalar) and bool(value.sizes)


def binary(ev: Evaluator, name: str, left: Value, right: Value) -> Value | None:
    """Returns `left <name> right` for numbers that `all_sized` accepts.

    None where the numbers must be pinned first.
    """
    operands = [_integer(ev, v) for v in (left, right)]
    function = _EXACT.get(name)
    if function is not None and not any(n is None for n in operands):
        if name in ("floordiv", "mod"):
            return _divided(ev, name, *operands)
        return ev.sizes.fitting(function(*operands))
    symbol = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**"}.get(name)
    if symbol is None or (name == "pow" and not _is_root(right)):
        return None
    if name == "pow" and (operands[0] is None or not bool(operands[0] > 0)):
        return None
    if name == "truediv":
        divisor = operands[1] if operands[1] is not None else pinned(ev, right)
        if not bool(divisor != 0):
            return None
    # A float: the program computes it as the user wrote it, so that it is rounded alike.
    from .operators import operand_text

    texts = [operand_text(ev, v) for v in (left, right)]
    text = f"({texts[0]} {symbol} {texts[1]})"
    return _float(ev, text, _FLOATS[name], left, right)


def _is_root(exponent: Value) -> bool:
    return (
        isinstance(exponent, Known)
        and type(exponent.obj) is float
        and exponent.obj in (0.5, -0.5)
    )


def _float(
    ev: Evaluator, text: str, function: Callable[..., Any], *operands: Value
) -> Scalar:
    hints = [v.hint if isinstance(v, Scalar) else v.obj for v in operands]  # type: ignore[attr-defined]
    made = ev.scalar(text, float, "number")
    made.hint = function(*hints)
    made.sizes = tuple(n for v in operands if isinstance(v, Scalar) for n in v.sizes)
    return made


def call(ev: Evaluator, function: Any, args: list[Value]) -> Value | None:
    """Returns `float(n)` or `math.sqrt(n)` of an int, None for any other function."""
    if len(args) != 1 or not is_sized(args[0]) or function not in (float, math.sqrt):
        return None
    value = args[0]
    assert isinstance(value, Scalar)
    if value.kind is not int or not bool(value.symbol >= 0):
        return None
    name = ev.residual.constant_name(function, function.__name__)
    return _float(ev, f"{name}({ev.residual.reify(value)})", function, value)


_FLOATS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "pow": operator.pow,
}


def _divided(ev: Evaluator, name: str, left: Any, right: Any) -> Value | None:
    """Division towards minus infinity, by divisions of numbers that are not negative.

    Kernels round towards zero, which is the same for those: `-n // 2` is `-((n + 1) // 2)`.
    """
    if not bool(right > 0):
        return None
    whole = left // right if bool(left >= 0) else -((right - 1 - left) // right)
    if name == "floordiv":
        return ev.sizes.fitting(whole)
    rest = left % right if bool(left >= 0) else left - right * whole
    return ev.sizes.fitting(rest)


def negated(ev: Evaluator, value: Scalar) -> Value | None:
    """Returns `-value`, or None for a float."""
    return ev.sizes.fitting(-value.symbol) if value.kind is int else None


def compare(
    ev: Evaluator, function: Callable[..., Any], left: Value, right: Value
) -> bool:
    """Decides a comparison of numbers that `all_sized` accepts."""
    operands = [_integer(ev, v) for v in (left, right)]
    if any(n is None for n in operands):
        operands = [pinned(ev, v) for v in (left, right)]
    return bool(function(*operands))


def extreme(ev: Evaluator, name: str, items: list[Value]) -> Value | None:
    """Returns `min` or `max` of ints, or None if one is a float."""
    operands = [_integer(ev, v) for v in items]
    if any(n is None for n in operands):
        return None
    function: Any = torch.sym_min if name == "min" else torch.sym_max
    result = operands[0]
    for other in operands[1:]:
        result = function(result, other)
    return ev.sizes.value(result)


def pinned(ev: Evaluator, value: Value) -> Any:
    """Returns the value of a number in this call, and makes that a condition."""
    if isinstance(value, Scalar):
        for size in value.sizes:
            int(size)
        return value.hint
    assert isinstance(value, Known)
    return ev.use(value)


def pin(ev: Evaluator, value: Value) -> Value:
    """Returns `value` as a constant if it is computed from sizes, otherwise as it is."""
    return constant(pinned(ev, value)) if is_sized(value) else value


def _integer(ev: Evaluator, value: Value) -> Any:
    if isinstance(value, Scalar):
        return value.symbol if value.kind is int else None
    assert isinstance(value, Known)
    return ev.use(value) if type(value.obj) is int else None
