"""Prints the scalars of the loop form as Triton expressions.

Every row of `PRIMITIVES` has one form here, chosen for what eager PyTorch computes on a GPU:
correctly rounded division and square root, libdevice for functions, NaN that propagates.

    >>> import sympy, torch
    >>> from srcjit.passes.loops import *
    >>> half = Const(0.5, torch.float32)
    >>> print(primitive_text("mul", torch.float32, [("x + 1.0", SUM), ("0.5", ATOM)]))
    ('(x + 1.0) * 0.5', 80)
    >>> const_text(Const(float("-inf"), torch.float32))
    ('float("-inf")', 100)
    >>> from torch.utils._sympy.functions import FloorDiv
    >>> i, j = symbol("i"), symbol("j")
    >>> index_text(65 * i + FloorDiv(j, 4), {}, (i, j))[0]
    '65 * i + j // 4'
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch

from srcjit.runtime.float8 import converts, saturates

from .loops import FLOAT8, Const, Expr, Value

Text = tuple[str, int]
"""Text of an expression and how tightly its outermost operator binds."""

ATOM, UNARY, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARISON = (
    100, 90, 80, 70, 60, 50, 45, 40, 30,
)  # fmt: skip

TL = {
    torch.bool: "tl.int1",
    torch.uint8: "tl.uint8",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    **dict.fromkeys(FLOAT8, "tl.uint8"),
}
"""Triton's spelling of element types."""

SIGNATURE = {
    torch.bool: "i1",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    **dict.fromkeys(FLOAT8, "u8"),
}
"""Their spelling in a kernel's signature."""

INFIX: dict[str, tuple[str, int]] = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "truncdiv": ("//", PRODUCT),
    "rem": ("%", PRODUCT),
    "bitwise_and": ("&", AND),
    "bitwise_or": ("|", OR),
    "bitwise_xor": ("^", XOR),
    "eq": ("==", COMPARISON),
    "ne": ("!=", COMPARISON),
    "lt": ("<", COMPARISON),
    "le": ("<=", COMPARISON),
    "gt": (">", COMPARISON),
    "ge": (">=", COMPARISON),
}

COMPARISONS = frozenset(n for n, (_, binds) in INFIX.items() if binds == COMPARISON)
"""Primitives that compare."""

LIBDEVICE = (
    "rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma trunc fmod pow atan2 hypot copysign nextafter"
).split()
"""Primitives that are libdevice functions of the same name."""

SHORT = ("rsqrt", "exp", "exp2", "log")
"""Those of which `srcjit.runtime.triton_library` has an equal for float32."""

LIBRARY = {
    "floordiv": "floor_divide",
    "mod": "remainder",
    "fmax": "fmax",
    "fmin": "fmin",
}
"""Primitives that are functions of `srcjit.runtime.triton_library`."""

CALLS = {"abs": "tl.abs", "floor": "tl.floor", "ceil": "tl.ceil", "fma": "tl.fma"}


def paren(text: Text, minimum: int) -> str:
    """The text, in parentheses unless it binds at least as tightly as `minimum`."""
    return text[0] if text[1] >= minimum else f"({text[0]})"


def number_text(value: int | float | bool) -> Text:
    """A Python number as a literal that a kernel can hold."""
    if isinstance(value, float):
        if math.isnan(value):
            return 'float("nan")', ATOM
        if math.isinf(value):
            return f'float("{"-" if value < 0 else ""}inf")', ATOM
    text = repr(value)
    return text, UNARY if text.startswith("-") else ATOM


def const_text(value: Const, *, typed: bool = False) -> Text:
    """A constant; `typed` where no other operand tells Triton its type.

    A bare literal would become float32 or int32 (or float64 if denormal in float32).
    """
    number = value.value
    if value.dtype.is_floating_point and number == 0 and math.copysign(1, number) < 0:
        # NOTE: Triton makes +0.0 of the literal -0.0.
        return f"tl.full((), 0.0, {TL[value.dtype]}) * -1.0", PRODUCT
    literal = number_text(number)
    plain = value.dtype is torch.bool or (
        value.dtype is torch.int32
        or (
            value.dtype is torch.float32
            and (number == 0 or not math.isfinite(number) or abs(number) >= 2.0**-126)
        )
    )
    if not typed or plain:
        return literal
    return f"tl.full((), {literal[0]}, {TL[value.dtype]})", ATOM


def alone_text(value: Const) -> Text:
    """A constant where Triton takes a float's literal for a float32: stored or compared."""
    exact = value.dtype is not torch.float64 or (
        value.value == torch.tensor(value.value, dtype=torch.float32).item()
    )
    return const_text(value, typed=not exact)


def typed_operands(name: str) -> bool:
    """Whether a primitive's constants must carry their type (function-call forms)."""
    return name not in INFIX and name not in ("where", "neg", "sigmoid")


