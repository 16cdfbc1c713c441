"""Comprehensions, each in a scope of its own whose first iterable belongs to the outer one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst

from ..scopes import writes
from . import expressions, loops, targets
from .breaks import Break, LeaveGenerator
from .conditions import condition
from .frames import Frame
from .keys import key_of
from .lazy import LazyItems, leave_to_python, next_item
from .lazy import iterate as iterate_over
from .values import DictValue, IteratorValue, ListValue, SetValue, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

SCOPE_NAME = "<comprehension>"


def _scope(frame: Frame, node: Any) -> Frame:
    """A frame whose locals are the comprehension's targets."""
    bound: set[str] = set()
    clause = node.for_in
    while clause is not None:
        bound |= writes(
            cst.SimpleStatementLine(
                [cst.Assign([cst.AssignTarget(clause.target)], cst.Name("_"))]
            )
        )
        clause = clause.inner_for_in
    source = type(frame.source)(
        name=SCOPE_NAME,
        qualname=frame.source.qualname,
        file=frame.source.file,
        first_line=frame.source.first_line,
        tree=frame.source.tree,
        origins=frame.origins,
        class_name=frame.source.class_name,
        scope=_qualified(frame, node),
    )
    return Frame(source, frame.scope, set(bound), {}, frame.origins, parent=frame)


def _qualified(frame: Frame, node: Any) -> str:
    """What the qualified names of functions made in a comprehension begin with."""
    word = _WORDS[type(node)]
    if sys.version_info >= (3, 12) and not isinstance(node, cst.GeneratorExp):
        return frame.source.scope  # it is no function of its own
    return f"{frame.source.locals_name}.{word}"


_WORDS: dict[type, str] = {
    cst.ListComp: "<listcomp>",
    cst.SetComp: "<setcomp>",
    cst.DictComp: "<dictcomp>",
    cst.GeneratorExp: "<genexpr>",
}


def _run(
    ev: Evaluator,
    outer: Frame,
    inner: Frame,
    clause: cst.CompFor,
    first: bool,
    visit: Callable[[], None],
) -> None:
    iterable = expressions.evaluate(ev, outer if first else inner, clause.iter)
    iterator = loops.iterator_over(ev, iterable)
    for item in iterate_over(ev, iterator):
        targets.assign(ev, inner, clause.target, item)
        if all(condition(ev, inner, c.test) for c in clause.ifs):
            if clause.inner_for_in is not None:
                _run(ev, outer, inner, clause.inner_for_in, False, visit)
            else:
                visit()


def list_comprehension(ev: Evaluator, frame: Frame, node: cst.ListComp) -> Value:
    """`[f(x) for x in xs if c]` over what is known."""
    inner = _scope(frame, node)
    items: list[Value] = []
    _run(
        ev,
        frame,
        inner,
        node.for_in,
        True,
        lambda: items.append(expressions.evaluate(ev, inner, node.elt)),
    )
    return ListValue(items)


def set_comprehension(ev: Evaluator, frame: Frame, node: cst.SetComp) -> Value:
    """`{f(x) for x in xs}`."""
    inner = _scope(frame, node)
    items: dict[Any, None] = {}

    def visit() -> None:
        items[key_of(ev, expressions.evaluate(ev, inner, node.elt))] = None

    _run(ev, frame, inner, node.for_in, True, visit)
    return SetValue(items)


def dict_comprehension(ev: Evaluator, frame: Frame, node: cst.DictComp) -> Value:
    """`{k: v for k, v in pairs}`."""
    inner = _scope(frame, node)
    items: dict[Any, Value] = {}

    def visit() -> None:
        key = key_of(ev, expressions.evaluate(ev, inner, node.key))
        items[key] = expressions.evaluate(ev, inner, node.value)

    _run(ev, frame, inner, node.for_in, True, visit)
    return DictValue(items)


def generator_expression(ev: Evaluator, frame: Frame, node: cst.GeneratorExp) -> Value:
    """`(f(x) for x in xs)`: the first iterable is evaluated now, the rest item by item."""
    leave_to_python(ev)
    inner = _scope(frame, node)
    clauses: list[cst.CompFor] = []
    clause: cst.CompFor | None = node.for_in
    while clause is not None:
        clauses.append(clause)
        clause = clause.inner_for_in
    first = loops.iterator_over(ev, expressions.evaluate(ev, frame, clauses[0].iter))
    running: dict[int, IteratorValue] = {0: first}

    def accepted(clause: cst.CompFor) -> bool:
        return all(condition(ev, inner, c.test) for c in clause.ifs)

    def pull() -> Value | None:
        try:
            return advance()
        except Break as stop:
            stop.deferred = node
            raise

    def advance() -> Value | None:
        level = max(running) if running else -1
        while level >= 0:
            clause = clauses[level]
            item = next_item(ev, running[level])
            if item is None:
                ev.journal.delete_item(running, level)
                level -= 1
                continue
            targets.assign(ev, inner, clause.target, item)
            if not accepted(clause):
                continue
            if level == len(clauses) - 1:
                return expressions.evaluate(ev, inner, node.elt)
            level += 1
            iterable = expressions.evaluate(ev, inner, clauses[level].iter)
            ev.journal.set_item(running, level, loops.iterator_over(ev, iterable))
        return None

    return IteratorValue(_ExpressionItems(ev, pull, [first]), generator=True)


class _ExpressionItems(LazyItems):
    """Items of a generator expression: each depends on when it is computed.

    So what is left cannot be computed ahead, for Python to have.
    """

    def _force(self) -> None:
        if not self.exhausted:
            raise LeaveGenerator(self.site)
