"""Kernels as functions, where a row is held whole: straight code.

    x = tl.load(x_ptr + 4096 * i + k)
    total = tl.sum(x, 0)
    tl.store(y_ptr + i, total)

`print_triton_loops` has those that walk over a row.
"""

from __future__ import annotations

import sympy
import torch

from .interleaved import is_pair
from .loops import (
    Buffer,
    Const,
    Kernel,
    Load,
    Op,
    Reduce,
    ScalarArg,
    Store,
    Value,
    walk,
)
from .print_triton_expressions import LIBRARY, LONGEST_EXPRESSION, Expressions
from .print_triton_positions import Names, block_names
from .print_triton_schedule import Schedule
from .print_triton_values import (
    ATOM,
    TL,
    alone_text,
    const_text,
    identity,
    index_text,
    number_text,
)

KEEPS_ZERO = frozenset(("cast", "neg", "abs", "sqrt", "add", "sub", "mul"))
"""Primitives that give 0 where all their operands are 0."""

MOST_LATE = 4
"""Stores that wait until a pointwise kernel has loaded everything.

No compiler moves a load before a store that may be to the same place, so a thread would wait
for what it stores before it asks for the rest. What waits takes registers, hence a limit.
"""

WIDTH = 88
COMMENT_COLUMN = 60


