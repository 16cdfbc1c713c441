"""Times CPU kernels beside eager PyTorch and `torch.compile`.

    python -m bench.kernels                    the workloads of the GPU's table: medians, ratios
    python -m bench.kernels softmax gelu       some of them
    python -m bench.kernels --extras           others: float32 norms, chains, means
    python -m bench.kernels --first            the first call instead: new process, cold caches
    python -m bench.kernels --rounds 31        more rounds, where a ratio is near 1
    pytest bench/test_kernels.py               the same programs under pytest-benchmark

The programs are those of `bench.gpu_workloads`, with arguments of about 2048 x 4096 elements. The
candidates take turns, call by call, so that a busy machine slows all of them alike; beside the
ratio of the medians stands that of the processor time of all threads, which does not count what
they wait for one another while the scheduler gives a core to another process. Every answer is
compared with float64 on two draws of arguments, with memory that held large numbers before.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Threads that wait for work do not spin: on a shared machine they would take it from others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import Tensor

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import last_line, with_caches
from bench.gpu_answers import errors, outcomes, references
from bench.gpu_workloads import (
    BF16,
    F32,
    WORKLOADS,
    Arguments,
    Function,
    Workload,
    attention,
    layer_norm,
    randn,
    rms_norm,
    softmax,
)

ROWS, COLUMNS = 2048, 4096
POINTS = ROWS * COLUMNS

# ── arguments ─────────────────────────────────────────────────────────────────────────────────


def _tensors(*sizes: tuple[int, ...], dtype: torch.dtype = F32) -> Arguments:
    """Normal random tensors."""
    return tuple(randn(*size, dtype=dtype, device="cpu") for size in sizes)


def _cross_entropy() -> Arguments:
    return *_tensors((512, 50257), dtype=BF16), torch.randint(0, 50257, (512,))


def _rotary() -> Arguments:
    angles = torch.rand(4096, 64).repeat(1, 2)
    (x,) = _tensors((2, 8, 4096, 128), dtype=BF16)
    return x, angles.cos().to(BF16), angles.sin().to(BF16)


def _adamw() -> Arguments:
    p, grad, m, v = _tensors(*[(POINTS,)] * 4)
    return p, grad, m, v.square()


def _feed_forward(tokens: int, width: int) -> Arguments:
    up = randn(4 * width, width, dtype=BF16, device="cpu") / width**0.5
    down = randn(width, 4 * width, dtype=BF16, device="cpu") / (4 * width) ** 0.5
    x = randn(1, tokens, width, dtype=BF16, device="cpu")
    return x, torch.ones(width, dtype=BF16), up, down


MATRIX, ROW = (ROWS, COLUMNS), (COLUMNS,)
HEADS = (2, 4, 512, 64)

ARGUMENTS: dict[str, Callable[[], Arguments]] = {
    "rms_norm": lambda: _tensors(MATRIX, ROW, dtype=BF16),
    "layer_norm": lambda: _tensors(MATRIX, ROW, ROW, dtype=BF16),
    "gelu": lambda: _tensors(MATRIX),
    "softmax": lambda: _tensors(MATRIX),
    "cross_entropy": _cross_entropy,
    "swiglu": lambda: _tensors(MATRIX, MATRIX, dtype=BF16),
    "rotary": _rotary,
    "adamw": _adamw,
    "column_sum": lambda: _tensors(MATRIX),
    "sum_of_squares": lambda: _tensors((POINTS,)),
    "transpose_add": lambda: _tensors(MATRIX, (ROWS,)),
    "whiten": lambda: (_tensors((POINTS,))[0] * 3 + 1,),
    "attention": lambda: _tensors(HEADS, HEADS, HEADS, dtype=BF16),
    "soft_capped": lambda: _tensors(HEADS, HEADS, HEADS, dtype=BF16),
    "feed_forward_1024": lambda: _feed_forward(256, 1024),
    "feed_forward_4096": lambda: _feed_forward(64, 4096),
}
"""What the sixteen workloads of the table are called with."""

PROGRAMS: dict[str, Workload] = {
    name: replace(WORKLOADS[name], make=lambda shrink, device, make=make: make())
    for name, make in ARGUMENTS.items()
}

# ── programs that are no part of the table ────────────────────────────────────────────────────


def pointwise_chain(x: Tensor) -> Tensor:
    """Ten elementwise operations."""
    y = torch.sin(x) * 2 + 1
    y = torch.tanh(y) * x
    y = torch.exp(-y * y) + x
    return torch.relu(torch.sigmoid(y))


def full_mean(x: Tensor) -> Tensor:
    """Mean of everything."""
    return x.mean()


def half_transposed(x: Tensor) -> Tensor:
    """A transposed copy of half the columns, plus one."""
    return (x[:, :2048].t() + 1).contiguous()


def _extra(function: Function, vectors: int = 0) -> Workload:
    sizes = (MATRIX, *[ROW] * vectors)
    return Workload(function, lambda shrink, device: _tensors(*sizes), tolerance=1e-5)


EXTRAS: dict[str, Workload] = {
    "pointwise_chain": _extra(pointwise_chain),
    "rms_norm_f32": _extra(rms_norm, 1),
    "layer_norm_f32": _extra(layer_norm, 2),
    "softmax_bf16": Workload(softmax, lambda s, d: _tensors(MATRIX, dtype=BF16)),
    "full_mean": _extra(full_mean),
    "half_transposed": _extra(half_transposed),
    "attention_f32": Workload(
        attention, lambda s, d: _tensors(HEADS, HEADS, HEADS), tolerance=1e-5
    ),
    "chain": replace(
        WORKLOADS["chain"], make=lambda shrink, device: _tensors(MATRIX, MATRIX)
    ),
}

# ── candidates ────────────────────────────────────────────────────────────────────────────────


def _srcjit(function: Function) -> Function:
    import srcjit

    compiled: Function = srcjit.jit(function)
    return compiled


def _compile(function: Function) -> Function:
    compiled: Function = torch.compile(function, dynamic=False)
    return compiled


CANDIDATES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda function: function,
    "torch.compile": _compile,
    "srcjit": _srcjit,
}


@contextmanager
def poisoned() -> Iterator[None]:
    """Memory that is allocated meanwhile holds numbers near -1.7e38, not zeros.

    By the C library's `M_PERTURB`; other libraries keep their zeros. What srcjit keeps of large
    results would hold earlier ones, so it is not used.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    mallopt(-6, 1)  # bytes 0xfe
    # Not above: `--first` counts what srcjit imports.
    from srcjit.runtime import large_memory

    try:
        with large_memory.c_librarys():
            yield
    finally:
        mallopt(-6, 0)


