"""Attention on a CPU by PyTorch's fused kernel, NaN where eager has NaN."""

from __future__ import annotations

import torch


def attend_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    size: tuple[int, ...],
) -> torch.Tensor:
    """Returns `softmax(query @ key.mT * scale, -1) @ value`.

    Args:
        query: `(batch, heads, rows, head)`, float32 or float64.
        key: `(batch, heads, columns, head)`.
        value: As `key`.
        scale: What the products are multiplied by.
        size: Size of the result, which has as many elements as `query`.
    """
    result: torch.Tensor | None = None
    if query.numel() and key.numel():
        made, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(
            query, key, value, scale=scale
        )
        # The logarithm of the sum of a row is 0 or NaN where the kernel gave it up.
        if bool((torch.isfinite(sums) & (sums != 0)).all()):
            result = made
    if result is None:
        weights = torch.softmax(query @ key.transpose(-2, -1) * scale, -1)
        result = weights @ value
    # To PyTorch, a temporary of another size is no view.
    shaped: torch.Tensor = torch.ops.aten._unsafe_view.default(
        result.contiguous(), size
    )
    return shaped
