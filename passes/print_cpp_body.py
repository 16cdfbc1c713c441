"""The body of a C++ kernel under construction: lines, scopes, names, hoisting.

A value is computed in the outermost loop in which all that it depends on is known. It gets a
variable if it is used more than once, if it is used in a deeper loop than its own, if the
user gave it a name, or if its line would become too long; otherwise it stands where it is
used.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import sympy
import torch

from .loops import (
    Axis,
    Expr,
    IndexValue,
    Kernel,
    Label,
    Load,
    Op,
    Reduce,
    Ref,
    ScalarArg,
    Store,
    Value,
    walk,
)
from .print_cpp_values import (
    BUFFERS,
    C_TYPES,
    EXPENSIVE,
    VARIABLES,
    Printer,
    Text,
    index_text,
    not_zero,
)

_LONG = 56
"""Characters from which an operand gets a variable of its own."""

_SHORT = 4
"""Fewer conversions and signs than these on top of a name or number need no variable."""

RESERVED = frozenset(
    """alignas alignof and asm auto bool break case catch char class const constexpr continue
    default delete do double else enum explicit export extern false float for friend goto if
    inline int long mutable namespace new not operator or private protected public register
    return short signed sizeof static struct switch template this throw true try typedef
    typeid typename union unsigned using virtual void volatile while xor restrict main errno
    INLINE NAN_F INFINITY_F ROUNDER ROUNDER_D bits_of float_of double_of power_of_two scale
    fused exp_of_negative fabs copysign sqrt floor ceil trunc round_even rsqrt exp exp2 expm1 sigmoid tanh log
    log2 log10 log1p pow sin cos tan atan atan2 asin acos cosh sinh asinh acosh atanh erf erfc
    erfinv lgamma fmod hypot nextafter bfloat16 float16 rounded_bfloat16
    exactly_bfloat16 Float8 FLOAT8 E4M3 E5M2 E4M3Z E5M2Z float8_e4m3fn float8_e5m2 float8_e4m3fnuz
    float8_e5m2fnuz float8_e8m0fnu overflowing_e4m3fn maximum minimum fmax fmin fma isnan
    isinf signbit magnitude truncated truncdiv rem floordiv mod shl shr smaller Slot unix linux
    load_transposed load_block block_side exchange exchanged Lanes CountLanes Unsigned LINE
    y0 y1 yn j0 j1 jn gamma abs round""".split()
)
"""Names that mean something in C++ or in kernel.h, or that are functions of the C library."""


def distances_from_peaks(kernel: Kernel) -> frozenset[Value]:
    """Differences of a value and its own maximum over the inner axes: none is above 0."""
    peaks: dict[Value, Value] = {
        s.ref: s.value for s in kernel.body if isinstance(s, Reduce) and s.kind == "max"
    }
    return frozenset(
        v
        for v in kernel.values
        if isinstance(v, Op) and v.name == "sub" and peaks.get(v.args[1]) is v.args[0]
    )


class Body:
    """Collects the lines of one kernel function.

    Attributes:
        kernel: What is printed.
        lines: Finished lines, indented.
        symbols: Names of axes and sizes.
        buffers: Names of pointer parameters.
        labels: Names and comments of values: the kernel's, and those of its pieces.
        printer: Prints expressions in terms of the variables that are in scope.
    """

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self._depth = 1
        self._scopes: list[dict[Value, Text]] = [{}]
        self._names: list[set[str]] = [set(RESERVED) | {name}]
        self._needs: dict[Value, frozenset[object]] = {}
        self._last_comment = ""
        axes = [a.symbol for a in (*kernel.outer, *kernel.inner)]
        self._axes = frozenset(axes)
        self.symbols: dict[sympy.Symbol, str] = {
            s: self.fresh(s.name) for s in (*axes, *kernel.sizes)
        }
        self.buffers: dict[str, str] = {}
        self.labels = dict(kernel.labels)
        self._in_place = {b.name for b in kernel.inputs} & {
            b.name for b in kernel.outputs
        }
        self.parameters = ", ".join(self._parameter(p) for p in kernel.parameters)
        self.printer = Printer(
            self.known, self.buffers, self.symbols, distances_from_peaks(kernel)
        )

    def _parameter(self, parameter: object) -> str:
        if isinstance(parameter, sympy.Symbol):
            return f"long {self.symbols[parameter]}"
        assert hasattr(parameter, "name") and hasattr(parameter, "dtype")
        name = self.fresh(parameter.name)
        c_type = C_TYPES[parameter.dtype]
        if isinstance(parameter, ScalarArg):
            self._scopes[0][parameter] = Text(name)
            return f"{c_type} {name}"
        self.buffers[parameter.name] = name
        c_type = BUFFERS[parameter.dtype]
        written = any(b.name == parameter.name for b in self.kernel.outputs)
        return f"{c_type}* {name}" if written else f"const {c_type}* {name}"

    # ── lines ─────────────────────────────────────────────────────────────────────────────

    def emit(self, line: str, comment: str = "") -> None:
        """Adds a line; a comment that repeats the one before is left out."""
        text = "    " * self._depth + line
        if comment and comment != self._last_comment:
            self._last_comment = comment
            text = f"{text:<58}  // {comment}"
        self.lines.append(text)

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head {` … `}` with a scope of its own."""
        self.emit(head + " {")
        self._depth += 1
        self._scopes.append({})
        self._names.append(set())
        yield
        self._names.pop()
        self._scopes.pop()
        self._depth -= 1
        self.emit("}")

    def pragma(self, text: str) -> None:
        """Adds `#pragma omp …`."""
        self.emit(f"#pragma omp {text}")

    def loop_head(self, axis: Axis, first: str = "0", last: str | None = None) -> str:
        """`for (long i = 0; i < 37; ++i)`."""
        i = self.symbols[axis.symbol]
        return f"for (long {i} = {first}; {i} < {last or self.size(axis.size)}; ++{i})"

    def size(self, size: Expr) -> str:
        """Text of a size that can stand behind `<`."""
        return self.index(size).within(6)

    def index(self, index: Expr) -> Text:
        """Text of an index expression."""
        return index_text(index, self.symbols)

    # ── names ─────────────────────────────────────────────────────────────────────────────

    def fresh(self, hint: str) -> str:
        """A name that nothing in scope has."""
        name, number = hint, 0
        while any(name in names for names in self._names):
            number += 1
            name = f"{hint}_{number}"
        self._names[-1].add(name)
        return name

    def known(self, value: Value) -> Text | None:
        """The variable that holds `value`, if one in scope does."""
        for scope in reversed(self._scopes):
            if value in scope:
                return scope[value]
        return None

    def set(self, value: Value, text: str | Text) -> None:
        """Says that `text` stands for `value` up to the end of the current block."""
        self._scopes[-1][value] = Text(text) if isinstance(text, str) else text

    def label(self, value: Value) -> Label:
        """The user's name and line for a value; empty if there is none."""
        return self.labels.get(value, Label(""))

    def inherit_labels(self, same: Mapping[Value, Value]) -> None:
        """Gives what stands for other values in a piece of an axis their labels."""
        for whole, part in same.items():
            if whole in self.labels and isinstance(part, Load | Op):
                self.labels.setdefault(part, self.labels[whole])

    def hint(self, value: Value) -> str:
        """What a variable for `value` should be called."""
        label = self.label(value).name
        if label:
            return label
        while isinstance(value, Op) and value.name == "cast":
            value = value.args[0]
            label = self.label(value).name
            if label:
                return label
        if isinstance(value, Load):
            symbols = [
                s for s in sympy.sympify(value.index).free_symbols if s in self.symbols
            ]
            last = max(symbols, key=self._axis_order, default=None)
            return value.buffer.name + (f"_{last.name}" if last is not None else "_0")
        return "t"

    def _axis_order(self, symbol: sympy.Symbol) -> int:
        axes = [a.symbol for a in (*self.kernel.outer, *self.kernel.inner)]
        return axes.index(symbol) if symbol in axes else -1

    # ── what a value needs ────────────────────────────────────────────────────────────────

    def needs(self, value: Value) -> frozenset[object]:
        """Axis symbols and names of reductions that a value depends on."""
        for v in walk([value], self._needs):
            own: set[object] = set()
            if isinstance(v, Ref):
                own.add(v.name)
            if isinstance(v, Load | IndexValue):
                own |= sympy.sympify(v.index).free_symbols & set(self.symbols)
                own -= set(self.kernel.sizes)
            self._needs[v] = frozenset(own).union(*(self._needs[o] for o in v.operands))
        return self._needs[value]

    def pending(self, roots: Iterable[Value]) -> list[Value]:
        """Values under `roots` that have no variable yet, operands first."""
        order: list[Value] = []
        seen: set[Value] = set()
        stack = [(root, False) for root in reversed(list(roots))]
        while stack:
            value, done = stack.pop()
            if done:
                order.append(value)
            elif value not in seen and self.known(value) is None:
                seen.add(value)
                stack.append((value, True))
                stack.extend((o, False) for o in reversed(value.operands))
        return order

    @staticmethod
    def is_trivial(value: Value) -> bool:
        """Whether a variable for `value` would say no more than its text."""
        for _ in range(_SHORT):
            if not isinstance(value, Op):
                return not isinstance(value, Load)
            if value.name not in ("cast", "neg", "bitwise_not"):
                return False
            value = value.args[0]
        return False

    def cost(self, roots: Iterable[Value]) -> int:
        """Rough price of one point, in simple operations."""
        price = 1
        for value in self.pending(roots):
            if isinstance(value, Op):
                price += 8 if value.name in EXPENSIVE else 1
            elif isinstance(value, Load):
                price += 1
        return price

    # ── variables ─────────────────────────────────────────────────────────────────────────

    def let(self, value: Value, spell: Callable[[Value], str] | None = None) -> None:
        """Emits `const T name = value;`."""
        text = self.printer.text(value) if spell is None else spell(value)
        name = self.fresh(self.hint(value))
        c_type = VARIABLES[value.dtype]
        # gcc vectorizes no long loop that is about a `bool` from outside of it.
        number = value.dtype is torch.bool and not self._axes <= self.needs(value)
        self.emit(
            f"const {'int' if number else c_type} {name} = {text};",
            self.label(value).comment,
        )
        self._scopes[-1][value] = not_zero(name) if number else Text(name)

    def hoist(self, roots: Iterable[Value], bound: frozenset[object]) -> list[Value]:
        """Values that can be computed under `bound` and that something below it needs."""
        roots = list(roots)
        wanted: dict[Value, None] = {}
        for value in self.pending(roots):
            if self.needs(value) <= bound:
                continue
            for operand in value.operands:
                ready = self.needs(operand) <= bound and self.known(operand) is None
                if ready and not self.is_trivial(operand):
                    wanted[operand] = None
        for root in roots:
            ready = self.needs(root) <= bound and self.known(root) is None
            if ready and not self.is_trivial(root):
                wanted[root] = None
        return list(wanted)

    def define(self, roots: Iterable[Value], keep: Iterable[Value] = ()) -> None:
        """Emits variables for what is shared, named or long under `roots`, and for `keep`."""
        roots, keep = list(roots), set(keep)
        order = self.pending([*roots, *keep])
        uses = Counter(o for v in order for o in v.operands)
        uses.update(roots)
        chosen = _chosen(order)
        for value in order:
            if self.is_trivial(value) and value not in keep:
                continue
            in_place = isinstance(value, Load) and value.buffer.name in self._in_place
            once = uses[value] < 2 and value in roots
            named = (
                bool(self.label(value).comment) and not once and isinstance(value, Op)
            )
            if (
                value in keep
                or uses[value] > 1
                or in_place
                or value in chosen
                or named
                or (not once and len(self.printer.text(value)) > _LONG)
            ):
                self.let(value)

    def store(self, statement: Store) -> None:
        """Emits `y[i] = value;`."""
        target = (
            f"{self.buffers[statement.buffer.name]}[{self.index(statement.index).text}]"
        )
        comment = self.label(statement.value).comment
        line = f"{target} = {self.printer.element(statement.value)};"
        self.emit(line, comment)


def _chosen(values: Sequence[Value]) -> set[Load]:
    """Loads of one buffer at several places that a choice may not need.

    NOTE: they are made before it. Of neighbours under different conditions gcc 12 makes one
    masked load, and gives some elements the condition of others.

    Args:
        values: What is computed, operands before their users.
    """
    perhaps: set[Value] = set()
    found: dict[str, set[Load]] = {}
    for value in reversed(values):
        if isinstance(value, Load) and value in perhaps:
            if value.mask is None and not value.indirect:
                found.setdefault(value.buffer.name, set()).add(value)
        elif isinstance(value, Op) and value.name == "where" and value not in perhaps:
            perhaps.update(value.args[1:])
        elif value in perhaps:
            perhaps.update(value.operands)
    return {load for loads in found.values() if len(loads) > 1 for load in loads}
