"""The functions of `itertools`, item by item."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import operators
from .breaks import Break, raising
from .iterators import call, index_of, is_none, iterate, iterator, select
from .lazy import at_hand, lazy_iterator, next_item
from .registry import evaluates
from .truth import truth
from .values import (
    IteratorValue,
    TupleValue,
    Value,
    constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


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
        raise raising(error) from error
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
        index = len(at_hand(made))
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
        return IteratorValue(operators.repeated(ev, [object], index_of(ev, times)))
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
        return constant(first + width * len(at_hand(made)))

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
        count = len(at_hand(made))
        if state.saved is None:
            item = next_item(ev, source)
            if item is not None:
                return item
            ev.journal.set_attr(state, "saved", at_hand(made).copy())
        assert state.saved is not None
        return state.saved[count % len(state.saved)] if state.saved else None

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
        count = len(at_hand(made))
        if count == 0 and initial is not None and not is_none(initial):
            return initial
        item = next_item(ev, source)
        if item is None or count == 0:
            return item
        total = at_hand(made)[-1]
        if func is None or is_none(func):
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
        if len(at_hand(made)) == 0:
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
        raise Break(
            "SJ042",
            "too many combinations to unroll",
            hint="make the combinations with tensors, such as `torch.cartesian_prod`",
        )
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


@evaluates(itertools.filterfalse)
def _filter_false(ev: Evaluator, test: Value, iterable: Value, /) -> Value:
    return select(ev, test, iterable, lambda accepted: not accepted)
