"""More than 2**31 elements on a GPU: offsets that need 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import srcjit

pytestmark = pytest.mark.cuda

COUNT = 2**31 + 4099
PROGRAMS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], Any]]] = {
    "pointwise": ((COUNT,), lambda x: x + 1),
    "total": ((COUNT,), lambda x: (x != 0).sum()),
    "place": ((COUNT,), lambda x: x.argmax()),
    "rows": ((2**16 + 3, 2**15 + 8), lambda x: x.sum(1, dtype=torch.int32)),
    "columns": ((2**16 + 3, 2**15 + 8), lambda x: x.sum(0, dtype=torch.int32)),
    "transposed": ((2**16 + 3, 2**15 + 8), lambda x: (x.t() * 2).contiguous()),
    "broadcast": ((2**16 + 3, 2**15 + 8), lambda x: x + x[:, :1] * x[:1]),
    "a far slice": ((3, COUNT), lambda x: x[2, ::3] + x[1, : (COUNT + 2) // 3]),
    "one long row": ((2, COUNT // 2), lambda x: x.amax(1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_offsets(name: str) -> None:
    size, function = PROGRAMS[name]
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("needs 40 GiB of GPU memory")
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.empty(size, dtype=torch.int8, device="cuda")
    x.random_(-3, 4, generator=generator)
    x.view(-1)[-5] = 101
    got, expected = srcjit.jit(function)(x), function(x)
    assert got.dtype is expected.dtype and got.stride() == expected.stride()
    assert torch.equal(got, expected)
