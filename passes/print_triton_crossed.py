"""Crossed passes as Triton: programs that walk over rows and add up columns on their way.

The backward pass of a norm with a weight reads the gradient and the input for each row, and
adds up the same products over the rows. Its `Crossed` becomes two functions:

    part = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    weight = tl.load(weight_ptr + k)
    total_1 = tl.full((BLOCK,), 0.0, tl.float32)
    for i in tl.range(part, 16384, 264, num_stages=3):
        grad = tl.load(grad_ptr + 4096 * i + k)
        x = tl.load(x_ptr + 4096 * i + k)
        total = tl.sum(grad * weight * x, 0)
        tl.store(y_ptr + 4096 * i + k, …)
        total_1 += grad * x
    tl.store(total_1_parts_ptr + 4096 * part + k, total_1)

and the sum over the 264 parts, an ordinary reduction over columns. Which rows a program takes,
and the order in which parts are added, never change: the same input gives the same bits.

Two programs of 256 threads on a multiprocessor hold two rows of 4096 and their sums; while they
work on them, the next two rows of each are on their way to shared memory. Measured on an H200,
the gradients of a layer norm of 16384×4096 in bfloat16 took 109.5 µs so (95.4 is what the
memory takes), 132 without rows ahead, 141 with one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from .crossed_form import Crossed
from .loops import (
    Axis,
    Buffer,
    Kernel,
    Load,
    Reduce,
    Ref,
    Store,
    Value,
    symbol,
    symbols_of,
    walk,
)
from .print_triton import TritonText, launch_of, print_kernel
from .print_triton_axes import static, stride
from .print_triton_body import KernelPrinter
from .print_triton_columns import MULTIPROCESSORS, VECTOR
from .print_triton_positions import Positions
from .print_triton_schedule import Group, Schedule, power_of_two
from .print_triton_values import TL, identity, index_text, number_text

REGISTERS = 57344
"""Numbers that programs of one multiprocessor may hold at a time; it has 65,536 registers."""

SHORTEST, LONGEST = 512, 8192
"""Block sizes for which a program takes one row at a time."""

PER_THREAD, PER_THREAD_ALL = 16, 160
"""Elements of a row that one thread has, and how much it holds at most."""

MOST_WARPS = 16
"""Warps of a program."""

MOST_PROGRAMS = 8
"""Programs on a multiprocessor: each leaves a row of partial results."""

IN_FLIGHT = 64 * 1024
"""Bytes on their way to a multiprocessor that keep the memory busy."""

SHARED = 200 * 1024
"""Bytes of shared memory of a multiprocessor that may be filled."""


@dataclass(frozen=True)
class Tile:
    """How a crossed pass runs.

    Attributes:
        programs: Programs; each takes every `programs`-th row.
        warps: Warps of a program.
        stages: As `Schedule.stages`, of rows.
    """

    programs: int
    warps: int
    stages: int


def crossed_tile(crossed: Crossed) -> Tile | None:
    """The tile of a crossed pass; None where two kernels are better.

    What is saved is to read the shared rows once more; the price are the partial results.
    """
    rows = crossed.rows
    width = static(rows.inner[0].size)
    if width is None:
        return None
    block = power_of_two(width)
    if not SHORTEST <= block <= LONGEST:
        return None
    streams, reduces = crossed.streams, crossed.reduces
    inner = rows.inner[0].symbol
    vectors = {
        v
        for v in (*rows.values, *walk([r.value for r in reduces]))
        if isinstance(v, Load) and inner in symbols_of(v) and v not in streams
    }
    held = block * (len(streams) + len(vectors) + len(reduces) + 2)
    programs = min(MOST_PROGRAMS, REGISTERS // held)
    count = static(Group(rows.outer, 1).size)
    if count is not None:
        price = MULTIPROCESSORS * sum(2 * r.dtype.itemsize for r in reduces)
        programs = min(programs, count * crossed.saved // price)
    if programs < 1:
        return None
    # No thread can have more than 255 registers.
    warps = power_of_two(max(block // (32 * PER_THREAD), held // (32 * PER_THREAD_ALL)))
    if not any(isinstance(s, Reduce) for s in rows.body):
        # Threads that never wait for each other: more of them hide what functions take.
        warps *= 2
    warps = min(MOST_WARPS, warps)
    moved = width * sum(v.dtype.itemsize for v in streams)
    ahead = max(2, min(4, round(IN_FLIGHT / (programs * moved))))
    fits = programs * ahead * moved <= SHARED
    aligned = all(_is_aligned(v, rows.inner[0]) for v in streams)
    stages = ahead + 1 if fits and aligned else 0
    return Tile(programs * MULTIPROCESSORS, warps, stages)


def crossed_tiles(crossed: Crossed) -> tuple[Tile, ...]:
    """Tiles that are worth measuring, the usual one first."""
    tile = crossed_tile(crossed)
    assert tile is not None
    found = [tile]
    found += [replace(tile, warps=w) for w in (tile.warps // 2, tile.warps * 2)]
    found += [replace(tile, stages=s) for s in (0, 2, 3, 4)]
    if tile.programs > MULTIPROCESSORS:
        found.append(replace(tile, programs=tile.programs - MULTIPROCESSORS))
    found.append(replace(tile, programs=tile.programs + MULTIPROCESSORS))
    return tuple(dict.fromkeys(t for t in found if 1 <= t.warps <= 32))


def _is_aligned(load: Load, column: Axis) -> bool:
    """Whether rows begin at multiples of 16 bytes, which can be copied ahead."""
    if load.indirect or load.mask is not None:
        return False
    begins = sympy.expand(load.index.xreplace({column.symbol: sympy.Integer(0)}))
    unit = VECTOR // load.dtype.itemsize
    return stride(load.index, column) == 1 and all(
        term.as_coeff_Mul()[0] % unit == 0 for term in sympy.Add.make_args(begins)
    )


def print_crossed(
    crossed: Crossed, name: str | None = None, tile: Tile | None = None
) -> TritonText:
    """Prints a crossed pass under `name`: the walk over rows, and the columns' last sums."""
    name = name or crossed.name
    tile = tile or crossed_tile(crossed)
    assert tile is not None
    walking, last, temporaries = _apart(crossed, tile)
    rows = crossed.rows
    plan = Schedule(
        (
            Group(walking.outer[:1], 1),
            Group(rows.outer, 1),
            Group(rows.inner, power_of_two(int(rows.inner[0].size))),
        ),
        False,
        tile.warps,
        stages=tile.stages,
    )
    printer = CrossedPrinter(walking, plan, f"{name}_0", crossed.reduces)
    text = printer.print()
    rest = print_kernel(last, f"{name}_1", part_count=1)
    return TritonText(
        f"{text}\n\n\n{rest.text}",
        (launch_of(printer, crossed.comment), *rest.launches),
        temporaries,
        tuple(sorted({*printer.library, *rest.library})),
    )


