"""Times srcjit's Triton kernels on a GPU beside eager PyTorch and `torch.compile`.

    python -m bench.gpu                        everything, as a table
    python -m bench.gpu --only softmax,gelu    some workloads of `bench.gpu_workloads`
    python -m bench.gpu --workloads breadth    those of `bench.gpu_breadth`
    python -m bench.gpu --without compile      skip a competitor
    python -m bench.gpu --autotune             both compilers also with `mode="max-autotune"`
    python -m bench.gpu --columns              reductions over columns (`bench.gpu_columns`)
    python -m bench.gpu --first                first calls only, each compiler in a process
                                               of its own with empty caches
    python -m bench.gpu --variants             kernels under several schedules, side by side
    python -m bench.gpu --json FILE            also writes what `bench.plot` reads
    python -m bench.gpu --check                no GPU: run small sizes in Triton's interpreter

Every answer is checked against float64, on two draws of random arguments, with outputs whose
memory held NaN before. Times are medians of CUDA events around one call, competitors taking
turns, with the L2 cache flushed before each, and means of them over several draws that lie
elsewhere in memory; the floor is the bytes that the workload must move over the bandwidth of a
large copy, or the operations of its matrix products over the rate of a large product, both
measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

if "--check" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.gpu_answers import checked, outcomes, references, stepped
from bench.gpu_breadth import BREADTH
from bench.gpu_columns import COLUMNS
from bench.gpu_workloads import (
    BF16,
    MEGA,
    WORKLOADS,
    Arguments,
    Function,
    Workload,
    randn,
)

SETS = {"table": WORKLOADS, "breadth": BREADTH, "columns": COLUMNS}
ALL = WORKLOADS | BREADTH | COLUMNS

# --- competitors ----------------------------------------------------------------------------


def by_eager(workload: Workload) -> Function:
    """PyTorch as it is."""
    return workload.function


def by_library(workload: Workload) -> Function | None:
    """A library's function that does the same, if there is one."""
    return workload.rival


def by_jit(workload: Workload, mode: str | None = None) -> Function:
    """The whole of srcjit."""
    import srcjit

    jitted: Function = srcjit.jit(workload.function, mode=mode)
    return jitted


def by_compile(workload: Workload, mode: str | None = None) -> Function:
    """The rival."""
    torch._dynamo.reset()
    compiled: Function = torch.compile(workload.function, mode=mode, dynamic=False)
    return compiled


COMPETITORS: dict[str, Callable[[Workload], Function | None]] = {
    "eager": by_eager,
    "library": by_library,
    "compile": by_compile,
    "autotune": partial(by_compile, mode="max-autotune-no-cudagraphs"),
    "jit": by_jit,
    "jit autotune": partial(by_jit, mode="max-autotune"),
}
AUTOTUNED = ("autotune", "jit autotune")
OURS = ("jit", "jit autotune")


# --- measuring ------------------------------------------------------------------------------


PLACES = 4
"""Draws of the arguments that are timed: where tensors lie is worth 1 %."""

SLEEP = 500_000
"""Cycles that the device waits for the host before what is timed."""


def in_turn(names: list[str], turn: int) -> list[str]:
    """The order of a turn: each starts in its turn, forwards and then backwards.

    >>> [in_turn(["a", "b", "c"], turn) for turn in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['b', 'c', 'a']]
    """
    if not names:  # each has a problem, which the report names
        return []
    first = turn // 2 % len(names)
    turned = names[first:] + names[:first]
    return turned if turn % 2 == 0 else [turned[0], *reversed(turned[1:])]


