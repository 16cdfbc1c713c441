"""Functions made during evaluation: their source, what they capture, calls of them, their text.

def f(x):
    scale = lambda y, k=2: y * k * x.ndim    # a value: the node, its frame, its defaults
    return scale(x), scale                   # inlined here, and written as a `def` here
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.source import FunctionSource

from ..scopes import captured, inner_names, local_names, reads, rename
from .binding import Signature, bind
from .breaks import Break
from .frames import Frame
from .functions import (
    REIFIED,
    check_depth,
    check_inlinable,
    check_super,
    new_frame,
    share_rebound,
)
from .values import FunctionValue, Known, Value, constant

if TYPE_CHECKING:
    from ..reify import Reifier
    from .evaluator import Evaluator


def default_values(
    ev: Evaluator, frame: Frame, params: cst.Parameters
) -> dict[str, Value]:
    """Evaluates the defaults of a `def` or `lambda`, in order."""
    from .expressions import evaluate

    made: dict[str, Value] = {}
    for param in [*params.posonly_params, *params.params, *params.kwonly_params]:
        if param.default is not None:
            made[param.name.value] = evaluate(ev, frame, param.default)
    return made


def frame_of_value(
    ev: Evaluator, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]
) -> Frame:
    """Returns the frame for a call of a function made during evaluation."""
    check_depth(ev, function.function_name)
    node, outer = function.node, function.frame
    params = node.params
    signature = Signature(function.function_name)
    signature.positional_only = [p.name.value for p in params.posonly_params]
    signature.positional = [p.name.value for p in params.params]
    signature.keyword_only = [p.name.value for p in params.kwonly_params]
    if isinstance(params.star_arg, cst.Param):
        signature.star = params.star_arg.name.value
    if params.star_kwarg is not None:
        signature.double_star = params.star_kwarg.name.value
    signature.defaults = function.defaults
    source = nested_source(function)
    check_super(source)
    if source.is_async or source.uses_frames:
        check_inlinable(source)
    frame = new_frame(ev, source, outer.scope, parent=outer)
    frame.env.update(bind(signature, args, kwargs))
    return frame


def nested_source(function: FunctionValue) -> FunctionSource:
    """Returns the source of a function made during evaluation; a lambda becomes a `def`."""
    cached = function.attributes.get("<source>")
    if isinstance(cached, Known):
        return cached.obj  # type: ignore[no-any-return]
    node, outer = function.node, function.frame
    tree = node
    if isinstance(node, cst.Lambda):
        statement = cst.SimpleStatementLine([cst.Return(node.body)])
        tree = cst.FunctionDef(
            cst.Name("lambda_"), node.params, cst.IndentedBlock([statement])
        )
        outer.origins.inherit(statement, node.body)
    assert isinstance(tree, cst.FunctionDef)
    source = FunctionSource(
        name=tree.name.value,
        qualname=f"{outer.source.locals_name}.{function.function_name}",
        file=outer.source.file,
        first_line=outer.source.first_line,
        tree=tree,
        origins=outer.origins,
        class_name=outer.source.class_name,
        is_generator=_has_yield(tree),
        is_async=tree.asynchronous is not None,
        uses_frames=outer.source.uses_frames,
    )
    function.attributes["<source>"] = constant(source)
    return source


class _Yields(cst.CSTVisitor):
    found = False

    def visit_Yield(self, node: cst.Yield) -> None:
        self.found = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False


def _has_yield(tree: cst.FunctionDef) -> bool:
    visitor = _Yields()
    tree.body.visit(visitor)
    return visitor.found


def _cells_around(function: FunctionValue) -> set[str]:
    """Names in the closure cells of the function that a function is nested in."""
    frame: Frame = function.frame
    while frame.parent is not None:
        frame = frame.parent
    return set(frame.scope.cells)


def free_names(function: FunctionValue) -> list[str]:
    """Names that the function takes from the frames around it, sorted."""
    source = nested_source(function)
    inner = local_names(source.tree)
    used = (reads(source.tree.body) | captured(source.tree.body)) - inner
    found = []
    for name in sorted(used):
        frame: Frame | None = function.frame
        while frame is not None:
            if name in frame.locals:
                if name in frame.env:
                    found.append(name)
                break
            frame = frame.parent
    return found


def unbound_names(function: FunctionValue) -> set[str]:
    """Variables of the functions around that a function names and that are not bound."""
    source = nested_source(function)
    used = reads(source.tree.body) | captured(source.tree.body)
    found = set()
    for name in used - local_names(source.tree):
        frame: Frame | None = function.frame
        while frame is not None and name not in frame.locals:
            frame = frame.parent
        if frame is not None and name not in frame.env:
            found.add(name)
    return found


def captured_values(ev: Evaluator, function: FunctionValue) -> Iterator[Value]:
    """Yields the values that a function closes over, and its defaults and attributes."""
    from .names import load

    for name in free_names(function):
        yield load(ev, function.frame, name)
    yield from function.defaults.values()
    for key, value in function.attributes.items():
        if key != "<source>":
            yield value


def reify_function(residual: Reifier, function: FunctionValue) -> str:
    """Emits a `def` for a function that escapes to Python; returns its variable.

    NOTE: the captured variables are shared by value; those that are bound again afterwards
    are items of lists, or evaluation starts again so that they are.
    """
    from .made_elsewhere import make_elsewhere
    from .names import load
    from .native_statements import needs_own_globals
    from .split import mentions
    from .unbound_names import leave_unbound, names_in_use

    ev = residual.ev
    source = nested_source(function)
    captured = {*free_names(function), *unbound_names(function)}
    share_rebound(function.frame, captured)
    defaults = {
        name: residual.reify(value) for name, value in function.defaults.items()
    }
    if function.name is not None:
        return function.name  # built on the way, because a default holds it
    hidden = local_names(source.tree) | inner_names(source.tree.body)
    ev.namer.take(hidden)
    name = residual.variable(source.name)
    ev.journal.set_attr(function, "name", name)
    mapping = {source.name: name} if source.name in function.frame.locals else {}
    missing = unbound_names(function) - {source.name}
    place = len(residual.lines)
    hidden |= missing
    for free in free_names(function):
        value = load(ev, function.frame, free)
        if value is function:
            mapping[free] = name
            continue
        text = residual.reify(value)
        if not text.isidentifier():
            text = residual.hold(value, free)
        if text != free and text in hidden:
            held = residual.fresh(free)
            residual.emit(f"{held} = {text}")
            text = held
        if text != free:
            mapping[free] = text
    captures = len(residual.lines)
    renamed = source.tree.with_changes(name=cst.Name(name), decorators=())
    statement: Any = rename(renamed, mapping, function.frame.origins)
    params = statement.params
    for param in [*params.posonly_params, *params.params, *params.kwonly_params]:
        if param.default is not None:
            default = cst.parse_expression(defaults[param.name.value])
            changed = param.with_changes(default=default)
            statement = statement.deep_replace(param, changed)
    origin = ev.origin_of(function.frame, function.node)
    leave_unbound(ev, missing)
    assert isinstance(statement, cst.FunctionDef)
    foreign = needs_own_globals(ev, function.frame) or bool(names_in_use(ev, missing))
    holding = any(mentions(line, name) for line, _, _ in residual.lines[place:captures])
    if foreign and holding:
        raise Break(
            "SJ020",
            f"`{source.name}` is held by what it captures",
            origin,
            hint="keep what holds the function out of the variables that it reads",
        )
    names = {"__qualname__": source.qualname}
    if name != function.function_name:
        names = {"__name__": function.function_name, **names}
    named = [f"{name}.{attribute} = {text!r}" for attribute, text in names.items()]
    if foreign:
        make_elsewhere(residual, function, statement, mapping, named)
    else:
        residual.emit_statement(statement, origin, origins=function.frame.origins)
        for line in named:
            residual.emit(line)
    if (mapping or foreign) and origin is not None:
        made = dataclasses.replace(
            source,
            name=name,
            tree=statement,
            freevars=(
                *(mapping.get(f, f) for f in free_names(function)),
                *sorted(_cells_around(function) & reads(statement)),
            ),
        )
        known = REIFIED.setdefault(
            (origin.file, origin.line, function.function_name), []
        )
        # Each specialization writes it, most of them alike.
        if not any(
            made.freevars == other.freevars and statement.deep_equals(other.tree)
            for other in known
        ):
            known.append(made)
    if holding:
        # What it captures holds it; it reads that only when it is called.
        residual.lines[place:] = [
            *residual.lines[captures:],
            *residual.lines[place:captures],
        ]
    for attribute, value in function.attributes.items():
        if attribute != "<source>":
            residual.emit(f"{name}.{attribute} = {residual.reify(value)}")
    return name