class KernelPrinter(Expressions):
    """Prints one kernel under one schedule."""

    def __init__(self, kernel: Kernel, plan: Schedule, name: str) -> None:
        self.name = name
        self.parameters = [(p, getattr(p, "name", str(p))) for p in kernel.parameters]
        taken = {"tl", "triton", "float", "range", "launch", name, *LIBRARY}
        taken |= set(block_names(kernel, plan).values())
        taken |= {
            f"{n}_ptr" if isinstance(p, Buffer) else n for p, n in self.parameters
        }
        super().__init__(kernel, plan, Names(taken))

    def print(self) -> str:
        """Returns the function's text."""
        self._print_body()
        parameters = [
            f"{n}_ptr"
            if isinstance(p, Buffer)
            else f"{n}: {TL[p.dtype]}"
            if isinstance(p, ScalarArg)
            else n
            for p, n in self.parameters
        ]
        parameters += [f"{b}: tl.constexpr" for b in self.at.blocks.values()]
        head = f"def {self.name}({', '.join(parameters)}):"
        if len(head) > WIDTH:
            head = f"def {self.name}(\n    " + ", ".join(parameters) + "\n):"
            if max(map(len, head.splitlines())) > WIDTH:
                head = f"def {self.name}(\n    " + ",\n    ".join(parameters) + ",\n):"
        prologue = self.at.prologue(
            [g for g in self.plan.groups if not self.at.walks(g)]
        )
        body = aligned([f"    {line}" for line in (*prologue, *self.lines)])
        return "\n".join(["@triton.jit", head, *body])

    # --- straight code ----------------------------------------------------------------------

    def _print_body(self) -> None:
        late: list[str] = []
        paired = False
        for number, statement in enumerate(self.kernel.body):
            if isinstance(statement, Reduce):
                self._reduce(statement)
            elif statement.adds:
                self._add(statement)
            elif paired:
                paired = False
            else:
                self._load_before(statement, self.kernel.body[number:])
                paired = self._store_pair(*self.kernel.body[number : number + 2])
                if not paired:
                    self._store(statement)
                if not self.kernel.inner:
                    late.append(self.lines.pop())
            if len(late) == MOST_LATE:
                self.lines += late
                late.clear()
        self.lines += late

    def _load_before(self, store: Store, rest: tuple[Reduce | Store, ...]) -> None:
        """Loads what is still needed of a buffer that is about to be overwritten."""
        for value in walk([s.value for s in rest]):
            if isinstance(value, Load) and value.buffer == store.buffer:
                self._text(value)

    def _reduce(self, statement: Reduce) -> None:
        value = statement.value
        text = self._text(value)[0]
        text = self._spread(text, value, self._reduce_mask(statement), statement)
        name = self._reduce_name(statement)
        self._line(
            f"{name} = {self._reduction_text(statement, text, None)}", statement.ref
        )

    def _reduce_name(self, statement: Reduce) -> str:
        label = self.kernel.labels.get(statement.ref)
        name = self.variable.get(statement.ref) or self.names(
            label.name if label and label.name else statement.name
        )
        self.variable[statement.ref] = name
        self.known[statement.ref] = (name, ATOM)
        return name

    def _reduce_mask(self, statement: Reduce) -> str | None:
        assert self.at.inner is not None
        if not self.at.is_partial(self.at.inner):
            return None
        if statement.kind == "sum" and self._zero_outside(statement.value):
            return None
        return self.at.mask(frozenset([self.at.inner]))

    def _zero_outside(self, value: Value) -> bool:
        """Whether a value is 0 beyond the end of the inner axes, as masked loads are."""
        seen: set[Value] = set()
        stack = [value]
        while stack:
            part = stack.pop()
            if part in seen:
                continue
            seen.add(part)
            if isinstance(part, Op) and part.name in KEEPS_ZERO:
                stack.extend(part.args)
            elif not (isinstance(part, Load) and self.at.is_inner(part)):
                return False
        return True

    def _spread(
        self, text: str, value: Value, mask: str | None, statement: Reduce
    ) -> str:
        """A value over the whole inner block, with the identity beyond its end."""
        if isinstance(value, Const):
            text = const_text(value, typed=True)[0]
        if mask:
            empty = number_text(identity(statement.kind, value.dtype))[0]
            if isinstance(value, Const) and (
                value.dtype not in (torch.float32, torch.int32, torch.bool)
            ):
                empty = const_text(
                    Const(identity(statement.kind, value.dtype), value.dtype),
                    typed=True,
                )[0]
            elif len(text) > LONGEST_EXPRESSION // 3:
                text = self._named(value, (text, 0))
            return f"tl.where({mask}, {text}, {empty})"
        if not self.at.is_inner(value):
            if isinstance(value, Const) and text == number_text(value.value)[0]:
                return f"tl.full({self._shape()}, {text}, {TL[value.dtype]})"
            return f"tl.broadcast_to({text}, {self._shape()})"
        return text

    def _step(self, statement: Reduce, name: str, text: str) -> str:
        """The statement that takes a block into what a reduction has so far."""
        kind = statement.kind
        if kind in ("sum", "prod", "any", "all"):
            sign = {"sum": "+", "prod": "*", "any": "|", "all": "&"}[kind]
            return f"{name} {sign}= {text}"
        real = statement.value.dtype.is_floating_point
        tail = ", propagate_nan=tl.PropagateNan.ALL" if real else ""
        return f"{name} = tl.{kind}imum({name}, {text}{tail})"

    def _reduction_text(
        self, statement: Reduce, text: str, position: str | None
    ) -> str:
        """The call that reduces a block over its last dimension."""
        axis = len(self.at.vectors) - 1
        where = f"{axis}, keep_dims=True" if axis else "0"
        dtype, kind = statement.value.dtype, statement.kind
        if kind.startswith("arg"):
            assert self.at.inner is not None
            position = position or self.at.symbols[self.at.flat[self.at.inner]]
            made = (
                f"{self._from_library(f'reduce_{kind}')}({text}, {position}, {where})"
            )
            wide = self.at.is_wide(self.at.inner)
            return made if wide else f"{made}.to(tl.int64)"
        if kind == "sum":
            made = f"tl.sum({text}, {where})"
            small = not dtype.is_floating_point and dtype.itemsize < 4
            return f"{made}.to({TL[dtype]})" if small else made
        if (
            kind in ("max", "min")
            and not dtype.is_floating_point
            and dtype.itemsize >= 4
        ):
            return f"tl.{kind}({text}, {where})"
        return f"{self._from_library(f'reduce_{kind}')}({text}, {where})"

    def _store_policy(self) -> str:
        """A further argument of a store: what the cache does with it."""
        return ', cache_modifier=".cs"' if self.plan.streams else ""

    def _store(self, statement: Store) -> None:
        index = sympy.sympify(statement.index)
        text, _ = self._text(statement.value)
        if isinstance(statement.value, Const):
            text, _ = alone_text(statement.value)
        groups = self.at.groups_of_symbols(index.free_symbols)
        place = self._address(statement.buffer, index, {})
        mask = self.at.mask(groups)
        call = f"tl.store({place}, {text}" + (f", {mask}" if mask else "")
        call += f"{self._store_policy()})"
        inner = self.at.inner is not None and self.at.inner in groups
        self._line(call, None, inner=inner or statement.level == "inner")

    def _store_pair(self, *statements: Reduce | Store) -> bool:
        """Stores two results that lie side by side at once, where that is what they are."""
        column = self.at.vectors[-1] if self.at.vectors else None
        if column not in self.at.flat or len(statements) < 2 or self.kernel.inner:
            return False
        first, second = statements
        if not (isinstance(first, Store) and isinstance(second, Store)):
            return False
        form = self.at.index_forms[sympy.sympify(first.index)]
        lane, every = self.at.flat[column], frozenset(self.at.vectors)
        axes = {lane, *(a.symbol for a in column.axes)}
        left = sympy.expand(form - 2 * lane)
        values = [first.value, second.value]
        if (
            not is_pair(first, second)
            or left.free_symbols & axes
            or not every <= self.at.groups_of_symbols(form.free_symbols)
            or any(
                isinstance(v, Const) or not every <= self.at.groups(v) for v in values
            )
        ):
            return False
        even, odd = (self._text(v)[0] for v in values)
        pairs = self.at.pairs(column)
        place = self.at.text(left + pairs)[0]
        live = [self.at.mask(frozenset([g])) for g in self.at.vectors[:-1]]
        if self.at.is_partial(column):
            end = index_text(sympy.expand(2 * column.size), {})[0]
            live.append(f"({self.at.symbols[pairs]} < {end})")
        mask = " & ".join(text for text in live if text)
        call = (
            f"tl.store({first.buffer.name}_ptr + {place}, tl.interleave({even}, {odd})"
            f"{f', {mask}' if mask else ''}{self._store_policy()})"
        )
        self._line(call, None, inner=first.level == "inner")
        return True

    def _add(self, statement: Store) -> None:
        """An addition to memory to which other points may add, too."""
        total = statement.value
        assert isinstance(total, Op) and isinstance(total.args[0], Load)
        place, value = total.args[0], total.args[1]
        for part in place.indirect:
            self._text(part.value)
        extra = {p.symbol: self._position_text(p.value) for p in place.indirect}
        text, _ = self._text(value)
        if isinstance(value, Const):
            text, _ = alone_text(value)
        address = self._address(place.buffer, place.index, extra)
        groups = self.at.groups_of_symbols(sympy.sympify(place.index).free_symbols)
        for part in place.indirect:
            groups |= self.at.groups(part.value)
        every = frozenset(self.at.vectors)
        if not every <= groups:
            # Points that add to one element add each for itself.
            address = f"tl.broadcast_to({address}, {self._shape()})"
        mask = self.at.mask(every)
        for part in place.indirect:
            self._check_range(part, [mask] if mask else [])
        live = f", {mask}" if mask else ""
        call = f'tl.atomic_add({address}, {text}{live}, sem="relaxed")'
        self._line(call, None, inner=True)


def aligned(lines: list[str]) -> list[str]:
    """Puts comments in one column; a comment for which no room is left goes above its line."""
    parts = [line.partition("  # ") for line in lines]
    widths = [
        len(code)
        for code, _, comment in parts
        if comment and len(code) <= COMMENT_COLUMN
    ]
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
