"""What happens at a graph break.

    y = torch.sin(x) * 2                    y = segment_0(x)[0]
    print("hello")              becomes     print("hello")
    return torch.cos(y)                     return segment_1(y)[0]

In order of preference: rewrite the statement into smaller ones, so that only the operation that
broke is native; go into an inlined callee and split there; run the statement natively and go on
in the same residual program; hand the rest of the program to a resume function.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.nodes import subtree
from srcjit.origin import Origin
from srcjit.runtime import output

from ..comprehension_loops import as_loop
from ..normalize import normalize
from ..scopes import reads, writes
from . import keeping, native_statements, outlining, resuming, suites
from .breaks import Break, Respecialize
from .expressions import evaluate
from .frames import Block, Frame
from .values import Unknown, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def handle(ev: Evaluator, frame: Frame, statement: Any, stop: Break) -> None:
    """Goes on after `statement` broke; everything it did has been rolled back."""
    frame.blocks[-1].index += 1
    _respecialize_if_needed(ev, stop)
    if isinstance(statement, cst.If):
        _if(ev, frame, statement, stop)
    elif isinstance(
        statement, (cst.For, cst.While, cst.With, cst.Try, cst.TryStar, cst.Match)
    ):
        _compound(ev, frame, statement, stop)
    elif stop.needs_unknown or stop.needs_known is not None:
        frame.blocks[-1].index -= 1
        record(ev, stop)
        resuming.resume_here(ev)
    else:
        _simple(ev, frame, statement, stop)


def _respecialize_if_needed(ev: Evaluator, stop: Break) -> None:
    """A dynamic parameter whose value must be known: evaluation starts again with it known."""
    needed = stop.needs_known
    ev.needed = needed
    if needed is not None:
        for text, source in ev.scalar_sources.items():
            if mentions(needed.text, text):
                raise Respecialize(source)


def mentions(text: str, part: str) -> bool:
    """Whether the expression `text` uses the variable or path `part`."""
    return re.search(rf"(?<![\w.]){re.escape(part)}(?![\w])", text) is not None


def record(ev: Evaluator, stop: Break) -> None:
    """Notes a graph break, once for each place where a segment ends."""
    diagnostic = stop.diagnostic
    if diagnostic.origin is None:
        diagnostic = replace(diagnostic, origin=ev.user_origin())
    if (
        stop.result is not None
        and diagnostic.code == "SJ020"
        and not ev.builder.operations
    ):
        return  # arithmetic on a run-time number, between segments: nothing is split
    same_place = (
        ev.breaks
        and not ev.builder.operations
        and ev.last_break_segments == len(ev.segments)
        and ev.breaks[-1].origin is not None
        and diagnostic.origin is not None
        and ev.breaks[-1].origin.line == diagnostic.origin.line
    )
    if same_place:
        if stop.needs_unknown:
            return  # what follows from the break before it, which says why
        if ev.breaks[-1].code == "SJ103" and diagnostic.code == "SJ101":
            diagnostic = replace(diagnostic, message="branch on tensor data")
        ev.breaks[-1] = diagnostic
    else:
        ev.breaks.append(diagnostic)
    ev.last_break_segments = len(ev.segments) + bool(ev.builder.operations)


def normal_form(
    ev: Evaluator, frame: Frame, statement: Any, whole: Any = None
) -> list[Any]:
    """Returns the statement in A-normal form; the frame learns the new names.

    The generator expression `whole` stays in the call that it is given to.
    """
    made = normalize(
        statement,
        ev.namer_for(frame),
        frame.origins,
        local=frame.locals,
        unstable={name for name in frame.locals if name not in frame.env},
        whole=whole,
    )
    if len(made) > 1 or made[0] is not statement:
        _learn_names(ev, frame, made)
    return made


def _learn_names(ev: Evaluator, frame: Frame, statements: list[Any]) -> None:
    """Makes the names that rewritten statements bind locals of the frame."""
    names = writes(statements) - frame.locals
    names -= {*frame.globals_declared, *frame.nonlocals_declared}
    frame.locals.update(names)
    if frame is ev.frames[0]:
        ev.own_locals |= names


def _push(frame: Frame, statements: list[Any]) -> None:
    frame.blocks.append(Block(statements))


# ── simple statements ───────────────────────────────────────────────────────────────


def _simple(ev: Evaluator, frame: Frame, statement: Any, stop: Break) -> None:
    made = normal_form(ev, frame, statement, stop.deferred)
    if len(made) > 1 or made[0] is not statement:
        _push(frame, made)
        return
    loop = None
    if not _reads_unbound(frame, statement):
        loop = as_loop(statement, ev.namer_for(frame), frame.origins)
    if loop is not None:
        _learn_names(ev, frame, loop)
        _push(frame, loop)
        return
    if stop.inlined:
        if _enter_callee(ev, frame, statement):
            return
        # What is known of the break is about an operation inside the callee.
        stop.harmless, stop.result = False, None
    record(ev, stop)
    if _assertion(ev, frame, statement):
        return
    origin = stop.diagnostic.origin or frame.origins.get(statement)
    native(ev, frame, statement, stop, origin)


def _reads_unbound(frame: Frame, statement: Any) -> bool:
    """Whether a statement reads a local that is not bound.

    Up to Python 3.11 a comprehension that does says so in other words than a loop.
    """
    read = reads(statement) & frame.locals
    return sys.version_info < (3, 12) and bool(read - set(frame.env))


def _assertion(ev: Evaluator, frame: Frame, statement: Any) -> bool:
    """An `assert` on run-time data stays native and changes nothing: evaluation goes on."""
    small = (
        statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    )
    if not isinstance(small, cst.Assert):
        return False
    native_statements.emit_native(ev, frame, [statement], note=_note(ev), harmless=True)
    return True


def _note(ev: Evaluator) -> str:
    if not ev.breaks:
        return ""
    diagnostic = ev.breaks[-1]
    return f"graph break {diagnostic.code}, {diagnostic.message}"


def _enter_callee(ev: Evaluator, frame: Frame, statement: Any) -> bool:
    """Goes into the callee of `name = f(...)` so that the break splits there."""
    from .calls import operands, resolve
    from .functions import is_made_anew

    small = (
        statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    )
    call, target = _call_of(small)
    if call is None:
        return False
    mark = ev.journal.mark()
    try:
        function, args, kwargs = operands(ev, frame, call)
        callee = resolve(ev, function, args, kwargs)
    except Break:
        ev.journal.rollback(mark)
        return False
    library = isinstance(callee, Frame) and callee.scope.frozen
    if (
        not isinstance(callee, Frame)
        or (library and callee.source.class_name is None)
        or is_made_anew(callee.source)
    ):
        # A plain library function is one operation to the user: it runs natively as a whole.
        ev.journal.rollback(mark)
        return False
    callee.call = statement

    def on_return(value: Value) -> None:
        if isinstance(small, cst.Return):
            ev.leave(frame, value)
        elif target is not None:
            from . import targets

            targets.assign(ev, frame, target, value)

    callee.on_return = on_return
    ev.frames.append(callee)
    return True


def _call_of(small: Any) -> tuple[cst.Call | None, cst.BaseExpression | None]:
    if isinstance(small, cst.Assign) and isinstance(small.value, cst.Call):
        if len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
            return small.value, small.targets[0].target
    if isinstance(small, (cst.Expr, cst.Return)) and isinstance(small.value, cst.Call):
        return small.value, None
    return None, None


def native(
    ev: Evaluator, frame: Frame, statement: Any, stop: Break, origin: Origin | None
) -> None:
    """Runs one statement natively and goes on behind it."""
    small = (
        statement.body[0]
        if isinstance(statement, cst.SimpleStatementLine)
        else statement
    )
    if isinstance(small, cst.Raise):
        native_statements.emit_native(
            ev, frame, [statement], note=_note(ev), harmless=True
        )
        ev.finished = True
        return
    if isinstance(small, cst.Return):
        native_statements.native_return(ev, frame, statement, note=_note(ev))
        return
    harmless = (
        _is_harmless(stop)
        and not _writes_to_objects(small)
        and not native_statements.used_globals(frame, [statement])
        and native_statements.keeps_state(ev, frame, statement)
    )
    if harmless and callable(stop.harmless):
        name = stop.harmless.__name__
        ev.guards.add(
            f"{ev.guards.bind(stop.harmless, name)}()", "changes nothing else"
        )
    blind = harmless and (
        stop.result is not None or stop.harmless is output.prints_are_unheard
    )
    bound = native_statements.emit_native(
        ev, frame, [statement], note=_note(ev), harmless=harmless, blind=blind
    )
    for name, variable in bound.items():
        value: Value = Unknown(variable)
        if stop.result is not None and len(bound) == 1:
            wide = stop.diagnostic.code != "SJ103"  # computed, not read from a tensor
            value = ev.scalar(variable, stop.result, variable, wide=wide)
        ev.journal.set_item(frame.env, name, value)
    keeping.note_next(ev, frame)
    if not harmless:
        resuming.resume_here(ev)


def _is_harmless(stop: Break) -> bool:
    return stop.harmless() if callable(stop.harmless) else stop.harmless


def _writes_to_objects(small: Any) -> bool:
    """Whether a statement binds, changes or deletes an item or an attribute."""
    match small:
        case cst.Assign():
            targets: list[cst.CSTNode] = [t.target for t in small.targets]
        case cst.AugAssign() | cst.AnnAssign() | cst.Del():
            targets = [small.target]
        case _:
            return False
    return any(
        isinstance(part, (cst.Subscript, cst.Attribute))
        for target in targets
        for part in subtree(target)
    )


# ── compound statements ─────────────────────────────────────────────────────────────


def _compound(ev: Evaluator, frame: Frame, statement: Any, stop: Break) -> None:
    """A loop, `with`, `try` or `match` stays native; its bodies become functions."""
    if stop.needs_unknown and not isinstance(statement, (cst.Try, cst.TryStar)):
        if _header_needs_unknown(ev, frame, statement):
            frame.blocks[-1].index -= 1
            record(ev, stop)
            resuming.resume_here(ev)
            return
    if isinstance(statement, (cst.For, cst.With)):
        made = normal_form(ev, frame, statement)
        if len(made) > 1 or made[0] is not statement:
            _push(frame, made)
            return
    record(ev, stop)
    outlining.compound(ev, frame, statement, note=_note(ev))
    if not ev.finished:
        resuming.resume_here(ev)


def _header_needs_unknown(ev: Evaluator, frame: Frame, statement: Any) -> bool:
    """Whether the iterable, test or manager itself reads a value that is not known yet."""
    match statement:
        case cst.For():
            names = reads_of(statement.iter)
        case cst.While():
            names = reads_of(statement.test)
        case cst.With():
            names = set().union(*(reads_of(item.item) for item in statement.items))
        case cst.Match():
            names = reads_of(statement.subject)
        case _:
            return False
    return any(isinstance(frame.env.get(name), Unknown) for name in names)


def reads_of(node: cst.BaseExpression) -> set[str]:
    """Names that an expression reads."""
    return reads(cst.SimpleStatementLine([cst.Expr(node)]))


def handle_loop_head(ev: Evaluator, frame: Frame, block: Block, stop: Break) -> None:
    """The next iteration of a loop that was being unrolled cannot be decided."""
    node = block.node
    frame.blocks.pop()
    _respecialize_if_needed(ev, stop)
    origin = frame.origins.get(node) if node is not None else None
    located = stop if stop.diagnostic.origin is not None else _at(stop, origin)
    if isinstance(node, cst.While):
        if stop.needs_unknown or stop.needs_known is not None:
            _push(frame, [node])
            record(ev, located)
            resuming.resume_here(ev)
            return
        record(ev, located)
        outlining.compound(ev, frame, node, note=_note(ev))
    else:
        assert isinstance(node, cst.For) and block.iterator is not None
        record(ev, located)
        name = ev.namer_for(frame).fresh("remaining")
        if not resuming.is_visible(ev, block.iterator):
            ev.journal.set_attr(block.iterator, "private", True)
        frame.locals.add(name)
        ev.journal.set_item(frame.env, name, block.iterator)
        loop = node.with_changes(iter=cst.Name(name), leading_lines=())
        frame.origins.inherit(loop, node)
        outlining.compound(ev, frame, loop, note=_note(ev))
    if not ev.finished:
        resuming.resume_here(ev)


def _at(stop: Break, origin: Origin | None) -> Break:
    d = stop.diagnostic
    made = Break(d.code, d.message, origin, notes=d.notes, hint=d.hint)
    made.inlined = stop.inlined
    return made


# ── if ──────────────────────────────────────────────────────────────────────────────


def _if(ev: Evaluator, frame: Frame, statement: cst.If, stop: Break) -> None:
    if stop.needs_unknown or stop.needs_known is not None:
        frame.blocks[-1].index -= 1
        record(ev, stop)
        resuming.resume_here(ev)
        return
    made = normal_form(ev, frame, statement)
    if len(made) > 1 or made[0] is not statement:
        _push(frame, made)
        return
    mark = ev.journal.mark()
    try:
        test = evaluate(ev, frame, statement.test)
    except Break:
        ev.journal.rollback(mark)
        _hoist_test(ev, frame, statement)
        return
    record(ev, stop)
    _branch(ev, frame, statement, test)


def _hoist_test(ev: Evaluator, frame: Frame, statement: cst.If) -> None:
    """`if <operation>:` whose operation breaks: the operation becomes a statement."""
    name = ev.namer_for(frame).fresh("condition")
    frame.locals.add(name)
    first = cst.SimpleStatementLine(
        [cst.Assign([cst.AssignTarget(cst.Name(name))], statement.test)]
    )
    frame.origins.inherit(first, statement)
    second = statement.with_changes(test=cst.Name(name), leading_lines=())
    frame.origins.inherit(second, statement)
    _push(frame, [first, second])


def _branch(ev: Evaluator, frame: Frame, statement: cst.If, test: Value) -> None:
    """A native `if`; each arm, with the rest of the program, is a resume function."""
    arms = (list(suites.body_of(statement)), _else_arm(statement))
    live = [test, *resuming.live_values(ev, extra=[a for arm in arms for a in arm])]
    residual = ev.residual
    residual.close_segment([*live, *ev.effect_values])
    residual.flush_effects()
    text = residual.reify(test)
    origin = frame.origins.get(statement)
    for index, arm in enumerate(arms):
        if _only_raises(arm):
            condition = text if index == 0 else f"not {residual.atom(test)}"
            residual.emit(f"if {condition}:", origin, _note(ev))
            mark = ev.journal.mark()
            with residual.indented():
                native_statements.emit_native(
                    ev, frame, list(arm), closing=False, harmless=True
                )
            ev.journal.rollback(mark)  # its variables are those of this way alone
            _push(frame, list(arms[1 - index]))
            return
    residual.emit(f"if {_bare(text)}:", origin, _note(ev))
    mark = ev.journal.mark()
    with residual.indented():
        _push(frame, list(arms[0]))
        resuming.resume_here(ev, kind="then")
        frame.blocks.pop()
    # What was read on the way into the arm is known in the arm alone; its lines stay.
    lines = list(residual.lines)
    ev.journal.rollback(mark)
    residual.lines[:] = lines
    ev.finished = False
    if arms[1]:
        _push(frame, list(arms[1]))
    resuming.resume_here(ev, kind="else")


def _bare(text: str) -> str:
    return (
        text[1:-1]
        if text.startswith("(") and text.endswith(")") and _balanced(text)
        else text
    )


def _balanced(text: str) -> bool:
    depth = 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and index < len(text) - 1:
            return False
    return True


def _else_arm(statement: cst.If) -> list[Any]:
    if statement.orelse is None:
        return []
    if isinstance(statement.orelse, cst.If):
        return [statement.orelse]
    return list(suites.body_of(statement.orelse))


def _only_raises(arm: Any) -> bool:
    if len(arm) != 1 or not isinstance(arm[0], cst.SimpleStatementLine):
        return False
    return len(arm[0].body) == 1 and isinstance(arm[0].body[0], cst.Raise)
