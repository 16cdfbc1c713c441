"""Times srcjit's Triton kernels on a GPU beside eager PyTorch and `torch.compile`.

    python -m bench.gpu                        everything, as a table
    python -m bench.gpu --only softmax,gelu    some workloads
    python -m bench.gpu --without compile      skip a competitor
    python -m bench.gpu --variants             kernels under several schedules, side by side
    python -m bench.gpu --check                no GPU: run small sizes in Triton's interpreter

A workload's answer is checked against float64 before it is timed. Times are medians of CUDA
events around one call, with the L2 cache flushed before each; the floor is the bytes that the
workload must move (inputs read once, outputs written once) over the bandwidth of a large copy,
and the operations of its matrix products over the rate of a large product, both measured first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

if "--check" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch

Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Workload:
    """What is timed.

    Attributes:
        function: Plain PyTorch.
        make: Makes the arguments, given a factor by which to shrink sizes and the device.
        moved: Tensors' bytes beyond the arguments and the result that must be moved
            (an intermediate that no fusion can avoid), at full size.
        operations: Floating-point operations of matrix products, at full size.
        tolerance: Largest relative error against float64, ||out - ref|| / ||ref||.
    """

    function: Function
    make: Callable[[int, str], tuple[torch.Tensor, ...]]
    moved: float = 0.0
    operations: float = 0.0
    tolerance: float = 1e-2


def rms_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale


def gelu(h: torch.Tensor) -> torch.Tensor:
    c = (2 / torch.pi) ** 0.5
    return 0.5 * h * (1 + torch.tanh(c * (h + 0.044715 * h**3)))


def feed_forward(
    x: torch.Tensor, scale: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    h = torch.nn.functional.linear(rms_norm(x, scale), up)
    return x + torch.nn.functional.linear(gelu(h), down)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.sigmoid(x) * y + torch.relu(x - y)
    return torch.where(z > 0, z.exp().log1p(), z * 0.5) / (1 + y * y)


def column_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


def total(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()


def transpose(x: torch.Tensor) -> torch.Tensor:
    return (x.t() * 2.0).contiguous()


def _randn(*size: int, dtype: torch.dtype = torch.float32, device: str) -> torch.Tensor:
    return torch.randn(*size, dtype=torch.float32, device=device).to(dtype)


def _feed_forward_arguments(shrink: int, device: str) -> tuple[torch.Tensor, ...]:
    width, half = 1024 // shrink, torch.bfloat16
    x = _randn(16, 512 // shrink, width, dtype=half, device=device)
    up = _randn(4 * width, width, dtype=half, device=device) / width**0.5
    down = _randn(width, 4 * width, dtype=half, device=device) / (4 * width) ** 0.5
    return x, torch.ones(width, dtype=half, device=device), up, down


_BF16, _MEGA = torch.bfloat16, 2**20

WORKLOADS: dict[str, Workload] = {
    "feed_forward": Workload(
        feed_forward,
        _feed_forward_arguments,
        moved=2 * (2 * 16 * 512 * 1024 + 3 * 16 * 512 * 4096),
        operations=2 * 2 * 16 * 512 * 1024 * 4096,
    ),
    "rms_norm": Workload(rms_norm, lambda s, d: _feed_forward_arguments(s, d)[:2]),
    "gelu": Workload(
        gelu, lambda s, d: (_randn(16, 512 // s, 4096 // s, dtype=_BF16, device=d),)
    ),
    "layer_norm": Workload(
        layer_norm,
        lambda s, d: (
            _randn(16384 // s, 4096 // s, dtype=_BF16, device=d),
            _randn(4096 // s, dtype=_BF16, device=d),
            _randn(4096 // s, dtype=_BF16, device=d),
        ),
    ),
    "softmax": Workload(
        softmax, lambda s, d: (_randn(16384 // s, 8192 // s, dtype=_BF16, device=d),)
    ),
    "softmax_fp32": Workload(
        softmax, lambda s, d: (_randn(16384 // s, 8192 // s, device=d),), tolerance=1e-5
    ),
    "softmax_long": Workload(
        softmax, lambda s, d: (_randn(2048 // s, 131072 // s, dtype=_BF16, device=d),)
    ),
    "chain": Workload(
        chain,
        lambda s, d: (
            _randn(64 * _MEGA // s, device=d),
            _randn(64 * _MEGA // s, device=d),
        ),
        tolerance=1e-5,
    ),
    "column_sum": Workload(
        column_sum,
        lambda s, d: (_randn(131072 // s, 1024 // s, device=d),),
        tolerance=1e-4,
    ),
    "total": Workload(
        total, lambda s, d: (_randn(256 * _MEGA // s, device=d),), tolerance=1e-4
    ),
    "transpose": Workload(
        transpose,
        lambda s, d: (_randn(16384 // s, 8192 // s, device=d),),
        tolerance=1e-6,
    ),
}


# --- competitors ----------------------------------------------------------------------------


def by_segment(function: Function, args: tuple[Any, ...]) -> Function:
    """srcjit's back end alone: the function traced by torch.fx, without front end or guards."""
    from torch import fx
    from torch._subclasses import FakeTensorMode

    from srcjit.options import Options
    from srcjit.passes.program import Segment
    from srcjit.passes.segment import compile_segment
    from srcjit.runtime.triton import load_text

    module = fx.symbolic_trace(function)
    for node in module.graph.nodes:
        if node.op == "output":
            node.args = ((node.args[0],),)
    module.recompile()
    mode = FakeTensorMode(static_shapes=True)
    fakes = tuple(mode.from_tensor(a) for a in args)
    segment = Segment("segment_0", module, fakes, (), torch.is_grad_enabled())
    code = compile_segment(segment, Options(target="triton"))
    text = "\n".join([*code.imports, "", "", code.definitions, "", code.function])
    loaded = load_text(text, f"<{function.__name__}>")
    vars(loaded).update(code.bindings)
    run = loaded.segment_0

    def call(*given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = run(*given)[0]
        return result

    call.text = text  # type: ignore[attr-defined]
    return call


def by_jit(function: Function, args: tuple[Any, ...]) -> Function:
    """The whole of srcjit."""
    import srcjit

    jitted: Function = srcjit.jit(function)
    return jitted


def by_compile(function: Function, args: tuple[Any, ...]) -> Function:
    """The rival."""
    compiled: Function = torch.compile(function)
    return compiled


COMPETITORS: dict[str, Callable[[Function, tuple[Any, ...]], Function]] = {
    "eager": lambda function, args: function,
    "compile": by_compile,
    "segment": by_segment,
    "jit": by_jit,
}


# --- measuring ------------------------------------------------------------------------------


class Clock:
    """Times calls by CUDA events."""

    def __init__(self) -> None:
        self.cache = torch.empty(256 * _MEGA, dtype=torch.int8, device="cuda")

    def __call__(self, call: Callable[[], Any], repeats: int = 30) -> float:
        """Median milliseconds of one call with a cold L2 cache."""
        for _ in range(5):
            call()
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(repeats)
        ]
        for start, end in events:
            self.cache.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in events)

    def back_to_back(self, call: Callable[[], Any], repeats: int = 50) -> float:
        """Milliseconds per call of many calls in a row."""
        call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / repeats


