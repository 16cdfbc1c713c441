"""Native compound statements of the residual program.

Of a compound statement only the head is native; its bodies become functions of their live
variables, which are compiled like any other function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.source import FunctionSource

from ..outline import (
    CannotOutline,
    outline_for,
    outline_try,
    outline_while,
    outline_with,
)
from ..program import Continuation
from ..scopes import captured, writes
from . import keeping, resuming
from .frames import Block, Frame
from .native_statements import emit_native, has_return, visible
from .unbound_names import missing_cells
from .values import (
    Unknown,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def compound(ev: Evaluator, frame: Frame, statement: Any, note: str = "") -> None:
    """Emits a loop, `with` or `try` natively, its bodies as functions of their own."""
    from .functions import share_rebound

    outliners: dict[type, Any] = {
        cst.For: outline_for,
        cst.While: outline_while,
        cst.With: outline_with,
        cst.Try: outline_try,
        cst.TryStar: outline_try,
    }
    if len(ev.frames) > 1 and has_return([statement]):
        resuming.call_rest(ev, frame, statement, note)
        return
    outliner = outliners.get(type(statement))
    if outliner is None:
        _emit_compound(ev, frame, statement, [statement], note)
        return
    # What the body captures is a variable of its function, and the loop's is another one.
    share_rebound(frame, captured(statement))
    kept = keeping.plan(ev, frame, statement)
    keeper = {kept.keeper} if kept.keeper is not None else set()
    known = [*visible(frame, [statement]), *keeper]
    try:
        made = outliner(
            kept.statement,
            bound={*known, *(n for n in frame.locals if n in frame.env)},
            live_after=resuming.live_names(frame),
            origins=frame.origins,
            namer=ev.namer_for(frame),
            local=frame.locals | set(known),
            global_names=frame.globals_declared,
        )
    except CannotOutline:
        _emit_compound(ev, frame, statement, [statement], note)
        return
    keeping.begin(ev, frame, kept)
    for function in made.functions:
        cells = {
            **resuming.user_cells(ev, frame, function.body),
            **missing_cells(frame, [function]),
        }
        source = FunctionSource.from_tree(
            function.name.value,
            function,
            frame.origins,
            file=frame.source.file,
            freevars=tuple(cells),
            class_name=frame.source.class_name,
            scope=frame.source.scope or frame.source.qualname,
        )
        ev.continuations.append(
            Continuation(
                function.name.value,
                source,
                frame.scope.globals,
                cells,
                kind="body",
                names=resuming.compiler_objects(ev, frame),
                resumed=ev.resumed,
                unseen=keeping.unseen(ev, frame),
                goes_on=True,
            )
        )
    for name, helper in resuming.helper_names(ev.namer_for(frame)).items():
        ev.residual.constants[name] = helper
    for one in made.statements:
        frame.origins.inherit(one, statement)
    declared = {*frame.globals_declared, *frame.nonlocals_declared}
    frame.locals.update(writes(made.statements) - declared)
    _emit_compound(ev, frame, statement, list(made.statements), note)


def _emit_compound(
    ev: Evaluator, frame: Frame, statement: Any, made: list[Any], note: str
) -> None:
    """Emits what became of `statement`, and lets its jumps leave loops that were unrolled.

    The loop of a `break` or `continue` in it is no loop of the residual program. The jump
    ends a loop of one iteration instead, and the rest of the program jumps on:

        jump = 0                          jump = 0
        for _ in once:                    <the rest of the program begins with:>
            with manager:                 if jump == 1:
                jump = 1                      break
                break                     if jump == 2:
                                              continue
    """
    variable = ev.namer_for(frame).fresh("jump")
    jumps = _LooseJumps(variable)
    inside = [s.visit(jumps) for s in made]
    if not jumps.found:
        _forget(ev, frame, emit_native(ev, frame, made, note))
        return
    iteration = ev.namer_for(frame).fresh("iteration")
    frame.locals |= {variable, iteration}
    once = ev.namer_for(frame).fixed("once")
    ev.residual.constants[once] = resuming.ONCE
    first = cst.parse_statement(f"{variable} = 0\n")
    loop = cst.parse_statement(f"for {iteration} in {once}:\n    pass\n")
    assert isinstance(loop, cst.For)
    loop = loop.with_changes(body=cst.IndentedBlock(inside))
    tail = [
        cst.parse_statement(f"if {variable} == {number}:\n    {word}\n")
        for word, number in _JUMPS.items()
        if word in jumps.found
    ]
    for old, new in zip(made, inside):
        frame.origins.inherit(new, old)
    for new in (first, loop, *tail):
        frame.origins.inherit(new, statement)
    frame.blocks.append(Block(tail))
    _forget(ev, frame, emit_native(ev, frame, [first, loop], note))


_JUMPS = {"break": 1, "continue": 2}


class _LooseJumps(cst.CSTTransformer):
    """Notes in a variable which jump leaves the statement, and ends a loop around it."""

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self.found: set[str] = set()
        self._depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_For_body(self, node: cst.For) -> None:
        self._depth += 1

    def leave_For_body(self, node: cst.For) -> None:
        self._depth -= 1

    def visit_While_body(self, node: cst.While) -> None:
        self._depth += 1

    def leave_While_body(self, node: cst.While) -> None:
        self._depth -= 1

    def leave_Break(self, original_node: cst.Break, updated_node: cst.Break) -> Any:
        return self._leave("break", updated_node)

    def leave_Continue(
        self, original_node: cst.Continue, updated_node: cst.Continue
    ) -> Any:
        return self._leave("continue", updated_node)

    def _leave(self, word: str, node: cst.BaseSmallStatement) -> Any:
        if self._depth:
            return node
        self.found.add(word)
        number = cst.Integer(str(_JUMPS[word]))
        noted = cst.Assign([cst.AssignTarget(cst.Name(self.variable))], number)
        return cst.FlattenSentinel([noted, cst.Break()])


def _forget(ev: Evaluator, frame: Frame, bound: dict[str, str]) -> None:
    for name, variable in bound.items():
        ev.journal.set_item(frame.env, name, Unknown(variable))
