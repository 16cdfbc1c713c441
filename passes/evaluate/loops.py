"""Loops: `for` over what is known is unrolled, `while` with a known test too.

    for i in range(2):        # evaluates the body twice, with i = 0 and i = 1
        x = x * i

A loop that cannot be unrolled breaks; the splitter leaves it native and outlines its body.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import libcst as cst
import torch

from ..kinds import is_a
from . import enums
from .breaks import Break, unknown_operand
from .frames import Block, Flow, Frame
from .generators import holds_generator
from .lazy import LazyItems, at_hand, lazy_iterator, next_item
from .modules import module_children
from .special_methods import call_special, special
from .suites import body_of
from .values import (
    DictValue,
    InstanceValue,
    IteratorValue,
    Known,
    ListValue,
    ModuleSlice,
    Scalar,
    SetValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    ViewValue,
    constant,
    described,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def iterator_over(ev: Evaluator, value: Value) -> IteratorValue:
    """Returns `iter(value)`.

    Raises:
        Break: SJ041 when what it yields is not at hand.
    """
    value = ev.look(value)
    match value:
        case IteratorValue():
            return value
        case ListValue():
            ev.list_items(value)
            return IteratorValue(value)
        case TupleValue():
            return IteratorValue(list(value.items))
        case DictValue():
            return _over_dict(ev, value, ViewValue(value, "keys()"))
        case ViewValue():
            assert isinstance(value.receiver, DictValue)
            return _over_dict(ev, value.receiver, value)
        case InstanceValue():
            return _over_instance(ev, value)
        case SetValue():
            return _over_set(ev, value)
        case ModuleSlice():
            return IteratorValue(list(value.items))
        case TensorValue():
            return _over_tensor(ev, value)
        case Known():
            return _over_known(ev, value)
        case Unknown():
            raise unknown_operand("a loop goes over")
        case Scalar():
            raise Break("SJ030", "raises TypeError: a number is not iterable")
    raise Break("SJ041", f"loop over {described(value)}")


def _over_dict(ev: Evaluator, owner: DictValue, view: ViewValue) -> IteratorValue:
    """Iteration over a dict or view; a dict that changes size meanwhile makes Python raise."""
    from .dict_methods import view_items

    items = view_items(ev, view)
    keys = list(owner.items)

    def pull() -> Value | None:
        index = len(at_hand(made))
        if len(owner.items) != len(keys):
            raise Break(
                "SJ030", "raises RuntimeError: dictionary changed size during iteration"
            )
        if list(owner.items) != keys:
            raise Break("SJ020", "a dict changes its keys while it is iterated over")
        if index >= len(keys):
            return None
        if view.kind == "keys":
            return items[index]
        value = owner.items[keys[index]]
        return (
            value
            if view.kind == "values"
            else TupleValue([constant(keys[index]), value])
        )

    made = lazy_iterator(ev, pull)
    return made


UNROLL_LIMIT = 256
"""Iterations of one loop that are unrolled whatever they do."""

LONG_UNROLL_LIMIT = 4096
"""Iterations of a longer loop that are unrolled if nothing in it breaks, and if they record
no more than `LOOP_OPERATIONS`; other loops stay native with a compiled body."""

LOOP_OPERATIONS = 1024
"""Tensor operations that a loop of more than `UNROLL_LIMIT` iterations may record."""

LOOP_ITEMS = 100_000
"""Items, of whatever its iterations go over, that a loop which is unrolled may look at."""

_LONG = "use a tensor operation in place of the loop, or fewer iterations"

_FIXED_HASH = (int, float, bool)
"""Types whose hash is the same in every process, which fixes the order of a set."""


def _over_set(ev: Evaluator, value: SetValue) -> IteratorValue:
    keys = before = list(value.items)
    if len(keys) > 1:
        if not value.plain or any(type(key) not in _FIXED_HASH for key in keys):
            raise Break("SJ041", "the order of a set is not known")
        made: set[object] = set()
        for key in keys:
            made.add(key)
        keys = list(made)
    items = [constant(key) for key in keys]
    if value.cls is frozenset:
        return IteratorValue(list(items))

    def pull() -> Value | None:
        if list(value.items) != before:
            raise Break("SJ030", "raises RuntimeError: Set changed size")
        index = len(at_hand(iteration))
        return items[index] if index < len(items) else None

    iteration = lazy_iterator(ev, pull)
    return iteration


def _over_instance(ev: Evaluator, value: InstanceValue | Known) -> IteratorValue:
    """`iter` of a user's object: by `__iter__`, or by `__getitem__` from 0 on."""
    made = call_special(ev, value, "__iter__")
    if made is not None:
        return _as_iterator(ev, made)
    raise Break("SJ041", f"loop over {described(value)}")


def _as_iterator(ev: Evaluator, made: Value) -> IteratorValue:
    made = ev.look(made)
    if isinstance(made, IteratorValue):
        return made
    raise Break(
        "SJ041", "`__iter__` gives an object whose `__next__` raises StopIteration"
    )


def _over_tensor(ev: Evaluator, value: TensorValue) -> IteratorValue:
    if value.fake.dim() == 0:
        raise Break("SJ030", "raises TypeError: iteration over a 0-d tensor")
    rows = ev.builder.call("call_method", "unbind", [value, constant(0)], {}, "rows")
    assert isinstance(rows, TupleValue)
    return IteratorValue(list(rows.items))


