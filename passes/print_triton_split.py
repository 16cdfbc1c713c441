"""Splits reductions over long axes with few results, so that all multiprocessors work."""

from __future__ import annotations

from .loops import Buffer, Kernel


def split(kernel: Kernel) -> tuple[tuple[Kernel, ...], tuple[Buffer, ...]]:
    """Returns the kernels that replace `kernel`, and the buffers between them."""
    return (kernel,), ()
