"""Where a program works: tile positions, masks, grid and the text of indices.

A tile of rows and columns that reaches beyond both ends begins with

    program = tl.program_id(0)
    i = program // 2 * ROWS + tl.arange(0, ROWS)[:, None]
    j = program % 2 * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    i_live = i < 37
    j_live = j < 65
    live = i_live & j_live

Lines are made for what the body uses, so the body is printed first.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from .indexing import simplify, substitute
from .loops import Expr, Kernel, Load, Value, symbols_of
from .print_triton_axes import indices, offset_bound, ranges_of, static
from .print_triton_schedule import Group, Schedule, flatten_group
from .print_triton_values import ATOM, PRODUCT, SUM, Text, index_text, paren


class Names:
    """Gives out identifiers, each once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def __call__(self, wanted: str) -> str:
        wanted = "".join(c if c.isalnum() else "_" for c in wanted) or "value"
        if wanted[0].isdigit():
            wanted = f"v{wanted}"
        name, number = wanted, 0
        while name in self.taken or keyword.iskeyword(name):
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name


class Positions:
    """The positions of one kernel under one schedule.

    Attributes:
        blocks: Name of the constant that holds each tile dimension's block size.
        symbols: How each axis and flattened position is called in the text.
        flat: The symbol of each group's flattened position.
        whole: Set while lines are made for blocks that reach beyond no end, at aligned places.
        aligned: Indices that are multiples of `steps` there.
    """

    def __init__(self, kernel: Kernel, plan: Schedule, names: Names) -> None:
        self.kernel, self.plan, self.names = kernel, plan, names
        self.blocks = block_names(kernel, plan)
        self.flat: dict[Group, sympy.Symbol] = {}
        self.symbols: dict[sympy.Symbol, str] = {}
        self.recovered: dict[sympy.Symbol, Expr] = {}
        self.used_recovered: dict[sympy.Symbol, None] = {}
        self._name_positions()
        self.index_forms = self._index_forms()
        self.masks: dict[frozenset[Group], str] = {}
        self.paired: dict[Group, sympy.Symbol] = {}
        self.whole = False
        self.aligned: set[Expr] = set()
        self.steps = 1

    @property
    def inner(self) -> Group | None:
        """The group that is reduced over."""
        return self.plan.groups[-1] if self.kernel.inner else None

    @property
    def vectors(self) -> list[Group]:
        """Groups that are dimensions of the tile; the others are scalars."""
        return [g for g in self.plan.groups if g.block > 1 or g is self.inner]

    def _name_positions(self) -> None:
        defaults = ("n",) if len(self.plan.groups) == 1 else ("point", "row", "column")
        for number, group in enumerate(self.plan.groups):
            default = (
                "k" if group is self.inner else defaults[min(number, len(defaults) - 1)]
            )
            if not group.axes:
                continue
            wanted = str(group.axes[0].symbol) if len(group.axes) == 1 else default
            text = self.names(wanted)
            symbol, parts = flatten_group(group, f"{text}:flat")
            self.flat[group] = symbol
            self.symbols[symbol] = text
            self.recovered |= parts
        for axis in self.recovered:
            self.symbols[axis] = self.names(str(axis))

    def _index_forms(self) -> dict[Expr, Expr]:
        """Each index, by flattened positions where that needs no more divisions."""
        ranges = ranges_of(self.kernel)
        for group, symbol in self.flat.items():
            ranges[symbol] = group.size
        forms = {}
        for index in indices(self.kernel):
            form = index
            if self.recovered:
                flat = simplify(index.xreplace(self.recovered), ranges)
                if len(flat.atoms(FloorDiv, Mod)) <= len(index.atoms(FloorDiv, Mod)):
                    form = flat
            forms[index] = form
        return forms

    def groups_of_symbols(self, symbols: Iterable[sympy.Symbol]) -> frozenset[Group]:
        found = set()
        for symbol in symbols:
            for group in self.plan.groups:
                if symbol is self.flat.get(group) or any(
                    symbol == a.symbol for a in group.axes
                ):
                    found.add(group)
        return frozenset(found)

    def groups(self, value: Value) -> frozenset[Group]:
        """The tile dimensions and scalar positions that a value depends on."""
        return self.groups_of_symbols(symbols_of(value))

    def is_inner(self, value: Value) -> bool:
        return self.inner is not None and self.inner in self.groups(value)

    def is_partial(self, group: Group) -> bool:
        """Whether some block reaches beyond the group's end."""
        if self.whole and group is self.inner:
            return False
        size = static(group.size)
        return group in self.vectors and (size is None or size % group.block != 0)

    def mask(self, groups: frozenset[Group]) -> str | None:
        needed = frozenset(g for g in groups if self.is_partial(g))
        if not needed:
            return None
        if needed not in self.masks:
            ordered = [g for g in self.plan.groups if g in needed]
            if len(ordered) > 1:
                for group in ordered:
                    self.mask(frozenset([group]))
            only = sum(self.is_partial(g) for g in self.plan.groups) == 1
            if only or len(ordered) > 1:
                self.masks[needed] = self.names("live")
            else:
                name = self.symbols[self.flat[ordered[0]]]
                self.masks[needed] = self.names(f"{name}_live")
        return self.masks[needed]

    def index(self, index: Expr, extra: dict[sympy.Symbol, str]) -> Text:
        text = self.text(self.index_forms[sympy.sympify(index)], extra)
        if self.whole and index in self.aligned:
            return f"tl.multiple_of({text[0]}, {self.steps})", ATOM
        return text

    def text(self, form: Expr, extra: dict[sympy.Symbol, str] | None = None) -> Text:
        """The text of an expression of axes and flattened positions."""
        for symbol in form.free_symbols:
            if symbol in self.recovered:
                self.used_recovered[symbol] = None
        order = [
            s
            for g in self.plan.groups
            for s in (*(a.symbol for a in g.axes), self.flat.get(g), self.paired.get(g))
        ]
        return index_text(form, {**self.symbols, **(extra or {})}, order)

    def walks(self, group: Group) -> bool:
        return self.plan.looped and group is self.inner

    def gridded(self) -> list[Group]:
        return [g for g in self.plan.groups if g is not self.inner and g.axes]

    def grid(self) -> str:
        """How many programs cover the kernel: an expression for the host."""
        counts = [self.count_text(g) for g in self.gridded()]
        if all(c.isdigit() for c in counts):
            return str(sympy.Mul(*map(int, counts)))
        return " * ".join(c for c in counts if c != "1") or "1"

    def count_text(self, group: Group) -> str:
        """How many blocks cover a group."""
        size = static(group.size)
        if size is not None:
            return str(-(-size // group.block))
        text = index_text(sympy.expand(group.size), {})
        if group.block == 1:
            return paren(text, PRODUCT + 1)
        return f"(({paren(text, SUM)} + {group.block - 1}) // {group.block})"

    def is_wide(self, group: Group) -> bool:
        """Whether the offsets that a group contributes to may not fit in 32 bits."""
        ranges = ranges_of(self.kernel) | {s: g.size for g, s in self.flat.items()}
        own = {self.flat[group], *(a.symbol for a in group.axes)}
        others = {
            s: sympy.Integer(0)
            for g in self.plan.groups
            for s in (self.flat.get(g), *(a.symbol for a in g.axes))
            if s is not None and s not in own
        }
        # What stands for a value is an int64 itself.
        others |= {
            place.symbol: sympy.Integer(0)
            for v in self.kernel.values
            if isinstance(v, Load)
            for place in v.indirect
        }
        size = static(group.size)
        if size is None or size + group.block >= 2**31:
            return True
        for form in self.index_forms.values():
            if not form.free_symbols & own:
                continue
            is_sum = isinstance(form, sympy.Add)
            zero_others = substitute(form, others) if is_sum else form
            bound = offset_bound(zero_others, ranges)
            # A partial block computes offsets beyond the end, too.
            if bound is None or bound * 2 >= 2**31:
                return True
        return False

    def prologue(self, groups: list[Group]) -> list[str]:
        """Positions, recovered axes and masks of groups, as far as the body uses them."""
        lines: list[str] = []
        gridded = [g for g in self.gridded() if self.count_text(g) != "1"]
        program = "tl.program_id(0)"
        if len(gridded) > 1 and any(g in groups for g in gridded):
            program = self.names("program")
            lines.append(f"{program} = tl.program_id(0)")
        for group in groups:
            if group not in self.flat:
                continue
            lines.append(self._position_line(group, gridded, program))
            if group in self.paired:
                lines.append(self._position_line(group, gridded, program, pairs=True))
        lines += self.derived_lines(groups)
        return lines

    def pairs(self, group: Group) -> sympy.Symbol:
        """A position that goes over a group's points twice as fast: of results in pairs."""
        if group not in self.paired:
            name = self.names(f"{self.symbols[self.flat[group]]}_pairs")
            symbol = sympy.Symbol(f"{name}:pairs", integer=True, nonnegative=True)
            self.paired[group], self.symbols[symbol] = symbol, name
        return self.paired[group]

    def _position_line(
        self, group: Group, gridded: list[Group], program: str, pairs: bool = False
    ) -> str:
        name = self.symbols[(self.paired if pairs else self.flat)[group]]
        block = program
        if group in gridded:
            after = gridded[gridded.index(group) + 1 :]
            if after:
                counts = [self._kernel_count(g) for g in after]
                block = f"{block} // {counts[0] if len(counts) == 1 else '(' + ' * '.join(counts) + ')'}"
            if gridded.index(group):
                block = f"{block} % {self._kernel_count(group)}"
        wide = ".to(tl.int64)" if self.is_wide(group) else ""
        if wide:
            block = f"{block}{wide}" if block == program else f"({block}){wide}"
        if group not in self.vectors:
            return f"{name} = {block if group in gridded else 0}"
        size = f"2 * {self.blocks[group]}" if pairs else self.blocks[group]
        lanes = f"tl.arange(0, {size}){self.lane_suffix(group)}"
        if group not in gridded:
            return f"{name} = {lanes}"
        return f"{name} = {block} * {f'({size})' if pairs else size} + {lanes}"

    def _kernel_count(self, group: Group) -> str:
        if static(group.size) is not None:
            return self.count_text(group)
        text = index_text(sympy.expand(group.size), {})[0]
        return (
            f"tl.cdiv({text}, {self.blocks[group]})" if group.block > 1 else f"({text})"
        )

    def lane_suffix(self, group: Group) -> str:
        vectors = self.vectors
        if len(vectors) == 1:
            return ""
        return "[:, None]" if vectors.index(group) == 0 else "[None, :]"

    def derived_lines(self, groups: list[Group]) -> list[str]:
        lines = []
        for group in groups:
            for axis in group.axes:
                if axis.symbol in self.used_recovered:
                    form = index_text(self.recovered[axis.symbol], self.symbols)[0]
                    lines.append(f"{self.symbols[axis.symbol]} = {form}")
        for needed, name in sorted(self.masks.items(), key=self._mask_order):
            if self.whole and self.inner in needed:
                continue
            if needed <= set(self.plan.groups) and any(g in groups for g in needed):
                if any(self.walks(g) for g in needed) and not any(
                    map(self.walks, groups)
                ):
                    continue
                lines.append(f"{name} = {self._mask_text(needed)}")
        return lines

    def _mask_order(self, mask: tuple[frozenset[Group], str]) -> tuple[int, int]:
        """Masks of one group first, in the order of the groups."""
        places = [n for n, g in enumerate(self.plan.groups) if g in mask[0]]
        return len(places), min(places)

    def _mask_text(self, needed: frozenset[Group]) -> str:
        if len(needed) > 1:
            ordered = [g for g in self.plan.groups if g in needed]
            return " & ".join(self.masks[frozenset([g])] for g in ordered)
        (group,) = needed
        limit = paren(index_text(sympy.expand(group.size), {}), SUM)
        return f"{self.symbols[self.flat[group]]} < {limit}"


def block_names(kernel: Kernel, plan: Schedule) -> dict[Group, str]:
    """The constants of a kernel's tile: one dimension is BLOCK, two are ROWS and COLUMNS."""
    vectors = [
        g for g in plan.groups if g.block > 1 or (kernel.inner and g is plan.groups[-1])
    ]
    if len(vectors) == 1:
        return {vectors[0]: "BLOCK"}
    return dict(zip(vectors, ("ROWS", "COLUMNS"), strict=False))
