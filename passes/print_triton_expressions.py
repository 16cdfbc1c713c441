"""Values as statements and expressions: what gets a name, and which.

Loads, shared values and the end of each of the user's lines become variables, as

    x = tl.load(x_ptr + i, live)
    y = libdevice.sin(x) * 2.0  # 20: y = torch.sin(x) * 2

and everything else stands inside the expression that uses it, unless that grows too long.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import sympy
import torch

from .loops import (
    FLOAT8,
    Buffer,
    Const,
    Expr,
    IndexValue,
    Kernel,
    Load,
    Op,
    Place,
    Reduce,
    Ref,
    ScalarArg,
    Value,
    walk,
)
from .print_triton_axes import stride
from .print_triton_positions import Names, Positions
from .print_triton_schedule import Schedule, is_half_cast, uses
from .print_triton_values import (
    ATOM,
    COMPARISONS,
    SUM,
    TL,
    Text,
    alone_text,
    cast_text,
    const_text,
    float8_name,
    index_text,
    paren,
    primitive_text,
    reciprocal,
    typed_operands,
)

LONGEST_EXPRESSION = 60
"""Characters beyond which a part of an expression gets a name."""

LIBRARY = (
    "exp2_f32 exp_f32 exp_minus exp_of_term floor_divide fmax fmin libdevice log_f32 "
    "max_with_index min_with_index online_max online_scale online_sum online_weighted_sum reduce_all reduce_any "
    "reduce_argmax reduce_argmin reduce_max reduce_min reduce_prod remainder round_bf16 "
    "round_times_bf16 rsqrt_f32 tanh_to_bf16 to_tf32"
).split()
"""Names that texts use from `srcjit.runtime.triton_library`."""

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


def _reads_across(index: Expr, plan: Schedule) -> bool:
    """True if a tile reads a few elements of each of many lines of the cache.

    The next programs want those beside them, so they are kept. Measured on an H200, a
    transposing sum of 1 GB: 1.024 times a copy's time in place of 1.035.
    """
    *rows, columns = plan.groups
    if all(stride(index, axis) in (0, 1) for axis in columns.axes):
        return False
    beside = [a for g in rows if g.block > 1 for a in g.axes]
    return any(stride(index, axis) == 1 for axis in beside)


def read_again(kernel: Kernel) -> set[Load]:
    """What a pointwise kernel reads twice along its rows, and what its rows share then.

    It is kept in the caches before what is read once, such as the halves of a rotary
    embedding's rows, and the angles, which all heads share. Measured on an H200, times of
    before: rotary embeddings 0.983 to 0.995 (float32 1.01), `x[:, 1:] - x[:, :-1]` 0.983. Where
    rows share a vector and nothing is read twice it is no gain (0.997 to 1.002), and where what
    is read twice does not lie side by side a loss (resizing an image 1.059).
    """
    if kernel.inner or not kernel.outer:
        return set()
    column, *others = reversed(kernel.outer)
    loads = [
        v
        for v in kernel.values
        if isinstance(v, Load)
        and not v.indirect
        and stride(sympy.sympify(v.index), column) == 1
    ]
    found = set()
    for one, other in itertools.combinations(loads, 2):
        apart = sympy.expand(sympy.sympify(one.index) - sympy.sympify(other.index))
        within = apart.is_Integer and column.size.is_Integer
        if one.buffer == other.buffer and within and 0 < abs(apart) < column.size:
            found |= {one, other}
    shared = (
        v
        for v in loads
        if any(a.symbol not in sympy.sympify(v.index).free_symbols for a in others)
    )
    return found.union(shared) if found else found


class Expressions:
    """Prints the values of one kernel.

    Lines go to `lines`; in a loop, those that do not depend on the position in it are put in
    front of it (`hoisted`).
    """

    positions_of = Positions
    """Where programs of the kernel work."""

    def __init__(self, kernel: Kernel, plan: Schedule, names: Names) -> None:
        self.kernel, self.plan, self.names = kernel, plan, names
        self.at = self.positions_of(kernel, plan, names)
        buffers = (*kernel.outputs, *kernel.inputs)
        self.device = buffers[0].device if buffers else torch.device("cuda")
        self.library: set[str] = set()
        self.known: dict[Value, Text] = {}
        self.variable: dict[Value, str] = {}
        self.inner_known: set[Value] = set()
        self.lines: list[str] = []
        self.hoisted: list[str] | None = None
        self.asserts = False
        self.counts = uses([s.value for s in kernel.body])
        self.continued = continued(kernel)
        self.coarse = rounded_to(kernel)
        self.absorbed = absorbed(kernel, self.coarse)
        self.read_again = read_again(kernel)
        self.cast_loads = {
            v.args[0]
            for v in kernel.values
            if isinstance(v, Op)
            and v.name == "cast"
            and isinstance(v.args[0], Load)
            and v.dtype is not torch.bool
        }

    def _text(self, root: Value) -> Text:
        """The text of a value; binds loads, labelled and shared values to variables."""
        for value in walk([root]):
            if value not in self.known:
                self._define(value)
        if root not in self.known:
            self._define(root)
        return self.known[root]

    def _define(self, value: Value) -> None:
        text = self._expression(value)
        inner = self.at.is_inner(value)
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
        if label and (
            is_half_cast(value) or (label.comment and value not in self.continued)
        ):
            return True
        if isinstance(value, Load):
            return not self._only_cast(value)
        if (
            isinstance(value, Op)
            and value.name == "cast"
            and isinstance(value.args[0], Load)
        ):
            if self._only_cast(value.args[0]):
                return True
        return self.counts.get(value, 1) > 1 or len(text[0]) > LONGEST_EXPRESSION

    def _only_cast(self, load: Load) -> bool:
        if self.counts.get(load, 0) != 1:
            return False
        return load in self.cast_loads

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
            text = self.at.index(value.index, {})
            if not sympy.sympify(value.index).free_symbols:
                return f"tl.full((), {text[0]}, {TL[value.dtype]})", ATOM
            return f"{paren(text, ATOM)}.to({TL[value.dtype]})", ATOM
        if isinstance(value, Load):
            return self._load(value), ATOM
        if isinstance(value, Op):
            return self._operation(value)
        raise TypeError(f"{value!r} is used before it is defined")

    def _load(self, value: Load) -> str:
        extra = {p.symbol: self._position_text(p.value) for p in value.indirect}
        groups = self.at.groups_of_symbols(sympy.sympify(value.index).free_symbols)
        for place in value.indirect:
            groups |= self.at.groups(place.value)
        address = self._address(value.buffer, value.index, extra)
        conditions = []
        if value.mask is not None:
            beyond = {
                g for g in self.at.groups(value.mask) - groups if g in self.at.vectors
            }
            if beyond:
                address = f"tl.broadcast_to({address}, {self._shape()})"
                groups |= frozenset(self.at.vectors)
        mask = self.at.mask(groups)
        if mask:
            conditions.append(mask)
        if value.mask is not None:
            text = self.known[value.mask]
            conditions.append(paren(text, ATOM) if mask else text[0])
        for place in value.indirect:
            self._check_range(place, conditions)
        policy = self._load_policy(value)
        if not conditions:
            return f"tl.load({address}{policy})"
        call = f"tl.load({address}, {' & '.join(conditions)}"
        if value.mask is not None or self.kernel.inner:
            real = value.dtype.is_floating_point and value.dtype not in FLOAT8
            zero = "0.0" if real else "0"
            call += f", other={zero}"
        return f"{call}{policy})"

    def _load_policy(self, value: Load) -> str:
        """A further argument of a load: what the cache does with it."""
        if self.plan.streams:
            return ', cache_modifier=".cg"'
        across = not self.kernel.inner and _reads_across(
            sympy.sympify(value.index), self.plan
        )
        if across or value in self.read_again:
            return ', eviction_policy="evict_last"'
        return ""

    def _position_text(self, value: Value) -> str:
        """A part of an index as a factor."""
        text = self.known[value]
        if isinstance(value, Const):
            return const_text(value, typed=True)[0]
        return text[0] if text[0].isidentifier() else self._named(value, text)

    def _check_range(self, place: Place, conditions: list[str]) -> None:
        """Reports an index that is out of range, as eager does, where memory is touched."""
        if place.size is None:
            return
        text = self._position_text(place.value)
        size = index_text(sympy.expand(place.size), {})
        test = f"({text} >= 0) & ({text} < {paren(size, SUM)})"
        tail = f", {' & '.join(conditions)}" if conditions else ""
        line = f'tl.device_assert({test}, "index out of range"{tail})'
        if line not in self.lines and line not in (self.hoisted or ()):
            self.asserts = True
            inner = self.at.is_inner(place.value) or any(
                self.at.inner is not None and self.at.inner in m and n in tail
                for m, n in self.at.masks.items()
            )
            self._line(line, None, inner=inner)

    def _operation(self, value: Op) -> Text:
        args = value.args
        if value.name == "cast":
            source = args[0]
            text = (
                const_text(source, typed=True)
                if isinstance(source, Const)
                else self.known[source]
            )
            if isinstance(source, Const) and source.dtype in (
                torch.float32,
                torch.int32,
                torch.bool,
            ):
                made = f"tl.full((), {const_text(source)[0]}, {TL[source.dtype]})"
                if value.dtype not in FLOAT8:
                    return f"{made}.to({TL[value.dtype]})", ATOM
                text = made, ATOM
            for dtype, prefix in ((source.dtype, "from"), (value.dtype, "to")):
                if dtype in FLOAT8:
                    self.library.add(f"{prefix}_{float8_name(dtype)}")
            return cast_text(text, source.dtype, value.dtype, self.device)
        name, coarse = value.name, self.coarse.get(value)
        if name == "div" and not isinstance(args[0], Const):
            factor = reciprocal(args[1], coarse=coarse is not None)
            if factor is not None:
                name, args = "mul", (args[0], factor)
        typed = typed_operands(name)
        branches = args[1:] if name == "where" else args
        typed = typed or all(isinstance(a, Const) for a in branches)
        literal = alone_text if name in COMPARISONS else const_text
        texts = [
            (const_text(a, typed=True) if typed else literal(a))
            if isinstance(a, Const)
            else self.known[a]
            for a in args
        ]
        if name != "where" and all(isinstance(a, Const) for a in args):
            # Of literals alone Python would make a number, or divide by zero.
            number, _ = texts[0]
            if not number.startswith("tl."):
                made = f"tl.full((), {number}, {TL[args[0].dtype]})"
                texts[0] = made, ATOM
        if name in REPEATED:
            texts = [
                t if t[0].isidentifier() else (self._named(a, t), ATOM)
                for a, t in zip(args, texts, strict=True)
            ]
        if value in self.absorbed:
            return f"tl.exp({texts[0][0]})", ATOM
        text = primitive_text(name, args[-1].dtype, texts, coarse=coarse)
        for known in LIBRARY:
            if f"{known}." in text[0] or f"{known}(" in text[0]:
                self.library.add(known)
        return text

    def _named(self, value: Value, text: Text) -> str:
        if isinstance(value, Const):
            return text[0]
        name = self.variable.get(value) or self.names(self._wanted_name(value))
        self.variable[value] = name
        self._line(f"{name} = {text[0]}", value, inner=self.at.is_inner(value))
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

    def _address(
        self, buffer: Buffer, index: Expr, extra: dict[sympy.Symbol, str]
    ) -> str:
        pointer = f"{buffer.name}_ptr"
        if index == 0:
            return pointer
        text = self.at.index(index, extra)[0]
        return f"{pointer} + {text}"

    def _shape(self) -> str:
        blocks = [self.at.blocks[g] for g in self.at.vectors]
        return f"({blocks[0]},)" if len(blocks) == 1 else f"({', '.join(blocks)})"

    def _from_library(self, name: str) -> str:
        self.library.add(name)
        return name


def continued(kernel: Kernel) -> set[Value]:
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


def rounded_to(kernel: Kernel) -> dict[Value, torch.dtype]:
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


def absorbed(kernel: Kernel, coarse: Mapping[Value, torch.dtype]) -> set[Value]:
    """The exponentials that only become part of `1 + exp(x)`, in a quotient rounded to 16 bits.

    So SiLU ends. The hardware's approximation is |x| units in the last place off, and may lose
    denormal numbers: neither is seen after the sum, the quotient and the rounding.
    """
    users: dict[Value, list[Value]] = {}
    for statement in kernel.body:
        users.setdefault(statement.value, []).append(statement.value)
    for value in kernel.values:
        for operand in value.operands:
            users.setdefault(operand, []).append(value)

    def is_sum(value: Value) -> bool:
        return (
            isinstance(value, Op)
            and value.name == "add"
            and any(isinstance(a, Const) and a.value == 1 for a in value.args)
        )

    def is_quotient(value: Value) -> bool:
        return isinstance(value, Op) and value.name == "div" and value in coarse

    return {
        value
        for value in kernel.values
        if isinstance(value, Op)
        and value.name == "exp"
        and value.dtype is torch.float32
        and all(
            is_sum(user) and all(map(is_quotient, users[user])) for user in users[value]
        )
    }
