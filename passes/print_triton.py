"""Prints kernels of the loop form as Triton.

    kernel sin_mul_sum over one point, inner i < 1000:
        y[i] = mul(sin(x[i]), 2.0)
        total = sum(mul(sin(x[i]), 2.0))
        total[0] = total  (outer)

becomes one function and what the host must know to launch it:

    >>> from srcjit.passes.loops import *
    >>> def tensor(name, *size):
    ...     ones = tuple(sympy.Integer(1) for _ in size)
    ...     return Buffer(name, torch.float32, torch.device("cuda"), tuple(map(sympy.Integer, size)), ones)
    >>> i = Axis(symbol("i"), sympy.Integer(1000))
    >>> y = op("mul", op("sin", Load(tensor("x", 1000), i.symbol)), Const(2.0, torch.float32))
    >>> total = Reduce("total", "sum", y, torch.float32)
    >>> kernel = Kernel("sin_mul_sum", (), (i,), (
    ...     Store(tensor("y", 1000), i.symbol, y),
    ...     total,
    ...     Store(tensor("total"), sympy.Integer(0), total.ref, "outer"),
    ... ), {y: Label("y", "20: y = torch.sin(x) * 2"), total.ref: Label("total", "21: y.sum()")})
    >>> printed = print_kernel(kernel)
    >>> print(printed.text)
    @triton.jit
    def sin_mul_sum(x_ptr, y_ptr, total_ptr, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        live = i < 1000
        x = tl.load(x_ptr + i, live, other=0.0)
        y = libdevice.sin(x) * 2.0                 # 20: y = torch.sin(x) * 2
        tl.store(y_ptr + i, y, live)
        total = tl.sum(tl.where(live, y, 0.0), 0)  # 21: y.sum()
        tl.store(total_ptr, total)
    >>> printed.host_lines()
    ('launch(sin_mul_sum, 1, x, y, total, BLOCK=1024, num_warps=4)',)
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from .loops import (
    Buffer,
    Const,
    Expr,
    IndexValue,
    Kernel,
    Load,
    Op,
    Reduce,
    Ref,
    ScalarArg,
    Store,
    Value,
    symbols_of,
    walk,
)
from .indexing import simplify
from .print_triton_schedule import (
    Group,
    Schedule,
    flatten_group,
    indices,
    is_half_cast,
    level_of,
    merge_axes,
    offset_bound,
    ranges_of,
    reduction_levels,
    schedule,
    static,
    uses,
)
from .print_triton_split import split
from .print_triton_values import (
    ATOM,
    PRODUCT,
    SIGNATURE,
    SUM,
    TL,
    Text,
    cast_text,
    const_text,
    identity,
    index_text,
    number_text,
    paren,
    primitive_text,
    typed_operands,
)

IMPORTS = (
    "import triton",
    "import triton.language as tl",
    "from srcjit.runtime import launch",
)
"""What every emitted module with Triton kernels imports."""

WIDTH = 88
COMMENT_COLUMN = 60
LONGEST_EXPRESSION = 60
"""Characters beyond which a part of an expression gets a name."""

LIBRARY = (
    "floor_divide fmax fmin libdevice tanh_to_bf16 max_with_index min_with_index reduce_all reduce_any "
    "reduce_argmax reduce_argmin reduce_max reduce_min reduce_prod remainder"
).split()


@dataclass(frozen=True)
class Launch:
    """One call of a kernel.

    Attributes:
        kernel: Name of the `@triton.jit` function.
        grid: Python expression for the number of programs; may use the names of sizes.
        arguments: Names of buffers, scalars and sizes, as the host knows them.
        constants: The kernel's constants and compile options.
        signature: Types of the arguments as `srcjit.runtime.triton.Variant.parse` reads
            them, pointers aligned.
        comment: For the end of the line.
    """

    kernel: str
    grid: str
    arguments: tuple[str, ...]
    constants: dict[str, int]
    signature: str
    comment: str = ""

    @property
    def text(self) -> str:
        """The host's statement."""
        constants = [f"{k}={v}" for k, v in self.constants.items()]
        call = ", ".join([self.kernel, self.grid, *self.arguments, *constants])
        return f"launch({call})" + (f"  # {self.comment}" if self.comment else "")