def prepare(program: Workload, candidate: str) -> Callable[[], Any]:
    """Compiles a program, checks its answers and returns a call of it.

    Raises:
        AssertionError: If an answer is further off than the workload allows.
    """
    run = CANDIDATES[candidate](program.function)
    with torch.no_grad():
        for seed in (1, 0):
            torch.manual_seed(seed)
            arguments = program.make(1, "cpu")
            wanted = references(program, arguments)
            with poisoned():
                found = errors(outcomes(program, run, arguments), wanted)
            if not found.relative <= program.tolerance:
                raise AssertionError(
                    f"{candidate}: relative error {found.relative:.2e}"
                )
    return functools.partial(_without_gradients, run, arguments)


def _without_gradients(run: Function, arguments: Arguments) -> Any:
    with torch.no_grad():
        return run(*arguments)


@dataclass(frozen=True)
class Times:
    """Median seconds of the calls of one candidate."""

    wall: float
    processor: float


def measure(program: Workload, rounds: int) -> dict[str, Times]:
    """Times each candidate; they take turns."""
    calls = {name: prepare(program, name) for name in CANDIDATES}
    walls: dict[str, list[float]] = {name: [] for name in calls}
    busy: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        # Memory that one leaves behind is the next one's gain or loss.
        order.append(order.pop(0))
        for name in order:
            call = calls[name]
            start, used = time.perf_counter(), time.process_time()
            call()
            busy[name].append(time.process_time() - used)
            walls[name].append(time.perf_counter() - start)
    return {
        name: Times(statistics.median(walls[name]), statistics.median(busy[name]))
        for name in calls
    }


# ── first calls ───────────────────────────────────────────────────────────────────────────────


def first_call(name: str, candidate: str) -> float:
    """Seconds of the first call in a new process with empty caches, imports included."""
    with tempfile.TemporaryDirectory() as cache:
        command = ("-m", "bench.kernels", name, "--one-call", candidate)
        return float(last_line(*command, environment=with_caches(cache)))


def _one_call(name: str, candidate: str) -> None:
    program = (PROGRAMS | EXTRAS)[name]
    torch.manual_seed(0)
    arguments = program.make(1, "cpu")
    start = time.perf_counter()
    with torch.no_grad():
        CANDIDATES[candidate](program.function)(*arguments)
    print(time.perf_counter() - start)


# ── the command line ──────────────────────────────────────────────────────────────────────────


def _mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _table(names: list[str], timed: Callable[[str], dict[str, Times]]) -> None:
    """Prints milliseconds and how often srcjit's time goes into the others'."""
    print(
        f"{'ms':>18} {'eager':>9} {'compile':>9} {'srcjit':>9}   "
        "compile/srcjit (processor)  eager/srcjit (processor)"
    )
    ratios: dict[tuple[str, str], list[float]] = {}
    for name in names:
        found = timed(name)
        cells = " ".join(f"{found[c].wall * 1e3:9.2f}" for c in CANDIDATES)
        last = ""
        for rival in ("torch.compile", "eager"):
            for which in ("wall", "processor"):
                ratio = getattr(found[rival], which) / getattr(found["srcjit"], which)
                ratios.setdefault((rival, which), []).append(ratio)
                last += f"{ratio:12.2f}"
        print(f"{name:>18} {cells}  {last}", flush=True)
    means = "".join(f"{_mean(values):12.2f}" for values in ratios.values())
    print(f"{'geometric mean':>18} {'':29}  {means}")
    for which in ("wall", "processor"):
        worst = min(zip(ratios["torch.compile", which], names, strict=True))
        print(f"least by {which} time: {worst[1]}, {worst[0]:.2f}")


def main() -> None:
    """Parses the command line and prints the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--first", action="store_true", help="time the first call")
    parser.add_argument(
        "--extras", action="store_true", help="programs beside the table"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one-call", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = PROGRAMS | EXTRAS
    unknown = set(options.programs) - set(known)
    if unknown:
        parser.error(f"unknown program {min(unknown)!r}; there are {', '.join(known)}")
    names = options.programs or list(EXTRAS if options.extras else PROGRAMS)
    if options.one_call:
        _one_call(names[0], options.one_call)
        return

    if options.first:
        for candidate in CANDIDATES:  # not timed: reads files, and writes bytecode
            first_call(names[0], candidate)

    def timed(name: str) -> dict[str, Times]:
        if options.first:
            firsts = {c: first_call(name, c) for c in CANDIDATES}
            return {c: Times(seconds, seconds) for c, seconds in firsts.items()}
        return measure(known[name], options.rounds)

    _table(names, timed)


if __name__ == "__main__":
    main()
