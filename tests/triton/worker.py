"""Runs cases in Triton's interpreter: `python -m tests.triton.worker` prints a JSON line each.

With `--candidates` it runs each case under every other schedule that `max-autotune` may try.

The interpreter must be chosen before Triton is imported, so this is a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch

from srcjit.passes.candidates import triton_schedules
from srcjit.passes.loops import Kernel
from srcjit.passes.print_triton import TritonText, print_kernel
from srcjit.passes.print_triton_axes import merge_axes
from srcjit.passes.print_triton_schedule import Schedule
from srcjit.passes.print_triton_split import part_counts, split
from tests.backend.examples import Case
from tests.triton.cases import CASES
from tests.triton.running import difference, run


def tolerance(case: Case, dtype: torch.dtype) -> float:
    """What a case asks for, or a few units in the last place."""
    asked = getattr(case, "tolerance", None)
    return (
        {torch.bfloat16: 8e-3, torch.float16: 1e-3}.get(dtype, 1e-5)
        if asked is None
        else asked
    )


def candidates(kernel: Kernel) -> Iterator[TritonText]:
    """A kernel under every schedule but the usual one."""
    for count in part_counts(merge_axes(kernel)):
        parts, _ = split(merge_axes(kernel), count)
        for number in range(max(len(triton_schedules(part)) for part in parts)):

            def choose(part: Kernel, number: int = number) -> Schedule:
                plans = triton_schedules(part)
                return plans[min(number, len(plans) - 1)]

            yield print_kernel(kernel, choose=choose, part_count=count)


def report(name: str, printed: TritonText | None = None) -> None:
    """Runs a case and prints what is wrong."""
    torch.manual_seed(0)
    start = time.perf_counter()
    text = ""
    try:
        case = CASES[name]()
        if count := getattr(case, "part_count", None):
            printed = printed or print_kernel(case.kernel, part_count=count)
        text = run(case.kernel, case.arguments(), printed)
        problems = [
            f"{output}: {problem}"
            for output, expected in case.expected.items()
            if (
                problem := difference(
                    case.outputs[output], expected, tolerance(case, expected.dtype)
                )
            )
        ]
    except Exception:
        problems = [traceback.format_exc()]
    seconds = time.perf_counter() - start
    made = {"name": name, "problems": problems, "text": text, "seconds": seconds}
    print(json.dumps(made), flush=True)


def main(names: list[str]) -> None:
    """Runs the named cases, or all."""
    torch.set_num_threads(1)
    everything = "--candidates" in names
    for name in [n for n in names if not n.startswith("--")] or CASES:
        if not everything:
            report(name)
            continue
        for printed in candidates(CASES[name]().kernel):
            report(name, printed)


if __name__ == "__main__":
    main(sys.argv[1:])
