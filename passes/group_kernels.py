"""The kernel of one group: what it computes, where it stores that, and in which order.

Before (a group that `passes.grouping` made, over (64 | 64)):

    total = reduction(sum, mm)      y = div(x, total)      y is stored

After:

    over i < 64, inner k < 64:
        total = sum(mm[64*i + k])
        y[64*i + k] = div(x[64*i + k], total)      # inner

Statements stand behind the reductions that they refer to; what goes over memory that the
kernel may also read is stored last.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from torch import fx

from .axes import tidy
from .definitions import MAP, REDUCTION, VIEW, Addition, Definition
from .groups import Group, Plan
from .in_place import Targets
from .indexing import ZERO
from .interleaved import interleaved
from .loops import (
    Const,
    Kernel,
    Label,
    Load,
    Reduce,
    Ref,
    Statement,
    Store,
    Value,
    check,
    op,
    walk,
)
from .placement import Places, without_moves
from .points import Trial, memory
from .rounding import Casts
from .unrolled import unrolled

Comments = Mapping[fx.Node, str]
"""ATen node -> the user's line, such as `21: y = torch.sin(x) * 2`."""

Made = tuple[Kernel, tuple[fx.Node, ...]]
"""A kernel, and the fx nodes whose work it does."""


def group_kernel(
    group: Group,
    grouped: Plan,
    *,
    comments: Comments,
    keep_fp32: bool,
    in_place: Targets,
    places: Places,
    starts: Targets | None = None,
) -> Made:
    """The kernel of a group, without a name, and the fx nodes whose work it does.

    Args:
        group: The group.
        grouped: What it is one of.
        comments: User lines for the kernel's labels.
        keep_fp32: Leave low-precision intermediates in float32.
        in_place: Results that it writes into the memory of an input.
        places: Where what has no memory of its own lies.
        starts: The memory that sums start in whose own `in_place` says to be another's.
    """
    maker = _KernelMaker(group, grouped, comments, keep_fp32, in_place, places, starts)
    return maker.make()


class _KernelMaker:
    def __init__(
        self,
        group: Group,
        grouped: Plan,
        comments: Comments,
        keep_fp32: bool,
        in_place: Targets,
        places: Places,
        starts: Targets | None,
    ) -> None:
        self.in_place, self.places, self.starts = in_place, places, starts or {}
        self.group, self.grouped = group, grouped
        self.comments = comments
        assert group.frame is not None
        self.trial = Trial(group.frame, group.members, grouped.inlined, places=places)
        self.labels: dict[Value, Label] = {}
        self.casts = Casts(keep_fp32)
        self._finish = self.casts.simplify

    def make(self) -> Made:
        body: list[Statement] = []
        trial, space = self.trial, self.trial.space
        inner = () if space.frame.full == 0 else space.inner
        order = sorted(self.group.members, key=lambda d: d.position)
        nodes: dict[fx.Node, None] = {}
        folded: dict[tuple[str, Value], Reduce] = {}
        for d in order:
            # A reduction of nothing is a constant (`Trial.member`).
            if d.kind == REDUCTION and space.frame.full != 0:
                folding = d.folding
                assert folding is not None
                value = self._finish(trial.compute(d))
                reduce = Reduce(d.name, folding.kind, value, d.dtype)
                same = folded.setdefault((folding.kind, value), reduce)
                if same is not reduce:
                    self.casts.done[reduce.ref] = same.ref
                    continue
                body.append(reduce)
                self._label(reduce.ref, d)
        for d in order:
            if space.frame.full == 0 and self.group.members[d] == "inner":
                continue
            value = self._finish(trial.member(d))
            if d.kind == MAP:
                self._label(value, d)
            if d.addition is not None:
                body.append(self._added(d.addition, d, value))
            elif d in self.grouped.stored:
                target = self.in_place.get(d, d)
                stride, offset = target.stride, ZERO
                if d in self.places:
                    place = self.places[d]
                    target, stride, offset = place.memory, place.stride, place.offset
                index = sum(
                    (i * s for i, s in zip(trial.places[d], stride, strict=True)),
                    start=offset,
                )
                level = self.group.members[d] if inner else "inner"
                body.append(Store(memory(target), sympy.expand(index), value, level))
        for (d, _), value in trial.done.items():
            if d.kind == MAP and d in self.grouped.inlined:
                self._label(self._finish(value), d)
        for d in order:
            self._collect(d, nodes)
        placed = {p.memory.name for p in self.places.values()}
        begun = (d.addition.start for d in self.grouped.stored if d.addition)
        placed |= {self.in_place[d].name for d in begun if d in self.in_place}
        names = {source.name for source in self.in_place.values()} | placed
        ordered = _ordered(body)
        late = [s for s in ordered if isinstance(s, Store) and s.buffer.name in names]
        body = [*(s for s in ordered if s not in late), *late]
        kernel = Kernel("", space.outer, inner, tuple(body), self.labels)
        kernel = tidy(without_moves(kernel, placed) if placed else kernel)
        if any(d.device.type == "cpu" for d in order):
            # A GPU's threads choose at no cost.
            kernel = unrolled(kernel)
            kernel = without_moves(kernel, placed) if placed else kernel
        else:
            kernel = interleaved(kernel)
        return check(kernel), tuple(
            n for n in self.grouped.lowered.values if n in nodes
        )

    def _added(self, addition: Addition, d: Definition, value: Value) -> Store:
        """The statement that adds a value to what `addition` says."""
        start = self.starts.get(addition.start, addition.start)
        where = addition.place(self.trial.read, self.trial.places[d])
        there = self._finish(self.trial.load(start, where))
        assert isinstance(there, Load)
        return Store(there.buffer, there.index, op("add", there, value), adds=True)

    def _collect(self, d: Definition, nodes: dict[fx.Node, None]) -> None:
        """Notes the nodes of a member and of what is inlined into it."""
        stack = [d]
        seen: set[Definition] = set()
        while stack:
            d = stack.pop()
            if d in seen:
                continue
            seen.add(d)
            if d.kind != VIEW:
                nodes[d.node] = None
            for operand in d.operands:
                if operand.kind == VIEW or operand in self.grouped.inlined:
                    stack.append(operand)

    def _label(self, value: Value, d: Definition) -> None:
        if isinstance(value, Const) or value in self.labels:
            return
        self.labels[value] = Label(d.name, self.comments.get(d.node, ""))


def _ordered(body: list[Statement]) -> tuple[Statement, ...]:
    """Puts each statement behind the reductions it refers to, stores as early as they can."""
    reduces = [s for s in body if isinstance(s, Reduce)]
    done: set[str] = set()
    ordered: list[Statement] = []
    stores = [s for s in body if isinstance(s, Store)]

    def ready(statement: Statement) -> bool:
        names = {v.name for v in walk([statement.value]) if isinstance(v, Ref)}
        return names <= done

    while reduces or stores:
        ordered.extend(s for s in stores if ready(s))
        stores = [s for s in stores if not ready(s)]
        if not reduces:
            break
        following = next(r for r in reduces if ready(r))
        reduces.remove(following)
        ordered.append(following)
        done.add(following.name)
    return tuple(ordered)
