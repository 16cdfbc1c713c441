"""Fusion: from groups of definitions to kernels, in an order in which they can run.

Before (the groups that `passes.grouping` made):

    group 0 over 4096        sin, mul                 pointwise
    group 1                  aten.mm.default          extern
    group 2 over (64 | 64)   total, y                 reduction with its epilogue

After:

    Launch(kernel sin_mul over i < 4096: mul[i] = mul(sin(x[i]), 2.0))
    Call(mm = aten.mm.default(mul, w))
    Launch(kernel sum_div over i < 64, inner k < 64: total = sum(mm[64*i + k]); …)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from torch import fx

from .attention import labelled
from .definitions import EXTERN, MAP, SOURCE, Definition, Lowered
from .group_kernels import Comments, Made, group_kernel
from .grouping import plan
from .groups import Group, Plan
from .in_place import Targets, candidates, safe
from .kernel_names import KernelNamer, kernel_name, named
from .loops import Kernel, Store
from .placement import Places, Unsafe, alike, find_places
from .schedule import Attend, Call, Launch, Schedule, Summed
from .spaces import Frame


def fuse(
    lowered: Lowered,
    *,
    comments: Comments | None = None,
    words: Mapping[fx.Node, str] | None = None,
    keep_fp32: bool = False,
    taken: Iterable[str] = (),
    prefix: str = "",
    mutations: Targets | None = None,
    reusing: bool = False,
    apart: Container[Definition] = frozenset(),
) -> Schedule:
    """Returns the kernels and calls that compute a graph.

    Args:
        lowered: The definitions.
        comments: User lines for the kernels' labels.
        keep_fp32: Leave low-precision intermediates of a kernel in float32.
        words: The torch function that each node came from, for names of kernels.
        taken: Names that kernels must not have.
        prefix: What the names of kernels start with.
        mutations: Results that are to be copied into inputs and wanted nowhere else.
        reusing: Leave those to `passes.reuse` whose input lies idle before they are written.
        apart: What is put into memory before others read it.
    """
    grouped = plan(lowered, apart)
    barred: set[Definition] = set()
    while True:
        found = find_places(grouped, mutations or {}, barred) if reusing else {}
        namer = KernelNamer({*taken, *(d.name for d in lowered.definitions)})
        try:
            return _Scheduler(
                grouped,
                namer,
                found,
                comments=comments or {},
                words=words or {},
                keep_fp32=keep_fp32,
                prefix=prefix,
                mutations=mutations or {},
                reusing=reusing,
            ).schedule()
        except Unsafe as error:
            barred.add(error.whole)


class _Scheduler:
    """Turns the groups of a plan into steps, one after the other.

    Attributes:
        in_place: Results that kernels write into the memory of an input. Those that turn out
            not to be safe there leave it on the way.
        places: Where what has no memory of its own lies.
    """

    def __init__(
        self,
        grouped: Plan,
        namer: KernelNamer,
        places: Places,
        *,
        comments: Comments,
        words: Mapping[fx.Node, str],
        keep_fp32: bool,
        prefix: str,
        mutations: Targets,
        reusing: bool,
    ) -> None:
        self.grouped, self.lowered, self.places = grouped, grouped.lowered, places
        self.namer, self.prefix, self.words = namer, prefix, words
        self.comments, self.keep_fp32, self.reusing = comments, keep_fp32, reusing
        self.in_place = dict(candidates(grouped, mutations))
        for d, place in places.items():
            if place.memory.kind == SOURCE and d is place.whole:
                self.in_place[d] = place.memory
        self.wholes = {p.memory: p.whole for p in places.values()}
        self.steps: list[Launch | Call] = []
        self.stored: list[Definition] = []
        self.empty: list[Definition] = []

    def schedule(self) -> Schedule:
        """The steps of the plan.

        Raises:
            Unsafe: If a kernel would read what lies in one of the places too late.
        """
        read: set[Definition] = set()
        for group in self.grouped.groups:
            before = frozenset(read)
            read.update(group.reads)
            if group.extern is None:
                self._launch(group, before)
            elif group.extern in self.lowered.streams:
                self._attend(group.extern)
            else:
                self._call(group.extern)
        return Schedule(
            tuple(self.steps),
            tuple(self.stored),
            self.lowered,
            tuple(self.empty),
            self.in_place,
            places=self.places,
        )

    def _name(self, nodes: tuple[fx.Node, ...]) -> str:
        return self.namer(self.prefix + kernel_name(nodes, self.words))

    def _attend(self, node: fx.Node) -> None:
        """An attention, by a library or streamed by a kernel."""
        found = self.lowered.streams[node]
        if found.library is not None:
            self.steps.append(Attend(node, library=found.library))
            return
        self.stored.append(found.result)
        attention = named(labelled(found, self.comments), self._name(found.nodes))
        self.steps.append(Launch(attention, found.nodes))

    def _call(self, node: fx.Node) -> None:
        """A call that the host makes, or none where launches have added its result up."""
        value = self.lowered.values[node]
        if isinstance(value, Definition) and value.summed:
            start = value.summed.start
            start = self.in_place.get(start, start)
            self.steps.append(Summed(node, result=value, start=start))
            return
        place = self.places.get(value) if isinstance(value, Definition) else None
        there = place is not None and place.in_place
        self.steps.append(Call(node, in_place=there, place=place))

    def _launch(self, group: Group, before: Container[Definition]) -> None:
        """The kernel of a group, and those that write into inputs behind it.

        Args:
            group: The group.
            before: What groups before it read.
        """
        in_place = self.in_place
        writes = self._written(group)
        if not writes:
            return
        self.stored.extend(d for d in writes if d not in self.places and not d.addition)
        targets = {
            d: in_place[d] for d in writes if d in in_place and d not in self.places
        }
        for d in list(targets):
            idle = targets[d].stride == d.stride and targets[d] not in group.reads
            called = any(r.kind == EXTERN and alike(r, d) for r in group.reads)
            if self.reusing and idle and (targets[d] in before or called):
                del targets[d], in_place[d]
        kernel, nodes = self._kernel(group, targets, in_place)
        outputs = {b.name for b in kernel.outputs}
        for d in writes:
            memory = self.places[d].memory if d in self.places else d
            written = memory in self.wholes and memory.name in outputs
            if written and not safe(kernel, memory.name):
                raise Unsafe(self.wholes[memory])
        if not any(isinstance(s, Store) for s in kernel.body):
            return
        unsafe = [d for d, source in targets.items() if not safe(kernel, source.name)]
        made = [(kernel, nodes)]
        if unsafe:
            apart = self._apart(group, targets, unsafe)
            for d in {*unsafe, *apart}:
                del targets[d]
                if d not in apart:
                    del in_place[d]
            kernel, nodes = self._kernel(group, targets, in_place)
            made = [(_without(kernel, {d.name for d in apart}), nodes), *apart.values()]
        for kernel, nodes in made:
            self.steps.append(Launch(named(kernel, self._name(nodes)), nodes))

    def _written(self, group: Group) -> list[Definition]:
        """What the kernel of a group puts into memory; notes what has no elements."""
        writes = [m for m in group.members if m in self.grouped.stored]
        frame = group.frame
        assert frame is not None
        if frame.kept == 0 or (not frame.folds and frame.full == 0):
            self.empty.extend(m for m in writes if not m.addition)
            return []
        if frame.full == 0:
            self.empty.extend(m for m in writes if group.members[m] == "inner")
            return [m for m in writes if group.members[m] == "outer"]
        return writes

    def _kernel(
        self, group: Group, targets: Targets, starts: Targets | None = None
    ) -> Made:
        return group_kernel(
            group,
            self.grouped,
            comments=self.comments,
            keep_fp32=self.keep_fp32,
            in_place=targets,
            places=self.places,
            starts=starts,
        )

    def _apart(
        self, group: Group, targets: Targets, unsafe: Iterable[Definition]
    ) -> dict[Definition, Made]:
        """Kernels that write results into inputs behind a group that reads these elsewhere.

        To read the operands once more is cheaper than memory that is then copied.
        """
        stored = [m for m in group.members if m in self.grouped.stored]
        found: dict[Definition, Made] = {}
        hidden = {m.name for m in group.members if m not in stored or m in targets}
        written = {source.name: d for d, source in targets.items()}
        waiting = list(unsafe)
        for d in waiting:
            if d.kind != MAP:
                continue
            frame = Frame.pointwise(d.numel)
            own = replace(group, frame=frame, members={d: "inner"})
            kernel, nodes = self._kernel(own, {d: targets[d]})
            read = {b.name for b in kernel.inputs}
            if read & hidden or not safe(kernel, targets[d].name):
                continue
            found[d] = kernel, nodes
            # What it reads must not have been written by then.
            others = (written[name] for name in sorted(read & {*written}))
            waiting += [other for other in others if other not in waiting]
        order = sorted(found, key=lambda d: d.position)
        for d in tuple(order):
            before = {
                s.name
                for t, s in targets.items()
                if t not in order or t in order[: order.index(d)]
            }
            if {b.name for b in found[d][0].inputs} & (before - {targets[d].name}):
                order.remove(d)
        # What only they store is all that a group may be there for.
        return {d: found[d] for d in order} if {*stored} - {*order} else {}


def _without(kernel: Kernel, names: Container[str]) -> Kernel:
    """The kernel without the stores into some memory."""
    stores = (s for s in kernel.body if isinstance(s, Store))
    gone = [s for s in stores if s.buffer.name in names]
    return replace(kernel, body=tuple(s for s in kernel.body if s not in gone))
