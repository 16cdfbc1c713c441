"""Times calls with large results on the CPU by the pages that the results are written to.

    python -m bench.huge_pages                  softmax, gelu, whiten and transpose_add
    python -m bench.huge_pages softmax --blocks 16

The programs are those of `bench.kernels`. Calls come in blocks of fifteen, each call behind one of
`torch.compile`'s program, and before a block the process sleeps long enough for the system to
give free memory back where it does so. The choices take turns, block by block: *small* pages,
*huge* ones at any price, and the *product's*: huge ones while they are fast
(`srcjit.runtime.cpp.SLOW`). The processor time of all threads is printed, because a busy machine
does not change it much: its median, mean and maximum, and that of wall time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.kernels import PROGRAMS, prepare
from srcjit.runtime import cpp

CHOICES = {
    "small": (1 << 62, cpp.SLOW),
    "product": (cpp.LARGE, cpp.SLOW),
    "huge": (cpp.LARGE, 10**12),
}
"""Name -> `LARGE` and `SLOW` of `srcjit.runtime.cpp`."""

ROUNDS, PAUSE = 15, 2.2


def _seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Processor time and wall time."""
    start, used = time.perf_counter(), time.process_time()
    call()
    return time.process_time() - used, time.perf_counter() - start


def measure(name: str, blocks: int) -> dict[str, list[tuple[float, float]]]:
    """Times `blocks` blocks with each choice of pages."""
    own, other = (prepare(PROGRAMS[name], c) for c in ("srcjit", "torch.compile"))
    found: dict[str, list[tuple[float, float]]] = {choice: [] for choice in CHOICES}
    order = list(CHOICES)
    for _ in range(blocks):
        order.append(order.pop(0))
        for choice in order:
            cpp.LARGE, cpp.SLOW = CHOICES[choice]
            time.sleep(PAUSE)
            for _ in range(ROUNDS):
                other()
                found[choice].append(_seconds(own))
    return found


def main() -> None:
    """Parses the command line and prints milliseconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--blocks", type=int, default=8)
    options = parser.parse_args()
    if unknown := set(options.programs) - set(PROGRAMS):
        parser.error(
            f"unknown program {min(unknown)!r}; there are {', '.join(PROGRAMS)}"
        )
    print(f"{'ms: median, mean, maximum':>34} {'processor':>14} {'wall':>24}")
    for name in options.programs or ["softmax", "gelu", "whiten", "transpose_add"]:
        for choice, times in measure(name, options.blocks).items():
            cells = [
                f"{statistics.median(t) * 1e3:8.2f}{statistics.fmean(t) * 1e3:8.2f}"
                f"{max(t) * 1e3:8.2f}"
                for t in zip(*times, strict=True)
            ]
            print(f"{name:>16} {choice:>8} {cells[0]} {cells[1]}", flush=True)


if __name__ == "__main__":
    main()
