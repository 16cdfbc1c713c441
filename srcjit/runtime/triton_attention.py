"""Attention on a GPU by cuDNN, NaN where eager has NaN.

Only emitted modules import this: it imports Triton.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl

from .triton import beside, launch, prepare

BLOCK, ROWS, COPIED = 1024, 16, 64

_seen: set[tuple[object, ...]] = set()
"""Element types and sizes for which the kernels are compiled, or soon will be."""


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
    like = (query.dtype, query.shape, key.shape)
    if like in _seen:
        made = _attend(query, key, value, scale)
        mend(made, query, key, scale)
    else:
        _seen.add(like)
        made = _attend_first(query, key, value, scale)
    # To PyTorch, a temporary of another size is no view.
    shaped: torch.Tensor = torch.ops.aten._unsafe_view.default(laid_out(made), size)
    return shaped


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    made: torch.Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention.default(
        query, key, value, None, False, scale=scale
    )[0]
    return made


def _attend_first(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> torch.Tensor:
    """As `_attend` and `mend`, but waits for the kernel only where a row may need it.

    It takes twice as long to compile as cuDNN to be loaded and to plan.
    """
    # cuDNN lays its result out as the queries are.
    like = mending(query, query, key, scale)
    compiles = prepare(mend_rows, *like, **_constants(query))
    # What is captured is to hold for other numbers, too, and cannot be looked at.
    if compiles and not torch.cuda.is_current_stream_capturing():
        with beside(lambda: begins_with_zero(query.new_ones(64, 64))):
            made = _attend(query, key, value, scale)
        if not begins_with_zero(made):
            return made
    else:
        made = _attend(query, key, value, scale)
    mend(made, query, key, scale)
    return made


def begins_with_zero(made: torch.Tensor) -> bool:
    """Whether the first element of a row is 0. The host waits for the answer."""
    return bool((made.select(-1, 0) == 0).any())


def mend(
    made: torch.Tensor, query: torch.Tensor, key: torch.Tensor, scale: float
) -> None:
    """Makes those rows of `made` NaN of which every score is -inf, as in eager.

    cuDNN makes them 0. Such a row takes infinite queries or keys, so the first element of
    each row is looked at, and only where it is 0 the row, and only where that is 0 its scores,
    one column at a time: nearly always the first tells. (By `tl.dot`, all columns at once, the
    kernel took three times as long to compile, beside which cuDNN starts.) The logarithms of
    the sums, which tell, too, would cost more than this.
    """
    batch, heads, rows, _ = made.shape
    programs = batch * heads * (-(-rows // BLOCK))
    launch(mend_rows, programs, *mending(made, query, key, scale), **_constants(query))


def mending(
    made: torch.Tensor, query: torch.Tensor, key: torch.Tensor, scale: float
) -> tuple[torch.Tensor | float, ...]:
    """Arguments of `mend_rows`."""
    _, heads, rows, width = made.shape
    strides = (t.stride()[:3] for t in (made, query, key))
    numbers = (heads, rows, key.shape[2], width, scale)
    return (made, query, key, *numbers, *itertools.chain(*strides))


def _constants(query: torch.Tensor) -> dict[str, int]:
    width = max(16, triton.next_power_of_2(query.shape[-1]))
    # What is hardly ever reached need not be pipelined, nor take registers for that.
    sizes = {"BLOCK": BLOCK, "ROWS": ROWS, "WIDTH": width}
    return {**sizes, "num_warps": 4, "num_stages": 1}


def laid_out(made: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of four dimensions, contiguous, as eager's result is."""
    if made.is_contiguous():
        return made
    laid = torch.empty(made.shape, dtype=made.dtype, device=made.device)
    _, heads, length, width = made.shape
    rows = made.numel() // width
    launch(
        copy_rows,
        -(-rows // COPIED),
        made,
        laid,
        rows,
        width,
        heads,
        length,
        *made.stride()[:3],
        ROWS=COPIED,
        WIDTH=triton.next_power_of_2(width),
        num_warps=4,
    )
    return laid


@triton.jit
def mend_rows(
    made_ptr,
    query_ptr,
    key_ptr,
    heads,
    rows,
    columns,
    width,
    scale,
    made_batch,
    made_head,
    made_row,
    query_batch,
    query_head,
    query_row,
    key_batch,
    key_head,
    key_row,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """See `mend`. Elements of a row lie side by side."""
    blocks = tl.cdiv(rows, BLOCK)
    z = (tl.program_id(0) // blocks).to(tl.int64)
    top = tl.program_id(0) % blocks * BLOCK
    made_ptr += z // heads * made_batch + z % heads * made_head
    row = top + tl.arange(0, BLOCK).to(tl.int64)
    first = tl.load(made_ptr + row * made_row, row < rows, other=1.0)
    if tl.sum((first == 0.0).to(tl.int32), 0) != 0:
        query_ptr += z // heads * query_batch + z % heads * query_head
        key_ptr += z // heads * key_batch + z % heads * key_head
        element = tl.arange(0, WIDTH)[None, :]
        for start in range(top, top + BLOCK, ROWS):
            i = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
            live = (i < rows) & (element < width)
            place = made_ptr + i * made_row + element
            made = tl.load(place, live, other=0.0)
            hidden = (tl.sum((made != 0.0).to(tl.int32), 1, keep_dims=True) == 0) & (
                i < rows
            )
            query = tl.load(query_ptr + i * query_row + element, live, other=0.0)
            column = tl.full((), 0, tl.int32)
            while (column < columns) & (tl.sum(tl.sum(hidden.to(tl.int32), 1), 0) != 0):
                # A score that is more ends the look at a row, and most rows' first is.
                key = tl.load(
                    key_ptr + column.to(tl.int64) * key_row + element,
                    element < width,
                    other=0.0,
                )
                product = query.to(tl.float32) * key.to(tl.float32)
                product = tl.sum(product, 1, keep_dims=True)
                score = product.to(made_ptr.dtype.element_ty).to(tl.float32) * scale
                hidden &= (score == float("-inf")) | (score != score)
                column += 1
            nan = tl.full((ROWS, WIDTH), float("nan"), tl.float32)
            tl.store(place, nan.to(made_ptr.dtype.element_ty), live & hidden)


@triton.jit
def copy_rows(
    made_ptr,
    laid_ptr,
    rows,
    width,
    heads,
    length,
    batch_stride,
    head_stride,
    row_stride,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Copies rows whose elements lie side by side to a contiguous tensor."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = row // length
    start = head // heads * batch_stride + head % heads * head_stride
    start += row % length * row_stride
    element = tl.arange(0, WIDTH)[None, :]
    live = (row[:, None] < rows) & (element < width)
    made = tl.load(made_ptr + start[:, None] + element, live)
    tl.store(laid_ptr + row[:, None] * width + element, made, live)
