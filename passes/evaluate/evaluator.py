"""The online partial evaluator: walks a function once with its actual arguments at hand.

    def f(x, n):                      # f(tensor, 2)
        for i in range(n):
            x = x.sin() + i
        return x

evaluates to one segment `x.sin() + 0, .sin() + 1` and the guards `n == 2` and the tensor facts
of `x`. This module holds the state of an evaluation and its main loop; each kind of statement
and expression has a module of its own, and `split` says what happens at a graph break.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import libcst as cst
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from srcjit.diagnostics import Diagnostic
from srcjit.options import Options
from srcjit.origin import Origin
from srcjit.source import FunctionSource

from ..contents import Contents, contents
from ..namer import Namer
from ..program import Continuation, Hints, Native, Segment
from ..scopes import all_names
from . import size_sums
from .breaks import Break, Place, unknown_operand
from .builder import SegmentBuilder, no_operand
from .frames import Block, Flow, Frame
from .guarding import GuardRecorder
from .journal import Journal
from .size_arithmetic import pinned
from .sizes import Sizes
from .sources import Item, Source
from .unsaved import Unsaved
from .values import (
    DictValue,
    Known,
    LazyValue,
    ListValue,
    Scalar,
    TupleValue,
    Unknown,
    Value,
    constant,
    described,
    is_constant,
)
from .wrapping import wrap


@dataclass(frozen=True, eq=False)
class Effect:
    """Something that the program does to an object that existed before.

    Attributes:
        action: Adds the lines that do it.
        values: What it needs.
        after: The last operation of the open segment before it.
        contents: What new objects among them hold at this moment.
    """

    action: Callable[[], None]
    values: tuple[Value, ...]
    after: torch.fx.Node | None
    contents: Contents


class Evaluator:
    """One specialization in the making."""

    def __init__(
        self,
        function: FunctionType,
        source: FunctionSource,
        options: Options,
        dynamic: frozenset[str],
        taken_names: set[str],
        sizes: Mapping[str, frozenset[int]] | None = None,
    ) -> None:
        from ..residual import ResidualBuilder
        from .functions import compiler_names

        self.function = function
        self.source = source
        self.options = options
        self.dynamic = dynamic
        self.journal = Journal()
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=False, static_shapes=True)
        self.namer = Namer(taken_names, compiler_names(function, source))
        self.guards = GuardRecorder(self.journal, self.namer)
        self.residual = ResidualBuilder(self)
        self.sizes = Sizes(self, sizes)
        self.frames: list[Frame] = []
        self.activations: list[Frame] = []
        """All frames there have been, those that were left included."""
        self.arguments: dict[str, Any] = {}
        self.own_locals: set[str] = set()
        """Locals of the function (no parameters) that the residual program does not use yet."""
        self.wide: set[Any] = set()
        """Symbols of run-time ints that may have more than 64 bits."""
        self.can_split = True
        self.finished = False
        self.memo: dict[Any, tuple[Value, Source]] = {}
        self.unsaved = Unsaved(self)
        self.keep_alive: list[Any] = []
        self.scalar_sources: dict[str, str] = {}
        """Residual text of a dynamic number -> its source, as a guard spells it."""
        self.needed: Scalar | None = None
        """The run-time number for whose value the program is being split."""
        self.python_generators: frozenset[Origin] = frozenset()
        """Statements whose generators Python makes, because they live across a break."""
        self.shared_variables: Mapping[Place, frozenset[str]] = {}
        """Variables of functions that are kept in lists, because nested functions share them."""
        self.hints = Hints()
        self.resumed: frozenset[Origin] = frozenset()
        """Where the functions broke whose rest the function is."""
        self.effects: list[Effect] = []
        self.effect_values: list[Value] = []
        self.overlay: dict[tuple[int, str], Value] = {}
        self.to_keep: dict[tuple[Frame, str], tuple[str, Value]] = {}
        """Stores of variables to what keeps them that are not emitted; see `keeping`."""
        self.kept: dict[tuple[Frame, str], str | None] = {}
        """What was stored there last, as text; None for nothing."""
        self.seen: dict[int, Value] = {}
        """Tensors that Python has seen, by the `id` of their values."""
        self.segments: list[Segment] = []
        self.items_taken = 0
        self.removes = False
        """Whether the program takes something out of an object that existed before."""
        self.steps: list[Segment] = []
        self._segment_prefix = "segment_"
        while any(
            name.removeprefix(self._segment_prefix).isdigit() for name in taken_names
        ):
            self._segment_prefix = f"compiled_{self._segment_prefix}"
        self.builder = SegmentBuilder(self, self.next_segment())
        self.breaks: list[Diagnostic] = []
        self.last_break_segments = -1
        self.continuations: list[Continuation] = []
        self.natives: list[Native] = []
        self._origin_stack: list[Origin] = []

    def next_segment(self) -> str:
        """The name of the segment that comes next; no variable of the user's is called so."""
        return f"{self._segment_prefix}{len(self.segments)}"

    # ── main loop ─────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Evaluates until the residual program returns."""
        while not self.finished:
            self._step(self.frames[-1], 0, split=True)

    def release(self) -> None:
        """Lets go of the program's objects; only what `Sizes.settle` reads is left.

        What an evaluation holds refers to itself, so that it would keep them until garbage
        is collected: the memory of tensors, and finalizers that the program waits for.
        """
        for frame in self.activations:
            frame.release()
        self.journal.forget()
        left = self.fake_mode
        vars(self).clear()
        self.fake_mode = left

    def namer_for(self, frame: Frame) -> Namer:
        """Returns what makes names for a frame's text: they are none of those in it.

        The program's own variables may be called as the text's: where both meet, those of
        the text are renamed.
        """
        if frame.namer is None:
            names, own = all_names(frame.source.tree), frame.scope.compiler_names
            frame.namer = self.namer.beside(names, own)
        return frame.namer

    def run_nested(self, frame: Frame) -> Value:
        """Evaluates a call inside an expression; a graph break in it propagates."""
        result: list[Value] = []
        frame.on_return = result.append
        depth = len(self.frames)
        can_split, self.can_split = self.can_split, False
        self.frames.append(frame)
        try:
            while len(self.frames) > depth:
                self._step(self.frames[-1], 0, split=False)
        except Break as stop:
            stop.inlined = True
            raise
        finally:
            del self.frames[depth:]
            self.can_split = can_split
        return result[0]

    def run_block(self, frame: Frame, statements: Any) -> tuple[Flow, Value | None]:
        """Evaluates a statement list of `frame` as part of one transaction.

        Returns how it ended, and the value for `Flow.RETURN`.
        """
        base = len(frame.blocks)
        blocks = list(frame.blocks)
        frame.blocks.append(Block(statements))
        can_split, self.can_split = self.can_split, False
        try:
            while len(frame.blocks) > base:
                flow = self._step(frame, base, split=False)
                if flow is not None:
                    return flow
            return Flow.NEXT, None
        finally:
            frame.blocks[:] = blocks
            self.can_split = can_split

    def _step(
        self, frame: Frame, base: int, split: bool
    ) -> tuple[Flow, Value | None] | None:
        from . import split as splitting
        from .statements import execute

        if not frame.blocks:
            self.leave(frame, constant(None))
            return None
        block = frame.blocks[-1]
        if block.index >= len(block.statements):
            if split:
                mark = self.journal.mark()
                try:
                    self._end_of_block(frame, block)
                except Break as stop:
                    self.journal.rollback(mark)
                    splitting.handle_loop_head(self, frame, block, stop)
            else:
                self._end_of_block(frame, block)
            return None
        statement = block.statements[block.index]
        frame.statement, frame.expression = statement, None
        # Library code is shown as the user's line that called it.
        origin = None if frame.scope.frozen else frame.origins.get(statement)
        mark = self.journal.mark()
        if origin is not None:
            self._origin_stack.append(origin)
        try:
            self.journal.set_attr(block, "index", block.index + 1)
            flow, value = execute(self, frame, statement)
        except Break as stop:
            if not split:
                raise
            self.journal.rollback(mark)
            splitting.handle(self, frame, statement, stop)
            return None
        finally:
            if origin is not None:
                self._origin_stack.pop()
        return self._unwind(frame, base, flow, value)

    def _unwind(
        self, frame: Frame, base: int, flow: Flow, value: Value | None
    ) -> tuple[Flow, Value | None] | None:
        if flow is Flow.NEXT:
            return None
        if flow is Flow.RETURN:
            if base:
                return flow, value
            assert value is not None
            self.leave(frame, value)
            return None
        while len(frame.blocks) > base:
            block = frame.blocks[-1]
            if block.kind != "body":
                if flow is Flow.BREAK:
                    frame.blocks.pop()
                else:
                    block.index = len(block.statements)
                return None
            frame.blocks.pop()
        return flow, value

    def _end_of_block(self, frame: Frame, block: Block) -> None:
        from .loops import next_iteration

        if block.kind == "body":
            frame.blocks.pop()
            if block.ended is not None:
                block.ended()
        else:
            next_iteration(self, frame, block)

    def leave(self, frame: Frame, value: Value) -> None:
        """Ends a call: hands `value` to the caller, or ends the residual program."""
        self.frames.pop()
        if frame.on_return is not None:
            frame.on_return(value)
            return
        self.residual.finish(value)
        self.finished = True

    def depth(self) -> int:
        """Number of calls that are being evaluated."""
        return len(self.frames)

    # ── places ────────────────────────────────────────────────────────────────────

    def statement_origin(self) -> Origin | None:
        """The origin of the innermost statement that is being evaluated."""
        return self._origin_stack[-1] if self._origin_stack else None

    def user_origin(self) -> Origin | None:
        """Like `statement_origin`; for library code that was entered, the call of it."""
        return self.statement_origin() or next(reversed(self.call_stack()), None)

    def call_stack(self) -> tuple[Origin, ...]:
        """Where each of the user's functions stands that are being evaluated, outermost first."""
        found = []
        for frame in self.frames:
            if frame.scope.frozen:
                continue
            origin = None
            if frame.expression is not None:
                origin = frame.origins.get(_line_of(frame.expression))
            if origin is None and frame.statement is not None:
                origin = frame.origins.get(frame.statement)
            if origin is not None:
                found.append(origin)
        return tuple(found)

    def origin_of(self, frame: Frame, node: cst.CSTNode | None) -> Origin | None:
        """The origin of `node`, or of the statement around it."""
        if frame.scope.frozen:
            return self.statement_origin()
        origin = frame.origins.get(node) if node is not None else None
        return origin or self.statement_origin()

    # ── values ────────────────────────────────────────────────────────────────────

    def wrap(self, obj: Any, source: Source) -> Value:
        """Returns the value for an object that existed before the call."""
        return wrap(self, obj, source)

    def lazy(self, obj: Any, source: Source) -> Value:
        """Like `wrap`, but nothing is guarded before somebody looks."""
        return LazyValue(obj, source)

    def look(self, value: Value) -> Value:
        """Returns `value`, wrapped if it was lazy."""
        return (
            self.wrap(value.obj, value.source)
            if isinstance(value, LazyValue)
            else value
        )

    def scalar(self, text: str, kind: type, hint: str, *, wide: bool = False) -> Scalar:
        """Returns a new run-time number of exact type `kind` (int, float or bool).

        If it is `wide`, it may be an int of more than 64 bits.
        """
        symbol: Any = None
        shape_env = self.shape_env()
        with shape_env.ignore_fresh_unbacked_symbols():
            if kind is int:
                symbol = shape_env.create_unbacked_symint()
                if wide:
                    self.wide.add(symbol.node.expr)
            elif kind is float:
                symbol = shape_env.create_unbacked_symfloat()
            elif kind is bool:
                symbol = shape_env.create_unbacked_symbool()
        return Scalar(text, kind, symbol, name=hint)

    def shape_env(self) -> Any:
        """PyTorch's book of symbolic numbers, and of what was decided on them."""
        if self.fake_mode.shape_env is None:
            # Made when the first number needs it: it imports a large part of PyTorch.
            from torch.fx.experimental.symbolic_shapes import ShapeEnv

            size_sums.correct()
            self.fake_mode.shape_env = ShapeEnv(
                allow_scalar_outputs=False,
                allow_dynamic_output_shape_ops=False,
                duck_shape=False,
            )
        return self.fake_mode.shape_env

    def use(self, value: Known) -> Any:
        """Returns the object of a known value, guarded because something depends on it."""
        if value.source is not None:
            if is_constant(value.obj):
                self.guards.value_of(value.source, value.obj)
            else:
                self.guards.identity_of(value.source, value.obj)
        return value.obj

    def use_deep(self, value: Value) -> None:
        """Guards every constant inside an operand."""
        match value:
            case Known() if value.source is not None and is_constant(value.obj):
                self.use(value)
            case TupleValue():
                for item in value.items:
                    self.use_deep(self.look(item))
            case ListValue():
                for item in self.list_items(value):
                    self.use_deep(item)
            case DictValue():
                for item in self.dict_items(value).values():
                    self.use_deep(item)

    def known(self, value: Value, what: str) -> Any:
        """Returns the real, immutable object of `value`, guarded.

        Raises:
            Break: When it is only known at run time; `what` names the use.
        """
        match value:
            case Known() if is_constant(value.obj):
                return self.use(value)
            case Known():
                return self.use(value)
            case TupleValue():
                items = [self.known(self.look(item), what) for item in value.items]
                return (
                    value.cls(items)
                    if value.cls in (tuple, torch.Size)
                    else value.cls(*items)
                )
            case Scalar() if value.sizes:
                return pinned(self, value)
            case Scalar():
                raise Break(
                    "SJ020",
                    f"{what} needs a number that is not known",
                    needs_known=value,
                )
            case Unknown():
                raise unknown_operand(f"{what} needs")
        raise Break("SJ020", f"{what} needs a constant, not {described(value)}")

    def is_parameter(self, value: Scalar) -> bool:
        """Whether a run-time number comes from what the caller passed, and could be known."""
        from .split import mentions

        return any(mentions(value.text, text) for text in self.scalar_sources)

    def operand_constant(self, value: Known) -> Any:
        """Returns the fx argument for a known operand of a tensor operation."""
        if is_constant(value.obj):
            return self.use(value)
        if value.source is None or callable(value.obj):
            return self.use(value)
        raise no_operand(value)

    def list_items(self, value: ListValue) -> list[Value]:
        """Returns the items of a list, read (and its length guarded) on the first look."""
        items = value.items
        if items is None:
            assert value.obj is not None and value.source is not None
            self.guards.add(f"len({value.source.guard}) == {len(value.obj)}")
            items = [
                self.lazy(obj, Item(value.source, i)) for i, obj in enumerate(value.obj)
            ]
            items += value.appended
            self.journal.set_attr(value, "items", items)
        if any(isinstance(item, LazyValue) for item in items):
            # NOTE: journaled, so that after a rollback the items are guarded again.
            self.journal.replace_list(items, [self.look(item) for item in items])
        return items

    def dict_items(self, value: DictValue) -> dict[Any, Value]:
        """Returns the entries of a dict."""
        for key, item in list(value.items.items()):
            if isinstance(item, LazyValue):
                self.journal.set_item(value.items, key, self.look(item))
        return value.items

    def effect(self, action: Callable[[], None], *values: Value) -> None:
        """Schedules an effect on an object that existed before; replayed in program order."""
        after = self.builder.last_operation()
        held = contents(self, values)
        self.journal.append(self.effects, Effect(action, values, after, held))
        for value in values:
            self.journal.append(self.effect_values, value)


def _line_of(node: cst.CSTNode) -> cst.CSTNode:
    """The part of an expression on whose line CPython says that it raises."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.attr
    if isinstance(node, cst.Attribute):
        return node.attr
    return node
