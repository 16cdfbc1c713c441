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

- what reads nothing, or costs no more to compute again than to load, is never memory;
- what is used once is computed where it is used;
- what is read at several points (`x[1:] + x[:-1]`) is computed again for each of them, or by a
  member of its group, only while that is cheaper than memory is (`AGAIN`);
- the rest (*anchors*: results, operands of extern calls, reductions, dear values used twice)
  joins the group of what it reads or of what reads the same, if the iteration spaces agree,
  every value that it takes from the group is the one of its own point, and no extern call or
  other group stands between them;
- what is computed early to share a loop waits in memory: where that adds up to more than eager
  holds at once (`passes.peaks`), nothing is computed before an extern call that eager makes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import fx

from .definitions import EXTERN, MAP, REDUCTION, VIEW, Definition, Lowered
from .groups import Group, Plan, base_of, extern_operands
from .indexing import Index, product, symbol
from .loops import Expr
from .partition import is_random
from .peaks import amount, eager_peak, planned_peak
from .points import NotHere, Trial
from .spaces import Frame, same

MAX_INLINED = 200
"""Primitives that are inlined into one value before it becomes an anchor."""

MAX_FUSED = 800
"""Primitives in a loop nest that nothing more joins: it is no longer memory that it waits for."""

DEAR_PRIMITIVES = 7
"""How many primitives more than one a costly primitive counts as: what a C++ compiler inlines."""

AGAIN = {"cpu": 1, "cuda": 4}
"""Primitives that are rather computed again, for another point, than a byte is moved, by device.

A chain each of whose members reads the one before it at two points (`x[1:] + x[:-1]`) would
compute its first member `2**n` times.
"""


def plan(lowered: Lowered) -> Plan:
    """Groups the definitions of a graph."""
    grouping = _Grouping(lowered)
    found = grouping.run()
    if not grouping.hoisted:
        return found
    peak = planned_peak(found)
    if peak <= eager_peak(lowered, lambda d: _read(d, lowered)):
        return found
    late = _Grouping(lowered, hoist=False).run()
    return late if planned_peak(late) < peak else found


def _read(d: Definition, lowered: Lowered) -> Iterable[Definition]:
    return extern_operands(d.node, lowered) if d.kind == EXTERN else d.operands


MAX_MEETING = 16
"""Definitions on the ways from the uses of a definition to where they meet."""


