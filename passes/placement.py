"""Placement: what goes into a part of a tensor is computed there.

Before, what the host of `y = x.clone(); y[:, :200].cumsum_(1)` does:

    cumsum = torch.cumsum(x[:, 0:200], 1)                   memory of its own
    clone_kernel(cumsum, x, y)                              y is x, and in the part cumsum

After:

    y = empty_cpu((256, 256), (256, 1), torch.float32)
    torch.ops.aten.cumsum.out(x[:, 0:200], 1, out=<that part of y>)
    clone_kernel(x, y)                                      only the rest

So a program that computes into slices holds no more than eager does, and what it computes is
not moved. The memory is that of the whole: of its own, of the temporary that it is a changed
copy of, or of the input that it goes into, from the first step on that computes a part. No
other step may then read there what was there before: a kernel only where it writes
(`passes.in_place.safe`), an extern call only if it has a form that works in place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx

from .definitions import EXTERN, MAP, SOURCE, VIEW, Definition
from .groups import Group, Plan, base_of, extern_operands
from .in_place import Targets, is_wanted_apart
from .indexing import ONE, ZERO, as_expr, symbol
from .loops import Expr, Kernel, Load, Op, Store, Value
from .partition import is_random
from .peaks import amount, planned_peak
from .record import has_in_place_form
from .regions import Range, Region
from .spelling import out_form

if TYPE_CHECKING:
    from .schedule import Schedule

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Place:
    """Where a definition lies that has no memory of its own.

    Attributes:
        memory: What it lies in.
        stride: How its elements lie there.
        offset: Where its first one lies, in elements.
        whole: The tensor that it is a part of, or that itself.
        in_place: It is the result of a call that works in place.
    """

    memory: Definition
    stride: tuple[Expr, ...]
    offset: Expr
    whole: Definition
    in_place: bool = False


Places = Mapping[Definition, Place]


def alike(d: Definition, other: Definition) -> bool:
    """True if what one lies in can hold the other."""
    facts = ("dtype", "device", "size", "stride")
    return all(getattr(d, f) == getattr(other, f) for f in facts)


class Unsafe(Exception):
    """A kernel reads a place before it is written, or something that lay there."""

    def __init__(self, whole: Definition) -> None:
        super().__init__(whole.name)
        self.whole = whole


def find_places(
    plan: Plan, mutations: Targets, barred: Container[Definition] = ()
) -> dict[Definition, Place]:
    """Finds what can be computed where it goes.

    Args:
        plan: Groups in order.
        mutations: Results that only go into inputs.
        barred: Tensors whose parts are computed apart.
    """
    finder = _Finder(plan, mutations)
    for d in plan.lowered.definitions:
        moves = _moves(d, plan, *_SCATTERS, aten.clone.default)
        if d not in barred and d in plan.stored and moves:
            finder.place_parts(d)
    return finder.places


# ── which parts there are ─────────────────────────────────────────────────────────────────

_SCATTERS = (aten.slice_scatter.default, aten.select_scatter.default)


def _moves(d: Definition, plan: Plan, *targets: Any) -> bool:
    """Whether it is computed by one of these operators."""
    own = plan.lowered.values.get(d.node) is d
    return own and d.kind == MAP and d.node.target in targets


class _Finder:
    def __init__(self, plan: Plan, mutations: Targets) -> None:
        self.plan, self.lowered, self.mutations = plan, plan.lowered, mutations
        self.position = {group: n for n, group in enumerate(plan.groups)}
        self.places: dict[Definition, Place] = {}
        results = (r for r in self.lowered.results if isinstance(r, Definition))
        self.shown = {base_of(r) for r in results}
        self.readers: dict[Definition, list[Group]] = {}
        self.peak = planned_peak(plan)
        for group in plan.groups:
            for d in group.reads:
                self.readers.setdefault(d, []).append(group)

    def place_parts(self, whole: Definition) -> None:
        """Finds memory for a tensor and the parts of it, if some have memory of their own."""
        walk = _Parts(self, whole)
        if not walk.found:
            return
        home = self.plan.home[whole]
        for memory in self._memories(whole, walk):
            if not self._may_lie(whole, memory):
                continue
            if any(self._reads_old(d, memory) for d in walk.computed):
                continue
            found = dict(self._placed(whole, memory, walk.found))
            if len(found) < (memory is not whole) + 1:
                continue
            first = min(self.position[self.plan.home[d]] for d in found)
            if not self._is_left_alone(memory, home, found, first):
                continue
            trial = {**self.places, **found}
            peak = planned_peak(self.plan, {d: p.memory for d, p in trial.items()})
            if peak <= self.peak:
                self.places, self.peak = trial, peak
                return

    def _reads_old(self, d: Definition, memory: Definition) -> bool:
        """Whether what is computed of a part reads what lay there before the part."""
        there = {memory, *(o for o, p in self.places.items() if p.memory is memory)}
        return bool(self._read_by([d]) & there)

    # ── where they can lie ────────────────────────────────────────────────────────────────

    def _memories(self, whole: Definition, parts: _Parts) -> list[Definition]:
        """What a tensor may lie in, best first."""
        if whole in self.mutations:
            return [self.mutations[whole]]
        base = parts.base
        if base is None:
            return [whole]
        if base in self.places:
            base = self.places[base].memory
        # `passes.reuse` may let it take the memory of its base, but not before its turn.
        taken = sum(amount(d.bytes) for d, _ in parts.found) < amount(whole.bytes)
        last = max((self.position[g] for g in self.readers.get(base, ())), default=0)
        dies = last <= self.position[self.plan.home[whole]]
        kept = taken and dies and self._may_lie(whole, base)
        return [base] if kept else [base, whole]

    def _may_lie(self, whole: Definition, memory: Definition) -> bool:
        """Whether a tensor can have some memory at all."""
        if memory is whole:
            return True
        if not alike(whole, memory):
            return False
        if memory in self.places:
            return False
        if memory is self.mutations.get(whole):
            return not is_wanted_apart(whole, self.lowered)
        if self.plan.home.get(memory) is self.plan.home[whole]:
            return False
        return memory not in self.shown and self._owned(memory)

    def _owned(self, d: Definition) -> bool:
        """True for a temporary that has memory of its own."""
        if d.kind in (SOURCE, VIEW):
            return False
        return d in self.plan.stored if d.kind != EXTERN else self._is_plain_call(d)

    def _is_plain_call(self, d: Definition) -> bool:
        schema = getattr(d.node.target, "_schema", None)
        return (
            schema is not None
            and d.added is None
            and schema.name.startswith("aten::")
            and "unsafe" not in schema.name
            and self.lowered.values.get(d.node) is d
            and d.node not in self.lowered.streams
            and not is_random(d.node)
            and not any(r.alias_info is not None for r in schema.returns)
        )

    def _placed(
        self,
        whole: Definition,
        memory: Definition,
        parts: Iterable[tuple[Definition, Region]],
    ) -> Iterator[tuple[Definition, Place]]:
        """Places of a tensor and of those parts of it that can be computed there."""
        if memory is not whole:
            yield whole, Place(memory, whole.stride, ZERO, whole)
        for part, region in parts:
            steps = zip(region.ranges, whole.stride, strict=True)
            offset = sum((r.first * s for r, s in steps), start=ZERO)
            stride = region.stride(whole.stride)
            place = Place(memory, stride, sympy.expand(offset), whole)
            if part.kind != EXTERN:
                yield part, place
            elif self._works_there(part, place):
                yield part, replace(place, in_place=True)
            elif out_form(part.node.target) is not None and not any(
                self._lies_in(d, memory)
                for d in extern_operands(part.node, self.lowered)
            ):
                yield part, place

    def _works_there(self, part: Definition, place: Place) -> bool:
        """Whether a call works in place and its first operand is what lies in the place."""
        node, memory = part.node, place.memory
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or not has_in_place_form(node.target):
            return False
        reading = [
            operand
            for operand in self._operands(node)
            if any(self._lies_in(d, memory) for d in self._values(operand))
        ]
        shown_of = base_of(self.lowered.values[first]) if reading == [first] else part
        if shown_of is not memory:
            there = self.places.get(shown_of)
            if there is None or there.whole is not shown_of:
                return False
        shown, base = first.meta["val"], shown_of.node.meta["val"]
        offset = as_expr(shown.storage_offset()) - as_expr(base.storage_offset())
        return (
            shown.dtype is part.dtype
            and tuple(map(as_expr, shown.size())) == part.size
            and tuple(map(as_expr, shown.stride())) == place.stride
            and sympy.expand(offset - place.offset) == 0
        )

    def _lies_in(self, d: Definition, memory: Definition) -> bool:
        base = base_of(d)
        place = self.places.get(base)
        return base is memory or (place is not None and place.memory is memory)

    def _operands(self, node: fx.Node) -> list[fx.Node]:
        found: list[fx.Node] = []
        fx.node.map_arg((node.args, node.kwargs), found.append)
        return found

    def _values(self, node: fx.Node) -> list[Definition]:
        value = self.lowered.values[node]
        parts = value if isinstance(value, tuple | list) else (value,)
        return [d for d in parts if isinstance(d, Definition)]

    def _is_left_alone(
        self, memory: Definition, home: Group, found: Places, first: int
    ) -> bool:
        """Whether nothing but the whole and its parts is read there once they are written.

        Kernels that compute them are looked at when they are made.
        """
        there = [memory, *(d for d, p in self.places.items() if p.memory is memory)]
        made = {self.plan.home.get(d) for d in there} - {None}
        if made == {home}:
            return True
        if any(self.position[group] >= first for group in made if group is not None):
            return False
        writing = {self.plan.home[d]: d for d in found}
        for reader in (r for d in there for r in self.readers.get(d, ())):
            d = writing.get(reader)
            writes = d is not None and (reader.extern is None or found[d].in_place)
            if self.position[reader] >= first and reader is not home and not writes:
                return False
        whole = next(iter(found.values())).whole
        others = [d for d in home.members if d is not whole]
        return not self._read_by(others) & {d for d in there if d is not whole}

    def _read_by(self, members: Iterable[Definition]) -> set[Definition]:
        """The memory that members of a group read, apart from what other members give them."""
        found: set[Definition] = set()
        waiting = [o for d in members for o in d.operands]
        seen: set[Definition] = set()
        while waiting:
            d = waiting.pop()
            if d in seen:
                continue
            seen.add(d)
            if d.kind == VIEW or d in self.plan.inlined:
                waiting += d.operands
            else:
                found.add(d)
        return found


class _Parts:
    """The parts of a tensor that have memory of their own, and what it is a copy of.

    Attributes:
        found: Definitions, and where in the tensor they go.
        base: What the rest of it is; None if that is not one tensor of the same size.
        computed: What the kernel of the whole computes of parts that lie there until then.
    """

    def __init__(self, finder: _Finder, whole: Definition) -> None:
        self.finder, self.whole = finder, whole
        self.found: list[tuple[Definition, Region]] = []
        self.base: Definition | None = None
        self.computed: list[Definition] = []
        self._written: list[Region] = []
        ranges = tuple(Range(ZERO, ONE, n) for n in whole.size)
        region = Region(ranges, tuple(range(len(ranges))))
        if _moves(whole, finder.plan, *_SCATTERS):
            self._open(whole, region, True)
        else:
            self._look(whole.accesses[0].operand, region)

    def _open(self, d: Definition, region: Region, outermost: bool) -> None:
        """Looks at the part that is written last, then at what is around it."""
        lowered = self.finder.lowered
        base, source, dim, *rest = _arguments(d.node)
        dim %= len(d.size)
        if region.dims[dim] is None:
            return
        value, below = lowered.values[source], lowered.values[base]
        if d.node.target is aten.select_scatter.default:
            index = as_expr(rest[0])
            if not index.is_Integer:
                return
            index = index if index >= 0 else index + d.size[dim]
            inner = region.narrowed(dim, Range(index, ONE, ONE), gone=True)
        else:
            start = ZERO if rest[0] is None else as_expr(rest[0])
            size = d.size[dim]
            if start.is_negative or not (start.is_Integer or start.is_nonnegative):
                return
            if start.is_Integer and size.is_Integer:
                start = sympy.Integer(min(int(start), int(size)))
            step = as_expr(rest[2])
            inner = region.narrowed(dim, Range(start, step, value.size[dim]))
        if inner.size != value.size:
            return
        self._look(value, inner)
        self._written.append(inner)
        if self._is_inlined(below, *_SCATTERS):
            self._open(below, region, outermost)
        elif outermost:
            self.base = below

    def _is_inlined(self, d: Definition, *targets: Any) -> bool:
        plan = self.finder.plan
        return d in plan.inlined and _moves(d, plan, *targets)

    def _look(self, d: Definition, region: Region) -> None:
        seen = region
        while d.kind == VIEW or self._is_inlined(d, aten.clone.default):
            through = seen.seen_through(d)
            if through is None:
                return
            seen = through
            d = d.accesses[0].operand
        if self._is_inlined(d, *_SCATTERS):
            self._open(d, seen, False)
        elif self._is_apart(d, seen):
            self.found.append((d, seen))
        elif d in self.finder.plan.inlined:
            before = self._read_for(d, seen)
            if before is not None:
                self.found.append((before, seen))
                self.computed.append(d)

    def _read_for(self, d: Definition, region: Region) -> Definition | None:
        """What can lie in a part until what is computed of it goes there."""
        position, plan = self.finder.position, self.finder.plan
        end = position[plan.home[self.whole]]
        waiting = [d]
        for reader in waiting:
            own = tuple(symbol(f"d{k}") for k in range(len(reader.size)))
            for access in reader.accesses:
                operand = access.operand
                if access.index != own or operand in waiting:
                    continue
                if operand in plan.inlined:
                    waiting.append(operand)
                elif self._is_apart(operand, region):
                    readers = self.finder.readers.get(operand, ())
                    if all(position[g] <= end for g in readers):
                        return operand
        return None

    def _is_apart(self, d: Definition, region: Region) -> bool:
        """Whether it has memory only until it is moved into the tensor."""
        finder, whole = self.finder, self.whole
        home = finder.plan.home.get(d)
        if home is None or home is finder.plan.home[whole]:
            return False
        if (d.dtype, d.device, d.size) != (whole.dtype, whole.device, region.size):
            return False
        if d in finder.shown or d in finder.places or d.numel == 0:
            return False
        if any(place.memory is d for place in finder.places.values()):
            # Others lie in its memory.
            return False
        if any(region.meets(written) for written in self._written):
            return False
        stride = region.stride(whole.stride)
        for group in finder.readers.get(d, ()):
            # What a call gives may have strides like those of its operands.
            taken = group.extern in finder.lowered.streams or d.stride != stride
            if group.extern is not None and taken:
                return False
        if d.kind == EXTERN:
            return finder._is_plain_call(d)
        return d.kind == MAP and d in finder.plan.stored


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    """The base, the source, the dimension, and start, end and step or the index."""
    target: Any = node.target
    given = dict(zip((a.name for a in target._schema.arguments), node.args))
    given.update(node.kwargs)
    values = []
    for argument in target._schema.arguments:
        value: Any = given.get(argument.name, argument.default_value)
        is_number = isinstance(value, fx.Node) and argument.name not in ("self", "src")
        values.append(value.meta["val"] if is_number else value)
    return tuple(values)


# ── what to compute apart ─────────────────────────────────────────────────────────────────

LEAST = 1 << 14
"""Bytes of an input below which it may as well be copied."""


def parts_apart(schedule: Schedule, mutations: Targets) -> frozenset[Definition]:
    """What goes into parts of inputs that no step writes, because their old values are read.

    In memory of its own it can be computed where it goes, or before anything is written.
    """
    written = {*schedule.in_place, *schedule.landed}
    values = schedule.lowered.values
    found: set[Definition] = set()
    for whole, target in mutations.items():
        if whole in written or amount(target.bytes) < LEAST:
            continue
        waiting = [whole.node] if values.get(whole.node) is whole else []
        while waiting:
            node = waiting.pop()
            if node.target in _SCATTERS:
                waiting += [n for n in node.args[:2] if isinstance(n, fx.Node)]
            elif node is not whole.node:
                d = values[node]
                if not isinstance(d, Definition) or d.kind != MAP or d.constant:
                    continue
                # What a call gives is memory already, and its copy need not be.
                copy = node.target is aten.clone.default
                if not copy or base_of(d.accesses[0].operand).kind != EXTERN:
                    found.add(d)
    return frozenset(found)


# ── kernels ───────────────────────────────────────────────────────────────────────────────


def without_moves(kernel: Kernel, names: Container[str]) -> Kernel:
    """The kernel without stores of what lies there already."""
    moves = [
        s
        for s in kernel.body
        if isinstance(s, Store)
        and s.buffer.name in names
        and _is_there(s.value, s)
        # Where a mask is false, what is loaded is 0.
        and not (isinstance(s.value, Load) and s.value.mask is not None)
    ]
    return replace(kernel, body=tuple(s for s in kernel.body if s not in moves))


def _is_there(value: Value, store: Store) -> bool:
    if isinstance(value, Load):
        same = value.buffer.name == store.buffer.name and not value.indirect
        return same and sympy.expand(value.index - store.index) == 0
    if isinstance(value, Op) and value.name == "where":
        return all(_is_there(v, store) for v in value.args[1:])
    return False
