"""Unsaved: what was read by a path that leads to it, and has no variable of its own yet.

    item = todo[0]            todo[0]             read by a path
    todo.pop()                item = todo[0]      saved: the path leads elsewhere from here on
                              todo.pop()

Before a write, what was read below its target is looked up. A loop that is unrolled may write to
one list n times, so each value is looked at once for each list, not once for each write.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from .values import Known, Value, is_constant

if TYPE_CHECKING:
    from .evaluator import Evaluator
    from .sources import Source


class Read(NamedTuple):
    """A value that was read by a path.

    Attributes:
        number: Grows from one to the next.
        key: Of the value in `Evaluator.memo`.
        path: Text of the path in the residual program.
    """

    number: int
    key: Any
    path: str
    value: Value
    source: Source


class Unsaved:
    """All of them, by the variable that their paths start with."""

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self._reads: dict[str, list[Read]] = {}
        self._numbers = itertools.count(1)
        self._asked: dict[str, int] = {}

    def add(self, key: Any, value: Value, source: Source) -> None:
        """Takes notice of a value of `Evaluator.memo`."""
        if not hasattr(value, "source"):
            return
        root = source.root.residual
        if root not in self._reads:
            self._ev.journal.set_item(self._reads, root, [])
        read = Read(next(self._numbers), key, source.residual, value, source)
        self._ev.journal.append(self._reads[root], read)

    def reached_by(
        self, target: Source, below_only: bool = False, since: int = 0
    ) -> list[Read]:
        """What the path `target`, or one that goes on from it, leads to.

        Args:
            target: The path.
            below_only: Leave out what `target` itself leads to.
            since: Only values that came behind this number.
        """
        text = target.residual
        below = (text + ".", text + "[")
        found = []
        for read in reversed(self._reads.get(target.root.residual, ())):
            if read.number <= since:
                break
            if read.path.startswith(below) or (read.path == text and not below_only):
                if self._is_unsaved(read):
                    found.append(read)
        return found[::-1]

    def is_new_below(self, target: Source) -> bool:
        """Whether there is something below `target` that was not there when last asked.

        A write that was scheduled then will save what was there.
        """
        text = target.residual
        since = self._asked.get(text, 0)
        found = self.reached_by(target, below_only=True, since=since)
        if found:
            self._ev.journal.set_item(self._asked, text, found[-1].number)
        return bool(found)

    def forget_saved(self, target: Source) -> None:
        """Called when values have got variables: looks no more at these."""
        root = target.root.residual
        left = [read for read in self._reads[root] if self._is_unsaved(read)]
        self._ev.journal.set_item(self._reads, root, left)

    def _is_unsaved(self, read: Read) -> bool:
        value: Any = read.value
        if getattr(value, "name", None) is not None:
            return False
        if value.source is None and isinstance(value, Known) and is_constant(value.obj):
            return False  # It is a literal.
        return self._ev.memo.get(read.key, (None,))[0] is value
