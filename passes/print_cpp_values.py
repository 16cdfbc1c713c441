"""C++ text of values and indices: types, literals, operators, names.

Before, a value of the loop form:

    where(gt(x[i], 0.0), mul(x[i], 2.0), exp(x[i]))

After:

    >>> import sympy, torch
    >>> from srcjit.passes.loops import Buffer, Const, Load, op, symbol
    >>> i, n = symbol("i"), sympy.Integer(8)
    >>> x = Load(Buffer("x", torch.float32, torch.device("cpu"), (n,), (n,)), i)
    >>> zero, two = Const(0.0, torch.float32), Const(2.0, torch.float32)
    >>> value = op("where", op("gt", x, zero), op("mul", x, two), op("exp", x))
    >>> print(Printer(lambda v: None, {"x": "x"}).text(value))
    x[i] > 0.0f ? x[i] * 2.0f : exp(x[i])
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import sympy
import torch

from srcjit.runtime.float8 import saturates

from .loop_values import cast
from .loops import FLOAT8, Const, Expr, IndexValue, Load, Op, Ref, ScalarArg, Value

C_TYPES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.uint8: "unsigned char",
    torch.int8: "signed char",
    torch.int16: "short",
    torch.int32: "int",
    torch.int64: "long",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
    **{dtype: str(dtype).removeprefix("torch.") for dtype in FLOAT8},
}

_STRUCTS = (torch.float16, *FLOAT8)
"""Types that are structs of their bits, made from a float and turned into one."""

VARIABLES = C_TYPES | {torch.bfloat16: "float"}
"""Types of variables and temporary arrays. A bfloat16 is kept as the float that it is: what is
rounded as eager rounds and goes on in float32 needs no conversion to 16 bits and back, which
takes a vector loop more instructions than the arithmetic does."""

BUFFERS = C_TYPES | {torch.bool: "boolean"}
"""Types of what kernels read and write. gcc vectorizes no loop that loads a `bool`; a `boolean` is
a byte, and what is loaded is compared with 0."""

ARRAYS = VARIABLES | {torch.bool: "boolean"}
"""Types of temporary arrays."""

# Precedences of C++ operators; a larger one binds more tightly.
_ATOM, _UNARY, _MUL, _ADD, _SHIFT, _COMPARE, _EQUAL, _AND, _XOR, _OR, _CHOICE = range(
    11, 0, -1
)

_INFIX = {
    "add": ("+", _ADD),
    "sub": ("-", _ADD),
    "mul": ("*", _MUL),
    "div": ("/", _MUL),
    "eq": ("==", _EQUAL),
    "ne": ("!=", _EQUAL),
    "lt": ("<", _COMPARE),
    "le": ("<=", _COMPARE),
    "gt": (">", _COMPARE),
    "ge": (">=", _COMPARE),
    "bitwise_and": ("&", _AND),
    "bitwise_xor": ("^", _XOR),
    "bitwise_or": ("|", _OR),
}

_FUNCTIONS = {"round": "round_even"}
"""Primitives whose function in kernel.h has another name."""

_NARROW = (torch.uint8, torch.int8, torch.int16)
"""Integers that C++ computes as `int`: results are cast back so that they wrap around."""

_WIDE = (torch.int32, torch.int64)
"""Integers that a float becomes in one step."""

EXPENSIVE = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma sigmoid pow atan2 fmod hypot nextafter truncdiv floordiv rem "
    "mod".split()
)
"""Primitives that take tens of instructions: worth keeping rather than computing again."""


@dataclass(frozen=True)
class Text:
    """Text of an expression and the precedence of its outermost operator."""

    text: str
    rank: int = _ATOM

    def within(self, rank: int) -> str:
        """The text as an operand of an operator that needs at least `rank`."""
        return self.text if self.rank >= rank else f"({self.text})"


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    """What C++ computes floating-point numbers of a dtype in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def not_zero(name: str) -> Text:
    """The bool that a number stands for."""
    return Text(f"{name} != 0", _EQUAL)


