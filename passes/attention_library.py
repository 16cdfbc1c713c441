"""Attention as one call of a library, where it has one that is faster and as exact.

Before (an attention whose score function only scales):

    score = mul(float32(bfloat16(product)), 0.125)

After (in the host function):

    bmm_1 = attend_cuda(q, k, v, 0.125, (128, 2048, 64))

PyTorch's library calls keep the scores in float32, where eager rounds them: they are closer to
exact arithmetic. They differ where a row has no sum: a row of which all scores are -inf (which
takes infinite queries or keys, as there is no mask) is 0, and NaN in eager; and the CPU's makes
0 of NaN. `srcjit.runtime.attention` and `srcjit.runtime.triton_attention` mend such rows.

What hides columns is not given to a library: it would leave out values of inf and NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy
import torch

from srcjit.runtime import cudnn

from .attention_form import Attention
from .definitions import Definition
from .loops import Axis, Const, Expr, Op
from .program import Segment

LEAST_SCORES = {"triton": 2**24, "cpp": 2**16}
"""Scores in all below which a call of the library costs more than it saves."""

_DTYPES = {
    # float16 overflows where eager rounds the scores, and does not in the library.
    "triton": (torch.bfloat16,),
    "cpp": (torch.float32, torch.float64),
}


_PRODUCTS = frozenset({"bmm", "einsum", "matmul"})
_SCALES = frozenset({"div", "divide", "float", "mul", "multiply", "to", "true_divide"})


_FUNCTIONS = {
    "triton": ("srcjit.runtime.triton_attention", "attend_cuda"),
    "cpp": ("srcjit.runtime.attention", "attend_cpu"),
}


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor of four dimensions in the memory of a definition."""

    definition: Definition
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, eq=False)
class Library:
    """A call `function(query, key, value, scale, size)`.

    Attributes:
        module: Where the function is.
        function: Its name.
        operands: Query, key and value.
        scale: What the product is multiplied by.
        size: Of the result.
    """

    module: str
    function: str
    operands: tuple[Operand, ...]
    scale: float
    size: tuple[Expr, ...]


def library_call(
    attention: Attention,
    batch: Sequence[Axis],
    tiles: Sequence[tuple[Definition, Expr]],
    target: str,
) -> Library | str:
    """The call that computes an attention, or why there is none."""
    scale = _scale(attention)
    if scale is None:
        return "its score function does more than scale, which no library call does"
    if attention.output.dtype not in _DTYPES.get(target, ()):
        name = str(attention.output.dtype).removeprefix("torch.")
        return f"no library call rounds {name} as eager"
    if attention.depth.size != attention.width.size or len(batch) > 2:
        return "no library call takes its shape"
    scores = attention.batch.size * attention.rows.size * attention.columns.size
    if not scores.is_Integer:
        if target == "triton":
            return "a library call is prepared for each size anew"
    elif scores < LEAST_SCORES[target]:
        return f"a library call does not pay for {scores} scores"
    if target == "triton" and not _hopper(attention):
        return "the library is not the one that was measured"
    operands = []
    second = (attention.rows, attention.columns, attention.columns)
    third = (attention.depth, attention.depth, attention.width)
    for (definition, index), row, element in zip(tiles, second, third, strict=True):
        operand = _operand(definition, index, (*batch, row, element))
        if operand is None:
            return "its operands are not evenly spaced in memory"
        operands.append(operand)
    if target == "cpp":
        operands = _one_batch(operands)
    module, function = _FUNCTIONS[target]
    return Library(module, function, tuple(operands), scale, attention.output.size)


def foresee(segment: Segment) -> None:
    """Lets a thread load what a library call will need, if a graph looks like attention.

    Reading and proving takes as long as that.
    """
    graph = segment.graph_module.graph
    names = [getattr(n.target, "__name__", "") for n in graph.nodes]
    softmax = next((i for i, name in enumerate(names) if "softmax" in name), None)
    if softmax is None:
        return
    scores = names[:softmax]
    while scores and scores[-1] in _SCALES:
        scores.pop()
    if (
        not scores
        or scores[-1] not in _PRODUCTS
        or _PRODUCTS.isdisjoint(names[softmax:])
    ):
        return
    for value in segment.inputs:
        if isinstance(value, torch.Tensor) and value.dtype in _DTYPES["triton"]:
            if _measured(value.device):
                cudnn.load_ahead()
            return


def _scale(attention: Attention) -> float | None:
    """The factor by which the score function multiplies the product, if it does no more."""
    value, scale = attention.score, 1.0
    while value is not attention.product:
        if not isinstance(value, Op):
            return None
        rest, *factors = value.args
        if factors and isinstance(rest, Const):
            rest, factors = factors[0], [rest]
        number = factors[0].value if factors and isinstance(factors[0], Const) else None
        if value.name == "mul" and number is not None:
            scale *= number
        elif value.name == "div" and number and not isinstance(value.args[0], Const):
            scale /= number
        elif value.name != "cast":
            return None
        value = rest
    return scale if 1e-6 < scale < 1e6 else None


def _operand(
    definition: Definition, index: Expr, axes: Sequence[Axis]
) -> Operand | None:
    rest = sympy.expand(index)
    size, stride = [], []
    symbols = {a.symbol for a in axes}
    for axis in axes:
        step = rest.coeff(axis.symbol, 1)
        rest = sympy.expand(rest - step * axis.symbol)
        if step.free_symbols & symbols:
            return None
        size.append(axis.size)
        stride.append(step)
    if rest.free_symbols & symbols or stride[-1] != 1:
        return None
    while len(size) < 4:
        size.insert(0, sympy.Integer(1))
        stride.insert(0, size[1] * stride[0])
    return Operand(definition, tuple(size), tuple(stride), rest)


def _one_batch(operands: list[Operand]) -> list[Operand]:
    """Batch and heads as one dimension, where each operand allows it.

    The CPU's kernel puts the heads of a row side by side; of one head, that is contiguous.
    """
    merged = []
    for o in operands:
        if sympy.expand(o.stride[0] - o.size[1] * o.stride[1]) != 0:
            return operands
        size = (sympy.expand(o.size[0] * o.size[1]), sympy.Integer(1), *o.size[2:])
        # The stride of one head is that of all its rows, as in a contiguous tensor.
        stride = (o.stride[1], o.size[2] * o.stride[2], *o.stride[2:])
        merged.append(Operand(o.definition, size, stride, o.offset))
    return merged


def _hopper(attention: Attention) -> bool:
    """Whether the GPU and its library are those whose call was measured."""
    head = attention.width.size
    fits = bool(head % 8 == 0 and head <= 128)
    return fits and _measured(attention.output.device)


def _measured(device: torch.device) -> bool:
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    new = torch.cuda.get_device_capability(device) >= (9, 0)
    version: int = torch.backends.cudnn.version() or 0  # type: ignore[no-untyped-call]
    return new and version >= 90100
