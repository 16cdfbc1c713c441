"""Kernels of a segment that are equal but for names are one kernel, which is launched for each.

Before (what fusion and reuse leave of two layers):

    kernel relu_kernel over i < 512:
        linear[i] = maximum(0.0, linear[i])        # 3: a = torch.relu(first(x))
    kernel relu_kernel_2 over i < 512:
        linear_1[i] = maximum(0.0, linear_1[i])    # 4: b = torch.relu(second(a))

After:

    kernel relu_kernel over i < 512:
        linear[i] = maximum(0.0, linear[i])
    for relu_kernel with linear (line 3), for relu_kernel_2 with linear_1 (line 4)

Equal are kernels whose loop forms are: the same operations on the same indices in the same
order, over the same axes, of buffers that agree in dtype, device, sizes and strides, one
buffer in the same places. Sizes that differ from call to call must be the same symbols. A
printer looks at nothing else, so the text of one computes what the text of another would.

In the one text stands what is true of all: a name without its number, or what the value is
for, where names differ; a comment where all have it. Otherwise the launches say which of the
user's lines they are from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import sympy

from .attention_form import Attention
from .crossed_form import Crossed
from .loops import (
    Buffer,
    Const,
    IndexValue,
    Kernel,
    Label,
    Load,
    Op,
    Reduce,
    Ref,
    ScalarArg,
    Statement,
    Value,
    rebuild,
    symbol,
    walk,
)

AnyKernel: TypeAlias = Kernel | Attention | Crossed


@dataclass(frozen=True, eq=False)
class Shared:
    """Kernels that are printed as one.

    Attributes:
        kernel: What is printed.
        members: The kernels that it stands for, in order.
        lines: The user's lines of each member, where the text does not say them.
    """

    kernel: AnyKernel
    members: tuple[AnyKernel, ...]
    lines: tuple[str, ...]

    def names(self, member: AnyKernel) -> dict[str, str]:
        """Parameter of the printed kernel -> what the host passes for a member.

        Sizes, which all have the same names, are left out.
        """
        return dict(zip(_named(self.kernel), _named(member), strict=True))


def share(kernels: Sequence[AnyKernel]) -> tuple[Shared, ...]:
    """Finds the kernels that are equal, in order of the first of each."""
    if len(kernels) < 2:
        return tuple(Shared(k, (k,), ("",)) for k in kernels)
    groups: dict[Any, list[tuple[AnyKernel, _Form]]] = {}
    for kernel in kernels:
        form = _Form(kernel)
        groups.setdefault(form.key, []).append((kernel, form))
    later = (members[1:] for members in groups.values())
    free = {kernel.name for members in later for kernel, _ in members}
    return tuple(_shared(members, free) for members in groups.values())


def _shared(members: list[tuple[AnyKernel, _Form]], free: set[str]) -> Shared:
    kernels = tuple(kernel for kernel, _ in members)
    name = _lower_number(kernels[0].name, free)
    if len(kernels) == 1:
        kernel = kernels[0]
        kernel = kernel if name == kernel.name else replace(kernel, name=name)
        return Shared(kernel, kernels, ("",))
    table = _common_names(kernels)
    results = {
        reduces[0].name: _common([r.name for r in reduces]) or reduces[0].name
        for reduces in zip(*map(_reduces, kernels), strict=True)
    }
    results = dict(zip(results, unlike(results.values()), strict=True))
    form = members[0][1]
    found = [form.labels() for _, form in members]
    values = {number: value for value, number in form.numbers.items()}
    merged = {
        number: _common_label(
            values.get(number), [labels.get(number) for labels in found]
        )
        for number in dict.fromkeys(n for labels in found for n in labels)
    }
    made = _renamed(kernels[0], form, table, results, merged)
    untold = any(
        label.comment != merged[number].comment
        for labels in found
        for number, label in labels.items()
    )
    lines = [_lines(labels.values()) if untold else "" for labels in found]
    return Shared(replace(made, name=name), kernels, tuple(lines))


# ── equality ──────────────────────────────────────────────────────────────────────────────


class _Form:
    """A kernel without its names.

    Attributes:
        key: Equal for kernels that are equal but for names.
        numbers: Values, and where they stand in the kernel.
    """

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel = kernel
        self.numbers: dict[Value, int] = {}
        self._parts: list[Any] = []
        self._places: dict[tuple[str, str], int] = {}
        if isinstance(kernel, Attention):
            self._attention(kernel)
        else:
            rows = kernel.rows if isinstance(kernel, Crossed) else kernel
            self._parts += [type(kernel), rows.outer, rows.inner, len(rows.body)]
            for statement in kernel.body:
                self._statement(statement)
        self.key = tuple(self._parts)

    def labels(self) -> dict[int, Label]:
        """The labels of values by their numbers."""
        kernel, numbers = self.kernel, self.numbers
        found = {numbers[v]: lab for v, lab in kernel.labels.items() if v in numbers}
        if isinstance(kernel, Attention):
            found |= {-1: kernel.product_label, -2: kernel.result_label}
        return found

    def _statement(self, statement: Statement) -> None:
        number = self._number(statement.value)
        if isinstance(statement, Reduce):
            self._parts.append((statement.kind, number, statement.dtype))
            self._number(statement.ref)
        else:
            buffer, index = self._buffer(statement.buffer), statement.index
            # What is added to is where its load says.
            index = sympy.Integer(0) if statement.adds else sympy.sympify(index)
            kind = statement.level, statement.adds
            self._parts.append((buffer, index, number, *kind))

    def _attention(self, attention: Attention) -> None:
        self._parts += ["attention", attention.axes, sympy.sympify(attention.place)]
        factors = (attention.query, attention.key, attention.value)
        for value in (*factors, attention.product, attention.score):
            self._parts.append(self._number(value))
        self._parts.append(self._buffer(attention.output))

    def _number(self, root: Value) -> int:
        numbers = self.numbers
        for value in walk([root], numbers):
            self._parts.append(self._value(value))
            numbers[value] = len(numbers)
        return numbers[root]

    def _value(self, value: Value) -> tuple[Any, ...]:
        numbers = self.numbers
        match value:
            case Op(name=name, args=args):
                return (name, value.dtype, *(numbers[a] for a in args))
            case Load(buffer=buffer, index=index, mask=mask, indirect=indirect):
                places: list[Any] = []
                if indirect:
                    # These symbols are named by what stands for them.
                    table = {p.symbol: symbol(f"<{n}>") for n, p in enumerate(indirect)}
                    index = index.xreplace(table)
                    places = [(numbers[p.value], p.size) for p in indirect]
                masked = None if mask is None else numbers[mask]
                return ("load", self._buffer(buffer), index, masked, *places)
            case Const(value=number):
                # The text tells 0.0 from -0.0, and finds NaN again.
                return ("const", repr(number), value.dtype)
            case IndexValue(index=index):
                return ("index", index, value.dtype)
            case ScalarArg(name=name):
                return ("number", self._place("number", name), value.dtype)
            case Ref(name=name):
                return ("result", self._place("result", name), value.dtype)
        raise TypeError(type(value))

    def _buffer(self, buffer: Buffer) -> tuple[Any, ...]:
        facts = (buffer.dtype, buffer.device, buffer.size, buffer.stride)
        return (self._place("buffer", buffer.name), *facts)

    def _place(self, kind: str, name: str) -> int:
        return self._places.setdefault((kind, name), len(self._places))


def _reduces(kernel: AnyKernel) -> list[Reduce]:
    if isinstance(kernel, Attention):
        return []
    return [s for s in kernel.body if isinstance(s, Reduce)]


def _named(kernel: AnyKernel) -> list[str]:
    """The names of a kernel's parameters that the host computes with."""
    return [p.name for p in kernel.parameters if not isinstance(p, sympy.Symbol)]