def _apart(crossed: Crossed, tile: Tile) -> tuple[Kernel, Kernel, tuple[Buffer, ...]]:
    """The kernel that walks over rows, the one that adds up parts, and what is between them."""
    rows, columns = crossed.rows, crossed.columns
    taken = {str(a.symbol) for a in (*rows.outer, *rows.inner)}
    part_name = next(n for n in ("part", "part_1", "part_2") if n not in taken)
    count = Group(rows.outer, 1).size
    part = Axis(symbol(part_name), sympy.Min(tile.programs, count))
    (column,) = rows.inner
    place = column.size * part.symbol + column.symbol
    device = columns.outputs[0].device
    parts = {
        r.name: Buffer(
            f"{r.name}_parts",
            r.dtype,
            device,
            (sympy.expand(part.size * column.size),),
            (sympy.Integer(1),),
        )
        for r in crossed.reduces
    }
    kept = (Store(parts[r.name], place, r.ref) for r in crossed.reduces)
    walking = replace(
        rows,
        outer=(part, *rows.outer),
        body=(*rows.body, *crossed.reduces, *kept),
        labels=crossed.labels,
    )
    sums = (replace(r, value=Load(parts[r.name], place)) for r in crossed.reduces)
    last = replace(columns, inner=(part,), body=(*sums, *crossed.stores), comment="")
    return walking, last, tuple(parts.values())


class _Walk(Positions):
    """Positions of a program that walks over rows."""

    def gridded(self) -> list[Group]:
        return [self.plan.groups[0]]

    def walks(self, group: Group) -> bool:
        return group is self.plan.groups[1]


class CrossedPrinter(KernelPrinter):
    """Prints the kernel that walks over rows; `across` are the reductions over columns."""

    positions_of = _Walk

    def __init__(
        self, kernel: Kernel, plan: Schedule, name: str, across: tuple[Reduce, ...]
    ) -> None:
        super().__init__(kernel, plan, name)
        self.across = across
        self.rows = plan.groups[1]

    def _print_body(self) -> None:
        for value in self.kernel.values:
            if self._is_same_for_all(value):
                self._text(value)
        before, self.lines = self.lines, []
        after: list[Store] = []
        for number, statement in enumerate(self.kernel.body):
            if isinstance(statement, Reduce) and statement in self.across:
                before.append(self._accumulate(statement))
            elif isinstance(statement, Reduce):
                self._reduce(statement)
            elif self._is_part(statement):
                after.append(statement)
            else:
                self._load_before(statement, self.kernel.body[number:])
                self._store(statement)
        inside = [*self.at.derived_lines([self.rows]), *self.lines]
        self.lines = [*before, self._head(), *(f"    {line}" for line in inside)]
        for store in after:
            self._store(store)

    def _is_same_for_all(self, value: Value) -> bool:
        """Whether a value, loads in it, is the same for every row."""
        if self.rows in self.at.groups(value):
            return False
        under = [*walk([value])]
        return any(isinstance(v, Load) for v in under) and not any(
            isinstance(v, Ref) for v in under
        )

    def _is_part(self, store: Store) -> bool:
        return any(store.value is r.ref for r in self.across)

    def _head(self) -> str:
        part, rows = self.plan.groups[:2]
        name = self.at.symbols[self.at.flat[rows]]
        start = self.at.symbols[self.at.flat[part]]
        if self.at.is_wide(rows) and not self.at.is_wide(part):
            start = f"{start}.to(tl.int64)"
        count = static(part.size)
        step = str(count) if count is not None else "tl.num_programs(0)"
        end = index_text(sympy.expand(rows.size), {})[0]
        steps = f"tl.range({start}, {end}, {step}"
        if self.plan.stages > 1 and not self.asserts:
            steps += f", num_stages={self.plan.stages}"
        return f"for {name} in {steps}):"

    def _accumulate(self, statement: Reduce) -> str:
        """Adds a row to what a reduction over columns has so far; returns how that begins."""
        value = statement.value
        text = self._spread(self._text(value)[0], value, None, statement)
        name = self._reduce_name(statement)
        self._line(self._step(statement, name, text), statement.ref)
        empty = number_text(identity(statement.kind, value.dtype))[0]
        return f"{name} = tl.full({self._shape()}, {empty}, {TL[value.dtype]})"
