"""Evaluates statements: one handler per libcst node type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst

from ..kinds import is_a
from . import (
    attribute_stores,
    attributes,
    contexts,
    expressions,
    generators,
    keeping,
    loops,
    matching,
    names,
    operators,
    subscripts,
    suites,
    targets,
    tries,
)
from .breaks import Break
from .conditions import condition
from .frames import Block, Flow, Frame
from .values import (
    FunctionValue,
    Known,
    TensorValue,
    Value,
    constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

Result = tuple[Flow, "Value | None"]
NEXT: Result = (Flow.NEXT, None)


def execute(ev: Evaluator, frame: Frame, node: Any) -> Result:
    """Evaluates one statement; returns how it ended.

    Raises:
        Break: When it cannot be traced whole.
    """
    if isinstance(node, cst.SimpleStatementLine):
        return execute(ev, frame, node.body[0])
    handler = STATEMENTS.get(type(node))
    if handler is None:
        raise Break(
            "SJ040",
            f"`{type(node).__name__.lower()}` is not evaluated",
            ev.origin_of(frame, node),
        )
    return handler(ev, frame, node)


def _expression(ev: Evaluator, frame: Frame, node: cst.Expr) -> Result:
    if isinstance(node.value, cst.Yield):
        generators.yield_statement(ev, frame, node.value)
        return NEXT
    expressions.evaluate(ev, frame, node.value)
    return NEXT


def _assign(ev: Evaluator, frame: Frame, node: cst.Assign) -> Result:
    if keeping.note(ev, frame, node):
        return NEXT
    if isinstance(node.value, cst.Yield) and len(node.targets) == 1:
        name = node.targets[0].target
        if isinstance(name, cst.Name) and name.value in frame.locals:
            generators.yield_statement(ev, frame, node.value, name.value)
            return NEXT
    value = expressions.evaluate(ev, frame, node.value)
    for target in node.targets:
        targets.assign(ev, frame, target.target, value)
    return NEXT


def _annotated(ev: Evaluator, frame: Frame, node: cst.AnnAssign) -> Result:
    if node.value is not None:
        targets.assign(
            ev, frame, node.target, expressions.evaluate(ev, frame, node.value)
        )
    return NEXT


def _augmented(ev: Evaluator, frame: Frame, node: cst.AugAssign) -> Result:
    target = node.target
    kind = type(node.operator)
    if isinstance(target, cst.Name):
        old = expressions.evaluate(ev, frame, target)
        right = expressions.evaluate(ev, frame, node.value)
        targets.assign(ev, frame, target, operators.in_place(ev, kind, old, right))
    elif isinstance(target, cst.Attribute):
        base = expressions.evaluate(ev, frame, target.value)
        name = expressions.mangled(frame, target.attr.value)
        counter = _is_counter(ev, base, name, kind)
        old = attributes.load(ev, base, name)
        right = expressions.evaluate(ev, frame, node.value)
        if counter and _count(ev, base, name, kind, old, right):
            return NEXT
        new = operators.in_place(ev, kind, old, right)
        # Storing the same tensor back into a buffer or attribute changes nothing.
        if not (new is old and isinstance(new, TensorValue)):
            attribute_stores.store(ev, base, name, new)
    elif isinstance(target, cst.Subscript):
        base = expressions.evaluate(ev, frame, target.value)
        index = expressions.index_of(ev, frame, target)
        old = subscripts.load(ev, base, index)
        right = expressions.evaluate(ev, frame, node.value)
        subscripts.store(ev, base, index, operators.in_place(ev, kind, old, right))
    else:
        raise AssertionError(type(target).__name__)  # the grammar has no other
    return NEXT


_COUNTING: dict[type, str] = {cst.AddAssign: "+", cst.SubtractAssign: "-"}


def _is_counter(ev: Evaluator, base: Value, name: str, kind: type) -> bool:
    """Whether `base.name` may be a counter: of an object from outside, not written yet."""
    if kind not in _COUNTING or not isinstance(base, Known) or base.source is None:
        return False
    return not is_a(base.obj, type) and (id(base.obj), name) not in ev.overlay


def _count(
    ev: Evaluator, base: Value, name: str, kind: type, old: Value, right: Value
) -> bool:
    """`self.steps += 1` on an object from outside stays a run-time number.

    Its value is read when the residual program runs, so a counter costs no guard on its value
    and no specialization per call.
    """
    if not isinstance(old, Known) or type(old.obj) is not int or old.source is None:
        return False
    if ev.guards.decided(old.source):
        return False
    if (
        not isinstance(right, Known)
        or type(right.obj) is not int
        or abs(right.obj) > 2**31
    ):
        return False
    ev.guards.type_of(old.source, old.obj)
    variable = ev.residual.fresh(name.strip("_") or "count")
    step = ev.residual.reify(constant(ev.use(right)))
    ev.residual.emit_tracked(
        f"{variable} = {old.source.residual} {_COUNTING[kind]} {step}"
    )
    attribute_stores.store(ev, base, name, ev.scalar(variable, int, variable))
    return True


def _return(ev: Evaluator, frame: Frame, node: cst.Return) -> Result:
    value = (
        constant(None)
        if node.value is None
        else expressions.evaluate(ev, frame, node.value)
    )
    return Flow.RETURN, value


def _if(ev: Evaluator, frame: Frame, node: cst.If) -> Result:
    decided = condition(ev, frame, node.test)
    arm: Any = node if decided else node.orelse
    if arm is None:
        return NEXT
    statements = (
        [arm] if isinstance(arm, cst.If) and not decided else suites.body_of(arm)
    )
    block = Block(statements)
    frame.blocks.append(block)
    ev.journal.record(
        lambda: frame.blocks.remove(block) if block in frame.blocks else None
    )
    return NEXT


def _assert(ev: Evaluator, frame: Frame, node: cst.Assert) -> Result:
    if not condition(ev, frame, node.test):
        raise Break("SJ031", "the assertion fails", ev.origin_of(frame, node))
    return NEXT


def _raise(ev: Evaluator, frame: Frame, node: cst.Raise) -> Result:
    raise Break("SJ031", "an exception is raised", ev.origin_of(frame, node))


def _delete(ev: Evaluator, frame: Frame, node: cst.Del) -> Result:
    targets.delete(ev, frame, node.target)
    return NEXT


def _function(ev: Evaluator, frame: Frame, node: cst.FunctionDef) -> Result:
    from .nested_functions import default_values

    if node.asynchronous is not None:
        raise Break(
            "SJ040", "a nested coroutine function", ev.origin_of(frame, node.name)
        )
    value: Value = FunctionValue(
        node, frame, default_values(ev, frame, node.params), node.name.value
    )
    for decorator in reversed(node.decorators):
        from .calls import call

        wrapper = expressions.evaluate(ev, frame, decorator.decorator)
        value = call(ev, wrapper, [value], {})
    names.store(ev, frame, node.name.value, value)
    return NEXT


def _nothing(ev: Evaluator, frame: Frame, node: Any) -> Result:
    return NEXT


def _break(ev: Evaluator, frame: Frame, node: cst.Break) -> Result:
    return Flow.BREAK, None


def _continue(ev: Evaluator, frame: Frame, node: cst.Continue) -> Result:
    return Flow.CONTINUE, None


def _import(ev: Evaluator, frame: Frame, node: cst.Import | cst.ImportFrom) -> Result:
    """Imports of library modules that are loaded already; others stay native."""
    from .imports import imported

    for name, value in imported(ev, frame, node):
        names.store(ev, frame, name, value)
    return NEXT


STATEMENTS: dict[type, Callable[..., Result]] = {
    cst.Expr: _expression,
    cst.Assign: _assign,
    cst.AnnAssign: _annotated,
    cst.AugAssign: _augmented,
    cst.Return: _return,
    cst.If: _if,
    cst.For: loops.for_statement,
    cst.While: loops.while_statement,
    cst.With: contexts.with_statement,
    cst.Try: tries.try_statement,
    cst.TryStar: tries.try_statement,
    cst.Match: matching.match_statement,
    cst.Assert: _assert,
    cst.Raise: _raise,
    cst.Del: _delete,
    cst.FunctionDef: _function,
    cst.Pass: _nothing,
    cst.Global: _nothing,
    cst.Nonlocal: _nothing,
    cst.Break: _break,
    cst.Continue: _continue,
    cst.Import: _import,
    cst.ImportFrom: _import,
}
