"""Every case on a GPU; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from srcjit.passes.loops import Kernel
from srcjit.passes.print_triton import print_kernel
from srcjit.runtime.triton import load_text, precompile
from tests.triton.cases import CASES
from tests.triton.running import difference, module_text
from tests.triton.worker import tolerance

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def modules() -> dict[str, Any]:
    """Every case printed and loaded, its kernels compiling in parallel threads."""
    loaded: dict[str, Any] = {}
    for name, make in CASES.items():
        torch.manual_seed(0)
        case = make()
        printed = print_kernel(case.kernel)
        module = load_text(module_text(printed, case.kernel, "cuda"), f"<{name}>")
        jobs = [(getattr(module, c.kernel), c.signature, c.constants) for c in printed.launches]
        precompile(jobs)
        loaded[name] = (case, module)
    return loaded


def on_gpu(kernel: Kernel, value: Any) -> Any:
    """A copy of a tensor on the GPU that keeps its strides and its memory's gaps."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(0, dtype=value.dtype, device="cuda")
    storage.set_(value.untyped_storage().cuda(), value.storage_offset(), value.shape, value.stride())
    return storage


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, modules: dict[str, Any]) -> None:
    case, module = modules[name]
    arguments = case.arguments()
    moved = {id(a): on_gpu(case.kernel, a) for a in arguments}
    module.run(*(moved[id(a)] for a in arguments))
    torch.cuda.synchronize()
    problems = [
        f"{output}: {problem}"
        for output, expected in case.expected.items()
        if (
            problem := difference(
                moved[id(case.outputs[output])].cpu(), expected, tolerance(case, expected.dtype)
            )
        )
    ]
    assert not problems, "\n".join(problems)
