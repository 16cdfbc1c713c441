"""Inlining: turns a call of a Python function into a frame of the evaluator.

def scale(x, k=2): return x * k
def f(x): return scale(x) + 1     # evaluates like: return x * 2 + 1
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import weakref
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.diagnostics import GraphBreak
from srcjit.source import FunctionSource, SourceUnavailable, find_source

from ..program import NOT_BOUND
from ..scopes import (
    captured,
    declared,
    local_names,
    reads,
    rebound_after_capture,
    rename,
)
from ..shared_variables import CannotShare, share
from .binding import Signature, bind
from .breaks import Break, Place, ShareVariables
from .frames import Block, Frame, Scope
from .frozen import is_frozen
from .sources import Attribute, Bound, Contents, Item, Source
from .suites import body_of, expanded
from .values import FunctionValue, Known, Value, constant

if TYPE_CHECKING:
    from ..reify import Reifier
    from .evaluator import Evaluator

REIFIED: dict[tuple[str, int, str], list[FunctionSource]] = {}
"""Definitions with renamed variables that residual programs hold, by file, line and name."""

DEPTH_LIMIT = 30
"""Nested inlined calls; deeper ones are left to Python."""

SUBSTITUTES: weakref.WeakKeyDictionary[FunctionType, FunctionSource] = (
    weakref.WeakKeyDictionary()
)
"""Sources of functions that the compiler wrote (resume functions), by function."""


def source_of(function: FunctionType) -> FunctionSource:
    """Returns the source of a function.

    Raises:
        SourceUnavailable: When there is none.
    """
    written = SUBSTITUTES.get(function)
    if written is not None:
        return written
    try:
        return find_source(function)
    except SourceUnavailable:
        code = function.__code__
        for source in REIFIED.get(
            (code.co_filename, code.co_firstlineno, code.co_name), ()
        ):
            if _fits(code, source):
                return source
        raise


def is_made_anew(source: FunctionSource) -> bool:
    """Whether each call of a residual program makes this function, with cells of its own."""
    return any(made is source for known in REIFIED.values() for made in known)


def _fits(code: CodeType, source: FunctionSource) -> bool:
    """Whether a function that a residual program has made is the one that was written."""
    names = set(code.co_varnames) | set(code.co_cellvars)
    # From Python 3.12 on, a comprehension's variables are among the function's.
    return local_names(source.tree) <= names and set(code.co_freevars) <= set(
        source.freevars
    )


def frame_of_known(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Frame:
    """Returns the frame for a call of a real Python function.

    Raises:
        Break: When it cannot be inlined.
    """
    obj: FunctionType = function.obj
    source = _inlinable_source(ev, obj)
    _check_callee(source, library=is_frozen(obj.__globals__.get("__name__")))
    return _frame(ev, function, source, args, kwargs)


def generator_frame(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Frame:
    """Returns the frame, not started, of a call of a real generator function.

    Raises:
        Break: When it cannot be inlined.
    """
    source = _inlinable_source(ev, function.obj)
    if not source.is_generator or source.is_async or source.uses_frames:
        raise Break(
            "SJ015", f"`{source.name}` is no generator function that can be inlined"
        )
    return _frame(ev, function, source, args, kwargs)


def is_generator(function: FunctionType) -> bool:
    """Whether a call makes a generator."""
    return bool(function.__code__.co_flags & inspect.CO_GENERATOR)


def _inlinable_source(ev: Evaluator, obj: FunctionType) -> FunctionSource:
    _check_depth(ev, obj.__name__)
    try:
        return source_of(obj)
    except SourceUnavailable as error:
        raise Break(
            "SJ010", f"`{obj.__name__}` has no source: {error.reason}"
        ) from error


def _frame(
    ev: Evaluator,
    function: Known,
    source: FunctionSource,
    args: list[Value],
    kwargs: dict[str, Value],
) -> Frame:
    obj: FunctionType = function.obj
    # NOTE: not `__module__`, which decorators copy from the function that they wrap.
    frozen = is_frozen(obj.__globals__.get("__name__"))
    scope = _scope(ev, function, source, frozen)
    frame = new_frame(ev, source, scope)
    frame.env.update(bind(_signature(ev, function, source), args, kwargs))
    if not frozen or function.source is not None:
        _guard_code(ev, function)
    return frame


def check_inlinable(source: FunctionSource) -> None:
    """Raises a Break for functions that only Python can run."""
    if source.is_generator or source.is_async:
        kind = "generator" if source.is_generator else "coroutine"
        raise Break("SJ002", f"`{source.name}` is a {kind} function")
    if source.uses_frames:
        raise Break("SJ003", f"`{source.name}` looks at its own frame")


_CALLERS = re.compile(
    r"\b(_getframe|currentframe|getouterframes|inspect\.stack)\b|(?<![\w.])stack\(\)"
)


def _check_callee(source: FunctionSource, library: bool) -> None:
    """Like `check_inlinable`, for a function that another one calls.

    Raises:
        GraphBreak: The callee may look at its caller's frame, so that Python must run both.
    """
    if not library and source.uses_frames and _CALLERS.search(source.text):
        raise GraphBreak(
            "SJ003", f"`{source.name}`, which is called here, looks at frames"
        )
    check_inlinable(source)


def new_frame(
    ev: Evaluator, source: FunctionSource, scope: Scope, parent: Frame | None = None
) -> Frame:
    """Returns a frame at the start of a function, without its arguments."""
    shared = ev.shared_variables.get(_place(source))
    if shared:
        source = _sharing(ev, source, shared)
    globals_declared, nonlocals = declared(source.tree.body)
    names = local_names(source.tree) - set(globals_declared) - set(nonlocals)
    frame = Frame(
        source,
        scope,
        set(names),
        {},
        source.origins,
        parent=parent,
        globals_declared=frozenset(globals_declared),
        nonlocals_declared=frozenset(nonlocals),
        blocks=[Block(body_of(expanded(source)))],
    )
    ev.activations.append(frame)
    return frame


def _place(source: FunctionSource) -> Place:
    return source.file, source.first_line, source.qualname


def _sharing(
    ev: Evaluator, source: FunctionSource, names: frozenset[str]
) -> FunctionSource:
    """Returns a function's source with some variables kept in lists."""
    ev.namer.take(local_names(source.tree))
    try:
        tree = share(source.tree, names, source.origins, ev.namer)
    except CannotShare as problem:
        raise GraphBreak(
            "SJ050",
            f"a variable of `{source.name}` is shared across a break: {problem}",
            source.origins.get(source.tree),
        ) from problem
    return dataclasses.replace(source, tree=tree)


