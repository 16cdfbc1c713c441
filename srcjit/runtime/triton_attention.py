"""Attention on a GPU by cuDNN, NaN where eager has NaN.

Only emitted modules import this: it imports Triton.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .triton import launch

BLOCK = 1024


def attend_cuda(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    size: tuple[int, ...],
) -> torch.Tensor:
    """Returns `softmax(query @ key.mT * scale, -1) @ value`.

    Args:
        query: `(batch, heads, rows, head)`, bfloat16 or float16, on a GPU.
        key: `(batch, heads, columns, head)`.
        value: As `key`.
        scale: What the products are multiplied by.
        size: Size of the result, which has as many elements as `query`.
    """
    found = torch.ops.aten._scaled_dot_product_cudnn_attention.default(
        query, key, value, None, True, scale=scale
    )
    made, sums = found[0].contiguous(), found[1].contiguous()
    width = triton.next_power_of_2(made.shape[-1])
    launch(
        spoil,
        -(-sums.numel() // BLOCK),
        made,
        sums,
        sums.numel(),
        made.shape[-1],
        BLOCK=BLOCK,
        WIDTH=width,
        num_warps=4,
    )
    # To PyTorch, a temporary of another size is no view.
    shaped: torch.Tensor = torch.ops.aten._unsafe_view.default(made, size)
    return shaped


@triton.jit
def spoil(made_ptr, sums_ptr, rows, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Makes rows NaN whose sum of exponentials is 0, infinite or NaN.

    cuDNN makes 0 of a row of which every score is -inf; in eager it is NaN.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(sums_ptr + row, row < rows, other=0.0)
    odd = total - total != 0.0
    if tl.max(odd.to(tl.int32), 0) != 0:
        element = tl.arange(0, WIDTH)[None, :]
        place = made_ptr + row[:, None] * width + element
        nan = tl.full((BLOCK, WIDTH), float("nan"), made_ptr.dtype.element_ty)
        tl.store(place, nan, odd[:, None] & (element < width))
