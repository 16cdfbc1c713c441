"""Kernels that walk over a row that is too long for registers.

The row is walked over once for each reduction that needs the one before it and cannot be
had with it (`passes.online`), and once more for what is stored of every element:

    total = tl.full((BLOCK,), 0.0, tl.float32)
    for start in range(0, 50000, BLOCK):
        k = start + tl.arange(0, BLOCK)
        live = k < 50000
        x = tl.load(x_ptr + 50000 * i + k, live, other=0.0)
        total += x
    total = tl.sum(total, 0)

Where rows begin at places that are not multiples of 16 bytes, a thread could load only one
element at a time. Then one loop takes whole blocks from the first multiple on, unmasked, and
a second one takes what is left at both ends, at once where that fits into a smaller block.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from .indexing import substitute
from .loops import (
    Axis,
    Buffer,
    Expr,
    Kernel,
    Load,
    Reduce,
    ScalarArg,
    Store,
    op,
    walk,
)
from .online import Centred, Form, Raised, online_levels
from .print_triton_axes import accesses, static, stride
from .print_triton_body import KernelPrinter
from .print_triton_schedule import (
    Schedule,
    lane_elements,
    level_of,
    power_of_two,
    walking_forms,
)
from .print_triton_values import (
    ATOM,
    PRODUCT,
    SUM,
    TL,
    identity,
    index_text,
    number_text,
    paren,
)

LONG_ENOUGH = 4
"""Blocks that a row must have to be worth a loop of its own for its ends."""


class LoopPrinter(KernelPrinter):
    """Prints one kernel that walks over its inner axes."""

    def __init__(self, kernel: Kernel, plan: Schedule, name: str) -> None:
        super().__init__(kernel, plan, name)
        self.start = ""
        self.sweep = 0
        self.sweeps: dict[Load, set[int]] = {}
        self.forms: dict[str, Form] = {}
        self.running: dict[str, tuple[str, str, str]] = {}
        self.blocks: dict[str, str] = {}
        self.positions: dict[str, str] = {}
        self.row_start: Expr = sympy.Integer(0)
        self.unit = 1
        self.first = self._unaligned_start()
        self.together = lane_elements(kernel, plan) if plan.lanes else 1

    def _print_body(self) -> None:
        self.forms = walking_forms(self.kernel)
        levels = online_levels(self.kernel, self.forms)
        passes = self._assign_passes(levels)
        last = max([0, *(p for _, p in passes)])
        for statement, place in passes:
            for value in walk([statement.value]):
                if isinstance(value, Load) and self.at.is_inner(value):
                    self.sweeps.setdefault(value, set()).add(place)
        for number in range(last + 1):
            self.sweep = number
            for statement, place in passes:
                if (
                    isinstance(statement, Store)
                    and statement.level == "outer"
                    and place == number
                ):
                    self._store(statement)
            inside = [
                s
                for s, place in passes
                if place == number and not (isinstance(s, Store) and s.level == "outer")
            ]
            if inside:
                self._loop(inside)

    def _load_policy(self, value: Load) -> str:
        """Keeps in the L2 cache what a later sweep reads again."""
        sweeps = self.sweeps.get(value, set())
        if len(sweeps) < 2:
            return ""
        last = self.sweep == max(sweeps)
        return f', eviction_policy="evict_{"first" if last else "last"}"'

    def _store_policy(self) -> str:
        """Leaves the L2 cache to the rows that are read again."""
        again = any(len(sweeps) > 1 for sweeps in self.sweeps.values())
        return ', eviction_policy="evict_first"' if again else ""

    def _assign_passes(
        self, levels: dict[str, int]
    ) -> list[tuple[Reduce | Store, int]]:
        """The number of the pass that each statement belongs to.

        NOTE: a store to a buffer that is also read waits for the last pass that reads it.
        """
        passes: list[tuple[Reduce | Store, int]] = []
        reads: dict[Buffer, int] = {}
        for statement in self.kernel.body:
            if isinstance(statement, Reduce):
                place = levels[statement.name] - 1
            else:
                place = level_of(statement.value, levels)
            for value in walk([statement.value]):
                if isinstance(value, Load):
                    reads[value.buffer] = max(place, reads.get(value.buffer, 0))
            passes.append((statement, place))
        return [
            (s, max(place, reads.get(s.buffer, 0)) if isinstance(s, Store) else place)
            for s, place in passes
        ]

    def _loop(self, statements: list[Reduce | Store]) -> None:
        assert self.at.inner is not None
        outside, self.lines, self.hoisted = self.lines, [], []
        loops: list[str] = []
        if self.first:
            self.at.whole = True
            body = self._body(statements)[2]
            loops += self._whole_blocks(body)
            self.at.whole = False
            accumulators, results, loop = self._ends(statements)
            loops += loop
        else:
            accumulators, results, body = self._body(statements)
            size = index_text(sympy.expand(self.at.inner.size), {})[0]
            # What is stored in the loop might be read by a step that was begun before.
            stores = any(isinstance(s, Store) for s in statements)
            stages = 0 if stores or self.asserts else self.plan.stages
            loops += self._for("0", size, [], body, stages)
        hoisted = self.hoisted
        self.lines, self.hoisted = outside, None
        self.lines += [*hoisted, *accumulators, *loops]
        for result in results:
            result()

    def _body(
        self, statements: list[Reduce | Store]
    ) -> tuple[list[str], list[Callable[[], None]], list[str]]:
        """The lines before the loop, what writes those after it, and those in it."""
        self.lines = []
        accumulators: list[str] = []
        results: list[Callable[[], None]] = []
        for statement in statements:
            if isinstance(statement, Store):
                self._store(statement)
                continue
            form = self.forms.get(statement.name)
            if isinstance(form, Raised):
                start, result = self._accumulate_online(form)
            elif isinstance(form, Centred):
                start, result = self._accumulate_centred(form)
            else:
                start, result = self._accumulate(statement)
            accumulators += start
            results.append(result)
        for value in self.inner_known:
            self.known.pop(value, None)
        self.inner_known.clear()
        return accumulators, results, self.lines

    def _for(
        self,
        low: str,
        high: str,
        position: list[str],
        body: list[str],
        stages: int = 0,
    ) -> list[str]:
        """A loop over blocks; `position` are further lines that move the position.

        With `stages`, so many blocks are on their way to shared memory at a time.
        """
        assert self.at.inner is not None
        block = self.at.blocks[self.at.inner]
        name = self.at.symbols[self.at.flat[self.at.inner]]
        start = self._start_name()
        wide = ".to(tl.int64)" if self.at.is_wide(self.at.inner) else ""
        lanes = f"tl.arange(0, {block}){wide}{self.at.lane_suffix(self.at.inner)}"
        inside = [
            f"{name} = {start} + {lanes}",
            *position,
            *self.at.derived_lines([self.at.inner]),
            *body,
        ]
        steps = f"range({low}, {high}, {block})"
        if stages > 1:
            steps = f"tl.{steps[:-1]}, num_stages={stages})"
        return [
            f"for {start} in {steps}:",
            *(f"    {line}" for line in inside),
        ]

    # --- rows that begin anywhere -----------------------------------------------------------

    def _unaligned_start(self) -> tuple[str, str] | None:
        """Names of the first aligned position and of what whole blocks cover, if needed."""
        inner = self.at.inner
        if inner is None or len(self.at.vectors) > 1 or len(inner.axes) != 1:
            return None
        size = static(inner.size)
        if size is None or size < LONG_ENOUGH * inner.block:
            return None
        bases = self._row_starts(inner.axes[0])
        if not bases:
            return None
        self.row_start, self.unit = max(bases, key=lambda found: bases[found])
        self.at.steps = self.unit
        self.at.aligned = {
            index
            for index in self.at.index_forms
            if stride(index, inner.axes[0]) == 1
            and _divisible(
                self._start_of(index, inner.axes[0]) - self.row_start, self.unit
            )
        }
        return self.names("first"), self.names("covered")

    def _row_starts(self, axis: Axis) -> dict[tuple[Expr, int], int]:
        """Starts of rows whose elements lie side by side but not at multiples of 16 bytes.

        With each, the elements of 16 bytes, and how many bytes of accesses begin there.
        """
        found: dict[tuple[Expr, int], int] = {}
        for index, width in accesses(self.kernel):
            if stride(index, axis) != 1 or width >= 16:
                continue
            start, unit = self._start_of(index, axis), 16 // width
            if start.atoms(FloorDiv, Mod) or _divisible(start, unit):
                continue
            found[start, unit] = found.get((start, unit), 0) + width
        return found

    def _start_of(self, index: Expr, axis: Axis) -> Expr:
        return sympy.expand(substitute(index, {axis.symbol: sympy.Integer(0)}))

    def _whole_blocks(self, body: list[str]) -> list[str]:
        assert self.at.inner is not None and self.first is not None
        first, covered = self.first
        block = self.at.blocks[self.at.inner]
        size = static(self.at.inner.size)
        base = paren(self.at.text(self.row_start), PRODUCT)
        unit = self.unit
        wide = any(
            map(self.at.is_wide, self.at.groups_of_symbols(self.row_start.free_symbols))
        )
        narrowed = ".to(tl.int32)" if wide else ""
        lines = [
            f"{first} = (({unit} - {base} % {unit}) % {unit}){narrowed}"
            if narrowed
            else f"{first} = ({unit} - {base} % {unit}) % {unit}",
            f"{covered} = ({size} - {first}) // {block} * {block}",
        ]
        return lines + self._for(first, f"{first} + {covered}", [], body)

    def _ends(
        self, statements: list[Reduce | Store]
    ) -> tuple[list[str], list[Callable[[], None]], list[str]]:
        """As `_body`, with the loop itself in the place of what is in it."""
        inner = self.at.inner
        assert inner is not None and self.first is not None
        first, covered = self.first
        name = self.at.symbols[self.at.flat[inner]]
        jump = f"{name} = tl.where({name} < {first}, {name}, {name} + {covered})"
        left = f"{static(inner.size)} - {covered}"
        usual = self.at.blocks[inner], self.together
        if (small := self._block_of_ends(statements)) is not None:
            # One element at a time is loaded here, so nothing lies side by side.
            self.at.blocks[inner], self.together = str(small), 1
        accumulators, results, body = self._body(statements)
        loop = self._for("0", left, [jump], body)
        self.at.blocks[inner], self.together = usual
        return accumulators, results, loop

    def _block_of_ends(self, statements: list[Reduce | Store]) -> int | None:
        """A smaller block that takes both ends of a row at once, if it can do with one.

        It is that much less text to compile, and fewer places that are masked. What is kept
        for each place of the usual block finds no room in another; what lanes keep does.
        """
        assert self.at.inner is not None
        forms = [f for f in self.forms.values() if isinstance(f, Raised)]
        in_lanes = [f.total for f in forms] + [f.peak for f in forms]
        if any(isinstance(s, Reduce) and s not in in_lanes for s in statements):
            return None
        size, usual = static(self.at.inner.size), self.at.inner.block
        assert size is not None
        most = max(size - (size - n) // usual * usual for n in range(self.unit))
        small = max(power_of_two(most), self.plan.lanes or 32 * self.plan.num_warps)
        return small if small < usual else None

    def _start_name(self) -> str:
        """The loop's counter, the same in every loop of the kernel."""
        self.start = self.start or self.names("start")
        return self.start

    def _accumulate_online(self, form: Raised) -> tuple[list[str], Callable[[], None]]:
        """As `_accumulate`, for a sum relative to a maximum that is still running."""
        statement = form.total
        name = self._reduce_name(statement)
        peak, before, _ = self.running[form.peak.name]
        given = [self.blocks[form.peak.name], peak]
        combine = "online_sum"
        if form.weight is not None:
            weight = self._text(form.weight)[0]
            given.append(self._spread(weight, form.weight, None, statement))
            combine = "online_weighted_sum"
        added = f"{self._from_library(combine)}({', '.join(given)}{self._together()})"
        scale = f"{self._from_library('online_scale')}({before}, {peak})"
        self._line(f"{name} = {name} * {scale} + {added}", statement.ref, inner=True)
        start = f"{name} = tl.full({self._lanes()}, 0.0, {TL[statement.dtype]})"

        def finish() -> None:
            parts = ScalarArg(f"{before} of the parts", statement.dtype)
            self.known[parts] = (before, ATOM)
            merged = op("exp", op("sub", parts, form.shift))
            text = f"{name} * {self._text(merged)[0]}"
            line = f"{name} = {self._reduction_text(statement, text, None)}"
            self._line(line, statement.ref)

        return [start], finish

    def _accumulate_centred(
        self, form: Centred
    ) -> tuple[list[str], Callable[[], None]]:
        """As `_accumulate`, for squares of distances, by Welford's method.

        Each place in the block has a mean of its own, of as many elements as blocks so far.
        """
        assert self.at.inner is not None
        statement = form.squares
        text = self._text(form.argument)
        value = text[0] if text[0].isidentifier() else self._named(form.argument, text)
        tests = [self.at.mask(frozenset([self.at.inner]))]
        if form.live is not None:
            tests.append(paren(self._text(form.live), ATOM))
        live = " & ".join(t for t in tests if t)
        name, dtype = self._reduce_name(statement), TL[statement.dtype]
        mean, steps = self.names(f"{name}_mean"), self.names(f"{name}_steps")
        distance = self.names(f"{name}_distance")
        empty = f"tl.full({self._shape()}, 0.0, {dtype})"
        before = [f"{name} = {empty}", f"{mean} = {empty}"]
        before.append(f"{steps} = tl.full((), 0.0, {dtype})")
        away = f"{value} - {mean}"
        lines = [
            f"{steps} += 1.0",
            f"{distance} = {f'tl.where({live}, {away}, 0.0)' if live else away}",
            f"{mean} += {distance} * (1.0 / {steps})",
        ]
        count = steps
        if live:
            count = self.names(f"{name}_count")
            before.append(f"{count} = {empty}")
            lines.append(f"{count} += tl.where({live}, 1.0, 0.0)")
        for line in lines:
            self._line(line, None, inner=True)
        line = f"{name} += {distance} * ({away})"
        self._line(line, statement.ref, inner=True)

        def finish() -> None:
            centre = paren(self._text(form.centre), SUM + 1)
            self.lines.append(f"{distance} = {mean} - {centre}")
            whole = f"{name} + {count} * ({distance} * {distance})"
            made = self._reduction_text(statement, whole, None)
            self.lines.append(f"{name} = {made}")

        return before, finish

    def _lanes(self) -> str:
        """The shape of what keeps running maxima and sums."""
        return f"({self.plan.lanes},)" if self.plan.lanes else self._shape()

    def _together(self) -> str:
        """A further argument of what keeps running maxima and sums."""
        return f", {self.together}" if self.together > 1 else ""

    def _accumulate(self, statement: Reduce) -> tuple[list[str], Callable[[], None]]:
        """Adds to the loop's body.

        Returns the lines before the loop, and what writes those after it.
        """
        value, kind = statement.value, statement.kind
        text = self._text(value)[0]
        text = self._spread(text, value, self._reduce_mask(statement), statement)
        label = self.kernel.labels.get(statement.ref)
        name = self.variable.get(statement.ref) or self.names(
            label.name if label and label.name else statement.name
        )
        empty = number_text(identity(kind, value.dtype))[0]
        peaks = [f.peak for f in self.forms.values() if isinstance(f, Raised)]
        if statement in peaks:
            return self._accumulate_peak(statement, name, text)
        before = [f"{name} = tl.full({self._shape()}, {empty}, {TL[value.dtype]})"]
        position = None
        if kind.startswith("arg"):
            assert self.at.inner is not None
            combine = self._from_library(f"{kind[3:]}_with_index")
            position = self.positions.setdefault(name, "") or self.names(f"{name}_at")
            self.positions[name] = position
            wide = "tl.int64" if self.at.is_wide(self.at.inner) else "tl.int32"
            before.append(f"{position} = tl.full({self._shape()}, 2147483647, {wide})")
            here = self.at.symbols[self.at.flat[self.at.inner]]
            step = f"{name}, {position} = {combine}({name}, {position}, {text}, {here})"
        else:
            step = self._step(statement, name, text)
        self._line(step, statement.ref, inner=True)
        self.known[statement.ref] = (name, ATOM)
        self.variable[statement.ref] = name
        result = f"{name} = {self._reduction_text(statement, name, position)}"
        return before, lambda: self.lines.append(result)

    def _accumulate_peak(
        self, statement: Reduce, name: str, text: str
    ) -> tuple[list[str], Callable[[], None]]:
        """As `_accumulate`, for a maximum that sums of the same loop are relative to."""
        if statement.name in self.running:
            _, before, of = self.running[statement.name]
        else:
            before, of = self.names(f"{name}_before"), self.names(f"{name}_of")
        block = text
        if not text.isidentifier():
            block = of
            self._line(f"{block} = {text}", None, inner=True)
        combine = self._from_library("online_max")
        together = self._together()
        line = f"{before}, {name} = {name}, {combine}({name}, {block}{together})"
        self._line(line, statement.ref, inner=True)
        self.known[statement.ref] = (name, ATOM)
        self.variable[statement.ref] = name
        self.running[statement.name] = (name, before, of)
        self.blocks[statement.name] = block
        start = (
            f'{name} = tl.full({self._lanes()}, float("-inf"), {TL[statement.dtype]})'
        )

        def finish() -> None:
            self.lines.append(f"{before} = {name}")
            made = self._reduction_text(statement, name, None)
            self.lines.append(f"{name} = {made}")

        return [start], finish


def _divisible(expr: Expr, unit: int) -> bool:
    """Whether an expression is certainly a multiple of a number."""
    return all(
        term.as_coeff_Mul()[0] % unit == 0
        for term in sympy.Add.make_args(sympy.expand(expr))
    )