def share_rebound(ev: Evaluator, frame: Frame, names: set[str], what: str) -> None:
    """Starts again if one of `names`, which `what` has captured, is bound again later.

    Raises:
        ShareVariables: It is a variable of `frame` or of a frame around it.
    """
    around: Frame | None = frame
    while around is not None and names:
        own = names & around.locals
        names = names - own
        rebound = own and rebound_after_capture(around.source.tree) & own
        if rebound:
            share_variables(
                ev,
                around,
                rebound,
                f"`{min(rebound)}` is bound again after {what} has captured it",
            )
        around = around.parent


def share_variables(ev: Evaluator, frame: Frame, names: set[str], why: str) -> None:
    """Starts again with variables of `frame` kept in lists.

    Raises:
        ShareVariables: Always.
    """
    problem = GraphBreak("SJ050", why, ev.statement_origin())
    raise ShareVariables(_place(frame.source), frozenset(names), problem)


def _check_depth(ev: Evaluator, name: str) -> None:
    if ev.depth() > DEPTH_LIMIT:
        raise Break("SJ014", f"`{name}` is called at depth {DEPTH_LIMIT}")


def compiler_names(function: FunctionType, source: FunctionSource) -> frozenset[str]:
    """Free variables of a function that are not the user's."""
    return (
        frozenset(function.__code__.co_freevars) - set(source.freevars) - {"__class__"}
    )


def _scope(
    ev: Evaluator, function: Known, source: FunctionSource, frozen: bool
) -> Scope:
    obj: FunctionType = function.obj
    own = obj.__globals__ is ev.function.__globals__
    base: Source | None = None
    if not own and not frozen:
        base = Bound(ev.guards.bind(obj.__globals__, f"{obj.__name__}_globals"))
    cells = dict(zip(obj.__code__.co_freevars, obj.__closure__ or ()))
    sources: dict[str, Source] = {}
    for index, name in enumerate(cells):
        root = function.source
        if root is None:
            if frozen:
                continue  # what library code closes over is fixed
            root = Bound(ev.guards.bind(obj, obj.__name__))
        sources[name] = Contents(root, index, name)
    hidden = compiler_names(obj, source)
    return Scope(obj.__globals__, base, cells, sources, frozen, hidden)


