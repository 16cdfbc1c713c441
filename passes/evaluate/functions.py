"""Inlining: turns a call of a Python function into a frame of the evaluator.

def scale(x, k=2): return x * k
def f(x): return scale(x) + 1     # evaluates like: return x * 2 + 1
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import weakref
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from srcjit.diagnostics import GraphBreak
from srcjit.source import FunctionSource, SourceUnavailable, find_source

from ..flow import deleted
from ..scopes import (
    all_names,
    declared,
    inner_names,
    local_names,
    parameter_names,
    reads,
    rebound_after_capture,
)
from ..shared_variables import CannotShare, share
from .binding import Signature, bind
from .breaks import Break, Place, ShareVariables
from .frames import Block, Frame, Scope
from .frozen import is_frozen
from .sources import Attribute, Bound, Contents, Item, Source
from .suites import body_of, expanded
from .values import Known, Value

if TYPE_CHECKING:
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
    check_depth(ev, obj.__name__)
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
    check_super(source)
    if source.is_generator or source.is_async:
        kind = "generator" if source.is_generator else "coroutine"
        raise Break("SJ002", f"`{source.name}` is a {kind} function")
    if source.uses_frames:
        raise Break("SJ003", f"`{source.name}` looks at its own frame")


def check_super(source: FunctionSource) -> None:
    """Raises a Break for a function that calls `super()` and may have no argument then.

    In another function `super` would find the one of that, and say other things of none.
    """
    read = reads(source.tree.body)
    if "super" not in read:
        return
    parameters = parameter_names(source.tree.params)
    what = "" if parameters else "has no parameter"
    # NOTE: `__class__` stands in what `super()` has been spelled out as.
    if (
        parameters
        and "__class__" in read
        and parameters[0] in deleted(source.tree.body)
    ):
        what = f"deletes `{parameters[0]}`"
    if what:
        raise Break(
            "SJ040",
            f"`{source.name}` calls `super` and {what}",
            hint="spell the class and the object out: `super(Class, self)`",
        )


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
        source.origins.for_compilation(),
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
    ev.namer.take(all_names(source.tree) | inner_names(source.tree))
    try:
        tree = share(source.tree, names, source.origins, ev.namer)
    except CannotShare as problem:
        raise GraphBreak(
            "SJ050",
            f"a variable of `{source.name}` is shared across a break: {problem}",
            source.origins.get(source.tree),
        ) from problem
    return dataclasses.replace(source, tree=tree)


def share_rebound(frame: Frame, names: set[str]) -> None:
    """Starts again if one of `names`, which were captured, is bound again later.

    Raises:
        ShareVariables: It is a variable of `frame` or of a frame around it.
    """
    around: Frame | None = frame
    while around is not None and names:
        own = names & around.locals
        names = names - own
        rebound = own and rebound_after_capture(around.source.tree) & own
        if rebound:
            share_variables(around, rebound)
        around = around.parent


def share_variables(frame: Frame, names: set[str]) -> None:
    """Starts again with variables of `frame` kept in lists.

    Raises:
        ShareVariables: Always.
    """
    raise ShareVariables(_place(frame.source), frozenset(names))


def check_depth(ev: Evaluator, name: str) -> None:
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
