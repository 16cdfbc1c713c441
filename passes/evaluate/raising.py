"""Which tensor operations may raise when the program runs, and which eager refuses.

Fake tensors check shapes and most types; an index out of range shows only in the data, and some
refusals of eager's kernels are not in PyTorch's meta functions.
"""

from __future__ import annotations

from typing import Any

import torch

_NEVER_RAISES = frozenset(
    """
    add sub mul neg abs sin cos tan tanh exp log sqrt rsqrt sigmoid relu gelu silu square
    sign floor ceil round clamp clamp_min clamp_max where maximum minimum lt le gt ge eq ne
    truediv div to float double half bfloat16 long int bool type_as clone contiguous detach
    view reshape flatten unflatten squeeze unsqueeze transpose permute t expand expand_as
    cat stack chunk split narrow flip roll repeat sum mean amax amin zeros ones full empty
    zeros_like ones_like full_like empty_like rand randn rand_like randn_like arange
    dropout layer_norm zero_ fill_ copy_ logical_and
    add_ sub_ mul_ div_ iadd isub imul itruediv sin_ cos_ mm matmul bmm linear addmm logical_or logical_not isnan isinf masked_fill tril triu erf softplus
    leaky_relu elu hardtanh pow
    """.split()
)
"""Operations that cannot raise once fake tensors have run them; all others may."""


_IN_PLACE = frozenset("add_ sub_ mul_ iadd isub imul".split())
_IN_PLACE_FLOAT = frozenset(
    "div_ itruediv sin_ cos_ tan_ tanh_ exp_ log_ sqrt_ rsqrt_ sigmoid_".split()
)
_PRODUCTS = frozenset(
    "mm matmul bmm mv dot addmm addmv baddbmm linear bilinear conv1d conv2d conv3d".split()
)


def eager_raises(name: str, args: list[Any]) -> str | None:
    """Why eager raises where fake tensors, which do not compare all dtypes, would not."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if not tensors:
        return None
    first = args[0]
    if name in _PRODUCTS:
        if len({t.dtype for t in tensors}) > 1 and not any(
            torch.is_autocast_enabled(kind) for kind in {t.device.type for t in tensors}
        ):
            return "operands of a product have different dtypes"
    elif name in _IN_PLACE or name in _IN_PLACE_FLOAT:
        if not isinstance(first, torch.Tensor):
            return None
        result = first.dtype
        if len(args) > 1 and not isinstance(args[1], torch.SymInt | torch.SymFloat):
            result = torch.result_type(first, args[1])
        if name in _IN_PLACE_FLOAT and not (
            result.is_floating_point or result.is_complex
        ):
            result = torch.get_default_dtype()
        if any(s == 0 and n > 1 for n, s in zip(first.shape, first.stride())):
            return "elements of what is written share one place in memory"
        if not torch.can_cast(result, first.dtype):
            return f"{result} cannot be cast to {first.dtype}"
        if any(_overlap_in_part(first, other) for other in tensors[1:]):
            return "what is written and what is read overlap in part"
    return None


def _overlap_in_part(written: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two views of one storage may share some of their elements but not all."""
    if written.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    places = [(t.storage_offset(), t.shape, t.stride()) for t in (written, other)]
    return other is not written and places[0] != places[1]


def may_raise(target: Any) -> bool:
    """Whether an operation may raise at run time although fake tensors can run it."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name not in _NEVER_RAISES
