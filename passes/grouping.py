"""Grouping: which definitions share a loop nest, which are memory, which are neither.

Before (definitions):

    total[i]  = sum(x[i, k] over k)
    mean[i]   = total[i] / 4096                 read once at each k: costs a division a row
    d[i, k]   = x[i, k] - mean[i]               read twice, but as cheap as a load: inlined
    sq[i]     = sum(d[i, k] * d[i, k] over k)
    y[i, k]   = d[i, k] * rsqrt(sq[i])          a result: memory

After:

    group 0 over (i | k): total, sq, y          one pass over each row, x read from memory once

The rules, by bytes moved through memory:

- what is cheap is computed where it is read (`passes.inlining`);
- the rest (*anchors*: results, operands of extern calls, reductions, dear values used twice)
  joins the group of what it reads or of what reads the same, if the iteration spaces agree,
  every value that it takes from the group is the one of its own point, and no extern call or
  other group stands between them;
- what is computed early to share a loop waits in memory: where that adds up to more than eager
  holds at once (`passes.peaks`), nothing is computed before an extern call that eager makes first,
  and totals of what extern calls give are kept instead of the summands.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from torch import fx

from .definitions import EXTERN, REDUCTION, VIEW, Definition, Lowered
from .groups import Group, Plan, base_of, extern_operands
from .inlining import Inlining, points, worth
from .partition import is_random
from .peaks import eager_peak, planned_peak, running_totals
from .points import NotHere, Trial
from .spaces import Frame, same

MAX_FUSED = 800
"""Primitives in a loop nest that nothing more joins: it is no longer memory that it waits for."""

DEAR_PRIMITIVES = 7
"""How many primitives more than one a costly primitive counts as: what a C++ compiler inlines."""


def plan(lowered: Lowered, apart: Container[Definition] = frozenset()) -> Plan:
    """Groups the definitions of a graph; those `apart` are put into memory."""
    inlining = Inlining(lowered, apart)
    grouping = _Grouping(inlining)
    found = grouping.run()
    limit = eager_peak(lowered, lambda d: _read(d, lowered))
    peak = planned_peak(found)
    if peak <= limit:
        return found
    late = _Grouping(inlining, hoist=False).run() if grouping.hoisted else found
    if planned_peak(late) < peak:
        found, peak = late, planned_peak(late)
    totals = running_totals(lowered) if peak > limit else set()
    if totals:
        kept = {d for d in lowered.definitions if d in totals or d in apart}
        late = _Grouping(Inlining(lowered, kept), hoist=False, sink=False).run()
        found = late if planned_peak(late) < peak else found
    return found


def _read(d: Definition, lowered: Lowered) -> Iterable[Definition]:
    return extern_operands(d.node, lowered) if d.kind == EXTERN else d.operands


class _Grouping:
    """Makes one plan; `hoisted` says whether something is computed before its turn."""

    def __init__(
        self, found: Inlining, *, hoist: bool = True, sink: bool = True
    ) -> None:
        self.lowered, self.live = found.lowered, found.live
        self.hoist, self.hoisted, self.sink = hoist, False, sink
        self.readers, self.pinned = found.readers, found.pinned
        self.inlined, self.leaves = found.inlined, found.leaves
        self.weight, self.dear = found.weight, found.dear
        self.home: dict[Definition, Group] = {}
        self.extern: dict[fx.Node, Group] = {}
        self.groups: list[Group] = []
        self.last_random: Group | None = None

    def run(self) -> Plan:
        for definition in self.lowered.definitions:
            if definition.kind == EXTERN:
                self._place_extern(definition)
            elif (
                definition.computed
                and definition not in self.inlined
                and definition in self.live
            ):
                self._place(definition)
        self._merge_groups()
        stored = dict(self.pinned)
        for group in self.groups:
            for member in group.members:
                group.reads.update(self.leaves[member])
                for leaf in self.leaves[member]:
                    if self.home.get(leaf) not in (None, group) and not leaf.constant:
                        stored[leaf] = None
        return Plan(
            tuple(self._ordered()),
            self.home,
            frozenset(d for d in stored if d.computed),
            self.lowered,
            frozenset(self.inlined),
        )

    # ── groups ────────────────────────────────────────────────────────────────────────────

    def _place_extern(self, d: Definition) -> None:
        group = self.extern.get(d.node)
        if group is None:
            group = self._new(d, None)
            group.extern = d.node
            self.extern[d.node] = group
            for operand in extern_operands(d.node, self.lowered):
                group.reads[base_of(operand)] = None
                self._depend(group, self.home.get(base_of(operand)))
            if is_random(d.node):
                self._depend(group, self.last_random)
                self.last_random = group
        self.home[d] = group

    def _new(self, d: Definition, frame: Frame | None) -> Group:
        group = Group(len(self.groups), d.position, frame)
        self.groups.append(group)
        return group

    def _depend(self, group: Group, other: Group | None) -> None:
        if other is None or other is group:
            return
        added = other.before | (1 << other.number)
        for g in self.groups:
            if g is group or g.before >> group.number & 1:
                g.before |= added

    def _place(self, d: Definition) -> None:
        for group in self._candidates(d):
            frame = self._joined_frame(d, group)
            if (
                frame is not None
                and self._acyclic(d, group)
                and self._fits(d, group, frame)
                and self._may_hoist(d, group)
            ):
                break
        else:
            group = self._new(d, _own_frame(d))
            assert group.frame is not None
            self._join(d, group, group.frame)
            return
        self._join(d, group, frame)

    def _join(self, d: Definition, group: Group, frame: Frame) -> None:
        if group.frame != frame:
            group.frame = frame
            for member in group.members:
                group.members[member] = _level(member, frame)
        group.members[d] = _level(d, frame)
        group.weight += self._work(d)
        self.home[d] = group
        for leaf in self.leaves[d]:
            self._depend(group, self.home.get(leaf))

    def _work(self, d: Definition) -> int:
        return self.weight[d] + DEAR_PRIMITIVES * self.dear[d]

    def _candidates(self, d: Definition) -> list[Group]:
        """Groups that `d` may join, best first: those it reads from, then its siblings."""
        found: dict[Group, None] = {}
        for leaf in self.leaves[d]:
            group = self.home.get(leaf)
            if group is not None and group.extern is None:
                found[group] = None
        vertical = sorted(found, key=lambda g: -g.number)
        siblings: dict[Group, None] = {}
        for leaf in self.leaves[d]:
            if not same(leaf.numel, points(d)):
                continue
            for reader in self._anchored_readers(leaf):
                group = self.home.get(reader)
                if group is not None and group not in found and group.extern is None:
                    siblings[group] = None
        return [*vertical, *sorted(siblings, key=lambda g: -g.number)]

    def _anchored_readers(self, leaf: Definition) -> Iterator[Definition]:
        seen: set[Definition] = set()
        stack = list(self.readers.get(leaf, ()))
        while stack:
            reader = stack.pop()
            if reader in seen:
                continue
            seen.add(reader)
            if reader.kind == VIEW or reader in self.inlined:
                stack.extend(self.readers.get(reader, ()))
            elif reader.computed:
                yield reader

    def _joined_frame(self, d: Definition, group: Group) -> Frame | None:
        """The frame that the group would have with `d`, or None if the spaces disagree."""
        frame = group.frame
        assert frame is not None
        if group.weight + self._work(d) > MAX_FUSED:
            return None
        if next(iter(group.members)).device != d.device:
            return None
        if d.kind == REDUCTION:
            if any(m.addition for m in group.members):
                return None
            own = _own_frame(d)
            if frame.folds:
                return frame if frame == own else None
            if same(frame.full, own.full):
                stores = own.columns and any(m in self.pinned for m in group.members)
                return None if stores else own
            return own if same(frame.full, own.kept) else None
        if d.addition and frame.folds:
            return None
        level = frame.level(d.numel)
        if level == "inner" and frame.columns:
            # A column reduction walks through memory with large steps; it stores whole
            # columns only where that saves it from being walked through once more.
            taken = [m for m in self.leaves[d] if m in group.members]
            if not taken or (
                d in self.pinned and not any(m.kind == REDUCTION for m in taken)
            ):
                return None
        return frame if level else None

    def _acyclic(self, d: Definition, group: Group) -> bool:
        """True if nothing that `d` reads from elsewhere depends on the group."""
        for leaf in self.leaves[d]:
            home = self.home.get(leaf)
            if (
                home is not None
                and home is not group
                and home.before >> group.number & 1
            ):
                return False
        return True

    def _fits(self, d: Definition, group: Group, frame: Frame) -> bool:
        """True if all that `d` takes from the group is of its own point."""
        if not any(self.home.get(leaf) is group for leaf in self.leaves[d]):
            return True
        members = {m: _level(m, frame) for m in (*group.members, d)}
        trial = Trial(frame, members, self.inlined, self._saved(group, (d,)))
        try:
            trial.compute(d)
        except NotHere:
            return False
        return True

    def _saved(self, group: Group, readers: Iterable[Definition]) -> int:
        """Values that may be computed again if `readers` then need no memory of `group`."""
        read = {leaf for d in readers for leaf in self.leaves[d]}
        return sum(worth(m) for m in group.members if m in read)

    def _may_hoist(self, d: Definition, group: Group) -> bool:
        """True if `d` may be computed with the group, with a note if that is early."""
        before = group.before
        for leaf in self.leaves[d]:
            home = self.home.get(leaf)
            if home is not None:
                before |= home.before | 1 << home.number
        return self._allow(group.position, d.position, before)

    def _allow(self, start: int, end: int, before: int) -> bool:
        """True unless an extern call between two positions need not come before, but could."""
        early = any(
            g.extern is not None
            and start < g.position < end
            and not (self.sink and before >> g.number & 1)
            for g in self.groups
        )
        self.hoisted = self.hoisted or early
        return self.hoist or not early

    # ── merging ───────────────────────────────────────────────────────────────────────────

    def _merge_groups(self) -> None:
        """Merges groups that read the same large memory and could run as one.

        Definitions join groups in the order of the graph, so a group may have found its
        frame only after one that would have fitted was made.
        """
        readers: dict[Definition, list[Group]] = {}
        for group in self.groups:
            for member in group.members:
                for leaf in self.leaves[member]:
                    if group not in readers.setdefault(leaf, []):
                        readers[leaf].append(group)
        for leaf, groups in readers.items():
            home = self.home.get(leaf)
            sharing = [home, *groups] if home is not None and home.members else groups
            for n, first in enumerate(sharing):
                for second in sharing[n + 1 :]:
                    if self._large(leaf, first, second):
                        self._merge(first, second)

    def _large(self, leaf: Definition, first: Group, second: Group) -> bool:
        return all(
            g.frame is not None and g.members and same(g.frame.full, leaf.numel)
            for g in (first, second)
        )

    def _merge(self, first: Group, second: Group) -> None:
        if first is second or first.weight + second.weight > MAX_FUSED:
            return
        one, other = first.frame, second.frame
        assert one is not None and other is not None
        if one.folds and other.folds and one != other:
            return
        frame = one if one.folds else other
        members = {**first.members, **second.members}
        if frame.folds and any(m.addition for m in members):
            return
        if frame.columns and any(
            m in self.pinned for m in members if m.kind != REDUCTION
        ):
            return
        if next(iter(first.members)).device != next(iter(second.members)).device:
            return
        for between in self.groups:
            for a, b in ((first, second), (second, first)):
                if between is a or between is b:
                    continue
                if between.before >> a.number & 1 and b.before >> between.number & 1:
                    return
        start, end = sorted((first.position, second.position))
        if not self._allow(start, end, first.before | second.before):
            return
        ordered = sorted(members, key=lambda d: d.position)
        levels = {m: _level(m, frame) for m in ordered}
        saved = self._saved(first, second.members) + self._saved(second, first.members)
        trial = Trial(frame, levels, self.inlined, saved)
        try:
            for member in ordered:
                trial.compute(member)
        except NotHere:
            return
        first.frame, first.members = frame, trial.members
        first.weight += second.weight
        first.position = min(first.position, second.position)
        for member in second.members:
            self.home[member] = first
        second.members = {}
        bit, gone = 1 << first.number, 1 << second.number
        first.before = (first.before | second.before) & ~(bit | gone)
        for group in self.groups:
            if group.before & (bit | gone) and group is not first:
                group.before = (group.before | bit | first.before) & ~gone

    def _ordered(self) -> Iterator[Group]:
        """Topological order; among those that can run, the one that comes first in the graph."""
        done = 0
        left = sorted(
            (g for g in self.groups if g.members or g.extern), key=lambda g: g.position
        )
        while left:
            ready = next(g for g in left if g.before & ~done == 0)
            done |= 1 << ready.number
            left.remove(ready)
            yield ready


def _own_frame(d: Definition) -> Frame:
    if d.folding:
        return Frame.of(d.folding.full, d.folding.reduced)
    return Frame.pointwise(d.numel)


def _level(d: Definition, frame: Frame) -> str:
    if d.kind == REDUCTION:
        return "outer"
    level = frame.level(d.numel)
    assert level is not None
    return level
