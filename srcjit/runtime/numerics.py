"""What the user lets libraries round: TF32 in float32 products, sums of less than float32.

Libraries ask when they are called, so most programs need not: what does is a recorded graph,
which replays what a library chose then, and a kernel of ours that computes such a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import reader

_BACKENDS = (("cuda", "matmul"), ("cuda", "conv"))

_getter: Callable[[str, str], str] | None = getattr(
    torch._C, "_get_fp32_precision_getter", None
)

_REDUCED = tuple(
    getattr(torch._C, name)
    for name in (
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_bf16_reduced_precision_reduction",
        "_get_cublas_allow_fp16_accumulation",
    )
    if hasattr(torch._C, name)
)


def _questions() -> tuple[tuple[Any, ...], ...]:
    """What libraries ask: functions with their arguments."""
    if _getter is None:
        # Before PyTorch 2.9, one flag for products and one for convolutions.
        first: tuple[tuple[Any, ...], ...] = (
            (torch._C._get_cublas_allow_tf32,),
            (torch._C._get_cudnn_allow_tf32,),
        )
    else:
        first = tuple((_getter, *backend) for backend in _BACKENDS)
    return (*first, *((read,) for read in _REDUCED))


_asked = _questions()


def library_numerics() -> tuple[object, ...]:
    """Returns everything that libraries ask about how exact products must be."""
    return tuple([ask(*arguments) for ask, *arguments in _asked])


def numerics_check(wanted: tuple[object, ...]) -> Callable[[], bool]:
    """Returns what says whether `library_numerics` would return `wanted`.

    Args:
        wanted: What it returned once.
    """
    module = reader.loaded()
    if module is None or len(wanted) != len(_asked):
        return lambda: library_numerics() == wanted
    check: Callable[[], bool] = module.answers(_asked, wanted)
    return check


def tf32_allowed() -> bool:
    """Returns whether products of float32 on a GPU may round their operands to TF32."""
    if _getter is None:
        return bool(torch._C._get_cublas_allow_tf32())
    return _getter("cuda", "matmul") == "tf32"
