"""Dispatch stubs of continuations: functions that the compiler wrote, compiled at their first call.

    def resume_14(x, n):        # the rest of a program behind a graph break
        ...

A path of the program that is never taken costs its text and its stub. The function is written
with the program before it: if that is not possible, Python can still run all of it.
"""

from __future__ import annotations

import os
import threading
from types import FunctionType
from typing import Any

from srcjit.diagnostics import Diagnostic, render
from srcjit.dynamo import unobserved
from srcjit.family import Family
from srcjit.lines import not_counted
from srcjit.load import function_from_source
from srcjit.logs import root as log
from srcjit.logs import warn_once
from srcjit.options import Options
from srcjit.passes.program import Continuation, Hints
from srcjit.stub import stub_globals
from srcjit.tracebacks import CONTINUES

_building = threading.RLock()
"""Held while a continuation's dispatcher is made."""


def _after_fork_in_child() -> None:
    global _building
    _building = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def make_stub(
    continuation: Continuation,
    options: Options,
    family: Family | None = None,
) -> FunctionType:
    """Returns the dispatch stub of a function that the compiler wrote.

    Its dispatcher is made when it is first called.

    Args:
        continuation: The function.
        options: What the user's function was jitted with.
        family: How often each place of the user's function has been compiled.

    Raises:
        CompilerFault: The function cannot be written. Any other exception is a fault too.
    """
    names = {
        name: make_stub(value, options, family)
        if isinstance(value, Continuation)
        else value
        for name, value in continuation.names.items()
    }
    function = function_from_source(
        continuation.source, continuation.user_globals, continuation.cells, names
    )
    built: list[FunctionType] = []

    @unobserved
    def build() -> FunctionType:
        with _building:
            if not built:
                try:
                    _dispatched(continuation, function, options, family, stub)
                    built.append(stub)
                except Exception as problem:
                    _report(problem, function, family)
                    built.append(function)
        return built[0]

    stub = FunctionType(
        _FIRST_CALL,
        {**stub_globals(), "build": build, CONTINUES: not continuation.called},
        continuation.name,
    )
    # The function itself, for whoever inlines it, and its source.
    stub.__srcjit_continuation__ = lambda: (function, continuation.source)  # type: ignore[attr-defined]
    return stub


def _dispatched(
    continuation: Continuation,
    function: FunctionType,
    options: Options,
    family: Family | None,
    stub: FunctionType,
) -> None:
    """Puts a dispatcher behind a stub."""
    from srcjit.dispatch import Dispatcher

    Dispatcher(
        function,
        options,
        source=continuation.source,
        stub=stub,
        hints=Hints(
            changed=continuation.dynamic,
            resumed=continuation.resumed,
            kept=continuation.kept,
            unseen=continuation.unseen,
            goes_on=continuation.goes_on,
        ),
        family=family,
    )


def _report(problem: Exception, function: FunctionType, family: Family | None) -> None:
    """Tells that Python runs a continuation for which there can be no dispatcher."""
    from srcjit.dispatch import RAISE, definition_line

    if os.environ.get(RAISE) == "1":
        raise problem
    name = family.function if family is not None else function.__qualname__
    text = render(
        Diagnostic(
            "SJ900",
            f"{type(problem).__name__}: {problem}".partition("\n")[0],
            definition_line(function),
            notes=(f"Python runs what stands here of `{name}`",),
        )
    )
    warn_once(text, "%s", text)
    log.debug("srcjit stopped at", exc_info=problem)


def _first_call(*args: Any, **kwargs: Any) -> Any:
    """The code of a continuation's stub until its first call."""
    try:
        return build()(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821
    except BaseException as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
        raise


_FIRST_CALL = _first_call.__code__.replace(co_filename=not_counted("first call"))
