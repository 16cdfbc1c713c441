"""Times the first call of a program in a new process, with empty and with filled caches.

    python bench/compile_time.py                   all programs: seconds
    python bench/compile_time.py block gate        some of them
    python bench/compile_time.py --device cuda     on a GPU, `max-autotune` among the rivals
    pytest bench/test_compile_time.py              the same under pytest-benchmark

Each figure is the median of processes that do nothing else: PyTorch is imported and the GPU
started before the clock runs; the compiler's own imports, the compilation and the call itself
count. *Cold* has a cache directory of its own, *warm* one that such a process has filled. The
processes take turns, and each answer is compared with eager's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(ROOT)

from bench.dispatch import Block, Layers, gate, greet, wave  # noqa: E402
from bench.fresh import last_line, with_caches  # noqa: E402

Function = Callable[..., Any]


def softmax(x: Tensor) -> Tensor:
    """Softmax of the rows."""
    return torch.softmax(x, -1)


def cross_entropy(x: Tensor) -> Tensor:
    """A loss written out: the first element of each row is its target."""
    return -torch.log_softmax(x, -1)[:, 0].mean()


class Transformer(nn.Module):
    """Four layers of attention and feed-forward, written out."""

    def __init__(self, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.inner = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width))
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            q, k, v = self.inner[i](self.norms[2 * i](x)).chunk(3, -1)
            weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
            x = x + self.outer[i](weights @ v)
            x = x + block(self.norms[2 * i + 1](x))
        return x


@dataclass(frozen=True)
class Program:
    """What is called, and the size of its tensor."""

    make: Callable[[], Function]
    size: tuple[int, ...]
    training: bool = False


PROGRAMS = {
    "wave": Program(lambda: wave, (1000,)),
    "gate": Program(lambda: gate, (1000,)),
    "greet": Program(lambda: greet, (1000,)),
    "softmax": Program(lambda: softmax, (256, 1024)),
    "cross_entropy": Program(lambda: cross_entropy, (256, 1024)),
    "block": Program(Block, (8, 64)),
    "block, training": Program(Block, (8, 64), training=True),
    "layers": Program(Layers, (8, 64)),
    "transformer": Program(Transformer, (2, 32, 64)),
}


def _srcjit(function: Function) -> Function:
    import srcjit

    made: Function = srcjit.jit(function)
    return made


CANDIDATES: dict[str, Callable[[Function], Function]] = {
    "torch.compile": lambda function: torch.compile(function),
    "srcjit": _srcjit,
}
ON_GPU = {
    "max-autotune": lambda function: torch.compile(
        function, mode="max-autotune-no-cudagraphs"
    )
}


def candidates(device: str) -> dict[str, Callable[[Function], Function]]:
    """Those that are compared on a device."""
    return CANDIDATES if device == "cpu" else ON_GPU | CANDIDATES


def in_this_process(name: str, candidate: str, device: str) -> float:
    """Seconds of the first call here; checks the answer afterwards."""
    torch.manual_seed(0)
    program = PROGRAMS[name]
    function = program.make()
    if isinstance(function, nn.Module):
        function = function.to(device)
    x = torch.randn(program.size, device=device, requires_grad=program.training)
    compiled = candidates(device)[candidate]
    with torch.set_grad_enabled(program.training):
        start = time.perf_counter()
        result = compiled(function)(x)
        if program.training:
            result.sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        torch.testing.assert_close(result, function(x), rtol=1e-3, atol=1e-4)
    return took


def first_call(name: str, candidate: str, device: str, cache: str) -> float:
    """Seconds of the first call in a new process with its caches in one folder."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**with_caches(cache), "PYTHONPATH": path}
    command = (__file__, name, "--device", device, "--one-call", candidate)
    return float(last_line(*command, environment=environment))


def measure(name: str, device: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds with empty and with filled caches, for each candidate."""
    found: dict[str, list[tuple[float, float]]] = {c: [] for c in candidates(device)}
    for _ in range(rounds):
        for candidate, times in found.items():
            with tempfile.TemporaryDirectory() as cache:
                cold = first_call(name, candidate, device, cache)
                warm = first_call(name, candidate, device, cache)
            times.append((cold, warm))
    return {
        candidate: (
            statistics.median(cold for cold, _ in times),
            statistics.median(warm for _, warm in times),
        )
        for candidate, times in found.items()
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one-call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.programs) - set(PROGRAMS)
    if unknown:
        parser.error(
            f"unknown program {min(unknown)!r}; there are {', '.join(PROGRAMS)}"
        )
    if options.one_call:
        (name,) = options.programs
        print(in_this_process(name, options.one_call, options.device))
        return
    names = list(candidates(options.device))
    heads = "".join(f"{n:>15}" for n in names)
    print(f"{'s, cold':>17}{heads}{'ratio':>8}   warm:{heads}{'ratio':>8}")
    logs: list[float] = []
    for name in options.programs or PROGRAMS:
        found = measure(name, options.device, options.rounds)
        line = f"{name:>17}"
        for phase in (0, 1):
            ratio = found["torch.compile"][phase] / found["srcjit"][phase]
            line += "".join(f"{found[n][phase]:15.2f}" for n in names)
            line += f"{ratio:8.1f}" + (" " * 8 if phase == 0 else "")
            if phase == 0:
                logs.append(ratio)
        print(line, flush=True)
    print(f"geometric mean of cold ratios: {statistics.geometric_mean(logs):.1f}")


if __name__ == "__main__":
    main()