class _Grouping:
    """Makes one plan; `hoisted` says whether something is computed before its turn."""

    def __init__(self, lowered: Lowered, *, hoist: bool = True) -> None:
        self.lowered = lowered
        self.hoist, self.hoisted = hoist, False
        self.readers: dict[Definition, dict[Definition, None]] = {}
        self.pinned: dict[Definition, None] = {}
        self.inlined: set[Definition] = set()
        self.weight: dict[Definition, int] = {}
        self.dear: dict[Definition, int] = {}
        self.leaves: dict[Definition, dict[Definition, None]] = {}
        self.home: dict[Definition, Group] = {}
        self.extern: dict[fx.Node, Group] = {}
        self.groups: list[Group] = []
        self.last_random: Group | None = None

    def run(self) -> Plan:
        self._find_uses()
        for definition in self.lowered.definitions:
            self._decide(definition)
        for definition in self.lowered.definitions:
            if definition.kind == EXTERN:
                self._place_extern(definition)
            elif (
                definition.computed
                and definition not in self.inlined
                and self._live(definition)
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

    # ── uses ──────────────────────────────────────────────────────────────────────────────

    def _find_uses(self) -> None:
        live: set[Definition] = set()
        stack: list[Definition] = []

        def pin(definition: Definition) -> None:
            self.pinned[base_of(definition)] = None
            stack.append(definition)

        for result in self.lowered.results:
            if isinstance(result, Definition):
                pin(result)
        for definition in self.lowered.definitions:
            if definition.kind == EXTERN:
                for operand in extern_operands(definition.node, self.lowered):
                    pin(operand)
        while stack:
            definition = stack.pop()
            if definition in live:
                continue
            live.add(definition)
            stack.extend(definition.operands)
        self.live = live
        for definition in self.lowered.definitions:
            if definition in live:
                for operand in definition.operands:
                    self.readers.setdefault(operand, {})[definition] = None

    def _live(self, definition: Definition) -> bool:
        return definition in self.live

    def _uses(self, definition: Definition) -> Iterator[Definition]:
        """Computed definitions that read this one, directly or through views."""
        stack = list(reversed(self.readers.get(definition, {})))
        while stack:
            reader = stack.pop()
            if reader.kind == VIEW:
                stack.extend(reversed(self.readers.get(reader, {})))
            elif reader.computed:
                yield reader

    # ── what is inlined ───────────────────────────────────────────────────────────────────

    def _decide(self, d: Definition) -> None:
        leaves: dict[Definition, None] = {}
        weight = d.primitives
        dear = d.dear
        for operand in (access.operand for access in dict.fromkeys(d.accesses)):
            if operand.kind == VIEW or operand in self.inlined:
                leaves.update(self.leaves[operand])
                weight += self.weight[operand]
                dear += self.dear[operand]
            else:
                leaves[operand] = None
        self.leaves[d], self.weight[d], self.dear[d] = leaves, weight, dear
        if d.kind == MAP and d not in self.pinned and self._live(d) and self._inline(d):
            self.inlined.add(d)

    def _inline(self, d: Definition) -> bool:
        if d.constant:
            return True
        if self.weight[d] > MAX_INLINED:
            return False
        uses = list(dict.fromkeys(self._uses(d)))
        widest = max((_points(u) for u in uses), key=amount, default=d.numel)
        expands = not (same(widest, d.numel) or _smaller(widest, d.numel))
        again = self._computed_again(d)
        if self.dear[d] == 0:
            if again * self.weight[d] > _worth(d):
                return False
            if len(uses) <= 1 or self._meet(uses):
                return True
            # Computing again reads the leaves; loading reads `d`, and someone wrote it.
            cost = sum((leaf.bytes for leaf in self.leaves[d]), start=0 * d.bytes)
            return not _smaller(d.bytes * 5, cost * 4)
        return len(uses) <= 1 and not expands and again == 0

    def _meet(self, uses: list[Definition]) -> bool:
        """True if all that is computed from the uses goes through one of them or their own.

        Then one loop nest reads the leaves, which are in the cache when it reads them again.
        """
        order = {d.position: d for d in uses}
        for _ in range(MAX_MEETING):
            if len(order) == 1:
                return True
            d = order.pop(min(order))
            if d.kind != MAP or d in self.pinned:
                return False
            order.update((u.position, u) for u in self._uses(d))
        return False

    def _computed_again(self, d: Definition) -> float:
        """How often it is computed again, at each point, if its readers compute it.

        `x[1:] + x[:-1]` computes each element of `x` twice, so once again. Readers that read
        it at the same index of their own may share a loop, and count once.
        """
        found: dict[tuple[object, ...], float] = {}
        stack: list[tuple[Definition, tuple[object, ...]]] = [(d, ())]
        while stack:
            read, way = stack.pop()
            for reader in self.readers.get(read, ()):
                for access in dict.fromkeys(reader.accesses):
                    if access.operand is not read:
                        continue
                    own = reader.folding.full if reader.folding else reader.size
                    here = way if _is_own(access.index, own) else (access.index, *way)
                    if reader.kind == VIEW:
                        stack.append((reader, here))
                    elif reader.computed:
                        points = self._reading_points(reader)
                        found[here] = max(found.get(here, 0.0), points)
        if len(found) <= 1:
            return 0.0
        every = max(amount(d.numel), *found.values(), 1.0)
        return max(sum(found.values()) / every - 1, 0.0)

    def _reading_points(self, d: Definition) -> float:
        """Number of points at which `d` is computed: `cat` computes all its pieces at all."""
        wider = self._uses(d) if d.kind == MAP and d not in self.pinned else ()
        return max(amount(_points(u)) for u in (d, *wider))

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
            if not same(leaf.numel, _points(d)):
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
            own = _own_frame(d)
            if frame.folds:
                return frame if frame == own else None
            if same(frame.full, own.full):
                stores = own.columns and any(m in self.pinned for m in group.members)
                return None if stores else own
            return own if same(frame.full, own.kept) else None
        level = frame.level(d.numel)
        if level == "inner" and frame.columns and d in self.pinned:
            # A column reduction walks through memory with large steps; it stores whole
            # columns only where that saves it from being walked through once more.
            if not any(
                m.kind == REDUCTION and m in group.members for m in self.leaves[d]
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
        return sum(_worth(m) for m in group.members if m in read)

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
            and not before >> g.number & 1
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


def _worth(d: Definition) -> int:
    """Primitives that cost as much as one element of `d` written to memory and read again."""
    return AGAIN.get(d.device.type, 1) * 2 * max(d.dtype.itemsize, 4)


def _is_own(index: Index, size: tuple[Expr, ...]) -> bool:
    """True for the index that is the reader's own."""
    return len(index) == len(size) and all(
        i == symbol(f"d{k}") for k, i in enumerate(index)
    )


def _points(d: Definition) -> Expr:
    """Number of points at which `d` reads its operands."""
    return product(d.folding.full) if d.folding else d.numel


def _smaller(first: Expr, second: Expr) -> bool:
    return amount(first) < amount(second)


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