def primitive_text(
    name: str,
    dtype: torch.dtype,
    args: Sequence[Text],
    *,
    coarse: torch.dtype | None = None,
) -> Text:
    """The text of a primitive applied to operands of type `dtype`.

    `coarse` is the type of 16 bits to which the result is rounded at once, if it is: then
    hardware's approximations, some units in the last place of float32 off, are as good.
    """
    if coarse is not None and dtype is torch.float32:
        if name == "div":
            return f"{paren(args[0], PRODUCT)} / {paren(args[1], UNARY)}", PRODUCT
        if name == "sigmoid":
            return f"1.0 / (1.0 + tl.exp(-{paren(args[0], ATOM)}))", PRODUCT
        if name == "tanh" and coarse is torch.bfloat16:
            return f"tanh_to_bf16({args[0][0]})", ATOM
    if name in INFIX:
        symbol, binds = INFIX[name]
        # Comparisons and the bit operators of Python chain or bind unlike C's: be explicit.
        left = binds + 1 if binds in (COMPARISON, AND, OR, XOR) else binds
        return f"{paren(args[0], left)} {symbol} {paren(args[1], binds + 1)}", binds
    plain = [a for a, _ in args]
    listed = ", ".join(plain)
    if name in LIBDEVICE:
        return f"{_function(name, dtype)}({listed})", ATOM
    if name in LIBRARY:
        return f"{LIBRARY[name]}({listed})", ATOM
    if name in CALLS:
        return f"{CALLS[name]}({listed})", ATOM
    wide = dtype is torch.float64
    bits = dtype.itemsize * 8
    match name:
        case "where":
            return f"tl.where({listed})", ATOM
        case "maximum" | "minimum":
            tail = (
                ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_floating_point else ""
            )
            return f"tl.{name}({listed}{tail})", ATOM
        case "neg":
            # NOTE: Triton's unary minus is 0 - a, which loses the sign of zero.
            if dtype.is_floating_point:
                return f"{paren(args[0], PRODUCT)} * -1.0", PRODUCT
            return f"-{paren(args[0], ATOM)}", UNARY
        case "div":
            if wide:
                return f"{paren(args[0], PRODUCT)} / {paren(args[1], UNARY)}", PRODUCT
            return f"tl.div_rn({listed})", ATOM
        case "sqrt":
            return f"tl.sqrt({listed})" if wide else f"tl.sqrt_rn({listed})", ATOM
        case "round":
            return f"libdevice.rint({listed})", ATOM
        case "sigmoid":
            below = f"1.0 + {_function('exp', dtype)}(-{paren(args[0], ATOM)})"
            return (
                (f"1.0 / ({below})", PRODUCT)
                if wide
                else (f"tl.div_rn(1.0, {below})", ATOM)
            )
        case "isnan":
            return f"{paren(args[0], SHIFT)} != {paren(args[0], SHIFT)}", COMPARISON
        case "isinf":
            return f'tl.abs({plain[0]}) == float("inf")', COMPARISON
        case "signbit":
            return (
                f"{paren(args[0], ATOM)}.to(tl.int{bits}, bitcast=True) < 0",
                COMPARISON,
            )
        case "bitwise_not" if dtype is torch.uint8:
            return f"{paren(args[0], XOR + 1)} ^ 255", XOR
        case "bitwise_not":
            return f"~{paren(args[0], ATOM)}", UNARY
        case "shl":
            a, b = paren(args[0], SHIFT), paren(args[1], SHIFT + 1)
            outside = f"({b} < 0) | ({b} >= {bits})"
            return f"tl.where({outside}, 0, {a} << ({b} & {bits - 1}))", ATOM
        case "shr":
            a, b = paren(args[0], SHIFT), paren(args[1], SHIFT + 1)
            outside = f"({b} < 0) | ({b} >= {bits})"
            beyond = "0" if dtype is torch.uint8 else f"{a} >> {bits - 1}"
            return f"tl.where({outside}, {beyond}, {a} >> ({b} & {bits - 1}))", ATOM
    raise KeyError(name)


def reciprocal(divisor: Value, *, coarse: bool) -> Const | None:
    """A number to multiply by instead of dividing by another, where that is as good.

    It is exact for powers of two. PyTorch's CUDA kernels multiply by that of any number; as
    others divide, it is done only where the result is rounded to 16 bits at once.

        >>> half = reciprocal(Const(2.0, torch.float32), coarse=False)
        >>> half.value
        0.5
        >>> reciprocal(Const(3.0, torch.float32), coarse=False)
    """
    if not isinstance(divisor, Const) or divisor.dtype not in (
        torch.float32,
        torch.float64,
    ):
        return None
    number = float(divisor.value)
    if not 2.0**-100 <= abs(number) <= 2.0**100:
        return None
    if divisor.dtype is torch.float32:
        (number,) = struct.unpack("f", struct.pack("f", number))
    if not coarse and abs(math.frexp(number)[0]) != 0.5:
        return None
    return Const(1.0 / number, divisor.dtype)


def _function(name: str, dtype: torch.dtype) -> str:
    """An accurate function of floating-point numbers of a type."""
    short = name in SHORT and dtype is torch.float32
    return f"{name}_f32" if short else f"libdevice.{name}"


