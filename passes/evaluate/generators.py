"""Generator functions: evaluated up to the next `yield` whenever an item is asked for.

    def pairs(xs):
        for x in xs:
            yield x, x * 2
    total = sum(a for a, b in pairs(xs))

A generator that was not started yet is handed to Python as the call that makes it. `send`,
`throw`, and `yield` inside `with` or `try`, are left to Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import libcst as cst

from .breaks import Break, LeaveGenerator
from .frames import Block, Frame
from .lazy import LazyItems, leave_to_python, next_item
from .sources import Source
from .values import IteratorValue, Known, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator

Call = tuple[Value, list[Value], dict[str, Value]]


@dataclass(frozen=True)
class _PendingCall(Source):
    """Reaches a generator that was not started by making the call that makes it."""

    generator: Generator
    ev: Evaluator

    @property
    def residual(self) -> str:
        generator, residual = self.generator, self.ev.residual
        if generator.started:
            raise LeaveGenerator(generator.site)
        function, args, kwargs = generator.call
        texts = [residual.reify(arg) for arg in args]
        texts += [f"{key}={residual.reify(value)}" for key, value in kwargs.items()]
        name = residual.fresh("generator")
        residual.emit(f"{name} = {residual.atom(function)}({', '.join(texts)})")
        self.ev.journal.set_attr(generator, "name", name)
        return name

    @property
    def guard(self) -> str:
        raise Break("SJ002", "a generator made here is guarded")

    @property
    def hint(self) -> str:
        return "generator"


class Generator(IteratorValue):
    """A generator object made during evaluation, with the frame in which it is suspended.

    `call` is the function with its arguments: what Python runs to make it.
    """

    def __init__(self, ev: Evaluator, frame: Frame, call: Call) -> None:
        super().__init__([], generator=True)
        self.frame = frame
        self.call = call
        self.site = ev.statement_origin()
        self.source = _PendingCall(self, ev)
        self.started = False
        self.yielded: Value | None = None
        self.items = _GeneratorItems(ev, lambda: advance(ev, self), owner=self)


class _GeneratorItems(LazyItems):
    def __init__(
        self, ev: Evaluator, pull: Callable[[], Value | None], owner: Generator
    ) -> None:
        super().__init__(ev, pull)
        self.owner = owner

    def _force(self) -> None:
        raise LeaveGenerator(self.owner.site)

    def __iter__(self) -> Iterator[Value]:
        """What a generator that was not started refers to: the operands of its call."""
        owner = self.owner
        if owner.name is None and owner.started:
            self._force()
        function, args, kwargs = owner.call
        return iter([function, *args, *kwargs.values()])


def make_generator(ev: Evaluator, frame: Frame, call: Call) -> Generator:
    """Returns the generator object that a call of a generator function makes."""
    leave_to_python(ev)
    made = Generator(ev, frame, call)
    frame.generator = made
    return made


def advance(ev: Evaluator, generator: Generator) -> Value | None:
    """Runs a generator up to its next `yield`; returns what it yields, None at its end."""
    frame = generator.frame
    if generator.name is not None:
        raise LeaveGenerator(generator.site)
    if frame in ev.frames:
        raise Break("SJ030", "raises ValueError: generator already executing")
    ended: list[Value] = []
    frame.on_return = ended.append
    _remember(ev, frame)
    ev.journal.set_attr(generator, "started", True)
    depth = len(ev.frames)
    can_split, ev.can_split = ev.can_split, False
    ev.frames.append(frame)
    try:
        while not ended:
            ev._step(ev.frames[-1], 0, split=False)
            if generator.yielded is not None:
                value, generator.yielded = generator.yielded, None
                return value
        return None
    except Break as stop:
        stop.inlined = True
        raise
    finally:
        del ev.frames[depth:]
        ev.can_split = can_split
        generator.yielded = None


def _remember(ev: Evaluator, frame: Frame) -> None:
    """Lets a rollback put the frame back to where it is suspended now."""
    saved = [
        (block, block.index, block.rounds, block.iterator) for block in frame.blocks
    ]

    def undo() -> None:
        frame.blocks[:] = [block for block, *_ in saved]
        for block, index, rounds, iterator in saved:
            block.index, block.rounds, block.iterator = index, rounds, iterator

    ev.journal.record(undo)


def yield_statement(ev: Evaluator, frame: Frame, node: cst.Yield) -> None:
    """`yield value` or `yield from iterable` as a statement."""
    from .expressions import evaluate

    generator = frame.generator
    if generator is None or frame.nested or ev.frames[-1] is not frame:
        raise Break("SJ002", "a `yield` inside `with` or `try`")
    if isinstance(node.value, cst.From):
        from . import loops

        iterator = loops.iterator_over(ev, evaluate(ev, frame, node.value.item))
        name = ev.namer.fresh("item")
        frame.locals.add(name)
        loop = cst.For(
            cst.Name(name),
            cst.Name(name),
            cst.IndentedBlock(
                [cst.SimpleStatementLine([cst.Expr(cst.Yield(cst.Name(name)))])]
            ),
        )
        block = Block(loop.body.body, "for", loop, iterator)
        block.index = len(block.statements)
        frame.blocks.append(block)
        ev.journal.record(
            lambda: frame.blocks.remove(block) if block in frame.blocks else None
        )
        return
    value = constant(None) if node.value is None else evaluate(ev, frame, node.value)
    generator.yielded = value


def holds_generator(iterator: IteratorValue) -> bool:
    """Whether advancing an iterator runs a generator, which cannot be handed over then."""
    if isinstance(iterator, Generator):
        return True
    items = iterator.items
    return isinstance(items, LazyItems) and any(
        holds_generator(s) for s in items.sources
    )


# ── context managers written as generators ──────────────────────────────────────────


class ManagerGenerator(Generator):
    """What a function decorated with `contextlib.contextmanager` returns."""


_HELPER = contextlib.contextmanager(lambda: iter(()))
_HELPER_CODE = _HELPER.__code__


def manager_call(
    ev: Evaluator, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Evaluates a call of a function made by `contextlib.contextmanager`; None for others."""
    obj = function.obj
    if not isinstance(obj, FunctionType) or obj.__code__ is not _HELPER_CODE:
        return None
    from .functions import generator_frame
    from .sources import Contents

    inner = obj.__wrapped__  # type: ignore[attr-defined]
    if not isinstance(inner, FunctionType) or function.source is None:
        return None
    position = obj.__code__.co_freevars.index("func")
    if obj.__closure__[position].cell_contents is not inner:  # type: ignore[index]
        return None
    code = ev.guards.bind(obj.__code__, "contextmanager_code")
    ev.guards.add(f"{function.source.guard}.__code__ is {code}")
    source = Contents(function.source, position, "func")
    frame = generator_frame(ev, Known(inner, source), args, kwargs)
    leave_to_python(ev)
    made = ManagerGenerator(ev, frame, (function, args, kwargs))
    frame.generator = made
    return made


def enter_generator(ev: Evaluator, context: Value) -> Value | None:
    """Enters such a manager: runs it up to its `yield`."""
    if not isinstance(context, ManagerGenerator):
        return None
    if context.started:
        raise Break("SJ043", "a context manager is entered twice")
    result = next_item(ev, context)
    if result is None:
        raise Break("SJ030", "raises RuntimeError: generator didn't yield")
    return result


def leave_generator(ev: Evaluator, context: Any) -> None:
    """Leaves such a manager: runs the rest of it."""
    if next_item(ev, context) is not None:
        raise Break("SJ030", "raises RuntimeError: generator didn't stop")
