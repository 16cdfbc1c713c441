"""Reductions over columns that `bench.gpu --columns` times: outer dimensions of many shapes.

Neighbouring results lie side by side in memory there, so how wide a strip a program takes,
how many programs there are and whether a second kernel adds up their parts all matter.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bench.gpu_workloads import BF16, F32, Function, Workload, several


def first(x: Tensor) -> Tensor:
    return x.sum(0)


def middle(x: Tensor) -> Tensor:
    return x.sum(1)


def mean(x: Tensor) -> Tensor:
    return x.mean(0)


def largest(x: Tensor) -> Tensor:
    return x.amax(0)


def variance(x: Tensor) -> Tensor:
    return x.var(0)


def standardized(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, 1)


def products(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(0)


def _of(
    function: Function, *size: int, dtype: torch.dtype = F32, count: int = 1
) -> Workload:
    return Workload(
        function,
        several(count, dtype, *size),
        tolerance=1e-2 if dtype is BF16 else 1e-4,
    )


COLUMNS: dict[str, Workload] = {
    "sum": _of(first, 16384, 8192),
    "sum_bf16": _of(first, 16384, 8192, dtype=BF16),
    "sum_wide": _of(first, 4096, 32768),
    "sum_20480": _of(first, 8192, 20480),
    "sum_12288": _of(first, 8192, 12288),
    "sum_3000": _of(first, 20000, 3000),
    "sum_kilo": _of(first, 65536, 1024),
    "sum_2048": _of(first, 8192, 2048),
    "sum_narrow": _of(first, 131072, 128),
    "sum_thin": _of(first, 2**20, 16),
    "sum_vast": _of(first, 512, 2**18),
    "sum_1000": _of(first, 1000, 1000),
    "sum_4096": _of(first, 4096, 1024),
    "sum_square": _of(first, 2048, 2048),
    "sum_short": _of(first, 512, 8192),
    "sum_unaligned": _of(first, 8193, 8193),
    "sum_unaligned_bf16": _of(first, 16384, 4095, dtype=BF16),
    "middle": _of(middle, 64, 4096, 512),
    "middle_small": _of(middle, 32, 512, 64),
    "middle_bf16": _of(middle, 128, 2048, 768, dtype=BF16),
    "middle_many": _of(middle, 4096, 128, 256),
    "mean_bf16": _of(mean, 131072, 256, dtype=BF16),
    "amax": _of(largest, 16384, 8192),
    "amax_bf16": _of(largest, 65536, 1024, dtype=BF16),
    "var": _of(variance, 16384, 8192),
    "var_kilo": _of(variance, 65536, 1024),
    "var_narrow": _of(variance, 131072, 128),
    "var_thin": _of(variance, 2**20, 16),
    "var_channels_last": _of(variance, 100352, 256, dtype=BF16),
    "var_short": _of(variance, 200, 65536),
    "var_1000": _of(variance, 1000, 1000),
    "var_wide": _of(variance, 1024, 131072),
    "standardized": _of(standardized, 16384, 8192),
    "softmax_128": _of(softmax, 1024, 128, 512),
    "softmax_256": _of(softmax, 256, 256, 2048, dtype=BF16),
    "products": _of(products, 16384, 4096, count=2),
    "products_bf16": _of(products, 16384, 8192, dtype=BF16, count=2),
}
"""Sums first, then other reductions, then what reads or writes more."""
