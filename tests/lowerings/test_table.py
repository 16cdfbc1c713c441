"""Every lowering, as C++ and as Triton for an H100 (`test_table_in_triton.py` runs it).

    python -m tests.lowerings cpp       the whole product (`tests.lowerings.run` has its parts)
    python -m tests.lowerings triton
    python -m tests.lowerings sm_90     compiles its Triton for an H100, without a GPU

The default suite runs every dtype contiguous, every layout for one dtype or two, and samples
of pairs of dtypes, of numbers and of sets of dimensions.
"""

from __future__ import annotations

import pytest
import torch

from srcjit.passes.decompositions import decompositions
from srcjit.passes.lowerings import TABLE
from tests.lowerings.composed import COMPOSED_ROWS, ONLY_ON_GPUS
from tests.lowerings.run import QUICK, Report, name_of, run, sampled
from tests.lowerings.table import ROWS

TAKEN_APART = frozenset(
    """
    aten._log_softmax aten._log_softmax_backward_data
    aten._native_batch_norm_legit_no_training aten._prelu_kernel aten._reshape_alias
    aten._softmax aten._softmax_backward_data aten._unsafe_index.Tensor
    aten._unsafe_view aten.alias aten.chunk aten.contiguous aten.copy aten.detach
    aten.elu_backward aten.fill aten.frac aten.gelu_backward aten.hardswish_backward
    aten.hardtanh_backward aten.isfinite aten.leaky_relu_backward aten.lift_fresh
    aten.lift_fresh_copy aten.linalg_vector_norm aten.masked_fill aten.mean
    aten.native_group_norm aten.native_layer_norm aten.new_full aten.new_ones
    aten.new_zeros aten.ones aten.ones_like aten.repeat aten.reshape aten.rsub
    aten.silu_backward aten.softplus_backward aten.split aten.split_with_sizes
    aten.square aten.std.correction aten.tanh_backward
    aten.threshold_backward aten.tril aten.triu aten.true_divide aten.unbind
    aten.var.correction aten.zeros aten.zeros_like
    """.split()
)
"""Operators with a row of their own that are recorded as what they are made of."""

WITHOUT_KERNEL = frozenset(
    """
    aten.t aten.view.dtype aten.index_add aten.scatter_add aten.scatter_reduce.two
    """.split()
)
"""A view that the host makes where nothing else is computed, one that stays ATen's, and sums
that only GPUs make in kernels: on the CPU eager adds in a fixed order."""


@pytest.fixture(scope="module")
def in_cpp() -> dict[str, Report]:
    """Reports of what was compiled as C++."""
    return {name_of(*what): run("cpp", *what, sampled=True) for what in QUICK}


def test_every_lowering_has_a_row() -> None:
    assert set(ROWS) == set(TABLE) | TAKEN_APART
    assert not set(TABLE) & TAKEN_APART


def test_every_decomposition_has_a_row() -> None:
    rows = {*ROWS, *COMPOSED_ROWS, *ONLY_ON_GPUS}
    names = {op.name().replace("::", ".") for op in decompositions()}
    without = {n for n in names if n not in rows and n.rpartition(".")[0] not in rows}
    assert not {n for n in without if n not in rows}
    assert not set(ROWS) & set(COMPOSED_ROWS)


def test_every_row_reaches_its_lowering(in_cpp: dict[str, Report]) -> None:
    reached = frozenset[str]().union(*(r.used for r in in_cpp.values()))
    assert set(TABLE) - reached == WITHOUT_KERNEL


def test_samples_as_cpp() -> None:
    assert not [p for _, found in sampled("cpp") for p in found]


def test_as_an_h100s() -> None:
    pytest.importorskip("triton")
    assert not run("sm_90", torch.float32, "contiguous", sampled=True).problems


@pytest.mark.parametrize("name", [name_of(*what) for what in QUICK])
def test_as_cpp(name: str, in_cpp: dict[str, Report]) -> None:
    assert not in_cpp[name].problems, "\n".join(in_cpp[name].problems)
