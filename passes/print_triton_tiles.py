"""Pointers to tiles of memory whose index is linear in two axes.

An index `131072*z + 64*i + d` becomes, for rows `i` and elements `d`,

    query_ptr + 131072 * z + i * 64 + d[None, :]

Blocks say how large the tiles of attention are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sympy

from .attention_form import Attention
from .indexing import expanded
from .loops import Axis, Buffer, Expr
from .print_triton_axes import offset_bound, static
from .print_triton_schedule import power_of_two
from .print_triton_values import PRODUCT, SUM, index_text, paren

CHUNK = 256
"""Columns of which one program finds out whether a value among them is inf or NaN."""


@dataclass(frozen=True)
class Blocks:
    """How the work is cut: block sizes and compile options of a kernel."""

    rows: int
    columns: int
    warps: int
    stages: int


def choose(attention: Attention) -> Blocks:
    """Blocks that were fastest where they were measured (`bench/RESULTS.md`)."""
    head = max(padded(attention.depth), padded(attention.width))
    rows, columns, warps, stages = (64, 64, 4, 3) if head <= 128 else (64, 64, 8, 2)
    size = static(attention.rows.size)
    if size is not None:
        rows = max(16, min(rows, power_of_two(size)))
    size = static(attention.columns.size)
    if size is not None:
        columns = max(16, min(columns, power_of_two(size)))
    return Blocks(rows, columns, warps if rows == 64 else rows // 16, stages)


def padded(axis: Axis) -> int:
    """The block that holds an axis of static size whole."""
    size = static(axis.size)
    assert size is not None
    return max(16, power_of_two(size))


def within(axis: Axis, name: str, view: str) -> str | None:
    """The mask of an axis in a block that holds it whole; None if the block is as long."""
    if static(axis.size) == padded(axis):
        return None
    return f"({name}{view} < {axis.size})"


def chunk_count(size: Expr) -> str:
    """How many chunks cover the columns: an expression for the host."""
    number = static(size)
    if number is not None:
        return str(-(-number // CHUNK))
    return f"(({index_text(expanded(size), {})[0]} + {CHUNK - 1}) // {CHUNK})"


class TileIndex:
    """An index as `base + first * step + second * step`, for tiles.

    Attributes:
        wide: Offsets may not fit in 32 bits.
        wide_first: Nor may those of the first axis by themselves.
    """

    def __init__(
        self, index: Expr, first: Axis, second: Axis, axes: Iterable[Axis]
    ) -> None:
        index = expanded(index)
        self.first = index.coeff(first.symbol, 1)
        rest = expanded(index - self.first * first.symbol)
        self.second = rest.coeff(second.symbol, 1)
        self.base = expanded(rest - self.second * second.symbol)
        ranges = {a.symbol: a.size for a in axes}
        self.wide = _beyond(index, ranges)
        self.wide_first = _beyond(self.first * first.symbol, ranges)

    def text(
        self, buffer: Buffer, names: dict[sympy.Symbol, str], first: str, second: str
    ) -> str:
        """The pointers of a tile."""
        return f"{self.start(buffer, names)} + {self.lanes(first, second)}"

    def start(self, buffer: Buffer, names: dict[sympy.Symbol, str]) -> str:
        """The pointer at which both axes begin."""
        if self.base == 0:
            return f"{buffer.name}_ptr"
        return f"{buffer.name}_ptr + {paren(index_text(self.base, names), SUM)}"

    def lanes(self, first: str, second: str) -> str:
        """Offsets of a tile from there."""
        return f"{_times(first, self.first)} + {_times(second, self.second)}"

    def step(self, count: str) -> str:
        """How far `count` steps along the first axis lead."""
        size = static(self.first)
        if size is None or size >= 2**20:
            # A block of steps may be longer than 32 bits.
            count = f"tl.full((), {count}, tl.int64)" if count.isupper() else count
        return count if size == 1 else f"{count} * {_operand(self.first)}"


def _beyond(index: Expr, ranges: dict[sympy.Symbol, Expr]) -> bool:
    bound = offset_bound(index, ranges)
    # A partial block computes offsets beyond the end, too.
    return bound is None or bound * 2 >= 2**31


def _operand(expr: Expr) -> str:
    return paren(index_text(expr, {}), PRODUCT + 1)


def _times(name: str, step: Expr) -> str:
    return name if step == 1 else f"{name} * {_operand(step)}"


def both(one: str | None, other: str | None) -> str | None:
    found = [m for m in (one, other) if m]
    return " & ".join(found) if found else None


def load_text(place: str, mask: str | None) -> str:
    return f"tl.load({place}, {mask}, other=0.0)" if mask else f"tl.load({place})"
