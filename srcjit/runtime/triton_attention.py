"""Attention on a GPU by cuDNN, NaN where eager has NaN.

Only emitted modules import this: it imports Triton.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .triton import launch

BLOCK, ROWS = 1024, 64


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
    made = mended(found[0], found[1].contiguous())
    # To PyTorch, a temporary of another size is no view.
    shaped: torch.Tensor = torch.ops.aten._unsafe_view.default(made, size)
    return shaped


def mended(made: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Returns `made`, contiguous, with NaN in the rows whose sum is odd.

    Args:
        made: `(batch, heads, rows, head)`; overwritten if it is contiguous.
        sums: The logarithms of the sums of its rows, contiguous.
    """
    rows, width = sums.numel(), made.shape[-1]
    constants = {"WIDTH": triton.next_power_of_2(width), "num_warps": 4}
    if made.is_contiguous():
        grid = -(-rows // BLOCK)
        launch(spoil, grid, made, sums, rows, width, BLOCK=BLOCK, **constants)
    else:
        # The result has the order of the query's dimensions; eager's is contiguous.
        laid = torch.empty(made.shape, dtype=made.dtype, device=made.device)
        _, heads, length, _ = made.shape
        launch(
            lay_out,
            -(-rows // ROWS),
            made,
            sums,
            laid,
            rows,
            width,
            heads,
            length,
            *made.stride(),
            ROWS=ROWS,
            **constants,
        )
        return laid
    return made


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
        nan = tl.full((BLOCK, WIDTH), float("nan"), tl.float32)
        nan = nan.to(made_ptr.dtype.element_ty)
        tl.store(place, nan, odd[:, None] & (element < width))


@triton.jit
def lay_out(
    made_ptr,
    sums_ptr,
    laid_ptr,
    rows,
    width,
    heads,
    length,
    batch_stride,
    head_stride,
    row_stride,
    element_stride,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Copies the result of any strides to a contiguous one; odd rows become NaN."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.load(sums_ptr + row, row < rows, other=0.0)[:, None]
    head = row // length
    start = head // heads * batch_stride + head % heads * head_stride
    start += row % length * row_stride
    element = tl.arange(0, WIDTH)[None, :]
    live = (row[:, None] < rows) & (element < width)
    place = start[:, None] + element * element_stride
    made = tl.load(made_ptr + place, live, other=0.0).to(tl.float32)
    made = tl.where(total - total != 0.0, float("nan"), made)
    tl.store(
        laid_ptr + row[:, None] * width + element,
        made.to(laid_ptr.dtype.element_ty),
        live,
    )