def host_microseconds(call: Callable[[], Any], repeats: int = 2000) -> float:
    """Host time per call, while the device keeps up."""
    for _ in range(50):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats // 5):
            call()
        times.append((time.perf_counter() - start) / (repeats // 5))
        torch.cuda.synchronize()
    return min(times) * 1e6


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do.

    Attributes:
        bandwidth: Bytes per millisecond of a large copy, read and written.
        rate: Operations per millisecond of a large bf16 product.
    """

    bandwidth: float
    rate: float

    @staticmethod
    def measure(clock: Clock) -> Ceilings:
        a = torch.empty(2**30, dtype=torch.int8, device="cuda").random_()
        b = torch.empty_like(a)
        copy = clock(lambda: b.copy_(a), 10)
        x = _randn(8192, 8192, dtype=_BF16, device="cuda")
        y = _randn(8192, 8192, dtype=_BF16, device="cuda")
        product = clock(lambda: x @ y, 10)
        return Ceilings(2 * 2**30 / copy, 2 * 8192**3 / product)

    def floor(
        self, workload: Workload, args: Sequence[torch.Tensor], out: torch.Tensor
    ) -> float:
        """The fewest milliseconds that a workload can take."""
        tensors = [*args, out]
        moved = workload.moved + sum(t.numel() * t.element_size() for t in tensors)
        if workload.operations:
            # The products read and write most of it while they compute.
            return workload.operations / self.rate
        return moved / self.bandwidth


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """||out - ref|| / ||ref||; NaN never passes."""
    out = out.double()
    return float((out - reference).norm() / reference.norm().clamp_min(1e-300))


def run_workload(
    name: str, competitors: Sequence[str], clock: Clock, ceilings: Ceilings
) -> dict[str, Any]:
    """Checks and times one workload."""
    workload = WORKLOADS[name]
    torch.manual_seed(0)
    args = workload.make(1, "cuda")
    reference = workload.function(*(a.double() for a in args))
    eager = workload.function(*args)
    row: dict[str, Any] = {
        "workload": name,
        "floor": ceilings.floor(workload, args, eager),
    }
    for competitor in competitors:
        start = time.perf_counter()
        try:
            call = COMPETITORS[competitor](workload.function, args)
            out = call(*args)
            torch.cuda.synchronize()
            row[f"{competitor} first call"] = time.perf_counter() - start
            error = relative_error(out, reference)
            if not error <= workload.tolerance:
                raise AssertionError(
                    f"relative error {error:.2e} > {workload.tolerance:.0e}"
                )
            row[f"{competitor} error"] = error
            row[competitor] = clock(partial(call, *args))
            row[f"{competitor} in a row"] = clock.back_to_back(partial(call, *args))
        except Exception as problem:  # one competitor's failure is a result, too
            row[f"{competitor} problem"] = (
                f"{type(problem).__name__}: {str(problem)[:300]}"
            )
    del reference
    torch.cuda.empty_cache()
    return row


def run_overhead(competitors: Sequence[str]) -> dict[str, Any]:
    """Host time of a call of three operations on 16 elements."""

    def small(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2.0 + 1.0

    x = torch.randn(16, device="cuda")
    row: dict[str, Any] = {"workload": "host overhead (µs)"}
    for competitor in competitors:
        try:
            call = COMPETITORS[competitor](small, (x,))
            torch.testing.assert_close(call(x), small(x))
            row[competitor] = host_microseconds(partial(call, x))
        except Exception as problem:
            row[f"{competitor} problem"] = (
                f"{type(problem).__name__}: {str(problem)[:300]}"
            )
    return row


def table(rows: Sequence[dict[str, Any]], competitors: Sequence[str]) -> str:
    """The results as text: milliseconds, ratio to the floor, first call in seconds."""
    lines = [f"{'workload':<20}{'floor':>9}" + "".join(f"{c:>22}" for c in competitors)]
    for row in rows:
        floor = row.get("floor")
        cells = []
        for c in competitors:
            if c not in row:
                cells.append(f"{'-':>22}")
                continue
            ratio = f" x{row[c] / floor:5.2f}" if floor else ""
            flat = f" |{row[f'{c} in a row']:7.4f}" if f"{c} in a row" in row else ""
            cells.append(f"{row[c]:7.4f}{ratio}{flat}".rjust(22))
        lines.append(
            f"{row['workload']:<20}{floor if floor else 0:>9.4f}" + "".join(cells)
        )
    for row in rows:
        for key, value in row.items():
            if key.endswith("problem"):
                lines.append(f"{row['workload']}: {key}: {value}")
    firsts = [
        f"{row['workload']} {c} {row[f'{c} first call']:.2f}"
        for row in rows
        for c in competitors
        if f"{c} first call" in row
    ]
    lines.append("first call (s): " + ", ".join(firsts))
    return "\n".join(lines)


# --- variants -------------------------------------------------------------------------------


def run_variants(clock: Clock, ceilings: Ceilings, names: Sequence[str]) -> None:
    """Times each workload's kernels alone under other block sizes and warp counts."""
    from srcjit.passes import print_triton
    from srcjit.passes.print_triton_schedule import Kernel, Schedule, schedule

    def trial(warps: float, blocks: float) -> Callable[[Kernel], Schedule]:
        def choose(kernel: Kernel) -> Schedule:
            plan = schedule(kernel)
            count = max(1, min(32, int(plan.num_warps * warps)))
            scaled = plan.groups[0 if kernel.inner else -1]
            block = max(1, int(scaled.block * blocks))
            groups = tuple(
                replace(g, block=block) if g is scaled else g for g in plan.groups
            )
            return replace(plan, groups=groups, num_warps=count)

        return choose

    for name in names:
        workload = WORKLOADS[name]
        torch.manual_seed(0)
        args = workload.make(1, "cuda")
        floor = ceilings.floor(workload, args, workload.function(*args))
        cells = []
        for warps, blocks in (
            (1, 1),
            (0.5, 1),
            (2, 1),
            (4, 1),
            (1, 2),
            (2, 2),
            (2, 4),
            (1, 0.5),
        ):
            original = print_triton.schedule
            print_triton.print_kernel.__kwdefaults__["choose"] = trial(warps, blocks)
            try:
                call = by_segment(workload.function, args)
                cells.append(f"w{warps} b{blocks} {clock(partial(call, *args)):.4f}")
            except Exception as problem:
                cells.append(f"w{warps} b{blocks} {type(problem).__name__}")
            finally:
                print_triton.print_kernel.__kwdefaults__["choose"] = original
        print(f"{name:<14} floor {floor:.4f}: " + "; ".join(cells), flush=True)


# --- without a GPU --------------------------------------------------------------------------


def check(names: Sequence[str]) -> None:
    """Runs every workload at small sizes in Triton's interpreter."""
    for name in names:
        workload = WORKLOADS[name]
        torch.manual_seed(0)
        args = workload.make(64, "cpu")
        reference = workload.function(*(a.double() for a in args))
        call = by_segment(workload.function, args)
        error = relative_error(call(*args), reference)
        assert error <= workload.tolerance, (name, error)
        print(f"{name:<14} error {error:.1e}")
        if os.environ.get("SHOW"):
            print(call.text)  # type: ignore[attr-defined]


def main() -> None:
    """Parses the command line and prints the results."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--without", default="")
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    names = options.only.split(",")
    if options.check:
        check(names)
        return
    competitors = [c for c in COMPETITORS if c not in options.without.split(",")]
    torch.set_grad_enabled(False)
    clock = Clock()
    ceilings = Ceilings.measure(clock)
    print(
        f"{torch.cuda.get_device_name()}: copy {ceilings.bandwidth / 1e9:.2f} TB/s, "
        f"bf16 product {ceilings.rate / 1e9:.0f} TFLOP/s",
        flush=True,
    )
    if options.variants:
        run_variants(clock, ceilings, names)
        return
    rows = [run_overhead(competitors)]
    rows += [run_workload(n, competitors, clock, ceilings) for n in names]
    print(table(rows, competitors))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