# ── names ─────────────────────────────────────────────────────────────────────────────────


def _lower_number(name: str, free: set[str]) -> str:
    """`relu_kernel_7` is `relu_kernel_2` if that is free; then its own name is."""
    found = re.fullmatch(r"(\w+?)_(\d+)", name)
    if found is not None:
        stem, last = found[1], int(found[2])
        for lower in (stem, *(f"{stem}_{n}" for n in range(2, last))):
            if lower in free:
                free.remove(lower)
                free.add(name)
                return lower
    return name


def _common(names: Sequence[str]) -> str:
    """What names have in common: all but their numbers; empty if that is not the same.

    >>> (
    ...     _common(["x", "x_2"]),
    ...     _common(["fc1_weight", "fc2_weight"]),
    ...     _common(["x", "y"]),
    ... )
    ('x', 'fc_weight', '')
    """
    if len({*names}) == 1:
        return names[0]
    for number in (r"_\d+(?=_|$)", r"\d+"):
        stems = {re.sub(number, "", name) for name in names}
        (stem,) = stems if len(stems) == 1 else ("",)
        if stem.isidentifier():
            return stem
    return ""


def _common_names(kernels: Sequence[AnyKernel]) -> dict[str, str]:
    """Parameter of the first kernel -> the name in the text for all."""
    first = kernels[0]
    written = {b.name for b in first.outputs} - {b.name for b in first.inputs}
    roles = dict.fromkeys((s.name for s in first.scalars), "number")
    roles |= dict.fromkeys(written, "y")
    if isinstance(first, Attention):
        for role in ("value", "key", "query"):
            roles[getattr(first, role).buffer.name] = role
    wanted = [
        _common(names) or roles.get(names[0], "x")
        for names in zip(*map(_named, kernels), strict=True)
    ]
    return dict(zip(_named(first), unlike(wanted), strict=True))