@dataclass(frozen=True)
class TritonText:
    """A printed kernel: mostly one function; several where a reduction is split.

    Attributes:
        text: The function definitions.
        launches: The calls, in order.
        temporaries: Buffers that the host must allocate before the calls.
        library: Names that the text uses from `srcjit.runtime.triton_library`.
    """

    text: str
    launches: tuple[Launch, ...]
    temporaries: tuple[Buffer, ...] = ()
    library: tuple[str, ...] = ()

    @property
    def imports(self) -> tuple[str, ...]:
        """Import statements that the module needs."""
        if not self.library:
            return IMPORTS
        # One name a statement, so that the imports of several kernels merge by set union.
        return (
            *IMPORTS,
            *(f"from srcjit.runtime.triton_library import {n}" for n in self.library),
        )

    def host_lines(
        self, symbols: Mapping[sympy.Symbol, str] | None = None
    ) -> tuple[str, ...]:
        """The host's statements, temporaries (by `torch.empty`) included.

        They refer to buffers and scalars by name, and need `torch` if there are temporaries.

        Args:
            symbols: How the host spells sizes, where it is not the symbol's name.
        """
        allocations = tuple(
            f"{b.name} = torch.empty({_size_text(b)}, dtype={b.dtype}, device={str(b.device)!r})"
            for b in self.temporaries
        )
        lines = (*allocations, *(call.text for call in self.launches))
        table = {
            str(s): t if t.isidentifier() else f"({t})"
            for s, t in (symbols or {}).items()
            if str(s) != t
        }
        if not table:
            return lines
        word = re.compile(rf"\b({'|'.join(map(re.escape, table))})\b")
        return tuple(word.sub(lambda m: table[m.group()], line) for line in lines)

    def precompile_jobs(self) -> tuple[str, ...]:
        """Text of one argument of `srcjit.runtime.triton.precompile` for each launch."""
        return tuple(
            f"({c.kernel}, {c.signature!r}, {c.constants!r})" for c in self.launches
        )


def _size_text(buffer: Buffer) -> str:
    sizes = [index_text(s, {})[0] for s in buffer.size]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def print_kernel(
    kernel: Kernel,
    name: str | None = None,
    *,
    choose: Callable[[Kernel], Schedule] = schedule,
) -> TritonText:
    """Prints a kernel under `name` (by default its own).

    The parameters of the function are `kernel.parameters` in order, unless the kernel was
    split; `TritonText.launches` says what to pass in any case. `choose` decides how each
    resulting kernel runs.
    """
    name = name or kernel.name
    parts, temporaries = split(merge_axes(kernel))
    texts, launches = [], []
    library: set[str] = set()
    for number, part in enumerate(parts):
        part_name = name if len(parts) == 1 else f"{name}_{number}"
        printer = _Printer(part, choose(part), part_name)
        texts.append(printer.print())
        launches.append(printer.launch(kernel.comment if number == 0 else ""))
        library |= printer.library
    return TritonText(
        "\n\n\n".join(texts), tuple(launches), temporaries, tuple(sorted(library))
    )


class _Names:
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


