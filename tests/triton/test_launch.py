"""The launch API: what it compiles for, what it checks, what it says."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from srcjit.runtime import cpp_build, cuda_launcher
from srcjit.runtime.triton import (
    cross_compile,
    launch,
    launch_with_python,
    load_text,
    precompile,
)
from srcjit.runtime.triton_compile import Variant
from srcjit.runtime.triton_launcher import write_launcher
from srcjit.runtime.triton_load import Start

TEXT = """
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, n, s: tl.float32, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) + s, i < n)
"""


@pytest.fixture
def add() -> Any:
    """A new kernel, so that no test sees what another compiled."""
    return load_text(TEXT, "<add>").add


def test_signature_is_read() -> None:
    variant = Variant.parse("*bf16:16, i32, fp64")
    assert variant == Variant(("*bf16", "i32", "fp64"), (True, False, False))


def test_cross_compile_reports_resources() -> None:
    made = cross_compile(
        TEXT, "*fp32:16, *fp32:16, i32:16, fp32", {"BLOCK": 1024, "num_warps": 4}
    )
    assert made.name == "add" and made.num_warps == 4
    assert 0 < made.registers <= 64 and made.spills == 0
    assert made.widest_access == 16


def test_cross_compile_without_alignment_is_narrow() -> None:
    made = cross_compile(TEXT, "*fp32, *fp32, i32, fp32", {"BLOCK": 1024})
    assert made.widest_access == 4


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(TypeError, match="takes 4 arguments"):
        cross_compile(TEXT, "*fp32, *fp32", {"BLOCK": 1024})


def test_missing_constant() -> None:
    with pytest.raises(TypeError, match="BLOCK"):
        cross_compile(TEXT, "*fp32, *fp32, i32, fp32", {})


def test_cpu_tensors_are_refused(add: Any) -> None:
    x = torch.ones(4)
    with pytest.raises(TypeError, match="TRITON_INTERPRET"):
        launch(add, 1, x, x, 4, 1.0, BLOCK=16)


def test_importing_does_not_import_triton() -> None:
    code = "import sys, srcjit.runtime.triton; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.cuda
@pytest.mark.parametrize("aligned_first", [True, False])
def test_alignment_and_numbers_vary(add: Any, aligned_first: bool) -> None:
    x = torch.randn(1024, device="cuda")
    views = [x, x[4:], x[1:], x[:1000], x[:1], x[3:7]]
    for view in views if aligned_first else reversed(views):
        for s in (3, 2.5):
            n = view.numel()
            out = torch.empty(n + 1, device="cuda")[1:]
            launch(add, (n + 255) // 256, view, out, n, s, BLOCK=256)
            assert torch.equal(out, view + s)
            out.zero_()
            launch(add, ((n + 255) // 256, 1), view, out, n, s, BLOCK=256)
            assert torch.equal(out, view + s)


@pytest.mark.cuda
def test_cpu_tensor_beside_cuda_tensors_is_refused(add: Any) -> None:
    x = torch.ones(16, device="cuda")
    with pytest.raises(TypeError, match="needs CUDA tensors"):
        launch(add, 1, x, x.cpu(), 16, 1.0, BLOCK=16)


@pytest.mark.cuda
def test_nothing_runs_for_an_empty_grid(add: Any) -> None:
    x = torch.ones(16, device="cuda")
    y = torch.zeros(16, device="cuda")
    launch(add, 0, x, y, 16, 1.0, BLOCK=16)
    launch(add, (1, 0), x, y, 16, 1.0, BLOCK=16)
    assert not y.any()


@pytest.mark.cuda
def test_current_stream_and_graph_capture(add: Any) -> None:
    x, y = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
    launch(add, 1, x, y, 16, 1.0, BLOCK=16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch(add, 1, x, y, 16, 2.0, BLOCK=16)
    stream.synchronize()
    assert (y == 3).all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(add, 1, x, y, 16, 4.0, BLOCK=16)
    graph.replay()
    torch.cuda.synchronize()
    assert (y == 5).all()


@pytest.mark.cuda
def test_precompiled_kernel_is_used(add: Any) -> None:
    constants = {"BLOCK": 16, "num_warps": 1}
    precompile([(add, "*fp32:16, *fp32:16, i32:16, fp32", constants)])
    x, y = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
    launch(add, 1, x, y, 16, 1.0, **constants)
    assert (y == 2).all()
    assert len(add.srcjit_compilations.by_key) == 1


def bound(kernel: Any) -> Any:
    """What launches a kernel that has been launched for one set of constants."""
    ((_, run),) = kernel.srcjit_bindings
    return run


@pytest.mark.cuda
@pytest.mark.skipif(
    not cpp_build.compiler_available()
    or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="Python launches here",
)
def test_no_python_launches(add: Any) -> None:
    x = torch.ones(16, device="cuda")
    launch(add, 1, x, x, 16, 1.0, BLOCK=16)
    assert type(launch).__name__ == "Front"
    assert type(bound(add)).__name__ == "Launch"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_python_launches_without_a_driver() -> None:
    assert cuda_launcher.start() is None and cuda_launcher.loaded() is None
    assert launch is launch_with_python


NUMBERS = """
import triton
import triton.language as tl

