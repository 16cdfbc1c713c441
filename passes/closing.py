"""Ends a segment: its call in the residual program, and what happens if it fails.

    a = torch.sin(x)                         failure = None
    log.append(a)                            try:
    y = a[i] * 2              becomes            y, a = segment_0(x, i)
    log.append(y)                            except Exception as error:
                                                 failure = error.with_traceback(None)
                                             if failure is not None:
                                                 sin = segment_0_step_0(x)[0]
                                                 log.append(sin)
                                                 segment_0_step_1(sin, i)   # y = a[i] * 2
                                                 raise failure
                                             log.append(a)
                                             log.append(y)

The steps run outside of the handler, or what they raise would have the first failure for its
context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from srcjit.origin import Origin

from . import undoing
from .contents import Contents, Rewritten
from .evaluate.values import TensorValue, Value
from .functional import functionalizes
from .program import Segment
from .stepwise import (
    Step,
    facts,
    is_mode,
    is_observable,
    is_risky,
    merged,
    must_run,
    operations,
    place_of,
    random_state,
    read_behind,
    rewind,
    segment_of,
    steps,
)

if TYPE_CHECKING:
    from .evaluate.builder import SegmentBuilder
    from .residual import ResidualBuilder


def close(
    residual: ResidualBuilder,
    builder: SegmentBuilder,
    produced: list[TensorValue],
    reachable: set[int],
) -> None:
    """Emits the call of the open segment and notes the segment.

    Args:
        residual: The program.
        builder: The open segment.
        produced: The tensors that are read behind it, in order.
        reachable: Ids of the tensors that are reached behind it.
    """
    _Closing(residual, builder, produced, reachable).close()


class _Closing:
    def __init__(
        self,
        residual: ResidualBuilder,
        builder: SegmentBuilder,
        produced: list[TensorValue],
        reachable: set[int],
    ) -> None:
        self.ev, self.residual, self.builder = residual.ev, residual, builder
        self.produced, self.reachable = produced, reachable
        self.nodes = operations(builder)
        self.grad = torch.is_grad_enabled()
        placeholders = [n for n in builder.graph.nodes if n.op == "placeholder"]
        self.inputs = dict(zip(placeholders, builder.inputs, strict=True))

    def close(self) -> None:
        risky = [node for node in self.nodes if is_risky(node)]
        watched = self.builder.watched or (not risky and self._effects_between())
        if watched and self._can_be_undone():
            self._undone()
            return
        if not risky:
            self._flush_early(0)
            origins = (n.meta["origin"] for n in self.nodes if "origin" in n.meta)
            self._whole((next(origins, None), ()))
            return
        self._flush_early(self.nodes.index(risky[0]))
        parts = steps(self.nodes, self.ev.effects)
        last = max(i for i, part in enumerate(parts) if part.risky)
        head, before = parts[: last + 1], self.nodes[: self.nodes.index(risky[-1])]
        place = place_of(head[-1])
        seen = [n for n in before if must_run(n)]
        if not seen and not place[1] and not any(p.effects for p in head[:-1]):
            self._whole(place)
        elif self._starts_again(before, risky[-1]):
            self._guarded(head)
        else:
            self._cut(parts, last)

    def _flush_early(self, count: int) -> None:
        """Replays the effects ahead of the first operation that may raise.

        An effect that needs a result of the segment has to wait, or one that shows a new
        object, which may hold more by the end; and so do those after it.
        """
        late = set(self.nodes[count:])
        ready = 0
        for effect in self.ev.effects:
            waits = effect.contents or self._awaited(effect.values)
            if effect.after in late or waits:
                break
            ready += 1
        effects = self.ev.effects[:ready]
        self.residual.drop_effects(ready)
        for effect in effects:
            effect.action()

    def _awaited(self, values: Sequence[Value]) -> set[fx.Node]:
        """Operations of the segment whose results are reached by values."""
        from .reachable import tensors_in

        tensors = [t for value in values for t in tensors_in(self.ev, value)]
        return {
            t.node
            for t in tensors
            if t.name is None and t.node is not None and t.node.op != "placeholder"
        }

    def _starts_again(self, before: list[fx.Node], last: fx.Node) -> bool:
        """Whether the segment leaves no trace if it fails.

        The numbers that it draws can be drawn again.
        """
        if any(facts(node).foreign for node in (*before, last)):
            return False
        if not any(self._writes_outside(node) for node in before):
            return True
        options = self.ev.options
        if options.backend != "srcjit" or options.stage == "specialize":
            return False
        return functionalizes(self._preview())

    def _effects_between(self) -> bool:
        """Whether the program does something between two operations."""
        last = next((n for n in reversed(self.nodes) if not is_mode(n)), None)
        before = {n for n in self.nodes if n is not last}
        return any(effect.after in before for effect in self.ev.effects)

    def _can_be_undone(self) -> bool:
        """Whether nothing has happened if the segment fails."""
        return self.residual.untouched and not any(
            facts(node).foreign or facts(node).draws or self._writes_outside(node)
            for node in self.nodes
        )

    def _writes_outside(self, node: fx.Node) -> bool:
        """Whether an operation may write to the memory of an input."""
        if not is_observable(node):
            return False
        if facts(node).writes:
            return True
        target = node.kwargs.get("out", node.args[0] if node.args else None)
        if not isinstance(target, fx.Node):
            return True
        storage = self._storage(self._value(target))
        return any(self._storage(value) == storage for value in self.inputs.values())

    def _storage(self, value: Value) -> int | None:
        if not isinstance(value, TensorValue):
            return None
        return int(value.fake.untyped_storage()._cdata)

    def _preview(self) -> Segment:
        """The segment as it is going to be."""
        whole = Step(self.nodes)
        wanted = {value.node for value in self.produced if value.node is not None}
        made: Segment = self._segment(self.builder.name, whole, wanted)[0]
        return made

    # ── the ways to run it ────────────────────────────────────────────────────────

    def _whole(self, place: tuple[Origin | None, tuple[Origin, ...]]) -> None:
        segment = self.builder.close(self.produced, self.grad)
        names = self.residual.names_for(self.produced, self.reachable)
        self.residual.call_segment(segment, self.builder.inputs, names, place)
        self._done(segment, self.produced, names)

    def _guarded(self, head: list[Step]) -> None:
        """One call; if it fails, what it was to do is done again, one step at a time."""
        ev, residual = self.ev, self.residual
        parts = merged(head)
        nodes = parts[-1].nodes
        del nodes[1 + max(i for i, n in enumerate(nodes) if is_risky(n)) :]
        prepared = self._prepared(parts)
        segment = self.builder.close(self.produced, self.grad)
        segment = replace(segment, may_raise=True)
        failure, error = residual.fresh("failure"), residual.fresh("error")
        names = residual.names_for(self.produced, self.reachable)
        draws = any(facts(node).draws for step in head for node in step.nodes)
        if draws:
            state = residual.fresh("random_numbers")
            residual.emit(
                f"{state} = {residual.constant_name(random_state, 'random_state')}()"
            )
        residual.emit(f"{failure} = None")
        residual.emit("try:")
        with residual.indented():
            origin = next(iter(segment.origins.values()), None)
            residual.call_segment(segment, self.builder.inputs, names, (origin, ()))
        residual.emit(f"except Exception as {error}:")
        with residual.indented():
            residual.emit(f"{failure} = {error}.with_traceback(None)")
        residual.emit(f"if {failure} is not None:")
        mark = ev.journal.mark()
        with residual.indented():
            if draws:
                rewinding = residual.constant_name(rewind, "rewind")
                residual.emit(f"{rewinding}({state})")
            rewritten = Rewritten(residual)
            for step, made, inputs, outputs in prepared:
                if made is not None:
                    rewritten.enter(_held_before(step))
                    self._step(step, made, inputs, outputs)
                for effect in step.effects if step is not prepared[-1][0] else ():
                    rewritten.enter(effect.contents)
                    effect.action()
            rewritten.leave(write=False)
            residual.emit(f"raise {failure}")
        ev.journal.rollback(mark)
        self._done(segment, self.produced, names)

    def _undone(self) -> None:
        """One call; if it fails, Python runs the function."""
        residual = self.residual
        segment = self.builder.close(self.produced, self.grad)
        names = residual.names_for(self.produced, self.reachable)
        origin = next(iter(segment.origins.values()), None)
        failure, error = residual.fresh("failure"), residual.fresh("error")
        residual.emit(f"{failure} = None")
        residual.emit("try:")
        with residual.indented():
            residual.call_segment(segment, self.builder.inputs, names, (origin, ()))
        residual.emit(f"except Exception as {error}:")
        with residual.indented():
            residual.emit(f"{failure} = {error}.with_traceback(None)")
        undoing.emit(self.ev, failure)
        self._done(segment, self.produced, names)

    def _step(
        self,
        step: Step,
        made: Segment,
        inputs: list[Value],
        outputs: list[TensorValue],
    ) -> None:
        names = [self.residual.fresh(v.node.name) for v in outputs]  # type: ignore[union-attr]
        self.residual.call_segment(made, inputs, names, place_of(step))
        for name, value in zip(names, outputs, strict=True):
            self.ev.journal.set_attr(value, "name", name)
        self.ev.steps.append(made)

    def _prepared(self, parts: list[Step]) -> list[Any]:
        """The segments of steps, with their inputs and outputs."""
        found: list[Any] = []
        for position, step in enumerate(parts):
            if not step.nodes:
                found.append((step, None, [], []))
                continue
            wanted = read_behind(parts, position)
            for later in parts[position:-1]:
                for effect in later.effects:
                    wanted |= self._awaited(effect.values)
            name = self.ev.namer.fresh(f"{self.builder.name}_step_{position}")
            found.append((step, *self._segment(name, step, wanted)))
        return found

    def _cut(self, parts: list[Step], last: int) -> None:
        """Several segments, so that what is between them has happened if one fails."""
        ev, residual = self.ev, self.residual
        tail = Step([n for part in parts[last + 1 :] for n in part.nodes])
        made = merged([*parts[: last + 1], tail], writes=True)
        produced = {value.node for value in self.produced if value.node is not None}
        reachable = self.reachable | {id(value) for value in self.inputs.values()}
        reachable |= {id(n.meta["value"]) for n in self.nodes if "value" in n.meta}
        rewritten = Rewritten(residual)
        for position, step in enumerate(made):
            if step.nodes:
                rewritten.enter(_held_before(step))
                wanted = produced | read_behind(made, position)
                for later in made[position:]:
                    for effect in later.effects:
                        wanted |= self._awaited(effect.values)
                segment, inputs, outputs = self._segment(
                    ev.next_segment(), step, wanted
                )
                names = residual.names_for(outputs, reachable)
                residual.call_segment(segment, inputs, names, place_of(step))
                self._done(segment, outputs, names)
            if step is not made[-1]:
                residual.drop_effects(len(step.effects))
                for effect in step.effects:
                    rewritten.enter(effect.contents)
                    effect.action()
        rewritten.leave(write=True)

    def _segment(self, name: str, step: Step, wanted: set[fx.Node]) -> Any:
        def sizes(inputs: list[Any]) -> list[Any]:
            return self.ev.sizes.placeholders(inputs, inputs)

        return segment_of(
            name, step, wanted, self._value, self.builder.fake, sizes, self.grad
        )

    def _value(self, node: fx.Node) -> Value:
        found: Value = self.inputs.get(node) or node.meta["value"]
        return found

    def _done(
        self, segment: Segment, outputs: list[TensorValue], names: list[str]
    ) -> None:
        for name, value in zip(names, outputs, strict=True):
            value.name = name
        self.ev.segments.append(segment)


def _held_before(step: Step) -> Contents:
    """What new objects hold when the operation of a step that may raise begins."""
    node = next((n for n in step.nodes if is_risky(n)), None)
    held: Contents = node.meta["contents"] if node is not None else {}
    return held
