"""Prints attention as one Triton kernel that walks over the keys once.

    attention matmul_softmax_matmul over z < 8, rows i < 64, columns j < 64, depth d < 32

becomes, for each block of rows of each `z`:

    query = tl.load(…)                                    # (ROWS, DEPTH), stays in registers
    for start in range(0, 64, COLUMNS):
        product = tl.dot(query, tl.load(keys))
        score = …                                         # the score function, point by point
        higher = tl.maximum(peak, tl.max(score, 1))
        weight = exp2_f32((score - higher[:, None]) * LOG2_E)   # at most 1
        fading = exp2_f32((peak - higher) * LOG2_E)             # what was seen counts for less
        total = total * fading + tl.sum(weight, 1)
        mixed = tl.dot(weight, tl.load(values), mixed * fading[:, None])
        peak = higher
    tl.store(…, mixed * (1.0 / total)[:, None])

A row of which every score is -inf has the total 0 and becomes NaN, as in eager; so does a row
with a score of +inf or NaN. Blocks that the score function hides from every row of the block
are left out. Eager multiplies their values by weights of 0, which is NaN for inf and NaN: so a
kernel before this one looks for such values (`passes.print_triton_hidden`), and where there are
any (`odd`) they are added.
"""

from __future__ import annotations

from typing import TypeAlias

import sympy
import torch

from .attention_form import Attention, Visible, visible
from .attention_score import (
    LARGEST,
    magnitude,
    may_hide,
    products_of_pairs,
    round_trips,
    rounds_pairs,
)
from .loops import Buffer, Expr, Kernel, Label, Op, Reduce, ScalarArg
from .print_triton import Launch, TritonText
from .print_triton_axes import static
from .print_triton_body import WIDTH, aligned
from .print_triton_expressions import LIBRARY, Expressions
from .print_triton_hidden import Hidden
from .print_triton_positions import Names
from .print_triton_schedule import Group, Schedule
from .print_triton_tiles import (
    CHUNK,
    Blocks,
    TileIndex,
    both,
    choose,
    load_text,
    padded,
    within,
)
from .print_triton_values import (
    ATOM,
    SIGNATURE,
    SUM,
    TL,
    Text,
    index_text,
    paren,
)

LOG2_E = "1.4426950408889634"

Parameter: TypeAlias = Buffer | ScalarArg | sympy.Symbol


def print_attention(
    attention: Attention, name: str | None = None, blocks: Blocks | None = None
) -> TritonText:
    """Prints an attention under `name` (by default its own)."""
    name = name or attention.name
    printer = _Printer(attention, blocks or choose(attention), name)
    texts = [printer.print()]
    arguments = list(attention.parameters)
    launches = []
    hidden = printer.hidden
    if hidden is not None:
        texts.insert(0, hidden.print(f"{name}_look"))
        sizes = [p for p in arguments if isinstance(p, sympy.Symbol)]
        looked = [attention.value.buffer, hidden.flags, *sizes]
        launches.append(
            Launch(
                f"{name}_look",
                hidden.grid(printer.heads()),
                tuple(map(_name, looked)),
                {"CHUNK": CHUNK, "WIDTH": padded(attention.width), "num_warps": 8},
                ", ".join(map(_type, looked)),
            )
        )
        arguments.append(hidden.flags)
    launches.append(
        Launch(
            name,
            printer.grid(),
            tuple(map(_name, arguments)),
            printer.constants(),
            ", ".join(map(_type, arguments)),
            attention.comment,
        )
    )
    temporaries = (hidden.flags,) if hidden is not None else ()
    return TritonText(
        "\n\n\n".join(texts),
        tuple(launches),
        temporaries,
        tuple(sorted(printer.library)),
    )


def _name(parameter: Parameter) -> str:
    return str(getattr(parameter, "name", parameter))


def _type(parameter: Parameter) -> str:
    """What the kernel is compiled for, as `srcjit.runtime.triton.Variant.parse` reads it."""
    if isinstance(parameter, Buffer):
        return f"*{SIGNATURE[parameter.dtype]}:16"
    return SIGNATURE[parameter.dtype] if isinstance(parameter, ScalarArg) else "i32"


