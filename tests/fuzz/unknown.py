"""Makes the compiler take numbers for unknown, so that no statement is folded away.

A program of plain numbers is otherwise evaluated on the values of its call, and hardly
anything is left of it at run time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any
from unittest import mock

from srcjit import compiler
from srcjit.passes.evaluate.sizes import Sizes
from srcjit.passes.program import Hints

MODES = ("known", "symbolic", "unknown")


class _AllBut(frozenset[str]):
    """All paths except those that it was made of, which have to be known."""

    def __contains__(self, path: object) -> bool:
        return not super().__contains__(path)

    def __sub__(self, known: Set[object]) -> _AllBut:
        return _AllBut([*self, *map(str, known)])

    def __bool__(self) -> bool:
        return True


def _unknown(hints: Hints, arguments: Any) -> Hints:
    return replace(hints, changed=_AllBut())


@contextlib.contextmanager
def traced(mode: str) -> Iterator[None]:
    """What numbers are to the compiler inside the block.

    Args:
        mode: `known`: as for a user; `symbolic`: integers and floats that are reached from
            arguments and globals are symbols; `unknown`: they exist at run time only.
    """
    assert mode in MODES
    with contextlib.ExitStack() as patches:
        if mode != "known":
            patches.enter_context(mock.patch.object(compiler, "_with_marks", _unknown))
        if mode == "unknown":
            patches.enter_context(mock.patch.object(Sizes, "takes", lambda *_: False))
        yield
