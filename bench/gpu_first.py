"""Times first calls on a GPU: each compiler in a new process, with empty caches of its own.

`python -m bench.gpu --first` runs it. A trivial function goes first, so that what is imported
and started once stands on a line of its own; then each workload of `bench.gpu_workloads` is
called once, at the size at which it is timed, and its answer is compared with eager's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import torch
from torch import Tensor

if __name__ == "__main__":
    sys.exit("this is a part of bench/gpu.py: `python bench/gpu.py --first` runs it")

from bench.fresh import last_line, with_bytecode, with_caches
from bench.gpu import COMPETITORS
from bench.gpu_answers import errors, outcomes
from bench.gpu_workloads import WORKLOADS, Workload

READS = """
import torch, torch._inductor.compile_fx
from srcjit import ready
ready.load_compiler()
x = torch.randn(1, 1, 128, 64, device="cuda").bfloat16()
torch.nn.functional.scaled_dot_product_attention(x, x, x)
torch.ops.aten._scaled_dot_product_cudnn_attention.default(x, x, x, None, False)
"""
"""Reads what all read, so that the first compiler is not the one to wait for the disk, and
leaves the bytecode of all modules, which pip makes of those that it installs."""

FIRST = ("compile", "autotune", "jit", "jit autotune")
"""Competitors that compile."""


def first_calls(competitor: str, names: Sequence[str]) -> dict[str, float]:
    """Seconds of the first call of each workload in this process, checked against eager."""
    x = torch.randn(1000, device="cuda")
    start = time.perf_counter()
    warm = COMPETITORS[competitor](Workload(lambda x: x + 1, lambda s, d: (x,)))
    assert warm is not None
    torch.testing.assert_close(warm(x), x + 1)
    torch.cuda.synchronize()
    found = {"(imports, x + 1)": time.perf_counter() - start}
    for name in names:
        workload = WORKLOADS[name]
        torch.manual_seed(0)
        args = workload.make(1, "cuda")
        wanted = outcomes(workload, workload.function, args)
        # Eager's own first call loads libraries; those who come later find them loaded.
        own = tuple(
            a.clone() if n in workload.mutates else a for n, a in enumerate(args)
        )
        torch.cuda.synchronize()
        start = time.perf_counter()
        call = COMPETITORS[competitor](workload)
        assert call is not None
        result = call(*own)
        torch.cuda.synchronize()
        found[name] = time.perf_counter() - start
        changed = tuple(own[n] for n in workload.mutates)
        results = (result, *changed) if isinstance(result, Tensor) else changed
        far = errors(results, [w.double() for w in wanted]).relative
        assert far <= 3 * workload.tolerance, f"{name} of {competitor}: {far:.1e}"
        del args, own, wanted, result, results, changed
        torch.cuda.empty_cache()
    return found


def first_table(competitors: Sequence[str], only: str) -> str:
    """First calls of competitors, each in a new process with caches of its own."""
    found: dict[str, dict[str, float]] = {}
    # Where cuDNN has no attention, there is nothing more to read.
    subprocess.run([sys.executable, "-c", READS], env=with_bytecode(), check=False)
    for competitor in competitors:
        with tempfile.TemporaryDirectory() as cache:
            command = ("-m", "bench.gpu", "--first-of", competitor, "--only", only)
            said = last_line(*command, environment=with_caches(cache), quiet=False)
        found[competitor] = json.loads(said)
    heads = "".join(f"{c:>14}" for c in competitors)
    lines = [f"{'first call, s':<20}{heads}{'compile / jit':>15}"]
    ratios = []
    for name in next(iter(found.values())):
        cells = "".join(f"{found[c][name]:>14.2f}" for c in competitors)
        line = f"{name:<20}{cells}"
        if {"compile", "jit"} <= set(competitors):
            ratio = found["compile"][name] / found["jit"][name]
            line += f"{ratio:>15.1f}"
            if not name.startswith("("):
                ratios.append(ratio)
        lines.append(line)
    if ratios:
        mean = statistics.geometric_mean(ratios)
        lines.append(f"geometric mean {mean:.1f}, least {min(ratios):.1f}")
    return "\n".join(lines)
