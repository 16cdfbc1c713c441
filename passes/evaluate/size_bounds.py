"""Which numbers computed from sizes fit where tensor operations and kernels keep them.

    def f(x, n):
        return x * (n * n * n % 7)

Python's ints are as large as they need be, those of a tensor operation have 64 bits, and eager
raises OverflowError for larger ones. So what is computed from symbols is either certain to
have 64 bits at every step, or that becomes a condition of the specialization
(`n * n * n < 9223372036854775808`); where it does not hold, the numbers are known ones.
"""

from __future__ import annotations

from collections.abc import Container, Set
from typing import Any

import torch
from torch.utils import _pytree as pytree

_LIMIT = 2**63
LARGE_NUMBER = 2**62
"""An int from outside is a symbol only if it is smaller, which is guarded."""
_LARGEST_SIZE = 2**40
"""No tensor whose elements are in memory has a dimension of more."""


def fits(number: Any, ints: Container[Any]) -> bool:
    """Whether a number computed from symbols has 64 bits, in this call and all others.

    Args:
        number: The number; where it is not certain, it becomes a condition that it fits.
        ints: Symbols that stand for ints from outside; the others are sizes.
    """
    if not isinstance(number, torch.SymInt):
        return bool(abs(number) < _LIMIT)
    hint = number.node.hint
    if hint is None:
        return True  # not at hand, which is said where its value is asked for
    if abs(int(hint)) >= _LIMIT:
        return False
    if _is_certain(number.node.expr, ints):
        return True
    return bool(number < _LIMIT) and bool(number > -_LIMIT)


def is_wide(operands: Any, wide: Set[Any]) -> bool:
    """Whether one of an operation's operands may have more than 64 bits.

    Args:
        operands: What the operation is given.
        wide: Symbols of run-time numbers that may be as large as they like.
    """
    return bool(wide) and any(
        not wide.isdisjoint(operand.node.expr.free_symbols)
        for operand in pytree.tree_leaves(operands)
        if isinstance(operand, torch.SymInt)
    )


def _is_certain(expression: Any, ints: Container[Any]) -> bool:
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    ranges = {
        symbol: ValueRanges(1 - LARGE_NUMBER, LARGE_NUMBER - 1)
        if symbol in ints
        else ValueRanges(0, _LARGEST_SIZE)
        for symbol in expression.free_symbols
    }
    bounds = bound_sympy(expression, ranges)
    return bool(bounds.lower > -_LIMIT) and bool(bounds.upper < _LIMIT)
