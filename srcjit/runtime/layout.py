"""Makes sure that what an ATen call returned has the strides that kernels were made for."""

from __future__ import annotations

import torch


def laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Returns `tensor` if it has these strides (in elements), else a copy that does.

    PyTorch's meta functions, by which kernels are made, do not promise the strides of every
    operator on every device. Strides of dimensions of size 1 mean nothing.

        >>> x = torch.zeros(2, 3)
        >>> laid_out(x, (3, 1)) is x
        True
        >>> laid_out(x, (1, 2)).stride()
        (1, 2)
    """
    if tensor.stride() == stride:
        return tensor
    sizes = tensor.size()
    if all(
        n == 1 or s == t for n, s, t in zip(sizes, tensor.stride(), stride, strict=True)
    ):
        return tensor
    made = torch.empty_strided(sizes, stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
