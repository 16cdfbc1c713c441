"""`try` statements that evaluation goes through as if they were not there.

    try:                            y = x * 2           (one segment)
        y = x * 2            →      log.append("done")
    finally:
        log.append("done")

That is exact where the body raises nothing when it runs: what it does to known values has been
done here, and of its tensor operations none looks at data that could be wrong. A handler that
could catch a lack of memory keeps the `try`: it stays native, and its blocks become functions of
their own (`outlining`). Without one the segment is noted as watched (`passes.undoing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from ..kinds import is_a
from . import suites
from .breaks import Break
from .frames import Block, Flow, Frame
from .generators import can_suspend
from .values import Known, TupleValue, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

_ANY_OPERATION = (RuntimeError, MemoryError)
"""What any tensor operation may raise: there is no memory, or no kernel for its types."""


def try_statement(
    ev: Evaluator, frame: Frame, node: cst.Try | cst.TryStar
) -> tuple[Flow, Value | None]:
    """Evaluates a `try` whose body cannot raise.

    Raises:
        Break: SJ044 when its body breaks, or may raise when the program runs.
    """
    if (
        node.finalbody is not None
        and not node.handlers
        and can_suspend(frame, node)
        and not frame.nested
    ):
        others = [node.orelse] if node.orelse is not None else []
        for part in (node.finalbody, *others, node):
            frame.blocks.append(Block(suites.body_of(part)))
        return Flow.NEXT, None
    builder = ev.builder
    operations, risks = builder.operations, builder.risks

    def run(block: Any) -> tuple[Flow, Value | None]:
        frame.nested += 1
        try:
            return ev.run_block(frame, suites.body_of(block))
        except Break as stop:
            raise Break(
                "SJ044",
                f"the body of `try` breaks: {stop.diagnostic.message}",
                stop.diagnostic.origin,
            ) from stop
        finally:
            frame.nested -= 1

    flow, value = run(node)
    if builder.risks != risks or (
        builder.operations != operations
        and any(_catches_all(ev, frame, handler) for handler in node.handlers)
    ):
        raise Break(
            "SJ044",
            "a tensor operation in the body of `try` may raise",
            ev.origin_of(frame, node),
        )
    if flow is Flow.NEXT and node.orelse is not None:
        risks = builder.risks
        flow, value = run(node.orelse)
        if node.finalbody is not None and builder.risks != risks:
            raise Break(
                "SJ044",
                "a tensor operation before `finally` may raise",
                ev.origin_of(frame, node.orelse),
            )
    if node.finalbody is not None:
        if builder.operations != operations:
            builder.watch()
        last, replaced = ev.run_block(frame, suites.body_of(node.finalbody))
        if last is not Flow.NEXT:
            return last, replaced
    return flow, value


def _catches_all(
    ev: Evaluator, frame: Frame, handler: cst.ExceptHandler | cst.ExceptStarHandler
) -> bool:
    """Whether a handler may catch what any tensor operation may raise."""
    from .expressions import evaluate

    if handler.type is None:
        return True
    mark = ev.journal.mark()
    before = ev.journal.changes, ev.builder.operations, len(ev.effects)
    try:
        classes = _classes(ev, evaluate(ev, frame, handler.type))
    except Break:
        classes = None
    if classes is None:
        ev.journal.rollback(mark)
        return True
    if (ev.journal.changes, ev.builder.operations, len(ev.effects)) != before:
        # Python evaluates the class only after the body has raised.
        ev.journal.rollback(mark)
        return True
    return any(
        issubclass(cls, error) or issubclass(error, cls)
        for cls in classes
        for error in _ANY_OPERATION
    )


def _classes(ev: Evaluator, value: Value) -> list[type] | None:
    """The classes that a handler names, or None if they are not known."""
    value = ev.look(value)
    if isinstance(value, TupleValue):
        parts = [_classes(ev, item) for item in value.items]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return [cls for part in known for cls in part]
    if isinstance(value, Known) and is_a(value.obj, type):
        return [ev.use(value)]
    return None