def literal(value: int | float | bool, dtype: torch.dtype) -> Text:
    """A constant; floats get the shortest text that gives the same float back."""
    if dtype is torch.bool:
        return Text("true" if value else "false")
    if not dtype.is_floating_point:
        if value == -(2**63):
            return Text("(-9223372036854775807 - 1)")
        return Text(str(value), _ATOM if value >= 0 else _UNARY)
    value = float(value)
    single = dtype is not torch.float64
    if dtype is torch.bfloat16 or (single and abs(value) > _MAX32):
        value = float(torch.tensor(value, dtype=dtype))
    if math.isnan(value):
        text = "NAN_F" if single else '__builtin_nan("")'
    elif math.isinf(value):
        text = "INFINITY_F" if single else "__builtin_inf()"
        text = "-" + text if value < 0 else text
    else:
        text = _shortest32(value) + "f" if single else repr(value)
    if dtype in _STRUCTS:
        return Text(f"{C_TYPES[dtype]}({text})")
    return Text(text, _UNARY if text.startswith("-") else _ATOM)


_MAX32 = torch.finfo(torch.float32).max


def _shortest32(value: float) -> str:
    single = struct.unpack("f", struct.pack("f", value))[0]
    for digits in range(1, 10):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    return text if any(c in text for c in ".e") else text + ".0"


def stored(text: str, dtype: torch.dtype) -> Text:
    """What an element of `BUFFERS[dtype]` is in arithmetic."""
    if dtype is torch.bfloat16:
        return Text(f"(float){text}", _UNARY)
    return Text(f"{text} != 0", _EQUAL) if dtype is torch.bool else Text(text)


def index_text(index: Expr, names: Mapping[sympy.Symbol, str] | None = None) -> Text:
    """C++ text of an index or size.

    >>> from srcjit.passes.loops import symbol
    >>> index_text(4096 * symbol("i") + symbol("k")).text
    '4096 * i + k'
    """
    index = sympy.sympify(index)
    if index.is_Integer:
        return literal(int(index), torch.int64)
    if index.is_Symbol:
        return Text((names or {}).get(index, index.name))
    if index.is_Add:
        parts = [index_text(t, names) for t in sorted(index.args, key=_term_key)]
        text = parts[0].within(_ADD)
        for part in parts[1:]:
            piece = part.within(_ADD)
            text += f" - {piece[1:]}" if piece.startswith("-") else f" + {piece}"
        return Text(text, _ADD)
    if index.is_Mul:
        number, rest = index.as_coeff_mul()
        factors = [index_text(f, names).within(_MUL + 1) for f in rest]
        if number == -1:
            return Text(
                "-" + " * ".join(factors), _UNARY if len(factors) == 1 else _MUL
            )
        head = [] if number == 1 else [str(number)]
        return Text(" * ".join(head + factors), _MUL)
    if index.is_Pow and index.exp.is_Integer and index.exp > 0:
        factor = index_text(index.base, names).within(_MUL + 1)
        return Text(" * ".join([factor] * int(index.exp)), _MUL)
    kind = type(index).__name__
    sign = {"FloorDiv": "/", "CleanDiv": "/", "Mod": "%", "PythonMod": "%"}.get(kind)
    if kind in ("Max", "Min"):
        than = ">" if kind == "Max" else "<"
        text, *others = (index_text(a, names).within(_MUL + 1) for a in index.args)
        for other in others:
            text = f"({text} {than} {other} ? {text} : {other})"
        return Text(text)
    if sign is None:
        raise TypeError(f"an index with {kind}: {index}")
    left, right = (index_text(a, names) for a in index.args)
    return Text(f"{left.within(_MUL)} {sign} {right.within(_MUL + 1)}", _MUL)


def _is_condition(value: Value) -> bool:
    """Whether a number is made of conditions, constants and indices: `(a > 0) % 5`."""

    def parts(value: Value) -> Iterator[bool]:
        if value.dtype is torch.bool:
            yield True
        elif isinstance(value, Op):
            chosen = value.args[1:] if value.name == "where" else value.args
            found = {p for part in chosen for p in parts(part)}
            # A choice between constants is the condition, times a number.
            yield from found or {True}
        elif not isinstance(value, Const | IndexValue):
            yield False

    return set(parts(value)) == {True}


