"""One undo log for everything that evaluation changes.

A statement is a transaction: evaluation takes a mark before it and rolls back to the mark when
the statement breaks. Each change of tracked state records how to undo it:

    >>> journal = Journal()
    >>> env = {"x": 1}
    >>> mark = journal.mark()
    >>> journal.set_item(env, "x", 2)
    >>> journal.set_item(env, "y", 3)
    >>> journal.rollback(mark)
    >>> env
    {'x': 1}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Journal:
    """A stack of undo actions."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self.changes = 0
        """Counts changes that the user's program made to objects; never goes back."""

    def mark(self) -> int:
        """Returns a position to which `rollback` can return."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undoes, latest first, everything recorded since `mark`."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def forget(self) -> None:
        """Drops all undo actions, and what they hold."""
        self._undo.clear()

    def record(self, undo: Callable[[], Any]) -> None:
        """Adds one undo action."""
        self._undo.append(undo)

    def set_item(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """`table[key] = value`; undo restores the entry and the order of the others."""
        old = table.get(key, _MISSING)
        if old is _MISSING:
            self.record(lambda: table.pop(key))
        else:
            self.record(lambda: table.__setitem__(key, old))
        table[key] = value

    def delete_item(self, table: dict[Any, Any], key: Any) -> None:
        """`del table[key]`; undo restores the order too."""
        before = dict(table)

        def undo() -> None:
            table.clear()
            table.update(before)

        del table[key]
        self.record(undo)

    def set_attr(self, holder: Any, name: str, value: Any) -> None:
        """`holder.name = value`."""
        old = getattr(holder, name)
        self.record(lambda: setattr(holder, name, old))
        setattr(holder, name, value)

    def append(self, sequence: list[Any], value: Any) -> None:
        """`sequence.append(value)`."""
        sequence.append(value)
        self.record(sequence.pop)

    def replace_list(self, sequence: list[Any], new: list[Any]) -> None:
        """`sequence[:] = new`."""
        old = list(sequence)
        self.record(lambda: sequence.__setitem__(slice(None), old))
        sequence[:] = new
