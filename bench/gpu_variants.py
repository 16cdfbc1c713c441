"""Times kernels under other block sizes and warp counts (`python -m bench.gpu --variants`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bench.gpu import ALL, Ceilings, Clock, noting
from bench.gpu_answers import outcomes
from bench.gpu_workloads import Function


def run_variants(clock: Clock, ceilings: Ceilings, names: Sequence[str]) -> None:
    """Times each workload under other block sizes and warp counts."""
    import srcjit
    from srcjit.passes import print_triton
    from srcjit.passes.loops import Kernel
    from srcjit.passes.print_triton_schedule import Schedule, schedule

    def trial(warps: float, blocks: float) -> Callable[[Kernel], Schedule]:
        def choose(kernel: Kernel) -> Schedule:
            plan = schedule(kernel)
            count = max(1, min(32, int(plan.num_warps * warps)))
            scaled = plan.groups[0 if kernel.inner and not plan.looped else -1]
            block = max(1, int(scaled.block * blocks))
            groups = tuple(
                replace(g, block=block) if g is scaled else g for g in plan.groups
            )
            return replace(plan, groups=groups, num_warps=count)

        return choose

    defaults: dict[str, Any] = print_triton.print_kernel.__kwdefaults__  # type: ignore[assignment]
    for name in names:
        workload = ALL[name]
        torch.manual_seed(0)
        args = workload.make(1, "cuda")
        calls: dict[str, Callable[[], Any]] = {}
        row: dict[str, Any] = {}
        for warps in (0.5, 1, 2, 4):
            for blocks in (0.5, 1, 2):
                defaults["choose"] = trial(warps, blocks)
                srcjit.reset()
                call: Function = srcjit.jit(workload.function)
                with noting(row, f"w{warps} b{blocks}"):
                    outcomes(workload, call, args)
                    calls[f"w{warps} b{blocks}"] = partial(call, *args)
        defaults["choose"] = schedule
        floor = ceilings.floor(workload, args)
        times = clock.together(calls, repeats=10)
        cells = [f"{c} {t / floor:.3f}" for c, t in times.items()]
        print(f"{name:<14} floor {floor:.4f}: " + "; ".join(cells), *row.items())
