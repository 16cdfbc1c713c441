"""Built-in functions over iterables: `zip`, `map`, `sorted`, `sum`, ... and `itertools`."""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..kinds import is_a
from . import comparisons, operators
from .breaks import Break, raising
from .lazy import at_hand, lazy_iterator, next_item
from .lazy import iterate as iterate_over
from .registry import evaluates
from .size_arithmetic import all_sized, extreme
from .truth import size_of, truth
from .values import (
    DictValue,
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    SetValue,
    TupleValue,
    Value,
    ViewValue,
    constant,
    described,
    is_constant,
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


def index_of(ev: Evaluator, value: Value) -> int:
    """Returns `operator.index(value)`."""
    from .special_methods import call_special

    value = ev.look(value)
    made = call_special(ev, value, "__index__")
    index = ev.known(value if made is None else made, "an index")
    try:
        return operator.index(index)
    except TypeError as error:
        raise raising(error) from error


def is_none(value: Value) -> bool:
    return isinstance(value, Known) and value.obj is None


@evaluates(builtins.iter)
def _iter(ev: Evaluator, value: Value, sentinel: Value | None = None, /) -> Value:
    if sentinel is None:
        made = iterator(ev, value)
        value = ev.look(value)
        if isinstance(value, (ListValue, IteratorValue, InstanceValue)):
            return made
        if isinstance(value, Known) and not is_a(value.obj, (range, str, bytes, tuple)):
            return made
        # Of a class of its own, which is seen if Python gets it.
        return lazy_iterator(ev, lambda: next_item(ev, made), [made])

    def pull() -> Value | None:
        item = call(ev, value)
        return None if comparisons.equal(ev, item, sentinel) else item

    return lazy_iterator(ev, pull)


@evaluates(builtins.next)
def _next(ev: Evaluator, value: Value, default: Value | None = None, /) -> Value:
    value = ev.look(value)
    if isinstance(value, (InstanceValue, Known)):
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
    first = 0 if start is None else index_of(ev, start)
    source = iterator(ev, iterable)
    made: IteratorValue

    def pull() -> Value | None:
        item = next_item(ev, source)
        if item is None:
            return None
        return TupleValue([constant(first + len(at_hand(made))), item])

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
    if isinstance(sequence, (InstanceValue, Known)):
        from .special_methods import call_special, defines

        result = call_special(ev, sequence, "__reversed__")
        if result is not None:
            return iterator(ev, result)
        if isinstance(sequence, InstanceValue) or defines(sequence, "__getitem__"):
            if not is_constant(getattr(sequence, "obj", None)):
                raise Break(
                    "SJ020",
                    f"`reversed` of {described(sequence)}",
                    hint="give its class a `__reversed__`, or reverse a list",
                )
    if isinstance(sequence, IteratorValue):
        raise Break("SJ030", "raises TypeError: an iterator is not reversible")
    if isinstance(sequence, ListValue):
        return _backwards(ev, sequence)
    backwards = IteratorValue(iterate(ev, sequence)[::-1])
    size = size_of(ev, sequence)

    def pull() -> Value | None:
        if (
            isinstance(sequence, (DictValue, ViewValue))
            and size_of(ev, sequence) != size
        ):
            raise raising(RuntimeError("dictionary changed size during iteration"))
        return next_item(ev, backwards)

    return lazy_iterator(ev, pull)


def _backwards(ev: Evaluator, items: ListValue) -> Value:
    """`reversed(items)` of a list, which may change while the iterator goes over it."""

    class State:
        index = len(ev.list_items(items)) - 1

    state = State()

    def pull() -> Value | None:
        now = ev.list_items(items)
        if not 0 <= state.index < len(now):
            ev.journal.set_attr(state, "index", -1)
            return None
        item = now[state.index]
        ev.journal.set_attr(state, "index", state.index - 1)
        return ev.look(item)

    return lazy_iterator(ev, pull, [IteratorValue(items)])


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


def select(
    ev: Evaluator, test: Value, iterable: Value, accept: Callable[[bool], bool]
) -> Value:
    source = iterator(ev, iterable)

    def pull() -> Value | None:
        while (item := next_item(ev, source)) is not None:
            if accept(truth(ev, item if is_none(test) else call(ev, test, item))):
                return item
        return None

    return lazy_iterator(ev, pull, [source])


@evaluates(builtins.filter)
def _filter(ev: Evaluator, test: Value, iterable: Value, /) -> Value:
    return select(ev, test, iterable, lambda accepted: accepted)


# ── whole iterables ─────────────────────────────────────────────────────────────────


def sorted_items(
    ev: Evaluator,
    items: list[Value],
    key: Value | None = None,
    reverse: Value | None = None,
) -> list[Value]:
    """Returns the items in order of known keys."""
    down = reverse is not None and truth(ev, reverse)
    plain = key is None or is_none(key)
    keys = items if plain else [call(ev, key, item) for item in items]  # type: ignore[arg-type]
    known = [ev.known(k, "`sorted`") for k in keys]
    try:
        order = sorted(range(len(items)), key=lambda i: known[i], reverse=down)
    except TypeError as error:
        raise raising(error) from error
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
    plain = key is None or is_none(key)
    items = iterate_in_any_order(ev, iterable) if plain else iterate(ev, iterable)
    return ListValue(sorted_items(ev, items, key, reverse))


@evaluates(builtins.sum)
def _sum(ev: Evaluator, iterable: Value, /, start: Value | None = None) -> Value:
    total = start if start is not None else constant(0)
    if isinstance(total, Known) and is_a(total.obj, (str, bytes)):
        raise Break("SJ030", "raises TypeError: sum() can't sum strings or bytes")
    whole = isinstance(ev.look(iterable), SetValue) and all(
        type(key) is int
        for key in ev.look(iterable).items  # type: ignore[attr-defined]
    )
    items = (
        in_any_order(ev, iterable)
        if whole
        else iterate_over(ev, iterator(ev, iterable))
    )
    for item in items:
        total = operators.apply(ev, "add", operator.add, total, item)
    return total


@evaluates(builtins.any)
def _any(ev: Evaluator, iterable: Value, /) -> Value:
    return constant(any(truth(ev, item) for item in in_any_order(ev, iterable)))


@evaluates(builtins.all)
def _all(ev: Evaluator, iterable: Value, /) -> Value:
    return constant(all(truth(ev, item) for item in in_any_order(ev, iterable)))


def in_any_order(ev: Evaluator, value: Value) -> Iterator[Value]:
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
    plain = key is None or is_none(key)
    keys = items if plain else [call(ev, key, item) for item in items]  # type: ignore[arg-type]
    if plain and all_sized(items):
        result = extreme(ev, function.__name__, items)
        if result is not None:
            return result
    known = [ev.known(k, f"`{function.__name__}`") for k in keys]
    try:
        position: int = function(range(len(items)), key=lambda i: known[i])
        return items[position]
    except TypeError as error:
        raise raising(error) from error


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