class _Printer(Expressions):
    """Prints one attention; the score function goes the way of every other value."""

    def __init__(self, attention: Attention, blocks: Blocks, name: str) -> None:
        self.attention, self.sizes, self.name = attention, blocks, name
        peak = Reduce("peak", "max", attention.score, torch.float32)
        outer = (attention.batch, attention.rows)
        kernel = Kernel(name, outer, (attention.columns,), (peak,), attention.labels)
        groups = (
            Group((attention.batch,), 1),
            Group((attention.rows,), blocks.rows),
            Group((attention.columns,), blocks.columns),
        )
        plan = Schedule(groups, True, blocks.warps)
        taken = {"tl", "triton", "range", "float", "launch", name, *LIBRARY}
        taken |= {"ROWS", "COLUMNS", "DEPTH", "WIDTH"}
        for p in attention.parameters:
            taken.add(f"{p.name}_ptr" if isinstance(p, Buffer) else str(p))
        super().__init__(kernel, plan, Names(taken))
        self.rounded = (
            round_trips(attention.values, attention.product)
            if rounds_pairs(attention.output.device)
            else set()
        )
        self.products = products_of_pairs(self.rounded, attention.values)
        self.factors = {narrow for narrow, _ in self.products.values()}
        self.seen = visible(
            attention.score, attention.rows.symbol, attention.columns.symbol
        )
        if (static(attention.columns.size) or blocks.columns + 1) <= blocks.columns:
            # There is one block.
            self.seen = Visible()
        z, i = attention.batch.symbol, attention.rows.symbol
        self.z, self.i = self.at.symbols[z], self.at.symbols[i]
        self.d, self.e = self.names("d"), self.names("e")
        self.count = self.at.count_text(groups[1])
        self.out = TileIndex(
            attention.place, attention.rows, attention.width, attention.axes
        )
        self.query, self.key, self.value = (
            TileIndex(load.index, first, second, attention.axes)
            for load, first, second in (
                (attention.query, attention.rows, attention.depth),
                (attention.key, attention.columns, attention.depth),
                (attention.value, attention.columns, attention.width),
            )
        )
        self.hidden: Hidden | None = None
        if self.seen != Visible():
            self.hidden = Hidden(attention, self.names, self.value)

    # ── around the function ───────────────────────────────────────────────────────────────

    def constants(self) -> dict[str, int]:
        """Constants and compile options of the launch."""
        return {
            "ROWS": self.sizes.rows,
            "COLUMNS": self.sizes.columns,
            "DEPTH": padded(self.attention.depth),
            "WIDTH": padded(self.attention.width),
            "num_warps": self.sizes.warps,
            "num_stages": self.sizes.stages,
        }

    def grid(self) -> str:
        """The number of programs, for the host."""
        return self.at.grid()

    def heads(self) -> str:
        """The size of the batch, for the host."""
        return self.at.count_text(self.plan.groups[0])

    def print(self) -> str:
        """Returns the function's text."""
        self._print_body()
        parameters = [
            f"{p.name}_ptr"
            if isinstance(p, Buffer)
            else f"{p.name}: {TL[p.dtype]}"
            if isinstance(p, ScalarArg)
            else str(p)
            for p in self.attention.parameters
        ]
        if self.hidden is not None:
            parameters.append(f"{self.hidden.flags.name}_ptr")
        parameters += [
            f"{n}: tl.constexpr" for n in ("ROWS", "COLUMNS", "DEPTH", "WIDTH")
        ]
        head = f"def {self.name}({', '.join(parameters)}):"
        if len(head) > WIDTH:
            head = f"def {self.name}(\n    " + ",\n    ".join(parameters) + ",\n):"
        body = aligned([f"    {line}" for line in self.lines])
        return "\n".join(["@triton.jit", head, *body])

    # ── the body ──────────────────────────────────────────────────────────────────────────

    def _print_body(self) -> None:
        prologue = self.lines
        self.lines, self.hoisted = [], []
        marker = self.attention.product
        label = self.attention.product_label
        product = self.names(label.name)
        self.known[marker] = (product, ATOM)
        self.inner_known.add(marker)
        score = self._named_score()
        inside, hoisted = self.lines, self.hoisted
        self.lines, self.hoisted = prologue, None
        self._positions()
        self._masks_of_rows()
        self._tiles()
        self.lines += hoisted
        self._sweep(product, label, inside, score)
        self._finish()

    def _operation(self, value: Op) -> Text:
        if value.name == "cast":
            (source,) = value.args
            if value in self.products:
                narrow, factor = self.products[value]
                self.library.add("round_times_bf16")
                return f"round_times_bf16({self.known[narrow][0]}, {factor})", ATOM
            if value in self.factors:
                return self.known[source]
            if value in self.rounded:
                self.library.add("round_bf16")
                return f"round_bf16({self.known[source][0]})", ATOM
            if source in self.rounded:
                return self.known[source]
        return super()._operation(value)

    def _named_score(self) -> str:
        score = self.attention.score
        text = self._text(score)
        if text[0].isidentifier():
            return text[0]
        name = self.names("score")
        self._line(f"{name} = {text[0]}", score, inner=True)
        return name

    def _positions(self) -> None:
        rows = self.plan.groups[1]
        several = self.at.count_text(self.plan.groups[0]) != "1"
        program = "tl.program_id(0)"
        count = self.count
        if not count.isdigit():
            count = f"tl.cdiv({index_text(rows.size, {})[0]}, ROWS)"
        block = program
        if several:
            program = block = self.names("program")
            self.lines.append(f"{program} = tl.program_id(0)")
            wide = self.at.is_wide(self.plan.groups[0]) or any(
                p.wide for p in (self.query, self.key, self.value, self.out)
            )
            at = program if count == "1" else f"{program} // {count}"
            if wide:
                at = f"({at}).to(tl.int64)"
            self.lines.append(f"{self.z} = {at}")
            block = "0" if count == "1" else f"{program} % {count}"
        else:
            self.lines.append(f"{self.z} = 0")
        if self.seen.last and count != "1":
            # The longest walks first, so that none is left over at the end.
            block = f"({count} - 1 - {block})"
        self.top = self.names("top")
        self.lines.append(f"{self.top} = {block} * ROWS")
        lanes = "tl.arange(0, ROWS)[:, None]"
        wide = self.at.is_wide(rows) or self.query.wide_first or self.out.wide_first
        lanes = f"{lanes}.to(tl.int64)" if wide else lanes
        self.lines.append(f"{self.i} = {self.top} + {lanes}")
        for name, block_name in ((self.d, "DEPTH"), (self.e, "WIDTH")):
            self.lines.append(f"{name} = tl.arange(0, {block_name})")

    def _masks_of_rows(self) -> None:
        self.live = self.at.mask(frozenset([self.plan.groups[1]]))
        self.lines += self.at.derived_lines([self.plan.groups[1]])

    def _tiles(self) -> None:
        """The query, and pointers to the first keys and values."""
        self.peak, self.total, self.mixed = map(self.names, ("peak", "total", "mixed"))
        self.keys, self.values = self.names("keys"), self.names("values")
        self.queries, depth = self.names("query"), self.attention.depth
        query = self.attention.query.buffer
        place = self.query.text(query, self.at.symbols, self.i, f"{self.d}[None, :]")
        mask = both(self.live, within(depth, self.d, "[None, :]"))
        query_load = self._factor(load_text(place, mask))
        self.lines.append(f"{self.queries} = {query_load}")
        lanes = "tl.arange(0, COLUMNS)"
        key, value = self.attention.key.buffer, self.attention.value.buffer
        across, down = f"{lanes}[None, :]", f"{lanes}[:, None]"
        for name, parts, buffer, lane in (
            (self.keys, self.key, key, (across, f"{self.d}[:, None]")),
            (self.values, self.value, value, (down, f"{self.e}[None, :]")),
        ):
            self.lines.append(f"{name} = {parts.start(buffer, self.at.symbols)}")
            self.lines.append(f"{name} += {parts.lanes(*lane)}")
        infinite = 'float("-inf")'
        # NOTE: not of size (ROWS, 1): of what a loop carries, every thread would hold one for
        # each of its columns, all equal, and would compute them all.
        self.lines += [
            f"{self.peak} = tl.full((ROWS,), {infinite}, tl.float32)",
            f"{self.total} = tl.full((ROWS,), 0.0, tl.float32)",
            f"{self.mixed} = tl.full((ROWS, WIDTH), 0.0, tl.float32)",
        ]

    def _sweep(self, product: str, label: Label, inside: list[str], score: str) -> None:
        at, columns = self.at, self.plan.groups[2]
        size = paren(index_text(columns.size, {}), SUM)
        first, stop = self._bounds(size)
        partial = at.is_partial(columns)
        j = at.symbols[self.attention.columns.symbol]
        j_live = at.mask(frozenset([columns])) if partial else None
        wide = ".to(tl.int64)" if at.is_wide(columns) else ""
        key_mask = both(j_live, within(self.attention.depth, self.d, "[:, None]"))
        value_live = None
        start = self.names("start")
        lanes = f"{start} + tl.arange(0, COLUMNS){wide}"
        lines = [f"{j} = {lanes}[None, :]", *at.derived_lines([columns])]
        comment = f"  # {label.comment}" if label.comment else ""
        loaded = self._factor(load_text(self.keys, key_mask))
        tf32 = ', input_precision="tf32"' if self.rounds else ""
        lines += [
            f"{product} = tl.dot({self.queries}, {loaded}{tf32}){comment}",
            *inside,
        ]
        if partial:
            lines.append(f'{score} = tl.where({j_live}, {score}, float("-inf"))')
        bound = magnitude(self.attention.score)
        bounded = bound is not None and bound <= LARGEST
        higher, weight, fading = map(self.names, ("higher", "weight", "fading"))
        lowering = [f"{higher} = tl.maximum({self.peak}, tl.max({score}, 1))"]
        shift = higher
        if not bounded or may_hide(self.attention.score):
            shift = self.names("shift")
            lowering.append(
                f'{shift} = tl.where({higher} == float("-inf"), 0.0, {higher})'
            )
        # No weight is a denormal number, or the instruction that keeps those is called.
        if bounded:
            self.library |= {"exp_minus", "exp_of_term"}
            weights = f"exp_minus({score}, {shift}[:, None])"
            faded = f"exp_of_term({self.peak} - {shift})"
        else:
            self.library.add("exp2_f32")
            weights = f"exp2_f32(({score} - {shift}[:, None]) * {LOG2_E})"
            faded = f"exp2_f32(({self.peak} - {shift}) * {LOG2_E})"
        narrow = self._factor(f"{weight}.to({TL[self.attention.value.dtype]})")
        value_mask = self._value_mask(start, partial)
        value_live = self._factor(load_text(self.values, value_mask))
        lines += [
            *lowering,
            f"{weight} = {weights}",
            f"{fading} = {faded}",
            f"{self.total} = {self.total} * {fading} + tl.sum({weight}, 1)",
            f"{self.mixed} = tl.dot({narrow}, {value_live}, "
            f"{self.mixed} * {fading}[:, None]{tf32})",
            f"{self.peak} = {higher}",
            f"{self.keys} += {self.key.step('COLUMNS')}",
            f"{self.values} += {self.value.step('COLUMNS')}",
        ]
        self.lines.append(f"for {start} in range({first}, {stop}, COLUMNS):")
        self.lines += [f"    {line}" for line in lines]
        if self.hidden is not None:
            self._look_at_unseen(self.hidden, first, stop, size, start, partial)

    @property
    def rounds(self) -> bool:
        """Whether products are of TF32: the proof lets float32 in only where they may be."""
        return self.attention.value.dtype is torch.float32

    def _factor(self, text: str) -> str:
        """An operand of a product, rounded as libraries do."""
        if not self.rounds:
            return text
        self.library.add("to_tf32")
        return f"to_tf32({text})"

    def _value_mask(self, start: str, partial: bool) -> str | None:
        mask = within(self.attention.width, self.e, "[None, :]")
        if not partial:
            return mask
        size = paren(index_text(self.plan.groups[2].size, {}), SUM)
        return both(f"({start} + tl.arange(0, COLUMNS)[:, None] < {size})", mask)

    def _bounds(self, size: str) -> tuple[str, str]:
        """Where the walk begins and ends, for the rows of the block at hand."""
        if self.seen == Visible():
            return "0", size
        top, rows = sympy.Symbol(self.top), sympy.Symbol("ROWS")
        i = self.attention.rows.symbol
        first, stop = self.names("first"), self.names("stop")

        def extreme(bound: Expr, largest: bool) -> str:
            slope = bound.coeff(i, 1)
            row = top + rows - 1 if bool(slope > 0) == largest else top
            return index_text(sympy.expand(bound.xreplace({i: row})), self.at.symbols)[
                0
            ]

        low, high = "0", size
        for bound in self.seen.first:
            low = f"tl.maximum({low}, {extreme(bound, largest=False)})"
        for bound in self.seen.last:
            high = f"tl.minimum({high}, {extreme(bound + 1, largest=True)})"
        if self.seen.first:
            self.lines.append(
                f"{first} = tl.minimum({low}, {size}) // COLUMNS * COLUMNS"
            )
            self.lines.append(f"{self.keys} += {self.key.step(first)}")
            self.lines.append(f"{self.values} += {self.value.step(first)}")
            low = first
            length = f"tl.maximum({high} - {first}, 0)"
        else:
            length = f"tl.maximum({high}, 0)" if self.seen.last else high
        count = f"tl.cdiv({length}, COLUMNS) * COLUMNS"
        whole = count if low == "0" else f"{first} + {count}"
        self.lines.append(f"{stop} = {whole}")
        return low, stop

    def _look_at_unseen(
        self,
        hidden: Hidden,
        first: str,
        stop: str,
        size: str,
        start: str,
        partial: bool,
    ) -> None:
        """Values of hidden columns have the weight 0, and 0 times inf or NaN is NaN.

        Where there are such values, a walk over the hidden columns finds them.
        """
        odd = self.names("odd")
        self.lines += hidden.any_odd(odd, self.z)
        value = self.attention.value.buffer
        down = f"({start} + tl.arange(0, COLUMNS)[:, None])"
        place = self.value.text(value, self.at.symbols, down, f"{self.e}[None, :]")
        loaded = load_text(place, self._value_mask(start, partial))
        ranges = [("0", first)] if self.seen.first else []
        ranges += [(stop, size)] if self.seen.last else []
        self.lines.append(f"if {odd} != 0:")
        for low, high in ranges:
            self.lines += [
                f"    for {start} in range({low}, {high}, COLUMNS):",
                f"        {self.mixed} += tl.sum({loaded}.to(tl.float32) * 0.0, 0)[None, :]",
            ]

    def _finish(self) -> None:
        # NOTE: one division for a row; products are off by half a unit of float32 more.
        result = f"{self.mixed} * (1.0 / {self.total})[:, None]"
        if static(self.attention.columns.size) is None:
            # Over no columns at all, the second product is 0.
            size = paren(index_text(self.attention.columns.size, {}), SUM)
            result = f"tl.where({size} > 0, {result}, 0.0)"
        label = self.attention.result_label
        output = self.attention.output
        name = self.names(label.name)
        comment = f"  # {label.comment}" if label.comment else ""
        narrow = result if result.startswith("tl.where(") else f"({result})"
        self.lines.append(f"{name} = {narrow}.to({TL[output.dtype]}){comment}")
        place = self.out.text(output, self.at.symbols, self.i, f"{self.e}[None, :]")
        mask = both(self.live, within(self.attention.width, self.e, "[None, :]"))
        tail = f", {mask})" if mask else ")"
        self.lines.append(f"tl.store({place}, {name}{tail}")
