"""Conditions and short-circuit operators: how often an operand is asked for its truth.

    if (a and b) or not c: ...     asks each of a, b and c at most once
    v = (a and b) or c             Python 3.11 asks a once, Python 3.12 and 3.13 twice

As a condition, each part is asked once. As a value, the result of a nested operator is asked
again by the operator around it, unless this version of Python remembers the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from ..branches import REMEMBERS_TRUTH, is_one_chain
from . import comparisons, expressions
from .breaks import Break
from .frames import Frame
from .truth import truth
from .values import Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def condition(ev: Evaluator, frame: Frame, node: cst.BaseExpression) -> bool:
    """Tells whether `node` is true, as the test of an `if` or `while` is decided.

    Raises:
        Break: SJ101 when it depends on run-time data.
    """
    match node:
        case cst.UnaryOperation(operator=cst.Not()):
            return not condition(ev, frame, node.expression)
        case cst.BooleanOperation(operator=cst.And()):
            return condition(ev, frame, node.left) and condition(ev, frame, node.right)
        case cst.BooleanOperation():
            return condition(ev, frame, node.left) or condition(ev, frame, node.right)
        case cst.IfExp():
            chosen = node.body if condition(ev, frame, node.test) else node.orelse
            return condition(ev, frame, chosen)
        case cst.Comparison() if len(node.comparisons) > 1:
            return _chain(ev, frame, node)
    return _truth(ev, frame, node, expressions.evaluate(ev, frame, node))


def _chain(ev: Evaluator, frame: Frame, node: cst.Comparison) -> bool:
    left = expressions.evaluate(ev, frame, node.left)
    for target in node.comparisons:
        right = expressions.evaluate(ev, frame, target.comparator)
        result = comparisons.compare(ev, target.operator, left, right)
        if not _truth(ev, frame, node, result):
            return False
        left = right
    return True


def _truth(ev: Evaluator, frame: Frame, node: cst.BaseExpression, value: Value) -> bool:
    """The truth of a value, with the place in the break if it has none."""
    try:
        return truth(ev, value)
    except Break as stop:
        if stop.diagnostic.origin is None:
            raise expressions.located(stop, ev, frame, node) from stop.__cause__
        raise


def boolean(ev: Evaluator, frame: Frame, node: cst.BooleanOperation) -> Value:
    """`a and b`, `a or b` as a value."""
    return _value_and_truth(ev, frame, node)[0]


def _value_and_truth(
    ev: Evaluator, frame: Frame, node: cst.BooleanOperation
) -> tuple[Value, bool | None]:
    """The value, and its truth where evaluation has found that out on the way."""
    left: cst.BaseExpression = node.left
    decided: bool | None = None
    if isinstance(left, cst.BooleanOperation) and (
        REMEMBERS_TRUTH or is_one_chain(node, left)
    ):
        value, decided = _value_and_truth(ev, frame, left)
    else:
        value = expressions.evaluate(ev, frame, left)
    if decided is None:
        decided = _truth(ev, frame, left, value)
    if decided is not isinstance(node.operator, cst.And):
        return value, decided
    if isinstance(node.right, cst.BooleanOperation) and REMEMBERS_TRUTH:
        return _value_and_truth(ev, frame, node.right)
    return expressions.evaluate(ev, frame, node.right), None