@triton.jit
def numbers(out_ptr, small, large, b, s: tl.float32, d: tl.float64, u: tl.uint8, h: tl.int16):
    tl.store(out_ptr, small.to(tl.float64))
    tl.store(out_ptr + 1, (large - 4294967296).to(tl.float64))
    tl.store(out_ptr + 2, tl.where(b, 1.0, 0.0))
    tl.store(out_ptr + 3, s.to(tl.float64))
    tl.store(out_ptr + 4, d)
    tl.store(out_ptr + 5, u.to(tl.float64))
    tl.store(out_ptr + 6, h.to(tl.float64))
"""


@pytest.mark.cuda
def test_numbers_of_all_kinds_arrive() -> None:
    kernel = load_text(NUMBERS, "<numbers>").numbers
    given = (-7, 2**32 + 5, True, 0.1, 0.1, 200, -300)
    wanted = [-7, 5, 1, torch.tensor(0.1).item(), 0.1, 200, -300]
    out = torch.zeros(8, dtype=torch.float64, device="cuda")
    for grid in (1, 1, (1, 1)):
        out.zero_()
        launch(kernel, grid, out, *given)
        assert out.tolist() == [*wanted, 0]


@pytest.mark.cuda
def test_a_new_thread_launches(add: Any) -> None:
    x, y = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
    launch(add, 1, x, y, 16, 1.0, BLOCK=16)
    run = bound(add)
    problems: list[BaseException] = []

    def work(s: float) -> None:
        try:
            for _ in range(3):
                run(1, x, y, 16, s)
        except BaseException as problem:
            problems.append(problem)

    for s in (2.0, 3.0):
        thread = threading.Thread(target=work, args=(s,))
        thread.start()
        thread.join()
        assert not problems and (y == 1 + s).all()


@pytest.mark.cuda
def test_what_the_driver_refuses_raises(add: Any) -> None:
    x, y = torch.ones(16, device="cuda"), torch.zeros(16, device="cuda")
    launch(add, 1, x, y, 16, 1.0, BLOCK=16)
    with pytest.raises(RuntimeError, match="invalid argument"):
        launch(add, (1, 1, 70000), x, y, 16, 1.0, BLOCK=16)
    launch(add, 1, x, y, 16, 2.0, BLOCK=16)
    assert (y == 3).all()


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU: only its address is asked for here."""

    def get_device(self) -> int:
        """The first GPU."""
        return 0


@pytest.mark.parametrize("first", [0, 1])
def test_aligned_launches_stay_fast(
    add: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first launch of a kernel looked like, which others may share."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False
    )
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    started = []

    def compiled(_: tuple[Any, ...], aligned: bool) -> Start:
        return Start(lambda *_: started.append(aligned), 0, (), ())

    memory = torch.zeros(64)
    memory = memory[-memory.data_ptr() % 16 // 4 :]
    views = [memory[:16].as_subclass(OnGpu), memory[1:17].as_subclass(OnGpu)]
    pair = (views[first], views[first], 16, 1.0)
    run = write_launcher(add, {"BLOCK": 16}, pair, compiled)
    for x, y in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 0)):
        run(1, views[x], views[y], 16, 1.0)
    assert started == [True, False, False, False, True]