class _Printer:
    """Prints one kernel with one schedule.

    Lines go to `lines`; those that do not depend on the position within a loop are put in
    front of it (`hoisted`).
    """

    def __init__(self, kernel: Kernel, plan: Schedule, name: str) -> None:
        self.kernel, self.plan, self.name = kernel, plan, name
        self.library: set[str] = set()
        self.parameters = [
            (p, p.name if isinstance(p, ScalarArg) else str(getattr(p, "name", p)))
            for p in kernel.parameters
        ]
        self.blocks = self._block_names()
        self.names = _Names(
            {"tl", "triton", "float", "range", "launch", name, *LIBRARY, *self.blocks.values()}
            | {f"{n}_ptr" if isinstance(p, Buffer) else n for p, n in self.parameters}
        )
        self.flat: dict[Group, sympy.Symbol] = {}
        self.symbols: dict[sympy.Symbol, str] = {}
        self.recovered: dict[sympy.Symbol, Expr] = {}
        self.used_recovered: dict[sympy.Symbol, None] = {}
        self._name_positions()
        self.index_forms = self._index_forms()
        self.known: dict[Value, Text] = {}
        self.variable: dict[Value, str] = {}
        self.inner_known: set[Value] = set()
        self.masks: dict[frozenset[Group], str] = {}
        self.lines: list[str] = []
        self.hoisted: list[str] | None = None
        self.counts = uses([s.value for s in kernel.body])
        self.continued = _continued(kernel)
        self.coarse = _rounded_to(kernel)

    # --- positions --------------------------------------------------------------------------

    @property
    def inner(self) -> Group | None:
        """The group that is reduced over."""
        return self.plan.groups[-1] if self.kernel.inner else None

    @property
    def vectors(self) -> list[Group]:
        """Groups that are dimensions of the tile; the others are scalars."""
        return [g for g in self.plan.groups if g.block > 1 or g is self.inner]

    def _block_names(self) -> dict[Group, str]:
        vectors = self.vectors
        if len(vectors) == 1:
            return {vectors[0]: "BLOCK"}
        return dict(zip(vectors, ("ROWS", "COLUMNS"), strict=False))

    def _name_positions(self) -> None:
        defaults = ("n",) if len(self.plan.groups) == 1 else ("point", "row", "column")
        for number, group in enumerate(self.plan.groups):
            default = "k" if group is self.inner else defaults[min(number, len(defaults) - 1)]
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

    def _groups_of_symbols(self, symbols: Iterable[sympy.Symbol]) -> frozenset[Group]:
        found = set()
        for symbol in symbols:
            for group in self.plan.groups:
                if symbol is self.flat.get(group) or any(
                    symbol == a.symbol for a in group.axes
                ):
                    found.add(group)
        return frozenset(found)

    def _groups(self, value: Value) -> frozenset[Group]:
        """The tile dimensions and scalar positions that a value depends on."""
        return self._groups_of_symbols(symbols_of(value))

    def _is_inner(self, value: Value) -> bool:
        return self.inner is not None and self.inner in self._groups(value)

    def _is_partial(self, group: Group) -> bool:
        """Whether some block reaches beyond the group's end."""
        size = static(group.size)
        return group in self.vectors and (size is None or size % group.block != 0)

    def _mask(self, groups: frozenset[Group]) -> str | None:
        needed = frozenset(g for g in groups if self._is_partial(g))
        if not needed:
            return None
        if needed not in self.masks:
            only = sum(self._is_partial(g) for g in self.plan.groups) == 1
            if only or len(needed) > 1:
                self.masks[needed] = self.names("live")
            else:
                (group,) = needed
                self.masks[needed] = self.names(f"{self.symbols[self.flat[group]]}_live")
            for group in needed:
                self._mask(frozenset([group]))
        return self.masks[needed]

    def _index(self, index: Expr, extra: dict[sympy.Symbol, str]) -> Text:
        form = self.index_forms[sympy.sympify(index)]
        for symbol in form.free_symbols:
            if symbol in self.recovered:
                self.used_recovered[symbol] = None
        order = [self.flat[g] for g in self.plan.groups if g in self.flat]
        order = [s for g in self.plan.groups for s in (*(a.symbol for a in g.axes), self.flat.get(g))]
        names = {**self.symbols, **extra}
        return index_text(form, names, order)

    # --- the whole --------------------------------------------------------------------------

    def print(self) -> str:
        """Returns the function's text."""
        if self.plan.looped:
            self._print_loops()
        else:
            self._print_straight()
        parameters = [
            f"{n}_ptr"
            if isinstance(p, Buffer)
            else f"{n}: {TL[p.dtype]}"
            if isinstance(p, ScalarArg)
            else n
            for p, n in self.parameters
        ]
        parameters += [f"{b}: tl.constexpr" for b in self.blocks.values()]
        head = f"def {self.name}({', '.join(parameters)}):"
        if len(head) > WIDTH:
            head = f"def {self.name}(\n    " + ", ".join(parameters) + "\n):"
            if max(map(len, head.splitlines())) > WIDTH:
                head = f"def {self.name}(\n    " + ",\n    ".join(parameters) + ",\n):"
        prologue = self._prologue([g for g in self.plan.groups if not self._walks(g)])
        body = _aligned([f"    {line}" for line in (*prologue, *self.lines)])
        return "\n".join(["@triton.jit", head, *body])

    def launch(self, comment: str) -> Launch:
        """Returns how the host launches the printed function."""
        constants = {self.blocks[g]: g.block for g in self.vectors}
        constants["num_warps"] = self.plan.num_warps
        types = [
            f"*{SIGNATURE[p.dtype]}:16"
            if isinstance(p, Buffer)
            else SIGNATURE[p.dtype]
            if isinstance(p, ScalarArg)
            else "i32"
            for p, _ in self.parameters
        ]
        counts = [self._count_text(g) for g in self._gridded()]
        grid = " * ".join(c for c in counts if c != "1") or "1"
        if all(c.isdigit() for c in counts):
            grid = str(sympy.Mul(*map(int, counts)))
        return Launch(
            self.name,
            grid,
            tuple(n for _, n in self.parameters),
            constants,
            ", ".join(types),
            comment,
        )

    def _walks(self, group: Group) -> bool:
        return self.plan.looped and group is self.inner

    def _gridded(self) -> list[Group]:
        return [g for g in self.plan.groups if g is not self.inner and g.axes]

    def _count_text(self, group: Group) -> str:
        """How many blocks cover a group."""
        size = static(group.size)
        if size is not None:
            return str(-(-size // group.block))
        text = index_text(sympy.expand(group.size), {})
        if group.block == 1:
            return paren(text, PRODUCT + 1)
        return f"(({paren(text, SUM)} + {group.block - 1}) // {group.block})"

    def _is_wide(self, group: Group) -> bool:
        """Whether the offsets that a group contributes to may not fit in 32 bits."""
        ranges = ranges_of(self.kernel) | {s: g.size for g, s in self.flat.items()}
        own = {self.flat[group], *(a.symbol for a in group.axes)}
        others = {
            s: sympy.Integer(0)
            for g in self.plan.groups
            for s in (self.flat.get(g), *(a.symbol for a in g.axes))
            if s is not None and s not in own
        }
        size = static(group.size)
        if size is None or size + group.block >= 2**31:
            return True
        for form in self.index_forms.values():
            if not form.free_symbols & own:
                continue
            zero_others = form.xreplace(others) if isinstance(form, sympy.Add) else form
            bound = offset_bound(zero_others, ranges)
            # A partial block computes offsets beyond the end, too.
            if bound is None or bound * 2 >= 2**31:
                return True
        return False

    def _prologue(self, groups: list[Group]) -> list[str]:
        """Positions, recovered axes and masks of groups, as far as the body uses them."""
        lines: list[str] = []
        gridded = [g for g in self._gridded() if self._count_text(g) != "1"]
        program = "tl.program_id(0)"
        if len(gridded) > 1 and any(g in groups for g in gridded):
            program = self.names("program")
            lines.append(f"{program} = tl.program_id(0)")
        for group in groups:
            if group not in self.flat:
                continue
            lines.append(self._position_line(group, gridded, program))
        lines += self._derived_lines(groups)
        return lines

    def _position_line(self, group: Group, gridded: list[Group], program: str) -> str:
        name = self.symbols[self.flat[group]]
        block = program
        if group in gridded:
            after = gridded[gridded.index(group) + 1 :]
            if after:
                counts = [self._kernel_count(g) for g in after]
                block = f"{block} // {counts[0] if len(counts) == 1 else '(' + ' * '.join(counts) + ')'}"
            if gridded.index(group):
                block = f"{block} % {self._kernel_count(group)}"
        wide = ".to(tl.int64)" if self._is_wide(group) else ""
        if wide:
            block = f"{block}{wide}" if block == program else f"({block}){wide}"
        if group not in self.vectors:
            return f"{name} = {block if group in gridded else 0}"
        lanes = f"tl.arange(0, {self.blocks[group]}){self._lane_suffix(group)}"
        if group not in gridded:
            return f"{name} = {lanes}"
        return f"{name} = {block} * {self.blocks[group]} + {lanes}"

    def _kernel_count(self, group: Group) -> str:
        if static(group.size) is not None:
            return self._count_text(group)
        text = index_text(sympy.expand(group.size), {})[0]
        return f"tl.cdiv({text}, {self.blocks[group]})" if group.block > 1 else f"({text})"

    def _lane_suffix(self, group: Group) -> str:
        vectors = self.vectors
        if len(vectors) == 1:
            return ""
        return "[:, None]" if vectors.index(group) == 0 else "[None, :]"

    def _derived_lines(self, groups: list[Group]) -> list[str]:
        lines = []
        for group in groups:
            for axis in group.axes:
                if axis.symbol in self.used_recovered:
                    form = index_text(self.recovered[axis.symbol], self.symbols)[0]
                    lines.append(f"{self.symbols[axis.symbol]} = {form}")
        for needed, name in sorted(self.masks.items(), key=lambda m: len(m[0])):
            if needed <= set(self.plan.groups) and any(g in groups for g in needed):
                if any(self._walks(g) for g in needed) and not any(map(self._walks, groups)):
                    continue
                lines.append(f"{name} = {self._mask_text(needed)}")
        return lines

    def _mask_text(self, needed: frozenset[Group]) -> str:
        if len(needed) > 1:
            ordered = [g for g in self.plan.groups if g in needed]
            return " & ".join(self.masks[frozenset([g])] for g in ordered)
        (group,) = needed
        limit = paren(index_text(sympy.expand(group.size), {}), SUM)
        return f"{self.symbols[self.flat[group]]} < {limit}"

    # --- straight code ----------------------------------------------------------------------

    def _print_straight(self) -> None:
        for number, statement in enumerate(self.kernel.body):
            if isinstance(statement, Reduce):
                self._reduce(statement)
            else:
                self._load_before(statement, self.kernel.body[number:])
                self._store(statement)

    def _load_before(self, store: Store, rest: tuple[Reduce | Store, ...]) -> None:
        """Loads what is still needed of a buffer that is about to be overwritten."""
        for value in walk([s.value for s in rest]):
            if isinstance(value, Load) and value.buffer == store.buffer:
                self._text(value)

    def _reduce(self, statement: Reduce) -> None:
        value, kind = statement.value, statement.kind
        text = self._text(value)[0]
        text = self._spread(text, value, self._reduce_mask(statement), statement)
        name = self._reduce_name(statement)
        self._line(f"{name} = {self._reduction_text(statement, text, None)}", statement.ref)
        del kind

    def _reduce_name(self, statement: Reduce) -> str:
        label = self.kernel.labels.get(statement.ref)
        name = self.variable.get(statement.ref) or self.names(
            label.name if label and label.name else statement.name
        )
        self.variable[statement.ref] = name
        self.known[statement.ref] = (name, ATOM)
        return name

    def _reduce_mask(self, statement: Reduce) -> str | None:
        assert self.inner is not None
        if not self._is_partial(self.inner):
            return None
        if statement.kind == "sum" and self._zero_outside(statement.value):
            return None
        return self._mask(frozenset([self.inner]))

    def _zero_outside(self, value: Value) -> bool:
        """Whether a value is 0 beyond the end of the inner axes, as masked loads are."""
        if isinstance(value, Load):
            return self._is_inner(value)
        if isinstance(value, Op):
            if value.name in ("cast", "neg", "abs", "sqrt"):
                return self._zero_outside(value.args[0])
            if value.name in ("add", "sub", "mul"):
                return all(map(self._zero_outside, value.args))
        return False

    def _shape(self) -> str:
        blocks = [self.blocks[g] for g in self.vectors]
        return f"({blocks[0]},)" if len(blocks) == 1 else f"({', '.join(blocks)})"

    def _spread(self, text: str, value: Value, mask: str | None, statement: Reduce) -> str:
        """A value over the whole inner block, with the identity beyond its end."""
        if isinstance(value, Const):
            text = const_text(value, typed=True)[0]
        if mask:
            empty = number_text(identity(statement.kind, value.dtype))[0]
            if isinstance(value, Const) and (
                value.dtype not in (torch.float32, torch.int32, torch.bool)
            ):
                empty = const_text(Const(identity(statement.kind, value.dtype), value.dtype), typed=True)[0]
            return f"tl.where({mask}, {text}, {empty})"
        if not self._is_inner(value):
            return f"tl.broadcast_to({text}, {self._shape()})"
        return text

    def _reduction_text(self, statement: Reduce, text: str, position: str | None) -> str:
        """The call that reduces a block over its last dimension."""
        axis = len(self.vectors) - 1
        where = f"{axis}, keep_dims=True" if axis else "0"
        dtype, kind = statement.value.dtype, statement.kind
        if kind.startswith("arg"):
            assert self.inner is not None
            position = position or self.symbols[self.flat[self.inner]]
            made = f"{self._from_library(f'reduce_{kind}')}({text}, {position}, {where})"
            wide = self._is_wide(self.inner)
            return made if wide else f"{made}.to(tl.int64)"
        if kind == "sum":
            made = f"tl.sum({text}, {where})"
            small = not dtype.is_floating_point and dtype.itemsize < 4
            return f"{made}.to({TL[dtype]})" if small else made
        if kind in ("max", "min") and not dtype.is_floating_point and dtype.itemsize >= 4:
            return f"tl.{kind}({text}, {where})"
        return f"{self._from_library(f'reduce_{kind}')}({text}, {where})"

    def _from_library(self, name: str) -> str:
        self.library.add(name)
        return name

    def _store(self, statement: Store) -> None:
        index = sympy.sympify(statement.index)
        text, _ = self._text(statement.value)
        groups = self._groups_of_symbols(index.free_symbols)
        place = self._address(statement.buffer, index, {})
        mask = self._mask(groups)
        call = f"tl.store({place}, {text}" + (f", {mask})" if mask else ")")
        inner = self.inner is not None and self.inner in groups
        self._line(call, None, inner=inner or statement.level == "inner")

    def _address(self, buffer: Buffer, index: Expr, extra: dict[sympy.Symbol, str]) -> str:
        pointer = f"{buffer.name}_ptr"
        if index == 0:
            return pointer
        text = self._index(index, extra)[0]
        return f"{pointer} + {text}"

    # --- loops over the inner axes ----------------------------------------------------------

    def _print_loops(self) -> None:
        levels = reduction_levels(self.kernel)
        passes = self._assign_passes(levels)
        last = max([0, *(p for _, p in passes)])
        for number in range(last + 1):
            for statement, place in passes:
                if isinstance(statement, Store) and statement.level == "outer" and place == number:
                    self._store(statement)
            inside = [
                s
                for s, place in passes
                if place == number and not (isinstance(s, Store) and s.level == "outer")
            ]
            if inside:
                self._loop(inside)

    def _assign_passes(self, levels: dict[str, int]) -> list[tuple[Reduce | Store, int]]:
        """The number of the pass that each statement belongs to.

        NOTE: a store to a buffer that is also read waits for the last pass that reads it.
        """
        passes: list[tuple[Reduce | Store, int]] = []
        reads: dict[Buffer, int] = {}
        for statement in self.kernel.body:
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
        assert self.inner is not None
        outside, self.lines, self.hoisted = self.lines, [], []
        accumulators, results = [], []
        for statement in statements:
            if isinstance(statement, Store):
                self._store(statement)
                continue
            start, result = self._accumulate(statement)
            accumulators += start
            results += result
        body, hoisted = self.lines, self.hoisted
        self.lines, self.hoisted = outside, None
        name = self.symbols[self.flat[self.inner]]
        block = self.blocks[self.inner]
        size = index_text(sympy.expand(self.inner.size), {})[0]
        start_name = self.variable_for_start()
        wide = f".to(tl.int64)" if self._is_wide(self.inner) else ""
        lanes = f"tl.arange(0, {block}){wide}{self._lane_suffix(self.inner)}"
        self.lines += hoisted
        self.lines += accumulators
        self.lines.append(f"for {start_name} in range(0, {size}, {block}):")
        inside = [f"{name} = {start_name} + {lanes}", *self._derived_lines([self.inner]), *body]
        self.lines += [f"    {line}" for line in inside]
        self.lines += results
        for value in self.inner_known:
            self.known.pop(value, None)
        self.inner_known.clear()

    def variable_for_start(self) -> str:
        """The loop's counter, the same in every loop of the kernel."""
        if not hasattr(self, "_start"):
            self._start = self.names("start")
        return self._start

    def _accumulate(self, statement: Reduce) -> tuple[list[str], list[str]]:
        """Adds to the loop's body; returns the lines before and after the loop."""
        value, kind = statement.value, statement.kind
        text = self._text(value)[0]
        text = self._spread(text, value, self._reduce_mask(statement), statement)
        label = self.kernel.labels.get(statement.ref)
        name = self.names(label.name if label and label.name else statement.name)
        empty = number_text(identity(kind, value.dtype))[0]
        before = [f"{name} = tl.full({self._shape()}, {empty}, {TL[value.dtype]})"]
        position = None
        if kind.startswith("arg"):
            assert self.inner is not None
            combine = self._from_library(f"{kind[3:]}_with_index")
            position = self.names(f"{name}_at")
            wide = "tl.int64" if self._is_wide(self.inner) else "tl.int32"
            before.append(f"{position} = tl.full({self._shape()}, 2147483647, {wide})")
            here = self.symbols[self.flat[self.inner]]
            step = f"{name}, {position} = {combine}({name}, {position}, {text}, {here})"
        elif kind in ("sum", "prod", "any", "all"):
            sign = {"sum": "+", "prod": "*", "any": "|", "all": "&"}[kind]
            step = f"{name} {sign}= {text}"
        else:
            tail = ", propagate_nan=tl.PropagateNan.ALL" if value.dtype.is_floating_point else ""
            step = f"{name} = tl.{kind}imum({name}, {text}{tail})"
        self._line(step, statement.ref, inner=True)
        self.known[statement.ref] = (name, ATOM)
        self.variable[statement.ref] = name
        return before, [f"{name} = {self._reduction_text(statement, name, position)}"]

    # --- values -----------------------------------------------------------------------------

    def _text(self, root: Value) -> Text:
        """The text of a value; binds loads, labelled and shared values to variables."""
        for value in walk([root]):
            if value not in self.known and not self._waits(value):
                self._define(value)
        if root not in self.known:
            self._define(root)
        return self.known[root]

    def _waits(self, value: Value) -> bool:
        """A load that is only converted is printed with the conversion."""
        return False

    def _define(self, value: Value) -> None:
        text = self._expression(value)
        inner = self._is_inner(value)
        if self._deserves_name(value, text):
            name = self.variable.get(value) or self.names(self._wanted_name(value))
            self.variable[value] = name
            self._line(f"{name} = {text[0]}", value, inner=inner)
            text = (name, ATOM)
        self.known[value] = text
        if inner:
            self.inner_known.add(value)

    def _deserves_name(self, value: Value, text: Text) -> bool:
        if isinstance(value, Const | ScalarArg | Ref):
            return False
        label = self.kernel.labels.get(value)
        if label and (is_half_cast(value) or (label.comment and value not in self.continued)):
            return True
        if isinstance(value, Load):
            return not self._only_cast(value)
        if isinstance(value, Op) and value.name == "cast" and isinstance(value.args[0], Load):
            if self._only_cast(value.args[0]):
                return True
        return self.counts.get(value, 1) > 1 or len(text[0]) > LONGEST_EXPRESSION

    def _only_cast(self, load: Load) -> bool:
        if self.counts.get(load, 0) != 1:
            return False
        return load in self._cast_loads

    @property
    def _cast_loads(self) -> set[Value]:
        if not hasattr(self, "_cast_loads_found"):
            self._cast_loads_found = {
                v.args[0]
                for v in self.kernel.values
                if isinstance(v, Op) and v.name == "cast" and isinstance(v.args[0], Load)
                and v.dtype is not torch.bool
            }
        return self._cast_loads_found

    def _wanted_name(self, value: Value) -> str:
        label = self.kernel.labels.get(value)
        if label and label.name:
            return label.name
        if isinstance(value, Load):
            return value.buffer.name
        if isinstance(value, Op):
            if value.name == "cast":
                source = value.args[0]
                if isinstance(source, Load):
                    return source.buffer.name
                if value.dtype.itemsize == 2 and value.dtype.is_floating_point:
                    return "rounded"
                return "converted"
            return NOUNS.get(value.name, value.name)
        return "index"

    def _expression(self, value: Value) -> Text:
        if isinstance(value, Const):
            return const_text(value)
        if isinstance(value, ScalarArg):
            return value.name, ATOM
        if isinstance(value, IndexValue):
            text = self._index(value.index, {})
            if not value.index.free_symbols:
                return f"tl.full((), {text[0]}, {TL[value.dtype]})", ATOM
            return f"{paren(text, ATOM)}.to({TL[value.dtype]})", ATOM
        if isinstance(value, Load):
            return self._load(value), ATOM
        if isinstance(value, Op):
            return self._operation(value)
        raise TypeError(f"{value!r} is used before it is defined")

    def _load(self, value: Load) -> str:
        extra = {s: self.known[v][0] for s, v in value.indirect}
        groups = self._groups_of_symbols(value.index.free_symbols)
        for _, v in value.indirect:
            groups |= self._groups(v)
        address = self._address(value.buffer, value.index, extra)
        conditions = []
        if value.mask is not None:
            beyond = {g for g in self._groups(value.mask) - groups if g in self.vectors}
            if beyond:
                address = f"tl.broadcast_to({address}, {self._shape()})"
                groups |= frozenset(self.vectors)
        mask = self._mask(groups)
        if mask:
            conditions.append(mask)
        if value.mask is not None:
            text = self.known[value.mask]
            conditions.append(paren(text, ATOM) if mask else text[0])
        if not conditions:
            return f"tl.load({address})"
        call = f"tl.load({address}, {' & '.join(conditions)}"
        if value.mask is not None or self.kernel.inner:
            zero = "0.0" if value.dtype.is_floating_point else "0"
            call += f", other={zero}"
        return call + ")"

    def _operation(self, value: Op) -> Text:
        args = value.args
        if value.name == "cast":
            source = args[0]
            text = (
                const_text(source, typed=True)
                if isinstance(source, Const)
                else self.known[source]
            )
            if isinstance(source, Const) and source.dtype in (torch.float32, torch.int32, torch.bool):
                return (
                    f"tl.full((), {const_text(source)[0]}, {TL[source.dtype]}).to({TL[value.dtype]})",
                    ATOM,
                )
            return cast_text(text, source.dtype, value.dtype)
        typed = typed_operands(value.name)
        branches = args[1:] if value.name == "where" else args
        typed = typed or all(isinstance(a, Const) for a in branches)
        texts = [
            const_text(a, typed=typed) if isinstance(a, Const) else self.known[a]
            for a in args
        ]
        if value.name in REPEATED:
            texts = [
                t if t[0].isidentifier() else (self._named(a, t), ATOM)
                for a, t in zip(args, texts, strict=True)
            ]
        text = primitive_text(
            value.name, args[-1].dtype, texts, coarse=self.coarse.get(value)
        )
        for name in LIBRARY:
            if f"{name}." in text[0] or f"{name}(" in text[0]:
                self.library.add(name)
        return text

    def _named(self, value: Value, text: Text) -> str:
        if isinstance(value, Const):
            return text[0]
        name = self.variable.get(value) or self.names(self._wanted_name(value))
        self.variable[value] = name
        self._line(f"{name} = {text[0]}", value, inner=self._is_inner(value))
        self.known[value] = (name, ATOM)
        return name

    def _line(self, text: str, value: Value | None, *, inner: bool = False) -> None:
        label = self.kernel.labels.get(value) if value is not None else None
        if label and label.comment and value not in self.continued:
            text = f"{text}  # {label.comment}"
        if self.hoisted is not None and not inner:
            self.hoisted.append(text)
        else:
            self.lines.append(text)


def _continued(kernel: Kernel) -> set[Value]:
    """Values that are part of a user's line but not its end: others of the line use them."""
    users: dict[Value, list[Value]] = {}
    for statement in kernel.body:
        if isinstance(statement, Reduce):
            users.setdefault(statement.value, []).append(statement.ref)
    for value in kernel.values:
        for operand in value.operands:
            users.setdefault(operand, []).append(value)
    references = [s.ref for s in kernel.body if isinstance(s, Reduce)]
    reached: dict[Value, set[str]] = {}

    def lines_above(value: Value) -> set[str]:
        """User lines of the nearest labelled values that a value flows into."""
        found: set[str] = set()
        for user in users.get(value, ()):
            label = kernel.labels.get(user)
            found |= {label.comment} if label else reached.get(user, set())
        return found

    # NOTE: users come after their operands in `values`, and the body is in order, so that
    # going backwards each user is known, but for references, which a second round settles.
    for _ in range(2 if references else 1):
        for value in (*reversed(kernel.values), *references):
            reached[value] = lines_above(value)
    return {
        value
        for value, label in kernel.labels.items()
        if label.comment in reached.get(value, ())
    }


def _rounded_to(kernel: Kernel) -> dict[Value, torch.dtype]:
    """Values that nothing uses but conversions to one type of 16 bits, and that type.

    A function whose result is rounded so need not be accurate to the last bit of float32.
    """
    targets: dict[Value, set[torch.dtype | None]] = {}
    for statement in kernel.body:
        targets.setdefault(statement.value, set()).add(None)
    for value in kernel.values:
        for operand in value.operands:
            target = value.dtype if is_half_cast(value) else None
            targets.setdefault(operand, set()).add(target)
    return {
        value: target
        for value, found in targets.items()
        if len(found) == 1 and (target := next(iter(found))) is not None
    }


def _aligned(lines: list[str]) -> list[str]:
    """Puts comments in one column; a comment for which no room is left goes above its line."""
    parts = [line.partition("  # ") for line in lines]
    widths = [len(code) for code, _, comment in parts if comment and len(code) <= COMMENT_COLUMN]
    column = max(widths, default=0)
    made = []
    for code, _, comment in parts:
        if not comment:
            made.append(code)
        elif max(len(code), column) + len(comment) + 4 <= WIDTH:
            made.append(f"{code:<{column}}  # {comment}")
        else:
            indent = code[: len(code) - len(code.lstrip())]
            made += [f"{indent}# {comment}", code]
    return made


REPEATED = ("isnan", "shl", "shr")
"""Primitives whose text mentions an operand more than once."""

NOUNS = {
    "add": "added",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "where": "chosen",
    "exp": "raised",
    "neg": "negated",
    "maximum": "larger",
    "minimum": "smaller",
}
"""What a value is called that the user gave no name."""
