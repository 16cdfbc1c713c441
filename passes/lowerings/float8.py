"""Which operators on floats of 8 bits have a loop form: those that move or convert elements.

    x.to(torch.float32) * scale        the conversion is part of the loop
    torch.cat([x, y])                  bytes are moved
    x * y                              eager's call: it computes, or refuses, by its own rules

Eager has kernels for few operators on them, and not the same on every device. So what has a
loop form here is what eager has, too; the rest is its call, with its error.
"""

from __future__ import annotations

from typing import Any

from ..loops import FLOAT8, Value, cast
from .builder import NoLoopForm, compute_dtype, number

_VIEWS = "view permute transpose t expand unsqueeze squeeze slice select diagonal unfold".split()

_MOVES = """
clone _to_copy where cat constant_pad_nd slice_scatter select_scatter roll full full_like
scalar_tensor index_select embedding index.Tensor
""".split()

OPERATORS = frozenset(f"aten.{name}" for name in (*_VIEWS, *_MOVES))
"""Lowerings that take elements as they are."""


def stored(argument: Any, dtype: Any) -> Value:
    """A number argument as an element of `dtype`.

    Raises:
        NoLoopForm: If an element of 8 bits would round it: eager refuses some.
    """
    value = number(argument, compute_dtype(dtype))
    if dtype in FLOAT8 and not _exact(argument):
        raise NoLoopForm(f"a number as an element of {dtype}")
    return cast(value, dtype)


def _exact(argument: Any) -> bool:
    """Whether every format has the number (or its nearest, which nobody refuses)."""
    return isinstance(argument, bool | int | float) and argument in (0, 1)