class Clock:
    """Times calls by CUDA events."""

    def __init__(self) -> None:
        self.cache = torch.empty(256 * MEGA, dtype=torch.int8, device="cuda")

    def together(
        self,
        calls: Mapping[str, Callable[[], Any]],
        repeats: int = 30,
        ahead: int = 1,
    ) -> dict[str, float]:
        """Median milliseconds of each call with a cold L2 cache; the calls take turns.

        Each is first, last, and behind each other equally often: what came last in all turns
        took 0.4 % longer.

        Args:
            calls: What is timed.
            repeats: How often.
            ahead: How much longer than usual a call takes to be launched.
        """
        events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
        for turn in range(repeats + 3):
            for name in in_turn(list(calls), turn):
                call = calls[name]
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                # Until the device is through with this, the host has launched the rest.
                torch.cuda._sleep(SLEEP * ahead)
                self.cache.zero_()
                start.record()
                call()
                end.record()
                if turn >= 3:
                    events[name].append((start, end))
        torch.cuda.synchronize()
        return {
            name: statistics.median(start.elapsed_time(end) for start, end in pairs)
            for name, pairs in events.items()
        }

    def __call__(self, call: Callable[[], Any], repeats: int = 30) -> float:
        """Median milliseconds of one call with a cold L2 cache."""
        return self.together({"call": call}, repeats)["call"]


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
        x = randn(8192, 8192, dtype=BF16, device="cuda")
        y = randn(8192, 8192, dtype=BF16, device="cuda")
        product = clock(lambda: x @ y, 10)
        return Ceilings(2 * 2**30 / copy, 2 * 8192**3 / product)

    def floor(self, workload: Workload, args: Arguments) -> float:
        """The fewest milliseconds that a workload can take."""
        if workload.operations:
            return workload.operations / self.rate
        moved = sum(t.numel() * t.element_size() for t in args)
        function = stepped(workload.function) if workload.step else workload.function
        for out in outcomes(workload, function, args):
            moved += out.numel() * out.element_size()
        return moved / self.bandwidth


@contextmanager
def noting(row: dict[str, Any], competitor: str) -> Iterator[None]:
    """Keeps a competitor's failure as a result: the others go on."""
    try:
        yield
    except Exception as problem:
        text = f"{type(problem).__name__}: {str(problem)[:300]}"
        row[f"{competitor} problem"] = text


