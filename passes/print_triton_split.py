r"""Splits reductions over long axes with few results, so that all multiprocessors work.

One program for each result leaves most of the GPU idle when there are few results. Then each
reduction becomes two kernels: many programs reduce a part each, one program a result reduces
the parts. The sum of squares of a million numbers

    kernel sum over one point, inner k < 1048576:
        total = sum(mul(x[k], x[k]))
        y[0] = total  (outer)

becomes

    >>> import sympy, torch
    >>> from srcjit.passes.loops import *
    >>> def tensor(name, *size):
    ...     ones = tuple(sympy.Integer(1) for _ in size)
    ...     return Buffer(
    ...         name,
    ...         torch.float32,
    ...         torch.device("cuda"),
    ...         tuple(map(sympy.Integer, size)),
    ...         ones,
    ...     )
    >>> k = Axis(symbol("k"), sympy.Integer(2**20))
    >>> x = Load(tensor("x", 2**20), k.symbol)
    >>> total = Reduce("total", "sum", op("mul", x, x), torch.float32)
    >>> store = Store(tensor("y"), sympy.Integer(0), total.ref, "outer")
    >>> kernels, temporaries = split(Kernel("sum", (), (k,), (total, store)))
    >>> print(*kernels, sep="\n")
    kernel sum over part < 256, inner k < 4096:
        total = sum(mul(x[k + 4096*part], x[k + 4096*part]))
        total_parts[part] = total  (outer)
    kernel sum over one point, inner part < 256:
        total = sum(total_parts[part])
        y[0] = total  (outer)
"""

from __future__ import annotations

from dataclasses import replace

import sympy
import torch

from .indexing import flatten
from .loops import (
    Axis,
    Buffer,
    Const,
    Expr,
    IndexValue,
    Kernel,
    Load,
    Place,
    Reduce,
    Ref,
    Store,
    Value,
    op,
    rebuild,
    symbol,
    walk,
)
from .online import Centred, Form, Raised, online_forms, online_levels
from .print_triton_axes import indices, map_indices, merge_axes, static
from .print_triton_columns import MULTIPROCESSORS, column_parts, rows_are_columns
from .print_triton_schedule import (
    PERSISTENT_LIMIT,
    Group,
    flatten_group,
    level_of,
    power_of_two,
)
from .print_triton_values import identity

PROGRAMS = 8 * MULTIPROCESSORS
"""As many as hide the latency of memory with the few warps that each has."""

LONGEST_WHOLE = 16384
"""Elements of a row that one program reduces sooner than a second kernel starts."""

HELD_PART = 8192
"""Elements of a part that a program holds in registers."""

SHORTEST_PART = 4096
"""Elements of a row below which a part is not worth a program."""


def split(
    kernel: Kernel, parts: int | None = None
) -> tuple[tuple[Kernel, ...], tuple[Buffer, ...]]:
    """Returns the kernels that replace `kernel`, and the buffers between them.

    Args:
        kernel: What to cut.
        parts: Into how many parts, one of `part_counts`; by default the first of them.
    """
    parts = parts or part_counts(kernel)[0]
    if parts < 2:
        return (kernel,), ()
    return _Splitter(kernel, parts).run()


def _usable_forms(kernel: Kernel) -> dict[str, Form]:
    """The online forms of a kernel whose parts know all that they need."""
    forms = online_forms(kernel)
    levels = online_levels(kernel, forms)
    return {
        name: form
        for name, form in forms.items()
        # A weight that waits for another reduction finds the peak finished.
        if isinstance(form, Centred) or levels[name] == levels[form.peak.name]
    }


