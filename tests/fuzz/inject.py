"""Miscompiles put in on purpose: the fuzzer has to find each of them.

    python -m tests.fuzz --inject drop-guard|swap-resume|skip-finally

Each replaces one function of the compiler, in this process only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import libcst as cst

from srcjit.passes.evaluate import resuming, suites
from srcjit.passes.evaluate.guarding import GuardRecorder


def _drop_guard() -> Any:
    """A number or a string that decided something is not checked at the next call."""
    add = GuardRecorder.add

    def forgetful(self: GuardRecorder, text: str, reason: str = "") -> None:
        if " == " not in text:
            add(self, text, reason)

    return mock.patch.object(GuardRecorder, "add", forgetful)


def _swap_resume() -> Any:
    """The first two statements after a graph break change places."""
    rest = resuming.rest

    def swapped(*args: Any, **kwargs: Any) -> list[Any]:
        left = list(rest(*args, **kwargs))
        if len(left) > 2:
            left[0], left[1] = left[1], left[0]
        return left

    return mock.patch.object(resuming, "rest", swapped)


def _skip_finally() -> Any:
    """What is evaluated of a `try` ends without its `finally`."""
    body_of = suites.body_of

    def empty(node: Any) -> Any:
        return [] if isinstance(node, cst.Finally) else body_of(node)

    return mock.patch.object(suites, "body_of", empty)


INJECTIONS: dict[str, Callable[[], Any]] = {
    "drop-guard": _drop_guard,
    "swap-resume": _swap_resume,
    "skip-finally": _skip_finally,
}


@contextlib.contextmanager
def injected(name: str | None) -> Iterator[None]:
    """The compiler has the fault `name` inside the block, or none."""
    if name is None:
        yield
        return
    with INJECTIONS[name]():
        yield
