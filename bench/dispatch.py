"""Times what a call costs the host: small programs, where the work itself is next to nothing.

    python bench/dispatch.py                   all programs, µs a call
    python bench/dispatch.py greet layers      some of them
    python bench/dispatch.py --device cuda     on a GPU, with the modes that record graphs
    pytest bench/test_dispatch.py              the same under pytest-benchmark

The candidates take turns, a batch of calls each, so that a busy machine slows all of them alike.
A GPU is waited for between batches only: what is timed is how long the host is busy. Every
answer is compared with eager's before anything is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

Function = Callable[..., Any]


def wave(x: Tensor) -> Tensor:
    """Three pointwise operations."""
    return torch.sin(x) * 2 + 1


def gate(x: Tensor) -> Tensor:
    """A branch on data."""
    y = torch.sin(x) * 2
    if y.sum().item() > 0:
        y = y + 1
    return torch.cos(y)


def greet(x: Tensor) -> Tensor:
    """A print between two operations."""
    x = x.sin()
    print("hello")
    x = x.cos()
    return x


def scaled(x: Tensor, n: int = 2, *, bias: float = 0.5) -> Tensor:
    """Defaults and a keyword."""
    return x * n + bias


class Layers(nn.Module):
    """A multi-layer perceptron of 20 small layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Deep(nn.Module):
    """150 layers, so 300 parameters, of almost no work."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(150))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            x = x + layer.bias
        return x


class Block(nn.Module):
    """A feed-forward block of a transformer: a norm, two products, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(torch.sin(self.up(self.norm(x))) ** 2)
        return made


@dataclass(frozen=True)
class Program:
    """What is called, made anew for each candidate, and the size of its tensor."""

    make: Callable[[], Function]
    size: tuple[int, ...] = (1000,)
    keywords: tuple[tuple[str, float], ...] = ()


PROGRAMS = {
    "wave": Program(lambda: wave),
    "gate": Program(lambda: gate),
    "greet": Program(lambda: greet),
    "scaled": Program(lambda: scaled, keywords=(("bias", 1.5),)),
    "block": Program(Block, (8, 64)),
    "layers": Program(Layers, (8, 64)),
    "deep": Program(Deep, (1,)),
}


def _srcjit(mode: str | None = None) -> Callable[[Function], Function]:
    def compiled(function: Function) -> Function:
        import srcjit

        made: Function = srcjit.jit(function, mode=mode)
        return made

    return compiled


def _compile(mode: str | None = None) -> Callable[[Function], Function]:
    return lambda function: torch.compile(function, mode=mode)


CANDIDATES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda function: function,
    "torch.compile": _compile(),
    "srcjit": _srcjit(),
}
RECORDING = {
    "compile graphs": _compile("reduce-overhead"),
    "srcjit graphs": _srcjit("reduce-overhead"),
}
"""Those that record CUDA graphs."""


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Programs print into memory, which costs the same for all."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def prepare(program: Program, candidate: str, device: str = "cpu") -> Callable[[], Any]:
    """Compiles a program, checks its answer and returns a call of it."""
    torch.manual_seed(0)
    function = program.make()
    if isinstance(function, nn.Module):
        function = function.to(device)
    x = torch.randn(program.size, device=device)
    run = (CANDIDATES | RECORDING)[candidate](function)
    keywords = dict(program.keywords)
    with torch.no_grad(), silence():
        for _ in range(6):
            x.normal_()
            wanted = function(x, **keywords)
            torch.testing.assert_close(run(x, **keywords), wanted, rtol=1e-3, atol=1e-4)
    return lambda: run(x, **keywords)


def microseconds(
    calls: dict[str, Callable[[], Any]], rounds: int, device: str
) -> dict[str, float]:
    """Median µs of the host for a call of each candidate; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    batch = 50
    with torch.no_grad(), silence():
        for turn in range(rounds + 2):
            for name, call in calls.items():
                call()
                if device == "cuda":
                    torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(batch):
                    call()
                took = (time.perf_counter() - start) / batch * 1e6
                if turn >= 2:
                    times[name].append(took)
                if device == "cuda":
                    torch.cuda.synchronize()
    return {name: statistics.median(found) for name, found in times.items()}


def measure(
    name: str, rounds: int, device: str, without: tuple[str, ...] = ()
) -> dict[str, float]:
    """The medians of one program."""
    torch.compiler.reset()
    candidates = CANDIDATES if device == "cpu" else CANDIDATES | RECORDING
    calls = {
        c: prepare(PROGRAMS[name], c, device) for c in candidates if c not in without
    }
    return microseconds(calls, rounds, device)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--without", nargs="*", default=[], help="candidates to skip")
    parser.add_argument("--json", help="also write the medians to this file")
    options = parser.parse_args()
    unknown = set(options.programs) - set(PROGRAMS)
    if unknown:
        parser.error(
            f"unknown program {min(unknown)!r}; there are {', '.join(PROGRAMS)}"
        )
    logging.getLogger("torch").setLevel(logging.ERROR)
    found: dict[str, dict[str, float]] = {}
    for name in options.programs or PROGRAMS:
        row = measure(name, options.rounds, options.device, tuple(options.without))
        if not found:
            heads = "".join(f"{c:>16}" for c in row)
            print(f"{'µs a call':>10}{heads}   srcjit/eager   srcjit/compile")
        found[name] = row
        cells = "".join(f"{t:16.1f}" for t in row.values())
        ratios = "".join(
            f"{row['srcjit'] / row[rival]:15.2f}"
            for rival in ("eager", "torch.compile")
            if rival in row
        )
        print(f"{name:>10}{cells}{ratios}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
