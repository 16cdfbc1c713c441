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
from types import FunctionType
from typing import TYPE_CHECKING, Any

import libcst as cst

from srcjit.nodes import subtree

from ..kinds import is_a
from . import names
from .breaks import Break, LeaveGenerator
from .frames import Block, Frame
from .lazy import LazyItems, leave_to_python, next_item
from .values import IteratorValue, Known, Value, constant

if TYPE_CHECKING:
    from ..reify import Reifier
    from .evaluator import Evaluator

Call = tuple[Value, list[Value], dict[str, Value]]


class Generator(IteratorValue):
    """A generator object made during evaluation, with the frame in which it is suspended.

    `call` is the function with its arguments: what Python runs to make it.
    """

    def __init__(self, ev: Evaluator, frame: Frame, call: Call) -> None:
        super().__init__([], generator=True)
        self.frame = frame
        self.call = call
        self.site = ev.user_origin()
        self.started = False
        self.yielded: Value | None = None
        self.result: Value = constant(None)
        """What it has returned, for `yield from`."""
        self.awaiting: str | None = None
        """The variable that gets what is sent."""
        self.items = _GeneratorItems(ev, lambda: advance(ev, self), owner=self)

    def build(self, residual: Reifier) -> str:
        """Makes the generator by the call that makes it; returns its variable."""
        if self.started:
            raise LeaveGenerator(self.site)
        function, args, kwargs = self.call
        texts = [residual.reify(arg) for arg in args]
        texts += [f"{key}={residual.reify(value)}" for key, value in kwargs.items()]
        name = residual.fresh("generator")
        residual.emit(f"{name} = {residual.atom(function)}({', '.join(texts)})")
        residual.ev.journal.set_attr(self, "name", name)
        return name


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
        raise LeaveGenerator(generator.site)  # Python raises: it is executing
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
        ev.journal.set_attr(generator, "result", ended[0])
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


def yield_statement(
    ev: Evaluator, frame: Frame, node: cst.Yield, target: str | None = None
) -> None:
    """`yield value` or `yield from iterable` as a statement, or assigned to a variable."""
    from .expressions import evaluate

    generator = frame.generator
    if generator is None or frame.nested or ev.frames[-1] is not frame:
        raise Break("SJ002", "a `yield` inside `with` or `try`")
    if isinstance(node.value, cst.From):
        _yield_from(ev, frame, node.value.item, target)
        return
    value = constant(None) if node.value is None else evaluate(ev, frame, node.value)
    if target is not None:
        # Nobody sees the variable before the generator goes on, by `next` or by `send`.
        names.store(ev, frame, target, constant(None))
    ev.journal.set_attr(generator, "awaiting", target)
    generator.yielded = value


def _yield_from(
    ev: Evaluator, frame: Frame, iterable: cst.BaseExpression, target: str | None
) -> None:
    """Pushes a loop that yields each item."""
    from . import loops
    from .expressions import evaluate

    iterator = loops.iterator_over(ev, evaluate(ev, frame, iterable))
    name = ev.namer_for(frame).fresh("item")
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

    def finish() -> None:
        if target is not None:
            result = getattr(iterator, "result", constant(None))
            names.store(ev, frame, target, result)

    block.ended = finish
    frame.blocks.append(block)
    ev.journal.record(
        lambda: frame.blocks.remove(block) if block in frame.blocks else None
    )


def send(ev: Evaluator, generator: IteratorValue, value: Value) -> Value:
    """`generator.send(value)`."""
    none = isinstance(value, Known) and value.obj is None
    if not isinstance(generator, Generator):
        raise Break("SJ020", "`send` to an iterator")
    if not none and not generator.started:
        raise Break("SJ030", "raises TypeError: a generator that was not started")
    if not none and any(block.ended for block in generator.frame.blocks):
        raise LeaveGenerator(generator.site)
    if generator.awaiting is not None:
        names.store(ev, generator.frame, generator.awaiting, value)
    item = next_item(ev, generator)
    if item is None:
        raise Break("SJ030", "raises StopIteration")
    return item


def close(ev: Evaluator, generator: IteratorValue) -> Value:
    """`generator.close()`: a generator that stands in no `with` or `try` just ends."""
    if not isinstance(generator, Generator) or generator.name is not None:
        raise Break("SJ020", "`close` of an iterator")
    if generator.frame in ev.frames:
        raise LeaveGenerator(generator.site)  # Python raises: it is executing
    _remember(ev, generator.frame)
    generator.frame.blocks.clear()
    ev.journal.set_attr(generator, "started", True)
    return constant(None)


def can_suspend(frame: Frame, node: cst.CSTNode) -> bool:
    """Whether the blocks of a `with` or `try` are run one after the other in a generator.

    That is exact for a context manager, which is always run to its end, if no jump leaves
    the blocks.
    """
    jumps = (cst.Return, cst.Break, cst.Continue)
    return isinstance(frame.generator, ManagerGenerator) and not any(
        isinstance(part, jumps) for part in subtree(node)
    )


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
    if not is_a(obj, FunctionType) or obj.__code__ is not _HELPER_CODE:
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
        raise Break(
            "SJ043",
            "a context manager is entered twice",
            hint="make a context manager for each `with`",
        )
    result = next_item(ev, context)
    if result is None:
        raise Break("SJ030", "raises RuntimeError: generator didn't yield")
    return result


def leave_generator(ev: Evaluator, context: Any) -> None:
    """Leaves such a manager: runs the rest of it."""
    if next_item(ev, context) is not None:
        raise Break("SJ030", "raises RuntimeError: generator didn't stop")
