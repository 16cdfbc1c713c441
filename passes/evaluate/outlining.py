"""Native statements of the residual program.

A statement runs natively with the variables that it reads reified, and renamed to the residual
program's own. Of a compound statement only the head is native; its bodies become functions of
their live variables, which are compiled like any other function.
"""

from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.nodes import subtree
from srcjit.origin import Origin, Origins
from srcjit.source import FunctionSource

from ..flow import Walk, deleted
from ..outline import (
    UNBOUND,
    CannotOutline,
    outline_for,
    outline_try,
    outline_while,
    outline_with,
)
from ..program import NOT_BOUND, Continuation, Native
from ..residual import roots
from ..resume import function_of
from ..scopes import captured, definitely_bound, reads, rename, substitute, writes
from . import names, resuming
from .frames import Block, Frame
from .frozen import is_frozen
from .lazy import LazyItems
from .values import (
    DictValue,
    IteratorValue,
    Known,
    ListValue,
    Scalar,
    SetValue,
    SliceValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def emit_native(
    ev: Evaluator,
    frame: Frame,
    statements: list[Any],
    note: str = "",
    closing: bool = True,
    harmless: bool = False,
) -> dict[str, str]:
    """Emits statements that Python runs; returns the variable of each name that they bind.

    Args:
        ev: The evaluator.
        frame: The frame that the statements belong to.
        statements: What to run.
        note: The comment behind the first line.
        closing: Close the open segment first.
        harmless: What runs writes to no object that existed before.
    """
    from .functions import share_rebound

    share_rebound(ev, frame, captured(statements), "a nested function")
    residual = ev.residual
    read = visible(frame, statements)
    values = {name: _load(ev, frame, name) for name in read}
    if closing:
        live = [*values.values(), *resuming.live_values(ev)]
        residual.close_segment([*live, *ev.effect_values])
        residual.flush_effects()
    if not harmless:
        residual.settle(resuming.live_values(ev))
    bound = writes(statements)
    bound |= Walk.over(statements).rebound_by_closures & frame.locals
    # What the statements may leave as it is has to be there, or to be known as unbound.
    maybe = (bound - definitely_bound(statements)) & frame.locals
    for name in maybe - set(values):
        if name in frame.env:
            values[name] = _load(ev, frame, name)
    uncertain = sorted(
        (maybe - definitely_bound(statements, values)) & resuming.live_names(frame)
    )
    unbound = _unbound_names(frame, statements, values)
    apart = _must_be_missing(ev, frame, statements)[0] or _taken(ev, unbound, values)
    if (
        needs_own_globals(ev, frame)
        or used_globals(frame, statements)
        or (apart and not _returns(statements))
    ):
        return _foreign(ev, frame, statements, values, bound, uncertain, unbound, note)
    _leave_unbound(ev, set(missing_cells(frame, statements)))
    renamed = _unbind(ev, unbound, values)
    replaced: dict[str, cst.BaseExpression] = {}
    for name in sorted(values):
        text = residual.reify(values[name])
        if name in bound:
            others = roots(ev, [v for n, v in values.items() if n != name])
            keep = (
                name == text
                and name not in others
                and not _is_read_elsewhere(ev, frame, name, bound)
            )
            variable = name if keep else residual.variable(name)
            if variable != text:
                residual.emit(f"{variable} = {text}")
            renamed[name] = variable
        elif text.isidentifier():
            renamed[name] = text
        elif isinstance(values[name], Known) and _is_literal(text):
            replaced[name] = cst.parse_expression(text)
        else:
            renamed[name] = residual.hold(values[name], name)
    for name in sorted(bound - set(renamed)):
        renamed[name] = residual.variable(name)
    for statement in statements:
        origin = frame.origins.get(statement) or ev.statement_origin()
        made = statement
        if replaced:
            made = substitute(made, replaced, frame.origins)
        changed = {old: new for old, new in renamed.items() if old != new}
        if changed:
            made = rename(made, changed, frame.origins)
        residual.emit_statement(made, origin, note, frame.origins)
        note = ""
    for name in bound:
        residual.overwritten(renamed[name])
    for name in uncertain:
        residual.emit(_probe(renamed[name]))
        residual.maybe_unbound.add(renamed[name])
    if uncertain:
        residual.constants["UNBOUND"] = UNBOUND
    return {name: renamed[name] for name in bound}


def _probe(name: str) -> str:
    """Text that stands for an unbound variable by a value, so that it can be handed on."""
    return f"try:\n    {name}\nexcept NameError:\n    {name} = UNBOUND"


def _is_read_elsewhere(ev: Evaluator, frame: Frame, name: str, bound: set[str]) -> bool:
    """Whether a live value besides those that are bound anew is reached by variable `name`."""
    live: list[Value] = [*ev.effect_values, *ev.overlay.values()]
    for other in ev.frames:
        live += [b.iterator for b in other.blocks if b.iterator is not None]
        wanted = resuming.live_names(other)
        around: Frame | None = other
        while around is not None:
            live += [
                value
                for key, value in around.env.items()
                if key in wanted and not (around is frame and key in bound)
            ]
            around = around.parent
    return name in roots(ev, live)


def _unbound_names(
    frame: Frame, statements: list[Any], values: dict[str, Value]
) -> list[str]:
    """Locals that statements read or delete and that are not bound."""
    used = reads(statements).union(*(deleted(s) for s in statements))
    return sorted((used & frame.locals) - set(values))


def missing_cells(frame: Frame, statements: list[Any]) -> dict[str, CellType]:
    """Empty cells for variables of the functions around that are read and not bound."""
    found = {}
    for name in reads(statements) | captured(statements):
        owner = None if name in frame.locals else names.owner_of(frame, name)
        if owner is not None and name not in owner.env:
            found[name] = CellType()
    return found


def _must_be_missing(
    ev: Evaluator, frame: Frame, statements: list[Any]
) -> tuple[set[str], set[str]]:
    """Names in `missing_cells` that need cells, and those that are bound or deleted, too.

    If the program has a variable of that name, it is another one, and a variable that is
    bound must not become a local one: that would raise another error.
    """
    missing = set(missing_cells(frame, statements))
    bound = missing & writes(statements).union(*(deleted(s) for s in statements))
    constants = ev.residual.constants
    taken = {n for n in missing - ev.own_locals if constants.get(n) is not NOT_BOUND}
    return taken | bound, bound


def _leave_unbound(ev: Evaluator, missing: set[str]) -> None:
    """Has the program find such variables not bound, if it has none of that name."""
    for name in missing & ev.own_locals:
        ev.own_locals.discard(name)
        ev.residual.constants[name] = NOT_BOUND


def _taken(ev: Evaluator, names: list[str], values: dict[str, Value]) -> set[str]:
    """Names that are not bound but are variables by which the program reaches something.

    The message of the error says the name, so it is to be unbound under it. What was made
    by the program moves to another variable; arguments stay in theirs.
    """
    residual = ev.residual
    for name in names:
        live = [*values.values(), *resuming.live_values(ev), *ev.effect_values]
        holders = [v for v in live if v.name == name and not isinstance(v, Scalar)]
        if holders:
            other = residual.fresh(name)
            residual.emit(f"{other} = {name}")
            for holder in holders:
                ev.journal.set_attr(holder, "name", other)
    live = [*values.values(), *resuming.live_values(ev), *ev.effect_values]
    return roots(ev, [*live, *ev.overlay.values()]) & set(names) if names else set()


def _unbind(
    ev: Evaluator, names: list[str], values: dict[str, Value]
) -> dict[str, str]:
    """Makes variables that are not bound of names that are not; returns the variables."""
    residual = ev.residual
    taken = _taken(ev, names, values)
    variables = {}
    for name in names:
        variable = residual.fresh(name) if name in taken else name
        residual.emit(f"{variable} = None")
        residual.emit(f"del {variable}")
        residual.overwritten(variable)
        variables[name] = variable
    return variables


def _load(ev: Evaluator, frame: Frame, name: str) -> Value:
    return names.load(ev, frame, name)


def visible(frame: Frame, statements: list[Any]) -> list[str]:
    """Names that statements read and that live in the frame or the frames around it, bound."""
    found = []
    for name in sorted(reads(statements) | captured(statements)):
        owner = frame if name in frame.locals else names.owner_of(frame, name)
        if owner is not None and name in owner.env:
            found.append(name)
    return found


def _is_literal(text: str) -> bool:
    return text[:1] in "'\"0123456789-" or text in ("None", "True", "False")


def used_globals(frame: Frame, statements: list[Any]) -> set[str]:
    """Names of globals that the statements bind or delete."""
    bound = writes(statements).union(*(deleted(s) for s in statements))
    return bound & set(frame.globals_declared)


def needs_own_globals(ev: Evaluator, frame: Frame) -> bool:
    """Whether native statements of the frame must run with other globals or cells."""
    root = ev.activations[0].scope
    return frame.scope.globals is not root.globals or (
        frame.scope is not root and bool(frame.scope.cells)
    )


def _foreign(
    ev: Evaluator,
    frame: Frame,
    statements: list[Any],
    values: dict[str, Value],
    bound: set[str],
    uncertain: list[str],
    unbound: list[str],
    note: str,
) -> dict[str, str]:
    """Statements of an inlined function run as a function with that function's globals."""
    residual = ev.residual
    origin = frame.origins.get(statements[0])
    line = origin.line if origin is not None else 0
    name = ev.namer.fresh(f"native_{line}")
    params = sorted(values)
    missing = bound - definitely_bound(statements, values) - set(uncertain)
    declared = used_globals(frame, statements)
    results = sorted(bound - (missing & frame.locals) - declared)
    body = [s.deep_clone() for s in statements]
    for new, old in zip(body, statements):
        frame.origins.inherit(new, old)
    body = [cst.parse_statement(f"{n} = None; del {n}\n") for n in unbound] + body
    if declared:
        body.insert(0, cst.parse_statement(f"global {', '.join(sorted(declared))}\n"))
    shared = _must_be_missing(ev, frame, statements)[1]
    # What is read and bound anew is read from the cell, which may be empty.
    shared |= (
        bound & reads(statements) & frame.nonlocals_declared & {*frame.scope.cells}
    )
    if shared:
        body.insert(0, cst.parse_statement(f"nonlocal {', '.join(sorted(shared))}\n"))
    body += [cst.parse_statement(_probe(n) + "\n") for n in uncertain]
    if uncertain:
        residual.constants["UNBOUND"] = UNBOUND
    if results:
        body.append(cst.parse_statement(f"return ({', '.join(results)},)"))
    tree = cst.FunctionDef(
        cst.Name(name),
        cst.Parameters([cst.Param(cst.Name(p)) for p in params]),
        cst.IndentedBlock(body),
    )
    source = FunctionSource.from_tree(
        name,
        tree,
        frame.origins,
        file=frame.source.file,
        class_name=frame.source.class_name,
        scope=frame.source.scope or frame.source.qualname,
    )
    resuming.user_cells(ev, frame, statements)  # guards them
    cells = {**frame.scope.cells, **missing_cells(frame, statements)}
    ev.natives.append(Native(name, source, frame.scope.globals, cells))
    name, origin = _as_called(ev, frame, name, params, origin)
    args = ", ".join(residual.reify(values[p]) for p in params)
    variables = {n: residual.fresh(n) for n in results}
    residual.maybe_unbound |= {variables[n] for n in uncertain}
    text = f"{name}({args})"
    if results:
        text = f"{', '.join(variables.values())}{',' if len(results) == 1 else ''} = {text}"
    residual.emit(text, origin, note)
    return variables


def _as_called(
    ev: Evaluator, frame: Frame, name: str, params: list[str], origin: Origin | None
) -> tuple[str, Origin | None]:
    """Has a traceback show the user's line that called the library's function.

    Returns the function to call instead of `name`, and where the program calls it: the last
    of the user's lines in the program's own file. One in another file needs a frame there.
    """
    root = ev.frames[0].source.file
    callers = [f for f in ev.frames if not f.scope.frozen and f is not frame]
    stack = ev.call_stack()[: len(callers)]
    if len(stack) < len(callers):
        return name, origin
    if frame.scope.frozen and stack and stack[-1].file != root:
        caller, called = callers[-1], stack[-1]
        around = ev.namer.fresh(f"native_{called.line}")
        statement = cst.parse_statement(f"return {name}({', '.join(params)})\n")
        assert isinstance(statement, cst.SimpleStatementLine)
        tree = function_of(around, params, [statement])
        source = FunctionSource.from_tree(
            around,
            tree,
            Origins(dict.fromkeys(subtree(tree), called)),
            file=called.file,
            first_line=called.line,
        )
        ev.natives.append(Native(around, source, caller.scope.globals, {}))
        name = around
    if origin is None or origin.file != root:
        own = [place for place in stack if place.file == root]
        origin = own[-1] if own else origin
    return name, origin


def native_return(ev: Evaluator, frame: Frame, statement: Any, note: str = "") -> None:
    """`return f(x)` whose call stays native."""
    if len(ev.frames) == 1 and not (
        needs_own_globals(ev, frame) or _hides(ev, frame, statement)
    ):
        emit_native(ev, frame, [statement], note)
        ev.finished = True
        return
    name = ev.namer.fresh("result")
    frame.locals.add(name)
    value = statement.body[0].value
    first = cst.SimpleStatementLine(
        [cst.Assign([cst.AssignTarget(cst.Name(name))], value)]
    )
    second = cst.SimpleStatementLine([cst.Return(cst.Name(name))])
    for new in (first, second):
        frame.origins.inherit(new, statement)
    frame.blocks.append(Block([first, second]))


def _hides(ev: Evaluator, frame: Frame, statement: Any) -> bool:
    """Whether a statement reads an unbound local by whose name something is reached."""
    values = {name: _load(ev, frame, name) for name in visible(frame, [statement])}
    unbound = _unbound_names(frame, [statement], values)
    return bool(_taken(ev, unbound, values))


def keeps_state(ev: Evaluator, frame: Frame, statement: Any) -> bool:
    """Whether what a harmless call is given has no code of the user's behind it."""
    return all(
        _inert(ev, _load(ev, frame, name)) for name in visible(frame, [statement])
    )


def _inert(ev: Evaluator, value: Value, depth: int = 0) -> bool:
    value = ev.look(value)
    match value:
        case TensorValue() | Scalar():
            return True
        case Known():
            cls = type(value.obj)
            return is_constant(value.obj) or is_frozen(cls.__module__)
        case Unknown():
            return True
        case ListValue():
            return value.items is not None and all(_inert(ev, v) for v in value.items)
        case IteratorValue(items=LazyItems()):
            return False  # its items are computed by the user's code, later
        case TupleValue() | IteratorValue():
            items = value.items if isinstance(value.items, list) else []
            return all(_inert(ev, v) for v in items)
        case DictValue():
            return all(_inert(ev, v) for v in value.items.values())
        case SetValue() | SliceValue():
            return True
    return False


# ── compound statements ─────────────────────────────────────────────────────────────


def compound(ev: Evaluator, frame: Frame, statement: Any, note: str = "") -> None:
    """Emits a loop, `with` or `try` natively, its bodies as functions of their own."""
    outliners: dict[type, Any] = {
        cst.For: outline_for,
        cst.While: outline_while,
        cst.With: outline_with,
        cst.Try: outline_try,
        cst.TryStar: outline_try,
    }
    if len(ev.frames) > 1 and _returns([statement]):
        resuming.call_rest(ev, frame, statement, note)
        return
    outliner = outliners.get(type(statement))
    if outliner is None:
        _emit_compound(ev, frame, statement, [statement], note)
        return
    known = visible(frame, [statement])
    try:
        made = outliner(
            statement,
            bound={*known, *(n for n in frame.locals if n in frame.env)},
            live_after=resuming.live_names(frame),
            origins=frame.origins,
            namer=ev.namer,
            local=frame.locals | set(known),
            global_names=frame.globals_declared,
        )
    except CannotOutline:
        _emit_compound(ev, frame, statement, [statement], note)
        return
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
                names=resuming.compiler_objects(frame),
                resumed=ev.resumed,
            )
        )
    for name, helper in resuming.helper_names().items():
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
    variable = ev.namer.fresh("jump")
    jumps = _LooseJumps(variable)
    inside = [s.visit(jumps) for s in made]
    if not jumps.found:
        _forget(ev, frame, emit_native(ev, frame, made, note))
        return
    iteration = ev.namer.fresh("iteration")
    frame.locals |= {variable, iteration}
    ev.residual.constants["once"] = resuming.ONCE
    first = cst.parse_statement(f"{variable} = 0\n")
    loop = cst.parse_statement(f"for {iteration} in once:\n    pass\n")
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


class _Returns(cst.CSTVisitor):
    found = False

    def visit_Return(self, node: cst.Return) -> None:
        self.found = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False


def _returns(statements: list[Any]) -> bool:
    visitor = _Returns()
    for statement in statements:
        statement.visit(visitor)
    return visitor.found