def run_workload(
    name: str,
    competitors: Sequence[str],
    clock: Clock,
    ceilings: Ceilings,
    repeats: int = 30,
) -> dict[str, Any]:
    """Checks and times one workload."""
    workload = ALL[name]
    row: dict[str, Any] = {"workload": name}
    calls: dict[str, Function] = {}
    for competitor in competitors:
        call = COMPETITORS[competitor](workload)
        if call is not None:
            calls[competitor] = stepped(call) if workload.step else call
    for seed in (0, 1):
        torch.manual_seed(seed)
        args = workload.make(1, "cuda")
        wanted = references(workload, args)
        for competitor, call in list(calls.items()):
            start = time.perf_counter()
            with noting(row, competitor):
                outcomes(workload, call, args)
                torch.cuda.synchronize()
                row.setdefault(f"{competitor} first call", time.perf_counter() - start)
                found = checked(workload, call, args, wanted)
                row[f"{competitor} error"] = found.relative
                row[f"{competitor} ulps"] = found.ulps
            if f"{competitor} problem" in row:
                del calls[competitor]
        del wanted
        torch.cuda.empty_cache()
    if workload.small:
        timed = {c: partial(call, *args) for c, call in calls.items()}
        return row | {c: host_microseconds(f) / 1e3 for c, f in timed.items()}
    row["floor"] = ceilings.floor(workload, args)
    ahead = 6 if workload.step or len(args) > 8 else 1
    medians: dict[str, list[float]] = {c: [] for c in calls}
    apart = []
    for place in range(PLACES):
        if place:
            del args
            # Memory that is kept in between moves what is allocated behind it.
            apart.append(
                torch.empty(place * 37 * MEGA, dtype=torch.int8, device="cuda")
            )
            args = workload.make(1, "cuda")
        timed = {c: partial(call, *args) for c, call in calls.items()}
        found_times = clock.together(timed, max(2, repeats // PLACES), ahead)
        for c, milliseconds in found_times.items():
            medians[c].append(milliseconds)
        timed.clear()
    return row | {c: statistics.mean(found) for c, found in medians.items()}


def run_overhead(competitors: Sequence[str]) -> dict[str, Any]:
    """Host time of a call of three operations on 1,000 elements."""

    def small(x: Tensor) -> Tensor:
        return torch.sin(x) * 2.0 + 1.0

    x = torch.randn(1000, device="cuda")
    row: dict[str, Any] = {"workload": "host overhead (µs)"}
    for competitor in competitors:
        call = COMPETITORS[competitor](Workload(small, lambda s, d: (x,)))
        if call is not None:
            torch.testing.assert_close(call(x), small(x))
            row[competitor] = host_microseconds(partial(call, x))
    return row


def table(rows: Sequence[dict[str, Any]], competitors: Sequence[str]) -> str:
    """The results as text: milliseconds, ratio to the floor; srcjit's to the best rival."""
    lines = [
        f"{'workload':<20}{'floor':>9}"
        + "".join(f"{c:>17}" for c in competitors)
        + f"{'jit/rival':>11}{'error':>10}{'ulps':>7}"
    ]
    for row in rows:
        floor = row.get("floor")
        cells = []
        for c in competitors:
            if c not in row:
                cells.append(f"{'-':>17}")
                continue
            ratio = f" x{row[c] / floor:5.2f}" if floor else ""
            cells.append(f"{row[c]:7.4f}{ratio}".rjust(17))
        line = f"{row['workload']:<20}{floor if floor else 0:>9.4f}" + "".join(cells)
        rivals = [row[c] for c in competitors if c in row and c not in (*OURS, "eager")]
        if rivals and "jit" in row:
            line += f"{row['jit'] / min(rivals):>11.3f}"
            line += f"{row.get('jit error', 0):>10.1e}{row.get('jit ulps', 0):>7.1f}"
        lines.append(line)
    for row in rows:
        for key, value in row.items():
            if key.endswith("problem"):
                lines.append(f"{row['workload']}: {key}: {value}")
    for c in competitors:
        firsts = {r["workload"]: r.get(f"{c} first call") for r in rows}
        listed = ", ".join(f"{w} {s:.2f}" for w, s in firsts.items() if s is not None)
        lines.append(f"first call of {c} (s): {listed}")
    return "\n".join(lines)


def write_json(file: str, ceilings: Ceilings, rows: Sequence[dict[str, Any]]) -> None:
    """Writes what was measured, and on what."""
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy TB/s": ceilings.bandwidth / 1e9,
        "product TFLOP/s": ceilings.rate / 1e9,
    }
    with open(file, "w") as out:
        json.dump({**about, "rows": list(rows)}, out, indent=1)


# --- without a GPU --------------------------------------------------------------------------


def check(names: Sequence[str]) -> None:
    """Runs every workload at small sizes in Triton's interpreter."""
    import srcjit

    for name in names:
        workload = ALL[name]
        torch.manual_seed(0)
        args = workload.make(64, "cpu")
        call: Function = srcjit.jit(
            workload.function, fullgraph=True, options={"target": "triton"}
        )
        call = stepped(call) if workload.step else call
        found = checked(workload, call, args, references(workload, args))
        print(f"{name:<18} error {found.relative:.1e}, {found.ulps:.1f} ulps")


def main() -> None:
    """Parses the command line and prints the results."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--workloads", choices=SETS, default="table")
    parser.add_argument(
        "--columns", dest="workloads", action="store_const", const="columns"
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--without", default="")
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--first-of", help=argparse.SUPPRESS)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SETS[options.workloads])
    torch.set_grad_enabled(False)
    if options.check:
        check(names)
        return
    if not torch.cuda.is_available():
        parser.error("there is no GPU here; --check needs none")
    without = options.without.split(",")
    if not options.autotune:
        without += AUTOTUNED
    competitors = [c for c in COMPETITORS if c not in without]
    if options.first_of or options.first:
        from bench.gpu_first import FIRST, first_calls, first_table
    if options.first_of:
        print(json.dumps(first_calls(options.first_of, names)))
        return
    if options.first:
        print(first_table([c for c in competitors if c in FIRST], ",".join(names)))
        return
    clock = Clock()
    ceilings = Ceilings.measure(clock)
    print(
        f"{torch.cuda.get_device_name()}: copy {ceilings.bandwidth / 1e9:.2f} TB/s, "
        f"bf16 product {ceilings.rate / 1e9:.0f} TFLOP/s",
        flush=True,
    )
    if options.variants:
        from bench.gpu_variants import run_variants

        run_variants(clock, ceilings, names)
        return
    rows = [run_overhead(competitors)]
    for name in names:
        start = time.perf_counter()
        rows.append(run_workload(name, competitors, clock, ceilings, options.repeats))
        print(f"{name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
        if options.json:  # after each, so that a run that is cut off leaves what it has
            write_json(options.json, ceilings, rows)
    print(table(rows, competitors))


if __name__ == "__main__":
    main()
