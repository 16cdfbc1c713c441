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
turns, with the L2 cache flushed before each; the floor is the bytes that the workload must move
over the bandwidth of a large copy, or the operations of its matrix products over the rate of a
large product, both measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

if "--check" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.gpu_breadth import BREADTH
from bench.gpu_columns import COLUMNS
from bench.gpu_workloads import (
    BF16,
    F32,
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


# --- checking -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """How far results are from float64.

    Attributes:
        relative: The largest ||out - ref|| / ||ref||.
        ulps: The largest distance of an element, in units in the last place of the larger of
            itself and the root mean square of all.
    """

    relative: float
    ulps: float


def errors(results: Sequence[Tensor], references: Sequence[Tensor]) -> Errors:
    """The worst errors of several results; NaN never passes."""
    relative = ulps = 0.0
    for out, reference in zip(results, references, strict=True):
        wide = out.double()
        reference = reference.double()
        if not out.dtype.is_floating_point:
            # What is rounded may be one off.
            off = float(((wide - reference).abs() > 1).double().mean())
            relative = max(relative, off)
            continue
        size = reference.norm().clamp_min(1e-300)
        distance = float((wide - reference).norm() / size)
        relative = max(relative, distance) if distance == distance else float("nan")
        unit = torch.finfo(out.dtype).eps
        scale = reference.abs().clamp_min(float(size) / reference.numel() ** 0.5)
        exponent = torch.frexp(scale).exponent
        step = torch.ldexp(torch.full_like(scale, unit / 2), exponent)
        ulps = max(ulps, float(((wide - reference).abs() / step).max()))
        del wide, scale, exponent, step
    return Errors(relative, ulps)


def outcomes(
    workload: Workload, function: Function, args: Arguments
) -> tuple[Tensor, ...]:
    """What a call computes: its result, and the arguments that it changes."""
    own = tuple(a.clone() if n in workload.mutates else a for n, a in enumerate(args))
    result = function(*own)
    changed = tuple(own[n] for n in workload.mutates)
    if isinstance(result, tuple):
        return (*result, *changed)
    return (result, *changed) if isinstance(result, Tensor) else changed


def stepped(function: Function) -> Function:
    """A function of its arguments and its result's gradient that gives all gradients."""

    def step(*args: Tensor) -> tuple[Tensor, ...]:
        *given, gradient = args
        with torch.enable_grad():
            leaves = [a.detach().requires_grad_(a.is_floating_point()) for a in given]
            result = function(*leaves)
            wanted = [a for a in leaves if a.requires_grad]
            return (result.detach(), *torch.autograd.grad(result, wanted, gradient))

    return step


def references(workload: Workload, args: Arguments) -> tuple[Tensor, ...]:
    """The outcomes in float64."""
    wide = tuple(a.double() if a.is_floating_point() else a for a in args)
    function = stepped(workload.function) if workload.step else workload.function
    return outcomes(workload, function, wide)


def poison(like: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Leaves NaN in the memory that the next tensors of these sizes will get."""
    nan = float("nan")
    held = [torch.full_like(t, nan, dtype=dtype) for t in like for _ in range(3)]
    del held


def checked(
    workload: Workload, call: Function, args: Arguments, wanted: Sequence[Tensor]
) -> Errors:
    """Calls once and compares.

    Raises:
        AssertionError: If the result is further off than the workload allows.
    """
    poison(wanted, args[0].dtype if args[0].is_floating_point() else F32)
    found = errors(outcomes(workload, call, args), wanted)
    if not found.relative <= workload.tolerance:
        raise AssertionError(
            f"relative error {found.relative:.2e} > {workload.tolerance:.0e}"
        )
    return found


# --- measuring ------------------------------------------------------------------------------


SLEEP = 500_000
"""Cycles that the device waits for the host before what is timed."""


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

        Each turn has an order of its own: what came last in all turns took 0.4 % longer.

        Args:
            calls: What is timed.
            repeats: How often.
            ahead: How much longer than usual a call takes to be launched.
        """
        events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
        for turn in range(repeats + 3):
            names = list(calls)
            random.Random(turn).shuffle(names)
            for name in names:
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
    timed = {c: partial(call, *args) for c, call in calls.items()}
    if workload.small:
        return row | {c: host_microseconds(f) / 1e3 for c, f in timed.items()}
    row["floor"] = ceilings.floor(workload, args)
    ahead = 6 if workload.step or len(args) > 8 else 1
    return row | clock.together(timed, repeats, ahead)


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


# --- variants -------------------------------------------------------------------------------


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