def _term_key(term: Expr) -> tuple[bool, int, int, str]:
    """Sorts the terms of an index: large strides first, plain numbers last."""
    number, rest = term.as_coeff_mul()
    return (not rest, -len(rest), -abs(int(number)), str(term))


class Printer:
    """Prints values as C++ expressions.

    Args:
        known: Returns the text that stands for a value (a variable), or None to print it.
        buffers: Names of the kernel's pointer parameters, by buffer name.
        symbols: Names of axes and sizes, where they differ from the symbol's own.
        negative: Values of which none is above 0.
    """

    def __init__(
        self,
        known: Callable[[Value], Text | None],
        buffers: Mapping[str, str],
        symbols: Mapping[sympy.Symbol, str] | None = None,
        negative: frozenset[Value] = frozenset(),
    ) -> None:
        self.negative = negative
        self._known = known
        self._buffers = buffers
        self._symbols = dict(symbols or {})

    def text(self, value: Value) -> str:
        """The expression of `value`, ignoring a name that it has."""
        return self.spell(value).text

    def of(self, value: Value) -> Text:
        """The name of `value` if it has one, else its expression."""
        return self._known(value) or self.spell(value)

    def spell(self, value: Value) -> Text:
        """The expression of `value` in terms of what has names."""
        match value:
            case Const():
                return literal(value.value, value.dtype)
            case Load():
                return self._load(value)
            case IndexValue():
                text = index_text(value.index, self._symbols)
                if value.dtype is torch.int64:
                    return text
                return Text(f"({C_TYPES[value.dtype]}){text.within(_UNARY)}", _UNARY)
            case ScalarArg() | Ref():
                raise KeyError(f"{value.name} has no name here")
            case Op(name="cast"):
                return self._cast(value)
            case Op():
                return self._op(value)
        raise TypeError(type(value))

    def _load(self, load: Load, masked: bool = True) -> Text:
        names = dict(self._symbols)
        for place in load.indirect:
            text = self.of(place.value).within(_MUL + 1)
            if _is_condition(place.value):
                text = f"position({text})"
            names[place.symbol] = text
        text = (
            f"{self._buffers[load.buffer.name]}[{index_text(load.index, names).text}]"
        )
        element = stored(text, load.dtype)
        if load.mask is None or not masked:
            return element
        return self._choice(
            self.of(load.mask), element, literal(0, load.dtype), load.dtype
        )

    @staticmethod
    def _choice(condition: Text, a: Text, b: Text, dtype: torch.dtype) -> Text:
        """`condition ? a : b`; of the bits for structs, which gcc does not choose."""
        if dtype in _STRUCTS:
            left, right = (f"{t.within(_ATOM)}.bits" for t in (a, b))
            return Text(f"{C_TYPES[dtype]}({condition.within(_OR)} ? {left} : {right})")
        text = f"{condition.within(_OR)} ? {a.within(_OR)} : {b.within(_CHOICE)}"
        return Text(text, _CHOICE)

    def _cast(self, value: Op) -> Text:
        (operand,) = value.args
        source, target = operand.dtype, value.dtype
        truncated = self._truncated(operand, target)
        inner = truncated or self.of(operand)
        if truncated:
            assert isinstance(operand, Op)
            source = _computed_in(operand.args[0].dtype)
        if source is torch.bfloat16:
            source = torch.float32
            if target is torch.float32:
                return inner
        if source in _STRUCTS and target is not torch.float32:
            inner = Text(f"(float){inner.within(_UNARY)}", _UNARY)
            source = torch.float32
        if target is torch.bool:
            return Text(f"{inner.within(_EQUAL + 1)} != 0", _EQUAL)
        if source is torch.bool and target.is_floating_point:
            # gcc vectorizes no loop that converts a `bool` to a floating-point number.
            one, zero = ("1.0", "0.0") if target is torch.float64 else ("1.0f", "0.0f")
            known = {"true": Text(one), "false": Text(zero)}.get(inner.text)
            inner = known or Text(f"{inner.within(_OR)} ? {one} : {zero}", _CHOICE)
            if target in (torch.float32, torch.float64):
                return inner
            source = torch.float32
        name = C_TYPES[target]
        if target in _STRUCTS or target is torch.bfloat16:
            text = (
                inner.text
                if source is torch.float32
                else f"(float){inner.within(_UNARY)}"
            )
            if target is torch.bfloat16:
                name = "rounded_bfloat16"
            elif target is torch.float8_e4m3fn and not saturates("cpu"):
                name = "overflowing_e4m3fn"
            return Text(f"{name}({text})")
        # Eager converts by way of a wide integer, where C++ leaves the result undefined.
        if source.is_floating_point and target in _NARROW:
            name += ")(long" if target is torch.uint8 else ")(int"
        return Text(f"({name}){inner.within(_UNARY)}", _UNARY)

    def _truncated(self, whole: Value, target: torch.dtype) -> Text | None:
        """A float that became a wide integer, as a float again; None for what is not one.

        For `(float)(long)x` gcc writes `trunc(x)`, which keeps -0.0, NaN and what is out of
        range; eager has 0.0 and the least integer.
        """
        if not (isinstance(whole, Op) and whole.name == "cast"):
            return None
        (operand,) = whole.args
        if not (target.is_floating_point and operand.dtype.is_floating_point):
            return None
        if whole.dtype not in _WIDE:
            return None
        kind = _computed_in(operand.dtype)
        given = self.of(cast(operand, kind)).text
        return Text(f"truncated<{C_TYPES[whole.dtype]}>({given})")

    def element(self, value: Value) -> str:
        """What is stored of `value`: as `of`, in the type of its buffer."""
        text = self.of(value).text
        if value.dtype is not torch.bfloat16:
            return text
        fresh = isinstance(value, Op) and value.name == "cast"
        if fresh and self._known(value) is None:
            return text.removeprefix("rounded_")
        if isinstance(value, Const):
            return f"bfloat16({text})"
        return f"exactly_bfloat16({text})"

    def _op(self, value: Op) -> Text:
        args = [self.of(a) for a in value.args]
        dtype = value.args[-1].dtype
        if value.name in _INFIX:
            sign, rank = _INFIX[value.name]
            text = Text(
                f"{args[0].within(rank)} {sign} {args[1].within(rank + 1)}", rank
            )
            if value.dtype is torch.bool and dtype is torch.bool and rank <= _AND:
                return text
        elif value.name == "where":
            # A load under the mask that is being asked about needs no question of its own.
            condition, *branches = value.args
            opposite: tuple[Value, ...] = (Op("bitwise_not", (condition,), torch.bool),)
            if isinstance(condition, Op) and condition.name == "bitwise_not":
                opposite += condition.args
            for place, masks in enumerate(((condition,), opposite)):
                branch = branches[place]
                if isinstance(branch, Load) and branch.mask in masks:
                    if self._known(branch) is None:
                        args[place + 1] = self._load(branch, masked=False)
            return self._choice(args[0], args[1], args[2], value.dtype)
        elif value.name == "neg":
            text = Text(f"-{args[0].within(_ATOM)}", _UNARY)
        elif value.name == "bitwise_not":
            sign = "!" if dtype is torch.bool else "~"
            text = Text(f"{sign}{args[0].within(_ATOM)}", _UNARY)
        else:
            return self._call(value, args)
        if value.dtype in _NARROW:
            return Text(f"({C_TYPES[value.dtype]}){text.within(_UNARY)}", _UNARY)
        return text

    def _call(self, value: Op, args: list[Text]) -> Text:
        name = _FUNCTIONS.get(value.name, value.name)
        dtype = value.args[0].dtype
        if value.name == "abs":
            name = "fabs" if dtype.is_floating_point else "magnitude"
        if name == "exp" and dtype is torch.float32 and value.args[0] in self.negative:
            name = "exp_of_negative"
        texts = [a.text for a in args]
        if not dtype.is_floating_point:
            # A template's argument type is that of the expression, which may be wider.
            name += f"<{C_TYPES[dtype]}>"
        return Text(f"{name}({', '.join(texts)})")
