"""Inlining: which definitions are computed where they are read.

Before (definitions):

    mean[i]   = total[i] / 4096                 read once at each k: costs a division a row
    d[i, k]   = x[i, k] - mean[i]               read twice, but as cheap as a load
    e[i, k]   = exp(d[i, k])                    read twice, and dear

After:

    inlined: d                                  `passes.grouping` finds a loop for the others

- What reads nothing, or costs no more to compute again than to load, is inlined;
- what is read once is, too, and what is cheap if all that reads it goes into one value;
- what is read at several points (`x[1:] + x[:-1]`) is computed again for each of them only
  while that is cheaper than memory is (`AGAIN`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from .definitions import EXTERN, MAP, VIEW, Definition, Lowered
from .groups import base_of, extern_operands
from .indexing import Index, product, symbol
from .loops import Expr
from .peaks import amount
from .spaces import same

MAX_INLINED = 200
"""Primitives that are inlined into one value before it becomes an anchor."""

AGAIN = {"cpu": 1, "cuda": 4}
"""Primitives that are rather computed again, for another point, than a byte is moved, by device.

A chain each of whose members reads the one before it at two points (`x[1:] + x[:-1]`) would
compute its first member `2**n` times.

On a CPU it is measured: of 12 rolls of a matrix that is in the cache, 0 takes 2.1 times as long
as 1, 2 takes 1.2 and 4 takes 6; of a Fourier transform by halves, 0 takes 2.1 and 2 takes 200,
since what many stages read has too many pieces to be a loop each. Of stencils on 16 MB, 2 takes
0.6 (`bench/RESULTS.md`). On a GPU it is argued: an H200 moves 4.2 TB/s and starts 132 x 128
simple instructions 1.75e9 times a second, so 7 while it moves a byte. A primitive is one, and
about as many as there are primitives compute indices, load and choose.
"""

MAX_MEETING = 16
"""Definitions on the ways from the uses of a definition to where they meet."""


class Inlining:
    """What is inlined in a graph, and who reads what.

    Attributes:
        readers: Definition -> live definitions that read it, views among them.
        pinned: Results, operands of extern calls and what is to be apart: they are memory.
        live: What results and extern calls are computed from.
        inlined: What is computed where it is read.
        weight: Primitives that a definition costs, with what is inlined into it.
        dear: Those of them that are costly.
        leaves: What it reads, through views and what is inlined.
    """

    def __init__(
        self, lowered: Lowered, apart: Container[Definition] = frozenset()
    ) -> None:
        self.lowered, self.apart = lowered, apart
        self.readers: dict[Definition, dict[Definition, None]] = {}
        self.pinned: dict[Definition, None] = {}
        self.live: set[Definition] = set()
        self.inlined: set[Definition] = set()
        self.weight: dict[Definition, int] = {}
        self.dear: dict[Definition, int] = {}
        self.leaves: dict[Definition, dict[Definition, None]] = {}
        self._find_uses()
        for definition in lowered.definitions:
            self._decide(definition)

    # ── uses ──────────────────────────────────────────────────────────────────────────────

    def _find_uses(self) -> None:
        live = self.live
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
        for definition in self.lowered.definitions:
            if definition in live:
                for operand in definition.operands:
                    self.readers.setdefault(operand, {})[definition] = None
                if definition in self.apart:
                    self.pinned[definition] = None

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
        if (
            d.kind == MAP
            and d not in self.pinned
            and d in self.live
            and self._inline(d)
        ):
            self.inlined.add(d)

    def _inline(self, d: Definition) -> bool:
        if d.constant:
            return True
        if self.weight[d] > MAX_INLINED:
            return False
        uses = list(dict.fromkeys(self._uses(d)))
        widest = max((points(u) for u in uses), key=amount, default=d.numel)
        expands = not (same(widest, d.numel) or _smaller(widest, d.numel))
        again = self._computed_again(d)
        if self.dear[d] == 0:
            if again * self.weight[d] > worth(d):
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
        return max(amount(points(u)) for u in (d, *wider))


def worth(d: Definition) -> int:
    """Primitives that cost as much as one element of `d` written to memory and read again."""
    return AGAIN.get(d.device.type, 1) * 2 * max(d.dtype.itemsize, 4)


def _is_own(index: Index, size: tuple[Expr, ...]) -> bool:
    """True for the index that is the reader's own."""
    return len(index) == len(size) and all(
        i == symbol(f"d{k}") for k, i in enumerate(index)
    )


def points(d: Definition) -> Expr:
    """Number of points at which `d` reads its operands."""
    return product(d.folding.full) if d.folding else d.numel


def _smaller(first: Expr, second: Expr) -> bool:
    return amount(first) < amount(second)
