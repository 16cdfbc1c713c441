"""Dispatch stubs of continuations: functions that the compiler wrote, built at their first call.

    def resume_14(x, n):        # the rest of a program behind a graph break
        ...

A path of the program that is never taken costs nothing but its stub.
"""

from __future__ import annotations

import os
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any

from srcjit.dynamo import unobserved
from srcjit.family import Family
from srcjit.load import function_from_source, not_counted
from srcjit.options import Options
from srcjit.passes.program import Continuation, Hints
from srcjit.source import FunctionSource
from srcjit.stub import stub_globals
from srcjit.tracebacks import CONTINUES

if TYPE_CHECKING:
    from srcjit.dispatch import Dispatcher

_building = threading.RLock()
"""Held while a continuation's function is written."""


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

    The function is built when it is first called, so that a path of the program that is
    never taken costs nothing.

    Args:
        continuation: The function.
        options: What the user's function was jitted with.
        family: How often each place of the user's function has been compiled.
    """
    written: list[FunctionType] = []
    built: list[Dispatcher] = []

    def write() -> tuple[FunctionType, FunctionSource]:
        """The function itself, for whoever inlines it, and its source."""
        with _building:
            if not written:
                names = {
                    name: make_stub(value, options, family)
                    if isinstance(value, Continuation)
                    else value
                    for name, value in continuation.names.items()
                }
                written.append(
                    function_from_source(
                        continuation.source,
                        continuation.user_globals,
                        continuation.cells,
                        names,
                    )
                )
        return written[0], continuation.source

    @unobserved
    def build() -> FunctionType:
        with _building:
            if not built:
                from srcjit.dispatch import Dispatcher

                function, source = write()
                hints = Hints(
                    changed=continuation.dynamic, resumed=continuation.resumed
                )
                built.append(
                    Dispatcher(
                        function,
                        options,
                        source=source,
                        stub=stub,
                        hints=hints,
                        family=family,
                    )
                )
        return stub

    stub = FunctionType(
        _FIRST_CALL,
        {**stub_globals(), "build": build, CONTINUES: not continuation.called},
        continuation.name,
    )
    stub.__srcjit_continuation__ = write  # type: ignore[attr-defined]
    return stub


def _first_call(*args: Any, **kwargs: Any) -> Any:
    """The code of a continuation's stub until its first call."""
    try:
        return build()(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821
    except BaseException as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
        raise


_FIRST_CALL = _first_call.__code__.replace(co_filename=not_counted("first call"))
