"""Times CPU kernels beside eager PyTorch and `torch.compile`.

    python bench/kernels.py                    all programs: medians and ratios
    python bench/kernels.py softmax gelu       some of them
    python bench/kernels.py --first            the first call instead: new process, cold caches
    pytest bench/test_kernels.py               the same programs under pytest-benchmark

The candidates take turns, call by call, so that a busy machine slows all of them alike. Every
answer is compared with eager's in float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

Function = Callable[..., torch.Tensor]
ROWS, COLUMNS = 2048, 4096


def pointwise_chain(x: torch.Tensor) -> torch.Tensor:
    """Ten elementwise operations."""
    y = torch.sin(x) * 2 + 1
    y = torch.tanh(y) * x
    y = torch.exp(-y * y) + x
    return torch.relu(torch.sigmoid(y))


def rms_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The norm of a transformer's feed-forward layer."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale


def tanh_gelu(h: torch.Tensor) -> torch.Tensor:
    """The activation of a transformer's feed-forward layer."""
    c = (2 / torch.pi) ** 0.5
    return 0.5 * h * (1 + torch.tanh(c * (h + 0.044715 * h**3)))


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of the rows."""
    return torch.softmax(x, -1)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Layer norm of the rows with weight and bias."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def column_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum over the first dimension."""
    return x.sum(0)


def full_mean(x: torch.Tensor) -> torch.Tensor:
    """Mean of everything."""
    return x.mean()


def transpose_add(x: torch.Tensor) -> torch.Tensor:
    """A transposed copy of half the columns, plus one."""
    return (x[:, :2048].t() + 1).contiguous()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention written out, 2 x 4 heads of 512 x 64."""
    return torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1) @ v


@dataclass(frozen=True)
class Program:
    """A function and how many vectors it takes besides the matrix.

    Attributes:
        function: The function.
        vectors: How many there are.
        sizes: Sizes of the arguments, where these are others.
    """

    function: Function
    vectors: int = 0
    sizes: tuple[tuple[int, ...], ...] = ()

    def arguments(self) -> tuple[torch.Tensor, ...]:
        """A 2048 x 4096 float32 matrix and vectors as long as its rows."""
        torch.manual_seed(0)
        if self.sizes:
            return tuple(torch.randn(s) for s in self.sizes)
        return (
            torch.randn(ROWS, COLUMNS),
            *(torch.randn(COLUMNS) for _ in range(self.vectors)),
        )


PROGRAMS = {
    "pointwise_chain": Program(pointwise_chain),
    "rms_norm": Program(rms_norm, 1),
    "tanh_gelu": Program(tanh_gelu),
    "softmax": Program(softmax),
    "layer_norm": Program(layer_norm, 2),
    "column_sum": Program(column_sum),
    "full_mean": Program(full_mean),
    "transpose_add": Program(transpose_add),
    "attention": Program(attention, sizes=((2, 4, 512, 64),) * 3),
}


def _srcjit(function: Function) -> Function:
    import srcjit

    compiled: Function = srcjit.jit(function)
    return compiled


CANDIDATES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda function: function,
    "torch.compile": lambda function: torch.compile(function),
    "srcjit": _srcjit,
}


def prepare(program: Program, candidate: str) -> Callable[[], torch.Tensor]:
    """Compiles a program, checks its answer and returns a call of it."""
    arguments = program.arguments()
    run = CANDIDATES[candidate](program.function)
    with torch.no_grad():
        exact = program.function(*(a.double() for a in arguments)).float()
        torch.testing.assert_close(run(*arguments), exact, rtol=1e-4, atol=1e-3)

    def call() -> torch.Tensor:
        with torch.no_grad():
            return run(*arguments)

    return call


def medians(program: Program, rounds: int) -> dict[str, float]:
    """Median seconds of each candidate; they take turns."""
    calls = {name: prepare(program, name) for name in CANDIDATES}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def first_call(name: str, candidate: str) -> float:
    """Seconds of the first call in a new process with empty caches."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "SRCJIT_CACHE_DIR": f"{cache}/srcjit",
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        }
        command = [sys.executable, __file__, name, "--one-call", candidate]
        done = subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        )
    return float(done.stdout.split()[-1])


def _one_call(name: str, candidate: str) -> None:
    program = PROGRAMS[name]
    arguments = program.arguments()
    start = time.perf_counter()
    with torch.no_grad():
        CANDIDATES[candidate](program.function)(*arguments)
    print(time.perf_counter() - start)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--first", action="store_true", help="time the first call")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one-call", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.programs) - set(PROGRAMS)
    if unknown:
        parser.error(
            f"unknown program {min(unknown)!r}; there are {', '.join(PROGRAMS)}"
        )
    names = options.programs or list(PROGRAMS)
    if options.one_call:
        _one_call(names[0], options.one_call)
        return
    print(f"{'ms':>18} {'eager':>9} {'compile':>9} {'srcjit':>9}   compile/srcjit")
    for name in names:
        if options.first:
            found = {c: first_call(name, c) for c in CANDIDATES}
        else:
            found = medians(PROGRAMS[name], options.rounds)
        cells = " ".join(f"{found[c] * 1e3:9.2f}" for c in CANDIDATES)
        print(
            f"{name:>18} {cells} {found['torch.compile'] / found['srcjit']:12.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
