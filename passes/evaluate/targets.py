"""Assignment targets: names, unpacking, attributes, items; and `del`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from . import attribute_stores, expressions, loops, names, subscripts
from .breaks import Break, unknown_operand
from .frames import Frame
from .lazy import iterate as iterate_over
from .values import ListValue, Unknown, Value

if TYPE_CHECKING:
    from .evaluator import Evaluator


def assign(
    ev: Evaluator, frame: Frame, target: cst.BaseExpression, value: Value
) -> None:
    """Binds `target` to `value`, as `target = value` does.

    Raises:
        Break: When the store cannot be tracked.
    """
    if isinstance(target, cst.Name):
        expressions.name_tensor(value, target.value)
        names.store(ev, frame, target.value, value)
    elif isinstance(target, (cst.Tuple, cst.List)):
        _unpack(ev, frame, target, value)
    elif isinstance(target, cst.Attribute):
        base = expressions.evaluate(ev, frame, target.value)
        attribute_stores.store(
            ev, base, expressions.mangled(frame, target.attr.value), value
        )
    elif isinstance(target, cst.Subscript):
        base = expressions.evaluate(ev, frame, target.value)
        index = expressions.index_of(ev, frame, target)
        subscripts.store(ev, base, index, value)
    elif isinstance(target, cst.StarredElement):
        assign(ev, frame, target.value, value)
    else:
        raise AssertionError(type(target).__name__)  # the grammar has no other


def _unpack(
    ev: Evaluator, frame: Frame, target: cst.Tuple | cst.List, value: Value
) -> None:
    if isinstance(value, Unknown):
        raise unknown_operand("unpacking needs")
    items = list(iterate_over(ev, loops.iterator_over(ev, value)))
    places = target.elements
    starred = [i for i, p in enumerate(places) if isinstance(p, cst.StarredElement)]
    if not starred:
        if len(items) != len(places):
            raise Break(
                "SJ030",
                f"raises ValueError: {len(items)} values for {len(places)} targets",
            )
        for place, item in zip(places, items):
            assign(ev, frame, place.value, item)
        return
    before = starred[0]
    after = len(places) - before - 1
    if len(items) < before + after:
        raise Break("SJ030", "raises ValueError: not enough values to unpack")
    middle = ListValue(items[before : len(items) - after])
    tail = items[len(items) - after :] if after else []
    for place, item in zip(places, [*items[:before], middle, *tail]):
        assign(ev, frame, place.value, item)


def delete(ev: Evaluator, frame: Frame, target: cst.BaseExpression) -> None:
    """`del target`."""
    if isinstance(target, cst.Name):
        names.delete(ev, frame, target.value)
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            delete(ev, frame, element.value)
    elif isinstance(target, cst.Subscript):
        base = expressions.evaluate(ev, frame, target.value)
        subscripts.delete(ev, base, expressions.index_of(ev, frame, target))
    elif isinstance(target, cst.Attribute):
        base = expressions.evaluate(ev, frame, target.value)
        attribute_stores.delete(ev, base, expressions.mangled(frame, target.attr.value))
    else:
        raise AssertionError(type(target).__name__)  # the grammar has no other
