"""`match`: patterns on known structure, tried in order.

match x.dim():
    case 2: ...
    case 3 | 4 as n if n > k: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from ..kinds import is_a
from . import attributes, comparisons, expressions, names, subscripts, suites
from .breaks import Break
from .conditions import condition
from .frames import Block, Flow, Frame
from .keys import key_of
from .truth import truth
from .values import (
    DictValue,
    Known,
    ListValue,
    Scalar,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    constant,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator

_SELF_MATCHING = (
    bool,
    bytearray,
    bytes,
    dict,
    float,
    frozenset,
    int,
    list,
    set,
    str,
    tuple,
)


def match_statement(
    ev: Evaluator, frame: Frame, node: cst.Match
) -> tuple[Flow, Value | None]:
    """Decides which case matches and starts its body."""
    subject = expressions.evaluate(ev, frame, node.subject)
    if isinstance(subject, Unknown):
        raise Break(
            "SJ020", "`match` needs a value that is not known", needs_unknown=True
        )
    for case in node.cases:
        bound: dict[str, Value] = {}
        if not _matches(ev, frame, case.pattern, subject, bound):
            continue
        for name, value in bound.items():
            names.store(ev, frame, name, value)
        if case.guard is not None and not condition(ev, frame, case.guard):
            continue
        _start(ev, frame, Block(suites.body_of(case)))
        break
    return Flow.NEXT, None


def _start(ev: Evaluator, frame: Frame, block: Block) -> None:
    frame.blocks.append(block)
    ev.journal.record(
        lambda: frame.blocks.remove(block) if block in frame.blocks else None
    )


def _matches(
    ev: Evaluator, frame: Frame, pattern: Any, subject: Value, bound: dict[str, Value]
) -> bool:
    subject = ev.look(subject)
    match pattern:
        case cst.MatchValue():
            wanted = expressions.evaluate(ev, frame, pattern.value)
            return truth(ev, comparisons.compare(ev, cst.Equal(), subject, wanted))
        case cst.MatchSingleton():
            wanted = expressions.evaluate(ev, frame, pattern.value)
            return comparisons.identical(ev, subject, wanted)
        case cst.MatchAs():
            if pattern.pattern is not None and not _matches(
                ev, frame, pattern.pattern, subject, bound
            ):
                return False
            if pattern.name is not None:
                bound[pattern.name.value] = subject
            return True
        case cst.MatchOr():
            for option in pattern.patterns:
                tried: dict[str, Value] = {}
                if _matches(ev, frame, option.pattern, subject, tried):
                    bound.update(tried)
                    return True
            return False
        case cst.MatchList() | cst.MatchTuple():
            return _sequence(ev, frame, pattern.patterns, subject, bound)
        case cst.MatchMapping():
            return _mapping(ev, frame, pattern, subject, bound)
        case cst.MatchClass():
            return _class(ev, frame, pattern, subject, bound)
    raise AssertionError(type(pattern).__name__)  # the grammar has no other


def _sequence(
    ev: Evaluator, frame: Frame, patterns: Any, subject: Value, bound: dict[str, Value]
) -> bool:
    items = _items(ev, subject)
    if items is None:
        return False
    starred = [i for i, p in enumerate(patterns) if isinstance(p, cst.MatchStar)]
    fixed = len(patterns) - len(starred)
    if len(items) < fixed or (not starred and len(items) != fixed):
        return False
    if starred:
        before = starred[0]
        after = len(patterns) - before - 1
        stop = len(items) - after
        middle: Value = ListValue(items[before:stop])
        items = [*items[:before], middle, *items[stop:]]
    for pattern, item in zip(patterns, items):
        if isinstance(pattern, cst.MatchStar):
            if pattern.name is not None:
                bound[pattern.name.value] = item
        elif not _matches(ev, frame, pattern.value, item, bound):
            return False
    return True


def _items(ev: Evaluator, subject: Value) -> list[Value] | None:
    """The items of a sequence subject; None for what no sequence pattern matches."""
    match subject:
        case ListValue():
            return list(ev.list_items(subject))
        case TupleValue():
            return list(subject.items)
        case Known() if type(subject.obj) in (tuple, range) or (
            is_a(subject.obj, tuple) and is_constant(subject.obj)
        ):
            return [constant(item) for item in ev.use(subject)]
        case Known() if is_constant(subject.obj):
            _use_type(ev, subject)
            return None
        case DictValue() | TensorValue() | Scalar():
            return None
    raise Break("SJ020", "a sequence pattern asks an object that is not tracked")


def _use_type(ev: Evaluator, subject: Known) -> None:
    if subject.source is not None:
        ev.guards.type_of(subject.source, subject.obj)


def _mapping(
    ev: Evaluator, frame: Frame, pattern: Any, subject: Value, bound: dict[str, Value]
) -> bool:
    if isinstance(subject, Known) and is_constant(subject.obj):
        _use_type(ev, subject)
        return False
    if isinstance(subject, (ListValue, TupleValue, TensorValue, Scalar)):
        return False
    if not isinstance(subject, DictValue):
        raise Break("SJ020", "a mapping pattern asks an object that is not tracked")
    seen = []
    for element in pattern.elements:
        key = key_of(ev, expressions.evaluate(ev, frame, element.key))
        seen.append(key)
        if key not in subject.items:
            return False
        value = subscripts.load(ev, subject, constant(key))
        if not _matches(ev, frame, element.pattern, value, bound):
            return False
    if pattern.rest is not None:
        entries = ev.dict_items(subject)
        bound[pattern.rest.value] = DictValue(
            {k: v for k, v in entries.items() if k not in seen}
        )
    return True


def _class(
    ev: Evaluator, frame: Frame, pattern: Any, subject: Value, bound: dict[str, Value]
) -> bool:
    from .calls import call

    cls = expressions.evaluate(ev, frame, pattern.cls)
    if not isinstance(cls, Known) or not is_a(cls.obj, type):
        raise Break("SJ020", "a class pattern whose class is not known")
    if not truth(ev, call(ev, Known(isinstance), [subject, cls], {})):
        return False
    positional = [element.value for element in pattern.patterns]
    if positional and cls.obj in _SELF_MATCHING:
        if len(positional) != 1:
            raise Break("SJ030", "raises TypeError: too many positional sub-patterns")
        if not _matches(ev, frame, positional[0], subject, bound):
            return False
    elif positional:
        fields = getattr(cls.obj, "__match_args__", ())
        if len(fields) < len(positional):
            raise Break("SJ030", "raises TypeError: too many positional sub-patterns")
        if cls.source is not None:
            ev.guards.add(f"{cls.source.guard}.__match_args__ == {fields!r}")
        for name, sub in zip(fields, positional):
            if not _attribute(ev, frame, name, sub, subject, bound):
                return False
    return all(
        _attribute(ev, frame, element.key.value, element.pattern, subject, bound)
        for element in pattern.kwds
    )


def _attribute(
    ev: Evaluator,
    frame: Frame,
    name: str,
    pattern: Any,
    subject: Value,
    bound: dict[str, Value],
) -> bool:
    if not attributes.has(ev, subject, name):
        return False
    return _matches(ev, frame, pattern, attributes.load(ev, subject, name), bound)
