"""Iterators that compute their items one at a time, in the order in which Python would.

    any(f(x) for x in xs)       # f is evaluated up to the first true result, no further

A `LazyItems` is the list behind an `IteratorValue`. It grows when the iterator is advanced.
When the iterator escapes to Python, what is left is computed at once, which is exact only if
computing it changes nothing; otherwise it breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .breaks import Break, LeaveGenerator
from .values import IteratorValue, ListValue, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator

_FORCE_LIMIT = 100_000


class LazyItems(list[Value]):
    """The items of an iterator, computed by `pull` (None at the end) when asked for."""

    def __init__(
        self,
        ev: Evaluator,
        pull: Callable[[], Value | None],
        sources: Sequence[IteratorValue] = (),
    ) -> None:
        super().__init__()
        self._ev = ev
        self._pull = pull
        self.sources = sources
        self.exhausted = False
        self.site = ev.user_origin()

    def more(self) -> bool:
        """Computes the next item; False at the end."""
        if self.exhausted:
            return False
        item = self._pull()
        if item is None:
            self._ev.journal.set_attr(self, "exhausted", True)
            return False
        self._ev.journal.append(self, item)
        return True

    def _force(self) -> None:
        if self._shared():
            raise LeaveGenerator(self.site)
        changes = self._ev.journal.changes
        operations = self._ev.builder.operations
        ended = self.exhausted
        while self.more():
            if len(self) > _FORCE_LIMIT:
                raise Break("SJ042", "an endless iterator is handed to Python")
        if self._ev.journal.changes != changes:
            raise Break("SJ040", "an iterator with side effects is handed to Python")
        if self._ev.builder.operations != operations:
            # What they compute with may have changed when their time comes.
            raise LeaveGenerator(self.site)
        if not ended and self._over_lists():
            # So may the list have: `for a, b in zip(xs, xs): xs.remove(a)`. One that has
            # come to its end may have grown, until the end has been seen.
            raise LeaveGenerator(self.site)

    def _over_lists(self) -> bool:
        """Whether a list that the program may change is iterated over."""
        return any(map(_over_list, self.sources))

    def hand_over(self) -> None:
        """Python is to have the iterator: it makes the very one that the program asks for.

        Raises:
            LeaveGenerator: Always; evaluation starts again.
        """
        raise LeaveGenerator(self.site)

    def _shared(self) -> bool:
        """Whether a variable holds an iterator that this one advances."""
        for source in self.sources:
            if any(
                value is source for f in self._ev.frames for value in f.env.values()
            ):
                return True
            if isinstance(source.items, LazyItems) and source.items._shared():
                return True
        return False

    def __iter__(self) -> Iterator[Value]:
        self._force()
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            self._force()
        return super().__getitem__(index)


def _over_list(value: Value) -> bool:
    """Whether a value is a list, or an iterator over one, or over what holds one."""
    if not isinstance(value, IteratorValue):
        return isinstance(value, ListValue)
    if isinstance(value.items, LazyItems):
        return value.items._over_lists()
    return isinstance(value.items, ListValue) or any(map(_over_list, value.items))


def leave_to_python(ev: Evaluator) -> None:
    """Breaks where an earlier try has found that Python must have this generator.

    Raises:
        Break: SJ002.
    """
    if ev.user_origin() in ev.python_generators:
        raise Break("SJ002", "a generator or iterator lives across a graph break")


def lazy_iterator(
    ev: Evaluator,
    pull: Callable[[], Value | None],
    sources: Sequence[IteratorValue] = (),
    *,
    generator: bool = False,
) -> IteratorValue:
    """Returns an iterator whose items are computed by `pull`, which may advance `sources`."""
    leave_to_python(ev)
    return IteratorValue(LazyItems(ev, pull, sources), generator=generator)


def next_item(ev: Evaluator, iterator: IteratorValue) -> Value | None:
    """Advances an iterator; None at its end."""
    ev.items_taken += 1
    items = iterator.items
    if isinstance(items, ListValue):
        # Of a list that was read only the next item is looked at: there may be many.
        sequence = ev.list_items(items) if items.items is None else items.items
    else:
        sequence = items
    if iterator.position >= len(sequence):
        if isinstance(items, ListValue):
            # Once the end has been seen the list may grow: the iterator has let go of it.
            ev.journal.set_attr(iterator, "items", ListValue([]))
            ev.journal.set_attr(iterator, "position", 0)
        if not isinstance(sequence, LazyItems) or not sequence.more():
            return None
    item = sequence[iterator.position]
    ev.journal.set_attr(iterator, "position", iterator.position + 1)
    return ev.look(item)


def at_hand(iterator: IteratorValue) -> list[Value]:
    """The items that a lazy iterator has computed so far."""
    assert isinstance(iterator.items, LazyItems)
    return iterator.items


def iterate(ev: Evaluator, iterator: IteratorValue) -> Iterator[Value]:
    """Yields what is left of an iterator, advancing it."""
    while (item := next_item(ev, iterator)) is not None:
        yield item
