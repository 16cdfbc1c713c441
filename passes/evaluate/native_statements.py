"""Native statements of the residual program: simple ones, and those made of compound ones.

A statement runs natively with the variables that it reads reified, and renamed to the residual
program's own. One of an inlined function runs as a function with that function's globals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.nodes import subtree
from srcjit.origin import Origin, Origins
from srcjit.source import FunctionSource

from ..flow import Walk, deleted
from ..outline import UNBOUND
from ..program import Native
from ..reachable import held_by_arguments, roots
from ..resume import function_of
from ..scopes import (
    captured,
    definitely_bound,
    inner_names,
    reads,
    rename,
    substitute,
    writes,
)
from . import keeping, names, resuming
from .frames import Block, Frame
from .frozen import is_frozen
from .lazy import LazyItems
from .unbound_names import (
    leave_unbound,
    missing_cells,
    must_be_missing,
    taken_names,
    unbind,
    unbound_locals,
)
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
    blind: bool = False,
) -> dict[str, str]:
    """Emits statements that Python runs; returns the variable of each name that they bind.

    Args:
        ev: The evaluator.
        frame: The frame that the statements belong to.
        statements: What to run.
        note: The comment behind the first line.
        closing: Close the open segment first.
        harmless: What runs writes to no object that existed before.
        blind: What runs cannot tell whose frame it is called from, and does not raise.
    """
    from .functions import share_rebound

    share_rebound(frame, captured(statements))
    residual = ev.residual
    read = visible(frame, statements)
    values = {name: _load(ev, frame, name) for name in read}
    bound = writes(statements)
    bound |= Walk.over(statements).rebound_by_closures & frame.locals
    # What the statements may leave as it is has to be there, or to be known as unbound.
    maybe = (bound - definitely_bound(statements)) & frame.locals
    for name in maybe - set(values):
        if name in frame.env:
            values[name] = _load(ev, frame, name)
    if closing:
        live = [*values.values(), *resuming.live_values(ev)]
        residual.close_segment([*live, *ev.effect_values])
        residual.flush_effects()
    if not harmless:
        residual.settle(resuming.live_values(ev))
    keeping.seen(ev, values.values())
    uncertain = sorted(
        (maybe - definitely_bound(statements, values)) & resuming.live_names(frame)
    )
    unbound = unbound_locals(frame, statements, values)
    apart = must_be_missing(ev, frame, statements)[0] or taken_names(
        ev, unbound, values
    )
    if (
        needs_own_globals(ev, frame)
        or used_globals(frame, statements)
        or (
            (apart or _made_otherwise(ev, frame, statements))
            and not has_return(statements)
        )
        or (not blind and _has_own_frame(ev, frame, statements, bound))
    ):
        return _foreign(ev, frame, statements, values, bound, uncertain, unbound, note)
    leave_unbound(ev, set(missing_cells(frame, statements)))
    renamed = unbind(ev, unbound, values)
    hidden = set().union(*map(inner_names, statements))
    ev.namer.take(hidden)
    replaced: dict[str, cst.BaseExpression] = {}
    for name in sorted(values):
        text = residual.reify(values[name])
        if name in bound:
            others = roots(ev, [v for n, v in values.items() if n != name])
            keep = (
                name == text
                and name not in others
                and not _is_read_elsewhere(ev, frame, name, bound)
                and not held_by_arguments(ev, name)
            )
            variable = name if keep else residual.variable(name)
            if variable != text:
                residual.emit(f"{variable} = {text}")
            renamed[name] = variable
        elif text.isidentifier() and text != name and text in hidden:
            renamed[name] = residual.fresh(name)
            residual.emit(f"{renamed[name]} = {text}")
        elif text.isidentifier():
            renamed[name] = text
        elif isinstance(values[name], Known) and _is_literal(text):
            replaced[name] = cst.parse_expression(text)
        else:
            renamed[name] = residual.hold(values[name], name)
    for name in sorted(bound - set(renamed)):
        renamed[name] = residual.variable(name)
    keeping.settle(ev)
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
    unbound_value = ev.namer.fixed("UNBOUND")
    for name in uncertain:
        residual.emit(_probe(renamed[name], unbound_value))
        residual.maybe_unbound.add(renamed[name])
    if uncertain:
        residual.constants[unbound_value] = UNBOUND
    return {name: renamed[name] for name in bound}


def _has_own_frame(
    ev: Evaluator, frame: Frame, statements: list[Any], bound: set[str]
) -> bool:
    """Whether what runs is to find the frame of the function that was inlined.

    `warnings.warn`, `logging`, debuggers and tracebacks show frames, or count them.
    """
    if frame is ev.frames[0] or has_return(statements):
        return False
    return frame.parent is None or not (captured(statements) or bound - frame.locals)


def _made_otherwise(ev: Evaluator, frame: Frame, statements: list[Any]) -> bool:
    """Whether a function or class that is made would get another name.

    Its `__name__` is that of the definition, and its `__qualname__` begins with that of the
    function around; a decorator or base class may read them before anybody could set them
    right.
    """
    made = [
        part
        for statement in statements
        for part in subtree(statement)
        if isinstance(part, _NAMED)
    ]
    if made and frame.source.locals_name != ev.source.locals_name:
        return True
    names = {
        p.name.value for p in made if isinstance(p, cst.FunctionDef | cst.ClassDef)
    }
    return not names & writes(statements) <= ev.own_locals


_NAMED = (cst.FunctionDef, cst.ClassDef, cst.Lambda, cst.GeneratorExp)
"""What makes an object with a qualified name."""


def _probe(name: str, unbound_value: str) -> str:
    """Text that stands for an unbound variable by a value, so that it can be handed on."""
    return f"try:\n    {name}\nexcept NameError:\n    {name} = {unbound_value}"


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
    name = ev.namer_for(frame).fresh(f"native_{line}")
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
    shared = must_be_missing(ev, frame, statements)[1]
    # What is read and bound anew is read from the cell, which may be empty.
    shared |= (
        bound & reads(statements) & frame.nonlocals_declared & {*frame.scope.cells}
    )
    if shared:
        body.insert(0, cst.parse_statement(f"nonlocal {', '.join(sorted(shared))}\n"))
    unbound_value = ev.namer_for(frame).fixed("UNBOUND")
    body += [cst.parse_statement(_probe(n, unbound_value) + "\n") for n in uncertain]
    if uncertain:
        residual.constants[unbound_value] = UNBOUND
    if results:
        body.append(cst.parse_statement(f"return ({', '.join(results)},)"))
    tree = cst.FunctionDef(
        cst.Name(name),
        cst.Parameters([cst.Param(cst.Name(p)) for p in params]),
        cst.IndentedBlock(body),
    )
    resuming.user_cells(ev, frame, statements)  # guards them
    cells = {**frame.scope.cells, **missing_cells(frame, statements)}
    resuming.add_native(ev, frame, name, tree, cells)
    name, origin = _as_called(ev, frame, name, params, origin)
    args = ", ".join(residual.reify(values[p]) for p in params)
    keeping.settle(ev)
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
    """Gives each of the user's functions between the program and a frame its own frame.

    Returns the function to call instead of `name`, and where the program calls it.
    """
    root = ev.frames[0]
    callers = [f for f in ev.frames if not f.scope.frozen and f is not frame]
    stack = ev.call_stack()[: len(callers)]
    if len(stack) < len(callers):
        return name, origin
    for caller, called in reversed([*zip(callers, stack, strict=True)]):
        if caller is root:
            return name, called
        around = ev.namer_for(frame).fresh(f"native_{called.line}")
        statement = cst.parse_statement(f"return {name}({', '.join(params)})\n")
        assert isinstance(statement, cst.SimpleStatementLine)
        tree = function_of(around, params, [statement])
        source = FunctionSource.from_tree(
            around,
            tree,
            Origins(dict.fromkeys(subtree(tree), called)),
            file=called.file,
            first_line=called.line,
            scope=caller.source.scope or caller.source.qualname,
        )
        ev.natives.append(Native(around, source, caller.scope.globals, {}))
        name = around
    return name, origin


def native_return(ev: Evaluator, frame: Frame, statement: Any, note: str = "") -> None:
    """`return f(x)` whose call stays native."""
    if len(ev.frames) == 1 and not (
        needs_own_globals(ev, frame) or _hides(ev, frame, statement)
    ):
        emit_native(ev, frame, [statement], note)
        ev.finished = True
        return
    name = ev.namer_for(frame).fresh("result")
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
    unbound = unbound_locals(frame, [statement], values)
    return bool(taken_names(ev, unbound, values))


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


class _Returns(cst.CSTVisitor):
    found = False

    def visit_Return(self, node: cst.Return) -> None:
        self.found = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False


def has_return(statements: list[Any]) -> bool:
    visitor = _Returns()
    for statement in statements:
        statement.visit(visitor)
    return visitor.found