def float8_name(dtype: torch.dtype) -> str:
    """`"e4m3fn"` for `torch.float8_e4m3fn`: the end of its functions' names."""
    return str(dtype).removeprefix("torch.float8_")


def cast_text(
    text: Text, source: torch.dtype, target: torch.dtype, device: torch.device
) -> Text:
    """Conversion as `Tensor.to` does it on `device`."""
    if source in FLOAT8:
        text = f"from_{float8_name(source)}({text[0]})", ATOM
        if target is torch.float32:
            return text
        return cast_text(text, torch.float32, target, device)
    if target in FLOAT8:
        if source is not torch.float32:
            text = cast_text(text, source, torch.float32, device)
        facts = ""
        if target is torch.float8_e4m3fn and not saturates(device.type):
            facts = ", saturates=False"
        if target in FLOAT8[:2] and not converts(device):
            facts += ", converts=False"
        return f"to_{float8_name(target)}({text[0]}{facts})", ATOM
    if target is torch.bool:
        zero = "0.0" if source.is_floating_point else "0"
        return f"{paren(text, SHIFT)} != {zero}", COMPARISON
    steps = [target]
    if (
        target.itemsize == 2
        and target.is_floating_point
        and source is not torch.float32
    ):
        steps.insert(0, torch.float32)  # PyTorch's half types are made from float
    elif target is torch.uint8 and source.is_floating_point:
        steps.insert(0, torch.int64)  # so that -1.0 is 255, as in eager
    if (
        source.itemsize == 2
        and source.is_floating_point
        and steps[0] is not torch.float32
    ):
        steps.insert(0, torch.float32)
    made = paren(text, ATOM)
    for step in steps:
        made = f"{made}.to({TL[step]})"
    return made, ATOM


# --- indices --------------------------------------------------------------------------------


def index_text(expr: Expr, names: Mapping[Any, str], order: Sequence[Any] = ()) -> Text:
    """An index expression; terms in the order of the symbols in `order`, numbers last."""

    def rank(term: Expr) -> tuple[int, str]:
        found = [order.index(s) for s in term.free_symbols if s in order]
        if not term.free_symbols:
            return (len(order) + 1, "")
        return (min(found, default=-1), str(term))

    def visit(node: Expr) -> Text:
        if node.is_Integer:
            return number_text(int(node))
        if node.is_Symbol:
            return names.get(node, str(node)), ATOM
        if isinstance(node, sympy.Add):
            terms = sorted(node.args, key=rank)
            terms.sort(
                key=lambda t: (
                    bool(t.as_coeff_Mul()[0].is_negative) and not t.free_symbols
                )
            )
            text = ""
            for term in terms:
                coefficient, rest = term.as_coeff_Mul()
                if text and coefficient.is_negative:
                    text += f" - {paren(visit(-coefficient * rest), SUM + 1)}"
                elif text:
                    text += f" + {paren(visit(term), SUM)}"
                else:
                    text = paren(visit(term), SUM)
            return text, SUM
        if isinstance(node, sympy.Mul):
            coefficient, rest = node.as_coeff_Mul()
            factors = [coefficient] if coefficient != 1 else []
            factors += sorted(sympy.Mul.make_args(rest), key=str)
            return " * ".join(paren(visit(f), PRODUCT + 1) for f in factors), PRODUCT
        kind = type(node).__name__
        if kind in ("FloorDiv", "CleanDiv", "Mod", "PythonMod"):
            sign = "//" if kind.endswith("Div") else "%"
            top, bottom = (visit(a) for a in node.args)
            return f"{paren(top, PRODUCT)} {sign} {paren(bottom, PRODUCT + 1)}", PRODUCT
        if isinstance(node, sympy.Pow) and node.exp.is_Integer and node.exp > 0:
            return " * ".join(
                [paren(visit(node.base), PRODUCT + 1)] * int(node.exp)
            ), PRODUCT
        if kind in ("Max", "Min"):
            # On the host there are only sizes; in a kernel they may meet positions.
            name = f"tl.{kind.lower()}imum" if names else kind.lower()
            texts = [visit(a)[0] for a in sorted(node.args, key=str)]
            return reduce(lambda a, b: f"{name}({a}, {b})", texts), ATOM
        raise TypeError(f"an index with {kind}: {node}")

    return visit(sympy.sympify(expr))


def identity(kind: str, dtype: torch.dtype) -> int | float | bool:
    """What a reduction of values of `dtype` starts from."""
    match kind:
        case "sum":
            return 0.0 if dtype.is_floating_point else 0
        case "prod":
            return 1.0 if dtype.is_floating_point else 1
        case "any":
            return False
        case "all":
            return True
    low = kind in ("max", "argmax")
    if dtype is torch.bool:
        return not low
    if dtype.is_floating_point:
        return -math.inf if low else math.inf
    limits = torch.iinfo(dtype)
    return int(limits.min if low else limits.max)
