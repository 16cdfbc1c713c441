"""Where evaluation stands: a stack of frames, each with a stack of blocks.

The continuation of a graph break is read off this stack: what is left of each block, innermost
first, then of each calling frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import libcst as cst

from srcjit.origin import Origins
from srcjit.source import FunctionSource

from ..namer import Namer
from ..scopes import Uses, live_before
from .sources import Source
from .values import IteratorValue, Value


class Flow(Enum):
    """How a statement ended."""

    NEXT = "next"
    BREAK = "break"
    CONTINUE = "continue"
    RETURN = "return"


@dataclass(eq=False)
class Block:
    """A statement list and the position in it.

    `kind` is `body` (function body or arm of an `if`), `for` (body of a loop being unrolled over
    `iterator`) or `while` (body of a loop whose test is known so far).
    """

    statements: Sequence[cst.BaseStatement | cst.BaseSmallStatement]
    kind: str = "body"
    node: cst.For | cst.While | None = None
    iterator: IteratorValue | None = None
    index: int = 0
    rounds: int = 0
    operations: int = 0
    """For a loop: how many tensor operations had been recorded when it started."""
    items_taken: int = 0
    """For a loop: how many items evaluation had taken from iterators when it started."""
    ended: Callable[[], None] | None = None
    """What to do where its end is reached, rather than left by a jump."""
    _uses: list[Uses] | None = None
    _loop_uses: Uses | None = None

    def live_names(self) -> set[str]:
        """Names that the rest of the block, and the loop that it belongs to, may read.

        NOTE: each statement is looked at once, or n breaks would cost n² walks over the text.
        """
        if self._uses is None:
            self._uses = [Uses.of(statement) for statement in self.statements]
        found = live_before(self._uses[self.index :])
        if self.node is not None:
            if self._loop_uses is None:
                self._loop_uses = Uses.of(self.node)
            found |= live_before([self._loop_uses])
        return found


@dataclass(eq=False)
class Scope:
    """The globals and closure of one function's code, and how the running program reaches them.

    `global_base` is None for the function being specialized (its globals are the residual
    program's), a source of the globals dict for other user functions, and `frozen` is set for
    library code, whose globals are taken as constants.
    """

    globals: dict[str, Any]
    global_base: Source | None
    cells: dict[str, Any]
    cell_sources: dict[str, Source]
    frozen: bool = False
    compiler_names: frozenset[str] = frozenset()
    """Cells that hold objects of the compiler; nothing else can change them."""


@dataclass(eq=False)
class Frame:
    """One activation of a function."""

    source: FunctionSource
    scope: Scope
    locals: set[str]
    env: dict[str, Value]
    origins: Origins
    parent: Frame | None = None
    """The frame that a nested function closes over."""
    globals_declared: frozenset[str] = frozenset()
    nonlocals_declared: frozenset[str] = frozenset()
    blocks: list[Block] = field(default_factory=list)
    statement: Any = None
    """The statement that is being evaluated."""
    expression: Any = None
    """The innermost expression of it whose operands have been evaluated."""
    on_return: Callable[[Value], None] | None = None
    generator: Any = None
    """The generator object whose activation this is."""
    nested: int = 0
    """How many `with` and `try` statements around the current one are evaluated whole."""
    call: cst.SimpleStatementLine | None = None
    """The caller's statement `name = f(...)`, `f(...)` or `return f(...)` that made the call."""
    keeper: str | None = None
    """The variable of what keeps the objects of the variables `kept` until the call ends."""
    kept: set[str] = field(default_factory=set)
    namer: Namer | None = None
    """What makes names for its text; see `Evaluator.namer_for`."""

    def release(self) -> None:
        """Lets go of the variables, and of what would refer back to the frame."""
        self.env.clear()
        self.blocks.clear()
        if self.generator is not None:
            vars(self.generator).clear()
        self.on_return = self.generator = None