def _over_known(ev: Evaluator, value: Known) -> IteratorValue:
    obj: Any = value.obj
    if is_a(obj, (tuple, str, bytes, range, frozenset)) and is_constant(obj):
        known = ev.use(value)
        if len(known) > LOOP_ITEMS:
            raise Break("SJ042", f"a loop of {len(known)} iterations", hint=_LONG)
        return IteratorValue([constant(item) for item in known])
    if is_a(obj, torch.nn.Module) and value.source is not None:
        modules = module_children(ev, value)
        if modules is not None:
            return IteratorValue(modules)
    if type(obj) is dict and value.source is None:
        return IteratorValue([constant(key) for key in obj])
    if is_a(obj, enum.EnumMeta):
        return IteratorValue(enums.members(ev, value))
    if special(ev, value, "__iter__") is not None:
        return _over_instance(ev, value)
    raise Break("SJ041", f"loop over a `{type(obj).__name__}`")


# ── statements ──────────────────────────────────────────────────────────────────────


def for_statement(
    ev: Evaluator, frame: Frame, node: cst.For
) -> tuple[Flow, Value | None]:
    """Starts to unroll a `for` loop."""
    from .expressions import evaluate

    assert node.asynchronous is None  # a coroutine is left to Python as a whole
    iterator = iterator_over(ev, evaluate(ev, frame, node.iter))
    left = 0
    if isinstance(iterator.items, list) and not isinstance(iterator.items, LazyItems):
        left = len(iterator.items) - iterator.position
        if left > LONG_UNROLL_LIMIT:
            raise Break(
                "SJ042",
                f"a loop of {left} iterations is too long to unroll",
                hint=_LONG,
            )
    block = Block(body_of(node), "for", node, iterator)
    block.index = len(block.statements)
    block.operations, block.items_taken = ev.builder.operations, ev.items_taken
    if left > UNROLL_LIMIT:
        try:
            return _whole(ev, frame, block)
        except Break as stop:
            if stop.diagnostic.code == "SJ042":
                raise
            raise Break(
                "SJ042",
                f"a loop of {left} iterations breaks: {stop.diagnostic.message}",
                stop.diagnostic.origin,
            ) from stop
    if ev.can_split and holds_generator(iterator):
        return _whole(ev, frame, block)
    frame.blocks.append(block)
    ev.journal.record(
        lambda: frame.blocks.remove(block) if block in frame.blocks else None
    )
    return Flow.NEXT, None


def _whole(ev: Evaluator, frame: Frame, block: Block) -> tuple[Flow, Value | None]:
    """Runs a loop as one transaction: its iterator cannot be handed over half-way."""
    blocks = list(frame.blocks)
    frame.blocks.append(block)
    can_split, ev.can_split = ev.can_split, False
    try:
        while len(frame.blocks) > len(blocks):
            ended = ev._step(frame, len(blocks), split=False)
            if ended is not None:
                return ended
        return Flow.NEXT, None
    finally:
        frame.blocks[:] = blocks
        ev.can_split = can_split


def while_statement(
    ev: Evaluator, frame: Frame, node: cst.While
) -> tuple[Flow, Value | None]:
    """Starts to unroll a `while` loop whose test is known."""
    # NOTE: a loop that breaks in each iteration would cost a function for each of them.
    if ev.can_split and frame.origins.get(node.test) in ev.resumed:
        raise Break("SJ042", "a `while` loop whose iterations break", hint=_LONG)
    block = Block(body_of(node), "while", node)
    block.index = len(block.statements)
    block.operations, block.items_taken = ev.builder.operations, ev.items_taken
    frame.blocks.append(block)
    ev.journal.record(
        lambda: frame.blocks.remove(block) if block in frame.blocks else None
    )
    return Flow.NEXT, None


def next_iteration(ev: Evaluator, frame: Frame, block: Block) -> None:
    """At the end of a loop's body: starts the next iteration, or leaves the loop.

    Raises:
        Break: When a `while` test is not known, or the loop gets too long.
    """
    from . import targets
    from .conditions import condition

    if ev.items_taken - block.items_taken > LOOP_ITEMS:
        raise Break(
            "SJ042",
            f"{block.rounds} iterations of a loop go over more than {LOOP_ITEMS} items",
            hint=_LONG,
        )
    if block.rounds >= UNROLL_LIMIT:
        recorded = ev.builder.operations - block.operations
        if block.rounds >= LONG_UNROLL_LIMIT or recorded > LOOP_OPERATIONS:
            raise Break(
                "SJ042",
                f"a loop of more than {block.rounds} iterations",
                hint=_LONG,
            )
    node = block.node
    if block.kind == "for":
        assert isinstance(node, cst.For) and block.iterator is not None
        item = next_item(ev, block.iterator)
        if item is not None:
            targets.assign(ev, frame, node.target, item)
    else:
        assert isinstance(node, cst.While)
        try:
            going_on = condition(ev, frame, node.test)
        except Break as stop:
            if stop.diagnostic.code == "SJ101":
                raise Break(
                    "SJ102",
                    "loop condition on tensor data",
                    ev.origin_of(frame, node.test),
                ) from stop
            raise
        item = constant(True) if going_on else None
    if item is not None:
        block.index = 0
        block.rounds += 1
        return
    frame.blocks.remove(block)
    if block.ended is not None:
        block.ended()
    if node.orelse is not None:
        frame.blocks.append(Block(body_of(node.orelse)))
