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
clone _to_copy where cat constant_pad_nd slice_scatter select_scatter full full_like
scalar_tensor index_select embedding index.Tensor
""".split()

_ONLY = {"cpu": ["roll"], "cuda": ["flip", "gather", "pixel_shuffle"]}
"""What eager has on one kind of device: asked of PyTorch 2.13 on a CPU and 2.11 on a GPU."""


def moves(name: str, device: str) -> bool:
    """Returns whether a lowering takes elements as they are, and eager has it, too.

    Args:
        name: Of an overload (`"aten.cat.default"`).
        device: Kind of device.
    """
    known = (*_VIEWS, *_MOVES, *_ONLY.get(device, ()))
    plain = name.removeprefix("aten.")
    return plain in known or plain.rpartition(".")[0] in known


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
