"""The closed table of scalar primitives: what an `Op` of the loop form may compute.

Both printers print every row of `PRIMITIVES`. Lowerings compose everything else from these
(softplus, gelu, floor division of floats, …), so that there is one definition of each
operation and eager's corner cases are written once.

    >>> PRIMITIVES["add"].result("add", (torch.float32, torch.float32))
    torch.float32
    >>> PRIMITIVES["lt"].result("lt", (torch.int64, torch.int64))
    torch.bool
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_FLOAT = (torch.float32, torch.float64)
_INT = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_BOOL = (torch.bool,)
_NUMBER = _INT + _FLOAT
_BITS = _BOOL + _INT
_ANY = _NUMBER + _BOOL
FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
"""Floats of 8 bits, which are only converted and moved."""

_STORAGE = (*_ANY, torch.float16, torch.bfloat16, *FLOAT8)


@dataclass(frozen=True)
class Primitive:
    """One row of the table.

    Attributes:
        arity: Number of operands; all have one dtype (but the condition of `where`).
        takes: Dtypes of the operands.
        gives: Dtype of the result; None: that of the operands.
        meaning: The value in words, with the corner cases.
    """

    arity: int
    takes: tuple[torch.dtype, ...]
    gives: torch.dtype | None
    meaning: str

    def result(self, name: str, dtypes: tuple[torch.dtype, ...]) -> torch.dtype:
        """Returns the dtype of the result.

        Raises:
            TypeError: If the operands do not fit.
        """
        if len(dtypes) != self.arity:
            raise TypeError(f"{name} takes {self.arity} operands, got {len(dtypes)}")
        if name == "where":
            if dtypes[0] is not torch.bool:
                raise TypeError(f"where asks for a bool, got {dtypes[0]}")
            dtypes = dtypes[1:]
        first = dtypes[0]
        if any(d is not first for d in dtypes) or first not in self.takes:
            raise TypeError(f"{name} of {dtypes}")
        return self.gives or first


def _unary(takes: tuple[torch.dtype, ...], **meanings: str) -> dict[str, Primitive]:
    return {
        name: Primitive(1, takes, None, meaning) for name, meaning in meanings.items()
    }


def _binary(takes: tuple[torch.dtype, ...], **meanings: str) -> dict[str, Primitive]:
    return {
        name: Primitive(2, takes, None, meaning) for name, meaning in meanings.items()
    }


def _test(
    arity: int, takes: tuple[torch.dtype, ...], **meanings: str
) -> dict[str, Primitive]:
    return {
        name: Primitive(arity, takes, torch.bool, meaning)
        for name, meaning in meanings.items()
    }


PRIMITIVES: dict[str, Primitive] = {
    # `cast` is the one operator whose result dtype is free; `loops.cast` makes it.
    "cast": Primitive(
        1,
        _STORAGE,
        None,
        "Tensor.to: to bool is `!= 0` (NaN is True), float to int truncates, int to int "
        "wraps, to floats of 16 and 8 bits rounds to nearest even by way of float32",
    ),
    "where": Primitive(
        3, _STORAGE, None, "second operand if the first is true, else third"
    ),
    # Arithmetic; integers wrap around.
    **_binary(
        _NUMBER,
        add="a + b",
        sub="a - b",
        mul="a * b",
        maximum="the larger; NaN if either is NaN",
        minimum="the smaller; NaN if either is NaN",
    ),
    **_unary(_NUMBER, neg="-a", abs="|a|; the smallest integer stays itself"),
    **_binary(
        _INT,
        truncdiv="quotient rounded towards zero; b is never 0",
        floordiv="quotient rounded down; b is never 0",
        rem="a - truncdiv(a, b) * b, the sign of a; b is never 0",
        mod="a - floordiv(a, b) * b, the sign of b; b is never 0",
        shl="a << b; 0 if b < 0 or b >= width",
        shr="a >> b, arithmetic; b outside 0 .. width-1 acts as width-1 (0 for uint8)",
    ),
    **_binary(
        _FLOAT,
        div="a / b, correctly rounded",
        fmod="C fmod: exact remainder with the sign of a",
        pow="C pow",
        atan2="C atan2",
        hypot="C hypot",
        copysign="C copysign",
        fmax="the larger; the other if one is NaN",
        fmin="the smaller; the other if one is NaN",
        nextafter="C nextafter",
    ),
    **{
        "fma": Primitive(3, _FLOAT, None, "a * b + c rounded once"),
    },
    # Comparisons: false if either is NaN, except ne.
    **_test(
        2,
        _ANY,
        eq="a == b",
        ne="a != b",
        lt="a < b",
        le="a <= b",
        gt="a > b",
        ge="a >= b",
    ),
    **_test(
        1,
        _FLOAT,
        isnan="a != a",
        isinf="|a| is infinite",
        signbit="the sign bit is set",
    ),
    # Bits; on bool these are the logical operators.
    **_binary(_BITS, bitwise_and="a & b", bitwise_or="a | b", bitwise_xor="a ^ b"),
    **_unary(_BITS, bitwise_not="~a; `not a` for bool"),
    # Rounding.
    **_unary(
        _FLOAT,
        floor="largest integer <= a",
        ceil="smallest integer >= a",
        trunc="rounded towards zero",
        round="rounded to nearest, ties to even",
    ),
    # Functions: accurate to a few ulp, exact at 0, inf and NaN as the C functions.
    **_unary(
        _FLOAT,
        sqrt="square root, correctly rounded",
        rsqrt="1 / sqrt(a)",
        exp="e^a",
        exp2="2^a",
        expm1="e^a - 1, accurate near 0",
        log="natural logarithm",
        log2="logarithm to base 2",
        log10="logarithm to base 10",
        log1p="log(1 + a), accurate near 0",
        sin="sine",
        cos="cosine",
        tan="tangent",
        asin="arc sine",
        acos="arc cosine",
        atan="arc tangent",
        sinh="hyperbolic sine",
        cosh="hyperbolic cosine",
        tanh="hyperbolic tangent",
        asinh="inverse hyperbolic sine",
        acosh="inverse hyperbolic cosine",
        atanh="inverse hyperbolic tangent",
        erf="error function",
        erfc="1 - erf(a), accurate for large a",
        erfinv="inverse error function",
        lgamma="logarithm of |gamma(a)|",
        sigmoid="1 / (1 + exp(-a))",
    ),
}