def _guard_code(ev: Evaluator, function: Known) -> None:
    obj: FunctionType = function.obj
    if function.source is None:
        return
    code = ev.guards.bind(obj.__code__, f"{obj.__name__}_code")
    ev.guards.add(
        f"{function.source.guard}.__code__ is {code}", f"inlined {obj.__name__}"
    )


def _signature(ev: Evaluator, function: Known, source: FunctionSource) -> Signature:
    obj: FunctionType = function.obj
    code = obj.__code__
    names = list(code.co_varnames)
    count, only, keyword = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
    )
    signature = Signature(obj.__qualname__)
    signature.positional_only = names[:only]
    signature.positional = names[only:count]
    signature.keyword_only = names[count : count + keyword]
    rest = names[count + keyword :]
    if code.co_flags & 0x04:
        signature.star = rest.pop(0)
    if code.co_flags & 0x08:
        signature.double_star = rest.pop(0)
    defaults = obj.__defaults__ or ()
    for index, value in enumerate(defaults, start=-len(defaults)):
        # Counted from the end, as Python does: which parameter it is for is part of the path.
        signature.defaults[names[count + index]] = _default(
            ev, function, value, "__defaults__", index
        )
    for name, value in (obj.__kwdefaults__ or {}).items():
        signature.defaults[name] = _default(ev, function, value, "__kwdefaults__", name)
    return signature


def _default(ev: Evaluator, function: Known, value: Any, table: str, key: Any) -> Value:
    if function.source is None:
        return Known(value, None)
    return ev.lazy(value, Item(Attribute(function.source, table), key))


# ── functions made during evaluation ────────────────────────────────────────────────


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
    _check_depth(ev, function.function_name)
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
    from .outlining import needs_own_globals
    from .split import mentions

    ev = residual.ev
    source = nested_source(function)
    captured = set(free_names(function))
    share_rebound(ev, function.frame, captured, f"`{source.name}`")
    defaults = {
        name: residual.reify(value) for name, value in function.defaults.items()
    }
    if function.name is not None:
        return function.name  # built on the way, because a default holds it
    name = residual.variable(source.name)
    ev.journal.set_attr(function, "name", name)
    mapping = {source.name: name} if source.name in function.frame.locals else {}
    place = len(residual.lines)
    for free in free_names(function):
        value = load(ev, function.frame, free)
        if value is function:
            mapping[free] = name
            continue
        text = residual.reify(value)
        if not text.isidentifier():
            text = residual.hold(value, free)
        if text != free:
            mapping[free] = text
    captures = len(residual.lines)
    named = source.tree.with_changes(name=cst.Name(name), decorators=())
    statement: Any = rename(named, mapping, function.frame.origins)
    params = statement.params
    for param in [*params.posonly_params, *params.params, *params.kwonly_params]:
        if param.default is not None:
            default = cst.parse_expression(defaults[param.name.value])
            changed = param.with_changes(default=default)
            statement = statement.deep_replace(param, changed)
    origin = ev.origin_of(function.frame, function.node)
    for missing in unbound_names(function) & ev.own_locals:
        ev.own_locals.discard(missing)
        residual.constants[missing] = NOT_BOUND
    assert isinstance(statement, cst.FunctionDef)
    foreign = needs_own_globals(ev, function.frame)
    holding = any(mentions(line, name) for line, _, _ in residual.lines[place:captures])
    if foreign and holding:
        raise Break("SJ020", f"`{source.name}` is held by what it captures")
    if foreign:
        make_elsewhere(residual, function, statement, mapping)
    else:
        residual.emit_statement(statement, origin, origins=function.frame.origins)
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
        known = REIFIED.setdefault((origin.file, origin.line, name), [])
        # Each specialization writes it, most of them alike.
        if not any(
            made.freevars == other.freevars and statement.deep_equals(other.tree)
            for other in known
        ):
            known.append(made)
    if name != function.function_name:
        residual.emit(f"{name}.__name__ = {function.function_name!r}")
    residual.emit(f"{name}.__qualname__ = {source.qualname!r}")
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