def part_counts(kernel: Kernel) -> tuple[int, ...]:
    """Into how many parts the inner axes may be cut: the choice, and what is near it.

    1 leaves the kernel whole.
    """
    chosen = _parts(kernel)
    if chosen == 1:
        return (1,)
    return tuple(dict.fromkeys((chosen, chosen // 2, chosen * 2)))


def _parts(kernel: Kernel) -> int:
    """Into how many parts to cut the inner axes; 1 leaves the kernel whole."""
    points = static(Group(kernel.outer, 1).size)
    length = static(Group(kernel.inner, 1).size) if kernel.inner else None
    if not kernel.inner or points is None or not length:
        return 1
    if _overwrites_early(kernel):
        return 1
    if rows_are_columns(kernel):
        return column_parts(kernel, points, length)
    if length <= LONGEST_WHOLE:
        return 1
    wanted = power_of_two(PROGRAMS // points) if points < PROGRAMS else 1
    parts = max(1, min(wanted, length // SHORTEST_PART))
    centred = any(isinstance(f, Centred) for f in _usable_forms(kernel).values())
    if centred and length > PERSISTENT_LIMIT:
        # A part that is held whole is read once for its mean and the distances from it.
        return max(parts, -(-length // HELD_PART))
    return parts


def _overwrites_early(kernel: Kernel) -> bool:
    """Whether one of the kernels would write in place what a later one reads.

    All elements of rows are stored by the last kernel, where `in_place.safe` holds as it
    does in the whole.
    """
    levels = online_levels(kernel, _usable_forms(kernel))
    for store in kernel.body:
        if not isinstance(store, Store) or store.level != "outer":
            continue
        written = max(1, level_of(store.value, levels))
        for statement in kernel.body:
            later = (
                levels[statement.name] > written
                if isinstance(statement, Reduce)
                else statement.level == "inner"
                or level_of(statement.value, levels) > written
            )
            if later and any(
                isinstance(v, Load) and v.buffer == store.buffer
                for v in walk([statement.value])
            ):
                return True
    return False


class _Splitter:
    """Cuts one kernel; see the module's example."""

    def __init__(self, kernel: Kernel, parts: int) -> None:
        self.kernel = kernel
        inner = Group(kernel.inner, 1)
        length = static(inner.size)
        assert length is not None
        self.length = length
        # Whole blocks, so that only the last part is partly idle.
        block = 64 if rows_are_columns(kernel) else SHORTEST_PART
        self.chunk = -(-length // (parts * block)) * block
        self.parts = -(-length // self.chunk)
        taken = {str(s) for a in (*kernel.outer, *kernel.inner) for s in (a.symbol,)}
        self.position = Axis(
            symbol(
                _fresh("k", taken)
                if len(kernel.inner) > 1
                else str(kernel.inner[0].symbol)
            ),
            sympy.Integer(self.chunk),
        )
        self.part = Axis(symbol(_fresh("part", taken)), sympy.Integer(self.parts))
        whole = self.part.symbol * self.chunk + self.position.symbol
        flat, digits = flatten_group(inner, "flat")
        self.place: dict[sympy.Symbol, Expr] = (
            {a: e.xreplace({flat: whole}) for a, e in digits.items()}
            if digits
            else {flat: whole}
        )
        self.whole = whole
        self.outer_sizes = tuple(a.size for a in kernel.outer)
        self.outer_index = tuple(a.symbol for a in kernel.outer)
        self.temporaries: dict[str, Buffer] = {}
        self.device = next(s.buffer.device for s in kernel.body if isinstance(s, Store))
        self.forms = _usable_forms(kernel)
        self.levels = online_levels(kernel, self.forms)

    def run(self) -> tuple[tuple[Kernel, ...], tuple[Buffer, ...]]:
        """Returns the kernels in order, and the buffers between them."""
        kernels: list[Kernel] = []
        last = max(self.levels.values())
        for level in range(1, last + 1):
            reduces = [
                s
                for s in self.kernel.body
                if isinstance(s, Reduce) and self.levels[s.name] == level
            ]
            kernels.append(self._first(reduces))
            kernels.append(self._second(reduces, level, level == last))
        stores = [
            s for s in self.kernel.body if isinstance(s, Store) and s.level == "inner"
        ]
        if stores:
            body = tuple(replace(s, value=self._with_results(s.value)) for s in stores)
            axes = (*self.kernel.outer, *self.kernel.inner)
            kernels.append(merge_axes(self._kernel(axes, (), body)))
        return tuple(kernels), tuple(self.temporaries.values())

    def _kernel(
        self,
        outer: tuple[Axis, ...],
        inner: tuple[Axis, ...],
        body: tuple[Reduce | Store, ...],
    ) -> Kernel:
        return replace(self.kernel, outer=outer, inner=inner, body=body, comment="")

    def _buffer(self, name: str, dtype: torch.dtype, *, parts: bool) -> Buffer:
        if name not in self.temporaries:
            size = 1
            for s in self.outer_sizes:
                size = size * s
            total = sympy.sympify(size) * (self.parts if parts else 1)
            self.temporaries[name] = Buffer(
                name, dtype, self.device, (total,), (sympy.Integer(1),)
            )
        return self.temporaries[name]

    def _flat_outer(self) -> Expr:
        return (
            flatten(self.outer_index, self.outer_sizes)
            if self.outer_sizes
            else sympy.Integer(0)
        )

    def _flat_part(self, part: Expr | None = None) -> Expr:
        """Where the result of a part stands: all points of one part side by side."""
        points = Group(self.kernel.outer, 1).size
        return sympy.expand((part or self.part.symbol) * points + self._flat_outer())

    def _with_results(self, value: Value, known: frozenset[str] = frozenset()) -> Value:
        """Replaces results of earlier kernels by loads of them."""
        made: dict[Value, Value] = {}
        for v in walk([value]):
            if isinstance(v, Ref) and v.name not in known:
                buffer = self._buffer(f"{v.name}_result", v.dtype, parts=False)
                made[v] = Load(buffer, self._flat_outer())
            else:
                made[v] = rebuild(v, tuple(made[o] for o in v.operands))
        return made[value]

    def _first(self, reduces: list[Reduce]) -> Kernel:
        body: list[Reduce | Store] = []
        here = frozenset(r.name for r in reduces)
        for reduce in reduces:
            match self.forms.get(reduce.name):
                case Raised() as form:
                    value = self._with_results(form.part(), here)
                case Centred() as form:
                    total = self._total_of(form, reduces)
                    if total.name not in here:
                        value = self._with_results(total.value)
                        body += self._part_of(replace(total, value=value))
                    part = form.part(total.ref, self._count(reduce.dtype))
                    value = self._with_results(part, here | {total.name})
                case None:
                    value = self._with_results(reduce.value)
            body += self._part_of(replace(reduce, value=value))
        kernel = self._kernel(
            (self.part, *self.kernel.outer), (self.position,), tuple(body)
        )
        table = {e: sympy.expand(e.xreplace(self.place)) for e in indices(kernel)}
        kernel = map_indices(kernel, table)
        if self.parts * self.chunk != self.length:
            kernel = self._guarded(kernel)
        return kernel

    def _total_of(self, form: Centred, reduces: list[Reduce]) -> Reduce:
        """The sum of what a sum of squares is of; the kernel's own if there is one."""
        for reduce in reduces:
            if reduce.kind == "sum" and reduce.value is form.argument:
                return reduce
        squares = form.squares
        return Reduce(f"{squares.name}_sum", "sum", form.argument, squares.dtype)

    def _count(self, dtype: torch.dtype) -> Value:
        """How many elements a part has."""
        rest = self.length - (self.parts - 1) * self.chunk
        if rest == self.chunk:
            return Const(self.chunk, dtype)
        last = Const(self.parts - 1, torch.int64)
        whole = op("lt", IndexValue(self.part.symbol), last)
        return op("where", whole, Const(self.chunk, dtype), Const(rest, dtype))

    def _part_of(self, reduce: Reduce) -> list[Reduce | Store]:
        """The reduction of a part, stored; argmax keeps the value beside the position."""
        made: list[Reduce | Store] = []
        if reduce.kind.startswith("arg"):
            best = Reduce(
                f"{reduce.name}_best", reduce.kind[3:], reduce.value, reduce.value.dtype
            )
            values = self._buffer(f"{reduce.name}_values", best.dtype, parts=True)
            made += [best, Store(values, self._flat_part(), best.ref, "outer")]
        target = self._buffer(f"{reduce.name}_parts", reduce.dtype, parts=True)
        result: Value = reduce.ref
        if reduce.kind.startswith("arg"):
            # The position within the part, counted from the beginning of the row.
            start = IndexValue(self.part.symbol * self.chunk, torch.int64)
            result = op("add", result, start)
        return [*made, reduce, Store(target, self._flat_part(), result, "outer")]

    def _guarded(self, kernel: Kernel) -> Kernel:
        """Keeps the last part from reaching beyond the end."""
        inside = op("lt", IndexValue(self.whole), Const(self.length, torch.int64))
        body: list[Reduce | Store] = []
        moving = {self.position.symbol, self.part.symbol}
        for statement in kernel.body:
            if not isinstance(statement, Reduce):
                body.append(statement)
                continue
            made: dict[Value, Value] = {}
            for v in walk([statement.value]):
                new = rebuild(v, tuple(made[o] for o in v.operands))
                if (
                    isinstance(new, Load)
                    and moving & sympy.sympify(new.index).free_symbols
                ):
                    mask = (
                        inside
                        if new.mask is None
                        else op("bitwise_and", inside, new.mask)
                    )
                    new = Load(new.buffer, new.index, mask, new.indirect)
                made[v] = new
            value = made[statement.value]
            empty = Const(identity(statement.kind, value.dtype), value.dtype)
            body.append(replace(statement, value=op("where", inside, value, empty)))
        return replace(kernel, body=tuple(body))

    def _second(self, reduces: list[Reduce], level: int, last: bool) -> Kernel:
        body: list[Reduce | Store] = []
        here = frozenset(r.name for r in reduces)
        results: dict[str, Value] = {}
        for reduce in reduces:
            parts = self._buffer(f"{reduce.name}_parts", reduce.dtype, parts=True)
            if not reduce.kind.startswith("arg"):
                value = self._merged(reduce, reduces, Load(parts, self._flat_part()))
                value = self._with_results(value, here)
                body.append(replace(reduce, value=value))
                results[reduce.name] = reduce.ref
                continue
            values = self._buffer(
                f"{reduce.name}_values", reduce.value.dtype, parts=True
            )
            best = replace(reduce, value=Load(values, self._flat_part()))
            body.append(best)
            chosen = symbol(f"{reduce.name}_part")
            index = self._flat_part(chosen)
            place = Place(chosen, best.ref)
            results[reduce.name] = Load(parts, index, None, (place,))
        for name, result in results.items():
            if self._is_needed_later(name, level, last):
                target = self._buffer(f"{name}_result", result.dtype, parts=False)
                body.append(Store(target, self._flat_outer(), result, "outer"))
        for statement in self.kernel.body:
            if not isinstance(statement, Store) or statement.level != "outer":
                continue
            needs = level_of(statement.value, self.levels)
            if needs == level or (needs == 0 and level == 1):
                value = self._with_results(statement.value, here)
                body.append(replace(statement, value=_replaced(value, results)))
        return self._kernel(self.kernel.outer, (self.part,), tuple(body))

    def _merged(self, reduce: Reduce, reduces: list[Reduce], own: Value) -> Value:
        """What is folded over the parts, given what a part made of a reduction."""
        match self.forms.get(reduce.name):
            case Raised(peak=peak) as form:
                return form.merged(own, self._part_result(peak))
            case Centred() as form:
                total = self._part_result(self._total_of(form, reduces))
                return form.merged(own, total, self._count(reduce.dtype))
        return own

    def _part_result(self, reduce: Reduce) -> Value:
        parts = self._buffer(f"{reduce.name}_parts", reduce.dtype, parts=True)
        return Load(parts, self._flat_part())

    def _is_needed_later(self, name: str, level: int, last: bool) -> bool:
        """Whether a statement of a later kernel uses the result."""
        for statement in self.kernel.body:
            if not any(
                isinstance(v, Ref) and v.name == name for v in walk([statement.value])
            ):
                continue
            if isinstance(statement, Reduce):
                return True
            if (
                statement.level == "inner"
                or level_of(statement.value, self.levels) > level
            ):
                return True
        return False


def _replaced(value: Value, results: dict[str, Value]) -> Value:
    made: dict[Value, Value] = {}
    for v in walk([value]):
        if isinstance(v, Ref) and v.name in results:
            made[v] = results[v.name]
        else:
            made[v] = rebuild(v, tuple(made[o] for o in v.operands))
    return made[value]


def _fresh(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
