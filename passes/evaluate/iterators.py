"""Built-in functions over iterables: `zip`, `map`, `sorted`, `sum`, ... and `itertools`."""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import operators
from .breaks import Break
from .lazy import LazyItems, lazy_iterator, next_item
from .lazy import iterate as iterate_over
from .registry import evaluates
from .truth import truth
from .values import (
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    SetValue,
    TupleValue,
    Value,
    ViewValue,
    constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def iterator(ev: Evaluator, value: Value) -> IteratorValue:
    """Returns `iter(value)`."""
    from .loops import iterator_over

    return iterator_over(ev, value)


def iterate(ev: Evaluator, value: Value) -> list[Value]:
    """Returns `list(value)`, item by item."""
    return list(iterate_over(ev, iterator(ev, value)))


def iterate_in_any_order(ev: Evaluator, value: Value) -> list[Value]:
    """Like `iterate`, for consumers to which the order of a set does not matter."""
    value = ev.look(value)
    if isinstance(value, SetValue):
        return [constant(key) for key in value.items]
    return iterate(ev, value)


def call(ev: Evaluator, function: Value, *args: Value) -> Value:
    """Returns `function(*args)`."""
    from .calls import call as call_value

    return call_value(ev, function, list(args), {})


def _is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.obj is None


@evaluates(builtins.iter)
def _iter(ev: Evaluator, value: Value, sentinel: Value | None = None, /) -> Value:
    if sentinel is None:
        return iterator(ev, value)

    def pull() -> Value | None:
        item = call(ev, value)
        return None if operators._equal(ev, item, sentinel) else item

    return lazy_iterator(ev, pull)


@evaluates(builtins.next)
def _next(ev: Evaluator, value: Value, default: Value | None = None, /) -> Value:
    value = ev.look(value)
    if isinstance(value, InstanceValue) or isinstance(value, Known):
        from .attributes import load

        if default is None:
            return call(ev, load(ev, value, "__next__"))
    if not isinstance(value, IteratorValue):
        raise Break("SJ020", "`next` of a value that is no tracked iterator")
    item = next_item(ev, value)
    if item is not None:
        return item
    if default is not None:
        return default
    raise Break("SJ030", "raises StopIteration")


@evaluates(builtins.enumerate)
def _enumerate(ev: Evaluator, iterable: Value, start: Value | None = None) -> Value:
    first = 0 if start is None else operator.index(ev.known(start, "`enumerate`"))
    source = iterator(ev, iterable)
    made: IteratorValue

    def pull() -> Value | None:
        item = next_item(ev, source)
        if item is None:
            return None
        return TupleValue([constant(first + len(made.items)), item])

    made = lazy_iterator(ev, pull, [source])
    return made


@evaluates(builtins.zip)
def _zip(ev: Evaluator, *iterables: Value, strict: Value | None = None) -> Value:
    sources = [iterator(ev, iterable) for iterable in iterables]
    exact = strict is not None and truth(ev, strict)

    def pull() -> Value | None:
        row = []
        for position, source in enumerate(sources):
            item = next_item(ev, source)
            if item is None:
                if exact and (
                    position or any(next_item(ev, s) is not None for s in sources[1:])
                ):
                    raise Break(
                        "SJ030", "raises ValueError: zip() arguments differ in length"
                    )
                return None
            row.append(item)
        return TupleValue(row) if row else None

    return lazy_iterator(ev, pull, sources)


@evaluates(builtins.reversed)
def _reversed(ev: Evaluator, sequence: Value, /) -> Value:
    sequence = ev.look(sequence)
    if isinstance(sequence, InstanceValue):
        from .attributes import has, load

        if has(ev, sequence, "__reversed__"):
            return iterator(ev, call(ev, load(ev, sequence, "__reversed__")))
        raise Break("SJ020", "`reversed` of an instance")
    if isinstance(sequence, IteratorValue):
        raise Break("SJ030", "raises TypeError: an iterator is not reversible")
    return IteratorValue(iterate(ev, sequence)[::-1])


@evaluates(builtins.map)
def _map(ev: Evaluator, function: Value, first: Value, /, *rest: Value) -> Value:
    sources = [iterator(ev, iterable) for iterable in (first, *rest)]

    def pull() -> Value | None:
        row = []
        for source in sources:
            item = next_item(ev, source)
            if item is None:
                return None
            row.append(item)
        return call(ev, function, *row)

    return lazy_iterator(ev, pull, sources)


def _select(
    ev: Evaluator, test: Value, iterable: Value, accept: Callable[[bool], bool]
) -> Value:
    source = iterator(ev, iterable)

    def pull() -> Value | None:
        while (item := next_item(ev, source)) is not None:
            if accept(truth(ev, item if _is_none(test) else call(ev, test, item))):
                return item
        return None

    return lazy_iterator(ev, pull, [source])


@evaluates(builtins.filter)
def _filter(ev: Evaluator, test: Value, iterable: Value, /) -> Value:
    return _select(ev, test, iterable, lambda accepted: accepted)


@evaluates(itertools.filterfalse)
def _filter_false(ev: Evaluator, test: Value, iterable: Value, /) -> Value:
    return _select(ev, test, iterable, lambda accepted: not accepted)


# ── whole iterables ─────────────────────────────────────────────────────────────────


def sorted_items(
    ev: Evaluator,
    items: list[Value],
    key: Value | None = None,
    reverse: Value | None = None,
) -> list[Value]:
    """Returns the items in order of known keys."""
    down = reverse is not None and truth(ev, reverse)
    plain = key is None or _is_none(key)
    keys = items if plain else [call(ev, key, item) for item in items]  # type: ignore[arg-type]
    known = [ev.known(k, "`sorted`") for k in keys]
    try:
        order = sorted(range(len(items)), key=lambda i: known[i], reverse=down)
    except TypeError as error:
        raise Break("SJ030", f"raises TypeError: {error}") from error
    return [items[i] for i in order]


@evaluates(builtins.sorted)
def _sorted(
    ev: Evaluator,
    iterable: Value,
    /,
    *,
    key: Value | None = None,
    reverse: Value | None = None,
) -> Value:
    plain = key is None or _is_none(key)
    items = iterate_in_any_order(ev, iterable) if plain else iterate(ev, iterable)
    return ListValue(sorted_items(ev, items, key, reverse))


@evaluates(builtins.sum)
def _sum(ev: Evaluator, iterable: Value, /, start: Value | None = None) -> Value:
    total = start if start is not None else constant(0)
    whole = isinstance(ev.look(iterable), SetValue) and all(
        type(key) is int
        for key in ev.look(iterable).items  # type: ignore[attr-defined]
    )
    items = _any_order(ev, iterable) if whole else iterate_over(ev, iterator(ev, iterable))
    for item in items:
        total = operators.apply(ev, "add", operator.add, total, item)
    return total


@evaluates(builtins.any)
def _any(ev: Evaluator, iterable: Value, /) -> Value:
    return constant(any(truth(ev, item) for item in _any_order(ev, iterable)))


@evaluates(builtins.all)
def _all(ev: Evaluator, iterable: Value, /) -> Value:
    return constant(all(truth(ev, item) for item in _any_order(ev, iterable)))


def _any_order(ev: Evaluator, value: Value) -> Iterator[Value]:
    if isinstance(ev.look(value), SetValue):
        return iter(iterate_in_any_order(ev, value))
    return iterate_over(ev, iterator(ev, value))


def _extreme(
    ev: Evaluator,
    function: Any,
    args: tuple[Value, ...],
    key: Value | None,
    default: Value | None,
) -> Value:
    items = iterate_in_any_order(ev, args[0]) if len(args) == 1 else list(args)
    if not items:
        if default is not None and len(args) == 1:
            return default
        raise Break("SJ030", f"raises: `{function.__name__}` of nothing")
    if default is not None and len(args) > 1:
        raise Break("SJ030", "raises TypeError: a default with several arguments")
    plain = key is None or _is_none(key)
    keys = items if plain else [call(ev, key, item) for item in items]  # type: ignore[arg-type]
    known = [ev.known(k, f"`{function.__name__}`") for k in keys]
    try:
        return items[function(range(len(items)), key=lambda i: known[i])]
    except TypeError as error:
        raise Break("SJ030", f"raises TypeError: {error}") from error


@evaluates(builtins.min)
def _min(
    ev: Evaluator, *args: Value, key: Value | None = None, default: Value | None = None
) -> Value:
    return _extreme(ev, min, args, key, default)


@evaluates(builtins.max)
def _max(
    ev: Evaluator, *args: Value, key: Value | None = None, default: Value | None = None
) -> Value:
    return _extreme(ev, max, args, key, default)


@evaluates(functools.reduce)
def _reduce(
    ev: Evaluator, function: Value, iterable: Value, initial: Value | None = None, /
) -> Value:
    source = iterator(ev, iterable)
    total = initial if initial is not None else next_item(ev, source)
    if total is None:
        raise Break("SJ030", "raises TypeError: reduce() of an empty iterable")
    for item in iterate_over(ev, source):
        total = call(ev, function, total, item)
    return total


# ── itertools ───────────────────────────────────────────────────────────────────────


def _chained(ev: Evaluator, outer: IteratorValue) -> IteratorValue:
    made: IteratorValue

    class State:
        inner: IteratorValue | None = None

    state = State()

    def pull() -> Value | None:
        while True:
            if state.inner is None:
                following = next_item(ev, outer)
                if following is None:
                    return None
                ev.journal.set_attr(state, "inner", iterator(ev, following))
            assert state.inner is not None
            item = next_item(ev, state.inner)
            if item is not None:
                return item
            ev.journal.set_attr(state, "inner", None)

    made = lazy_iterator(ev, pull, [outer])
    return made


@evaluates(itertools.chain)
def _chain(ev: Evaluator, *iterables: Value) -> Value:
    return _chained(ev, IteratorValue(list(iterables)))


@evaluates(itertools.chain.from_iterable)
def _chain_from(ev: Evaluator, iterables: Value, /) -> Value:
    return _chained(ev, iterator(ev, iterables))


@evaluates(itertools.islice)
def _islice(ev: Evaluator, iterable: Value, *bounds: Value) -> Value:
    if not 1 <= len(bounds) <= 3:
        raise Break("SJ030", "raises TypeError: islice() arguments")
    parts = [ev.known(bound, "`islice`") for bound in bounds]
    source = iterator(ev, iterable)
    try:
        wanted = itertools.islice(itertools.count(), *parts)
    except ValueError as error:
        raise Break("SJ030", f"raises ValueError: {error}") from error
    stop = slice(*parts).stop
    positions = list(wanted) if stop is not None else None
    start, step = slice(*parts).start or 0, slice(*parts).step or 1
    made: IteratorValue

    class State:
        consumed = 0

    state = State()

    def advance(target: int) -> Value | None:
        item = None
        while state.consumed <= target:
            item = next_item(ev, source)
            if item is None:
                return None
            ev.journal.set_attr(state, "consumed", state.consumed + 1)
        return item

    def pull() -> Value | None:
        index = len(made.items)
        if positions is None:
            return advance(start + index * step)
        if index < len(positions):
            return advance(positions[index])
        if stop > state.consumed:  # Python skips up to `stop` at the end
            advance(stop - 1)
        return None

    made = lazy_iterator(ev, pull, [source])
    return made


@evaluates(itertools.repeat)
def _repeat(ev: Evaluator, object: Value, times: Value | None = None) -> Value:
    if times is not None:
        return IteratorValue([object] * max(ev.known(times, "`repeat`"), 0))
    return lazy_iterator(ev, lambda: object)


@evaluates(itertools.count)
def _count(
    ev: Evaluator, start: Value | None = None, step: Value | None = None
) -> Value:
    first = 0 if start is None else ev.known(start, "`count`")
    width = 1 if step is None else ev.known(step, "`count`")
    if type(first) is not int or type(width) is not int:
        raise Break("SJ020", "`count` of numbers that are no integers")
    made: IteratorValue

    def pull() -> Value:
        return constant(first + width * len(made.items))

    made = lazy_iterator(ev, pull)
    return made


@evaluates(itertools.cycle)
def _cycle(ev: Evaluator, iterable: Value, /) -> Value:
    source = iterator(ev, iterable)
    made: IteratorValue

    class State:
        saved: list[Value] | None = None

    state = State()

    def pull() -> Value | None:
        at_hand = len(made.items)
        if state.saved is None:
            item = next_item(ev, source)
            if item is not None:
                return item
            ev.journal.set_attr(
                state, "saved", list.__getitem__(made.items, slice(None))
            )  # type: ignore[arg-type]
        assert state.saved is not None
        return state.saved[at_hand % len(state.saved)] if state.saved else None

    made = lazy_iterator(ev, pull, [source])
    return made


@evaluates(itertools.accumulate)
def _accumulate(
    ev: Evaluator,
    iterable: Value,
    func: Value | None = None,
    *,
    initial: Value | None = None,
) -> Value:
    source = iterator(ev, iterable)
    made: IteratorValue

    def pull() -> Value | None:
        at_hand = len(made.items)
        if at_hand == 0 and initial is not None and not _is_none(initial):
            return initial
        item = next_item(ev, source)
        if item is None or at_hand == 0:
            return item
        total = list.__getitem__(made.items, at_hand - 1)  # type: ignore[arg-type]
        if func is None or _is_none(func):
            return operators.apply(ev, "add", operator.add, total, item)
        return call(ev, func, total, item)

    made = lazy_iterator(ev, pull, [source])
    return made


@evaluates(itertools.zip_longest)
def _zip_longest(
    ev: Evaluator, *iterables: Value, fillvalue: Value | None = None
) -> Value:
    sources = [iterator(ev, iterable) for iterable in iterables]
    filler = fillvalue if fillvalue is not None else constant(None)

    def pull() -> Value | None:
        row = [next_item(ev, source) for source in sources]
        if all(item is None for item in row):
            return None
        return TupleValue([filler if item is None else item for item in row])

    return lazy_iterator(ev, pull, sources)


@evaluates(itertools.takewhile)
def _take_while(ev: Evaluator, test: Value, iterable: Value, /) -> Value:
    source = iterator(ev, iterable)

    def pull() -> Value | None:
        item = next_item(ev, source)
        return item if item is not None and truth(ev, call(ev, test, item)) else None

    return lazy_iterator(ev, pull, [source])


@evaluates(itertools.dropwhile)
def _drop_while(ev: Evaluator, test: Value, iterable: Value, /) -> Value:
    source = iterator(ev, iterable)
    made: IteratorValue

    def pull() -> Value | None:
        item = next_item(ev, source)
        if len(made.items) == 0:
            while item is not None and truth(ev, call(ev, test, item)):
                item = next_item(ev, source)
        return item

    made = lazy_iterator(ev, pull, [source])
    return made


@evaluates(itertools.starmap)
def _star_map(ev: Evaluator, function: Value, iterable: Value, /) -> Value:
    source = iterator(ev, iterable)

    def pull() -> Value | None:
        item = next_item(ev, source)
        return None if item is None else call(ev, function, *iterate(ev, item))

    return lazy_iterator(ev, pull, [source])


@evaluates(itertools.pairwise)
def _pairwise(ev: Evaluator, iterable: Value, /) -> Value:
    source = iterator(ev, iterable)

    class State:
        last: Value | None = None

    state = State()

    def pull() -> Value | None:
        first = state.last if state.last is not None else next_item(ev, source)
        second = next_item(ev, source) if first is not None else None
        if first is None or second is None:
            return None
        ev.journal.set_attr(state, "last", second)
        return TupleValue([first, second])

    return lazy_iterator(ev, pull, [source])


def _rows(rows: Iterator[tuple[Value, ...]]) -> Value:
    found = list(itertools.islice(rows, 10_001))
    if len(found) > 10_000:
        raise Break("SJ042", "too many combinations to unroll")
    return IteratorValue([TupleValue(list(row)) for row in found])


@evaluates(itertools.product)
def _product(ev: Evaluator, *iterables: Value, repeat: Value | None = None) -> Value:
    times = 1 if repeat is None else ev.known(repeat, "`product`")
    return _rows(itertools.product(*[iterate(ev, i) for i in iterables], repeat=times))


@evaluates(itertools.combinations)
def _combinations(ev: Evaluator, iterable: Value, r: Value) -> Value:
    return _rows(
        itertools.combinations(iterate(ev, iterable), ev.known(r, "`combinations`"))
    )


@evaluates(itertools.combinations_with_replacement)
def _with_replacement(ev: Evaluator, iterable: Value, r: Value) -> Value:
    items = iterate(ev, iterable)
    count = ev.known(r, "`combinations_with_replacement`")
    return _rows(itertools.combinations_with_replacement(items, count))


@evaluates(itertools.permutations)
def _permutations(ev: Evaluator, iterable: Value, r: Value | None = None) -> Value:
    count = None if r is None else ev.known(r, "`permutations`")
    return _rows(itertools.permutations(iterate(ev, iterable), count))


__all__ = ["LazyItems", "ViewValue", "call", "iterate", "iterator", "sorted_items"]
