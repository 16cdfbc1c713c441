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
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import sympy
from torch import fx

from .attention import labelled
from .attention_form import Attention
from .attention_library import Library
from .axes import tidy
from .crossed_form import Crossed
from .definitions import (
    EXTERN,
    MAP,
    REDUCTION,
    SOURCE,
    VIEW,
    Addition,
    Definition,
    Lowered,
)
from .grouping import plan
from .groups import Group, Plan
from .in_place import Targets, candidates, safe
from .indexing import ZERO
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
    moved_bytes,
    op,
    walk,
)
from .placement import Place, Places, Unsafe, alike, find_places, without_moves
from .points import Trial, memory
from .rounding import Casts
from .spaces import Frame
from .spelling import spell_expr
from .unrolled import unrolled

AnyKernel = TypeVar("AnyKernel", Kernel, Attention)

Launched: TypeAlias = Kernel | Attention | Crossed
"""What a launch runs."""

Comments = Mapping[fx.Node, str]
"""ATen node -> the user's line, such as `21: y = torch.sin(x) * 2`."""


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel call: `kernel` reads and writes the definitions of the same names.

    Those in `reused` it writes into the memory of another (`passes.reuse`).
    """

    kernel: Launched
    nodes: tuple[fx.Node, ...]
    reused: Targets = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Call:
    """An extern call that the host makes: the ATen call of `node`.

    With `in_place` it writes over its first operand, which nothing reads afterwards; with
    `out` its results into these inputs; with `place` its result there.
    """

    node: fx.Node
    in_place: bool = False
    out: tuple[Definition, ...] = ()
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class Attend(Call):
    """The call of a library that gives what the call of `node` gives."""

    library: Library = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Summed(Call):
    """No call: launches have added all that the result of `node` is the sum of.

    It lies in the memory of `start`, which was written first.
    """

    result: Definition = field(kw_only=True)
    start: Definition = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Schedule:
    """What the host does, in order.

    Attributes:
        steps: Kernel launches and extern calls.
        stored: Definitions that kernels put into memory, in order of their launch.
        lowered: The definitions.
        empty: Definitions without elements, which no kernel writes.
        in_place: Results that kernels write into the memory of an input.
        landed: Results that end in the memory of an input, because what the steps before
            leave there is written over (`passes.reuse`).
        places: Where what has no memory of its own lies (`passes.placement`).
    """

    steps: tuple[Launch | Call, ...]
    stored: tuple[Definition, ...]
    lowered: Lowered
    empty: tuple[Definition, ...] = ()
    in_place: Targets = field(default_factory=dict)
    landed: Targets = field(default_factory=dict)
    places: Places = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[Launched, ...]:
        """The kernels in order of their launch, but for those that have nothing to do."""
        launches = (s.kernel for s in self.steps if isinstance(s, Launch))
        return tuple(k for k in launches if k.outputs or isinstance(k, Attention))


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
        namer = _Namer({*taken, *(d.name for d in lowered.definitions)})
        try:
            return _schedule(
                grouped,
                namer,
                found,
                comments=comments or {},
                words=words or {},
                keep_fp32=keep_fp32,
                prefix=prefix,
                mutations=mutations or {},
                reusing=reusing,
            )
        except Unsafe as error:
            barred.add(error.whole)


def _schedule(
    grouped: Plan,
    namer: _Namer,
    places: Places,
    *,
    comments: Comments,
    words: Mapping[fx.Node, str],
    keep_fp32: bool,
    prefix: str,
    mutations: Targets,
    reusing: bool,
) -> Schedule:
    """The steps of a plan.

    Raises:
        Unsafe: If a kernel would read what lies in one of the places too late.
    """
    lowered = grouped.lowered
    in_place = candidates(grouped, mutations)
    in_place |= {
        d: p.memory
        for d, p in places.items()
        if p.memory.kind == SOURCE and d is p.whole
    }
    wholes = {p.memory: p.whole for p in places.values()}
    steps: list[Launch | Call] = []
    stored: list[Definition] = []
    empty: list[Definition] = []
    read: set[Definition] = set()
    for group in grouped.groups:
        before = frozenset(read)
        read.update(group.reads)
        if group.extern is not None and group.extern in lowered.streams:
            found = lowered.streams[group.extern]
            if found.library is not None:
                steps.append(Attend(group.extern, library=found.library))
                continue
            stored.append(found.result)
            name = namer(prefix + _kernel_name(found.nodes, words))
            attention = _renamed(labelled(found, comments), name)
            steps.append(Launch(attention, found.nodes))
            continue
        if group.extern is not None:
            value = lowered.values[group.extern]
            if isinstance(value, Definition) and value.summed:
                start = value.summed.start
                start = in_place.get(start, start)
                steps.append(Summed(group.extern, result=value, start=start))
                continue
            place = places.get(value) if isinstance(value, Definition) else None
            there = place is not None and place.in_place
            steps.append(Call(group.extern, in_place=there, place=place))
            continue
        writes = [m for m in group.members if m in grouped.stored]
        assert group.frame is not None
        if group.frame.kept == 0 or (not group.frame.folds and group.frame.full == 0):
            empty.extend(m for m in writes if not m.addition)
            continue
        if group.frame.full == 0:
            empty.extend(m for m in writes if group.members[m] == "inner")
            writes = [m for m in writes if group.members[m] == "outer"]
        if not writes:
            continue
        stored.extend(d for d in writes if d not in places and not d.addition)
        targets = {d: in_place[d] for d in writes if d in in_place and d not in places}
        for d in list(targets):
            idle = targets[d].stride == d.stride and targets[d] not in group.reads
            called = any(r.kind == EXTERN and alike(r, d) for r in group.reads)
            if reusing and idle and (targets[d] in before or called):
                del targets[d], in_place[d]
        maker = _KernelMaker(
            group, grouped, comments, keep_fp32, targets, places, in_place
        )
        kernel, nodes = maker.make()
        outputs = {b.name for b in kernel.outputs}
        for d in writes:
            memory = places[d].memory if d in places else d
            written = memory in wholes and memory.name in outputs
            if written and not safe(kernel, memory.name):
                raise Unsafe(wholes[memory])
        if not any(isinstance(s, Store) for s in kernel.body):
            continue
        unsafe = [d for d, source in targets.items() if not safe(kernel, source.name)]
        made = [(kernel, nodes)]
        if unsafe:
            apart = _apart(group, grouped, comments, keep_fp32, targets, unsafe, places)
            for d in {*unsafe, *apart}:
                del targets[d]
                if d not in apart:
                    del in_place[d]
            maker = _KernelMaker(
                group, grouped, comments, keep_fp32, targets, places, in_place
            )
            kernel, nodes = maker.make()
            made = [(_without(kernel, {d.name for d in apart}), nodes), *apart.values()]
        for kernel, nodes in made:
            name = namer(prefix + _kernel_name(nodes, words))
            steps.append(Launch(_renamed(kernel, name), nodes))
    return Schedule(
        tuple(steps), tuple(stored), lowered, tuple(empty), in_place, places=places
    )


Made = tuple[Kernel, tuple[fx.Node, ...]]
"""A kernel, and the fx nodes whose work it does."""


def _apart(
    group: Group,
    grouped: Plan,
    comments: Comments,
    keep_fp32: bool,
    targets: Targets,
    unsafe: Iterable[Definition],
    places: Places,
) -> dict[Definition, Made]:
    """Kernels that write results into inputs behind a group that reads these elsewhere.

    To read the operands once more is cheaper than memory that is then copied.
    """
    found: dict[Definition, Made] = {}
    hidden = {m.name for m in group.members if m not in grouped.stored or m in targets}
    written = {source.name: d for d, source in targets.items()}
    waiting = list(unsafe)
    for d in waiting:
        if d.kind != MAP:
            continue
        frame = Frame.pointwise(d.numel)
        own = replace(group, frame=frame, members={d: "inner"})
        maker = _KernelMaker(own, grouped, comments, keep_fp32, {d: targets[d]}, places)
        kernel, nodes = maker.make()
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
    left = {m for m in group.members if m in grouped.stored} - {*order}
    return {d: found[d] for d in order} if left else {}


def _without(kernel: Kernel, names: Container[str]) -> Kernel:
    """The kernel without the stores into some memory."""
    stores = (s for s in kernel.body if isinstance(s, Store))
    gone = [s for s in stores if s.buffer.name in names]
    return replace(kernel, body=tuple(s for s in kernel.body if s not in gone))


def _renamed(kernel: AnyKernel, name: str) -> AnyKernel:
    reads, writes = moved_bytes(kernel)
    comment = f"reads {amount(reads)}, writes {amount(writes)}"
    return replace(kernel, name=name, comment=comment)


def amount(number: sympy.Expr) -> str:
    """Bytes as a person says them: `4.0 kB`."""
    if not number.is_Integer:
        return f"{spell_expr(sympy.expand(number))} B"
    size = float(number)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


class _KernelMaker:
    def __init__(
        self,
        group: Group,
        grouped: Plan,
        comments: Comments,
        keep_fp32: bool,
        in_place: Targets,
        places: Places,
        starts: Targets | None = None,
    ) -> None:
        self.in_place, self.places, self.starts = in_place, places, starts or {}
        self.group, self.grouped = group, grouped
        self.comments = comments
        assert group.frame is not None
        self.trial = Trial(group.frame, group.members, grouped.inlined, places=places)
        self.labels: dict[Value, Label] = {}
        self.casts = Casts(keep_fp32)
        self._finish = self.casts.simplify

    def make(self) -> tuple[Kernel, tuple[fx.Node, ...]]:
        """The kernel, and the fx nodes whose work it does."""
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
            # A GPU's threads choose at no cost, and write what is side by side.
            kernel = unrolled(kernel)
            kernel = without_moves(kernel, placed) if placed else kernel
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


_QUIET = frozenset(
    "view reshape expand permute transpose t alias _to_copy to full zeros ones clone contiguous "
    "squeeze unsqueeze getitem float bfloat16 half double type flatten unflatten view_as".split()
)
"""Functions that say little about what a kernel computes."""


def _kernel_name(nodes: tuple[fx.Node, ...], words: Mapping[fx.Node, str]) -> str:
    """`sin_mul_sum`: the user's functions in order, views and conversions left out."""
    loud: dict[str, None] = {}
    quiet: dict[str, None] = {}
    for node in nodes:
        parts = str(node.target).split(".")
        word = words.get(node) or (parts[1] if len(parts) > 1 else parts[0])
        word = word.strip("_")
        if not word.isidentifier():
            continue
        (quiet if word in _QUIET else loud)[word] = None
    chosen = list(loud) or list(quiet) or ["kernel"]
    if len(chosen) > 4:
        chosen = [*chosen[:3], chosen[-1]]
    return "_".join(chosen)


class _Namer:
    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def __call__(self, wanted: str) -> str:
        name, number = wanted, 1
        if "_" not in wanted or wanted in self.taken:
            # Else it would be called like a function of C or like the tensor it computes.
            name = wanted = f"{wanted}_kernel"
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name