def unlike(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """Names, with numbers where they are equal or taken.

    >>> unlike(["x", "w", "x"], {"w", "w_1"})
    ['x', 'w_2', 'x_1']
    """
    found: dict[str, None] = {}
    for name in names:
        number, free = 0, name
        while free in found or free in taken:
            number += 1
            free = f"{name}_{number}"
        found[free] = None
    return list(found)


def _common_label(value: Value | None, labels: Sequence[Label | None]) -> Label:
    """What is true of all values that stand where `value` does."""
    first, *others = (label or Label("") for label in labels)
    same = all(other.comment == first.comment for other in others)
    name = _common([first.name, *(other.name for other in others)])
    if not name and isinstance(value, Op) and value.name != "cast":
        name = value.name
    return Label(name, first.comment if same else "")


def _lines(labels: Iterable[Label]) -> str:
    """`lines 3–5`: where in the program the values of a kernel are from."""
    found = {int(m[0]) for lab in labels if (m := re.match(r"\d+", lab.comment))}
    if not found:
        return ""
    first, last = min(found), max(found)
    return f"line {first}" if first == last else f"lines {first}–{last}"


# ── the kernel with other names ───────────────────────────────────────────────────────────


def _renamed(
    kernel: AnyKernel,
    form: _Form,
    table: Mapping[str, str],
    results: Mapping[str, str],
    labels: Mapping[int, Label],
) -> AnyKernel:
    """The kernel with other names of parameters and reductions, and other labels."""

    def buffer_of(buffer: Buffer) -> Buffer:
        return replace(buffer, name=table[buffer.name])

    made: dict[Value, Value] = {}
    for value in form.numbers:
        new = rebuild(value, tuple(made[o] for o in value.operands))
        if isinstance(kernel, Attention) and value is kernel.product:
            new = value
        elif isinstance(new, Load):
            buffer = buffer_of(new.buffer)
            new = Load(buffer, new.index, new.mask, new.indirect)
        elif isinstance(new, ScalarArg):
            new = ScalarArg(table[new.name], new.dtype)
        elif isinstance(new, Ref):
            new = Ref(results[new.name], new.dtype)
        made[value] = new
    labelled = {
        made[value]: labels[number]
        for value, number in form.numbers.items()
        if number in labels
    }
    if isinstance(kernel, Attention):

        def load_of(load: Load) -> Load:
            found = made[load]
            assert isinstance(found, Load)
            return found

        return replace(
            kernel,
            query=load_of(kernel.query),
            key=load_of(kernel.key),
            value=load_of(kernel.value),
            score=made[kernel.score],
            output=buffer_of(kernel.output),
            labels=labelled,
            product_label=labels.get(-1, kernel.product_label),
            result_label=labels.get(-2, kernel.result_label),
        )

    def renamed(kernel: Kernel) -> Kernel:
        body: list[Statement] = []
        for s in kernel.body:
            if isinstance(s, Reduce):
                body.append(replace(s, name=results[s.name], value=made[s.value]))
            else:
                target = buffer_of(s.buffer)
                body.append(replace(s, buffer=target, value=made[s.value]))
        return replace(kernel, body=tuple(body), labels=labelled)

    if isinstance(kernel, Crossed):
        rows, columns = renamed(kernel.rows), renamed(kernel.columns)
        return replace(kernel, rows=rows, columns=columns)
    return renamed(kernel)
