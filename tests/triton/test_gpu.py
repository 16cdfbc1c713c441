"""Every case on a GPU; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from srcjit.passes.loops import Kernel
from srcjit.passes.print_triton import print_kernel
from srcjit.runtime.triton import launch, load_text, precompile
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
        jobs = [
            (getattr(module, c.kernel), c.signature, c.constants)
            for c in printed.launches
        ]
        precompile(jobs)
        loaded[name] = (case, module)
    return loaded


def on_gpu(kernel: Kernel, value: Any) -> Any:
    """A copy of a tensor on the GPU that keeps its strides and its memory's gaps."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(0, dtype=value.dtype, device="cuda")
    storage.set_(
        value.untyped_storage().cuda(),
        value.storage_offset(),
        value.shape,
        value.stride(),
    )
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
                moved[id(case.outputs[output])].cpu(),
                expected,
                tolerance(case, expected.dtype),
            )
        )
    ]
    assert not problems, "\n".join(problems)


def test_tanh_of_every_bfloat16() -> None:
    """The hardware's tanh, rounded to bfloat16, is at most one unit off, and seldom that."""
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    x = bits[~bits.isnan()].cuda()
    text = (
        "import triton\nimport triton.language as tl\n"
        "from srcjit.runtime.triton_library import tanh_to_bf16\n\n"
        "@triton.jit\n"
        "def tanh(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + i, i < n).to(tl.float32)\n"
        "    tl.store(y_ptr + i, tanh_to_bf16(x).to(tl.bfloat16), i < n)\n"
    )
    y = torch.empty_like(x)
    launch(load_text(text, "<tanh>").tanh, x.numel(), x, y, x.numel(), BLOCK=128)
    expected = torch.tanh(x)
    off = (y.view(torch.int16).int() - expected.view(torch.int16).int()).abs()
    print(
        f"tanh: {int((off > 0).sum())} of {x.numel()} bfloat16 differ, at most {int(off.max())}"
    )
    assert int(off.max()) <= 1
    assert int((off > 0).sum()) < x.numel() // 20


def test_round_bf16_of_every_float32() -> None:
    """Two at once, as one by one."""
    text = (
        "import triton\nimport triton.language as tl\n"
        "from srcjit.runtime.triton_library import round_bf16\n\n"
        "@triton.jit\n"
        "def rounded(x_ptr, y_ptr, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + i, round_bf16(tl.load(x_ptr + i)))\n"
    )
    kernel = load_text(text, "<rounded>").rounded
    for start in range(-(2**31), 2**31, 2**28):
        bits = torch.arange(start, start + 2**28, dtype=torch.int32, device="cuda")
        x = bits.view(torch.float32)
        y = torch.empty_like(x)
        launch(kernel, 2**18, x, y, BLOCK=1024)
        same = y.view(torch.int32) == x.bfloat16().float().view(torch.int32)
        assert bool((same | (x.isnan() & y.isnan())).all())


@pytest.mark.parametrize("factor", [30.0, -2.5, 1.5 * 2.0**-100, 2.0**100])
def test_products_of_every_bfloat16(factor: float) -> None:
    """Two at once, rounded before and behind, as one by one."""
    text = (
        "import triton\nimport triton.language as tl\n"
        "from srcjit.runtime.triton_library import round_times_bf16\n\n"
        "@triton.jit\n"
        "def times(x_ptr, y_ptr, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        f"    tl.store(y_ptr + i, round_times_bf16(tl.load(x_ptr + i), {factor}))\n"
    )
    # Every bfloat16, and between each two of them what a float32 holds more.
    bits = torch.arange(2**16, dtype=torch.int32, device="cuda") << 16
    x = torch.cat([bits, bits + 0x7FFF, bits + 0x8000, bits + 1]).view(torch.float32)
    y = torch.empty_like(x)
    launch(load_text(text, "<times>").times, x.numel() // 1024, x, y, BLOCK=1024)
    expected = (x.bfloat16() * torch.tensor(factor).bfloat16().cuda()).float()
    same = y.view(torch.int32) == expected.view(torch.int32)
    assert bool((same | (expected.isnan() & y.isnan())).all())


def test_exp_of_a_difference() -> None:
    """Off by some units in the last place of a weight of 1, as far as scores go."""
    text = (
        "import triton\nimport triton.language as tl\n"
        "from srcjit.runtime.triton_library import exp_minus\n\n"
        "@triton.jit\n"
        "def weights(x_ptr, peak_ptr, y_ptr, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + i, exp_minus(tl.load(x_ptr + i), tl.load(peak_ptr + i)))\n"
    )
    peak = torch.rand(2**20, device="cuda") * 86 - 43
    x = torch.minimum(torch.rand_like(peak) * 86 - 43, peak)
    x[::64], x[1::64] = peak[::64], -torch.inf
    y = torch.empty_like(x)
    launch(load_text(text, "<exp>").weights, 2**10, x, peak, y, BLOCK=1024)
    expected = torch.exp(x.double() - peak.double())
    assert float((y - expected).abs().max()) < 86 * 2.0**-24
    far = ((y - expected).abs() / expected)[expected > 1e-37]
    assert float(far.max()) < 3 * 86 * 2.0**-24
