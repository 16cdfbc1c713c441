"""Times calls with large results on the CPU by where the results' memory comes from.

    python -m bench.large_memory                 transpose_add, softmax, whiten and rotary
    python -m bench.large_memory gelu --rounds 31
    python -m bench.large_memory --kept-malloc   the C library gives nothing back: no pages to map
    python -m bench.large_memory --peak          resident memory, each candidate in a process

The programs are those of `bench.kernels`. Eager PyTorch, `torch.compile`, srcjit and srcjit with
the C library's memory (*malloc*) take turns in one process, call by call, in each of four uses:
results are *dropped* at once; the last *two* are alive; three *sizes* alternate (a call of each
is timed); two *threads* call. The processor time of all threads is printed, which a busy machine
does not change much, and wall time: medians, and their ratios to srcjit's.

`--peak` runs 30 calls of which the last two are alive and prints how far resident memory rose
above what it was before, at most and after the last result died; in brackets, how much of
that the system may take at any time.
"""

from __future__ import annotations

import argparse
import collections
import functools
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import last_line
from bench.kernels import CANDIDATES, PROGRAMS, prepare
from srcjit.runtime import large_memory

Call = Callable[[], Any]

KEPT_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "8000000000"}
"""With these the C library takes memory from the system once, and gives none back."""

NAMES = (*CANDIDATES, "malloc")


def _prepared(name: str, rows: int = 1) -> dict[str, Call]:
    """Calls of a program by candidate; with first dimensions divided by `rows`."""
    program = PROGRAMS[name]
    make = program.make

    def fewer(shrink: int, device: str) -> Any:
        return tuple(
            a[: len(a) // rows].contiguous() if a.dim() > 1 and len(a) >= 1024 else a
            for a in make(shrink, device)
        )

    if rows > 1:
        program = replace(program, make=fewer)
    calls = {c: prepare(program, c) for c in CANDIDATES}
    return {**calls, "malloc": functools.partial(_with_malloc, calls["srcjit"])}


def _with_malloc(call: Call) -> Any:
    with large_memory.c_librarys():
        return call()


def _in_turn(calls: list[Call]) -> Call:
    def all_of_them() -> None:
        for call in calls:
            call()

    return all_of_them


def _keeping(call: Call) -> Call:
    kept: collections.deque[Any] = collections.deque(maxlen=2)
    return lambda: kept.append(call())


def _in_threads(call: Call) -> Call:
    def both() -> None:
        other = threading.Thread(target=call)
        other.start()
        call()
        other.join()

    return both


def uses(name: str) -> Iterator[tuple[str, dict[str, Call]]]:
    """The four uses: for each its name and a call by candidate."""
    whole = _prepared(name)
    yield "dropped", whole
    yield "two", {c: _keeping(call) for c, call in whole.items()}
    if name == "softmax":  # the others have arguments that go with the first dimension
        parts = [whole, _prepared(name, 2), _prepared(name, 4)]
        yield "sizes", {c: _in_turn([p[c] for p in parts]) for c in NAMES}
    # What it sets is the process's.
    yield "threads", {c: _in_threads(whole[c]) for c in CANDIDATES}


def measure(calls: dict[str, Call], rounds: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds of the processor and of wall time."""
    times: dict[str, list[tuple[float, float]]] = {c: [] for c in calls}
    order = list(calls)
    for _ in range(rounds):
        order.append(order.pop(0))
        for name in order:
            start, used = time.perf_counter(), time.process_time()
            calls[name]()
            used, start = time.process_time() - used, time.perf_counter() - start
            times[name].append((used * 1e3, start * 1e3))
    return {
        name: (statistics.median(u for u, _ in t), statistics.median(w for _, w in t))
        for name, t in times.items()
    }


# ── resident memory ───────────────────────────────────────────────────────────────────────


def _status(name: str) -> float:
    """A figure of this process's, in MiB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _lazily_free() -> float:
    text = Path("/proc/self/smaps").read_text()
    return sum(map(int, re.findall(r"LazyFree: +(\d+) kB", text))) / 1024


def peak(name: str, candidate: str) -> str:
    """MiB above what it was: the peak, and what is left, of it the system's to take."""
    call = prepare(PROGRAMS[name], candidate)
    large_memory.give_back()
    keeping = _keeping(call)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is
    for _ in range(30):
        keeping()
    highest = _status("VmHWM")
    del keeping
    left = _status("VmRSS")
    return f"{highest - before:8.1f}{left - before:8.1f} ({_lazily_free():.1f})"


def _peaks(names: list[str]) -> None:
    print(f"{'MiB above before':>18}: peak, left, of it the system's to take")
    for name in names:
        for candidate in CANDIDATES:
            command = ("-m", "bench.large_memory", name, "--one-peak", candidate)
            print(f"{name:>18} {candidate:>14} {last_line(*command)}", flush=True)


# ── the command line ──────────────────────────────────────────────────────────────────────


def main() -> None:
    """Parses the command line and prints milliseconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--kept-malloc", action="store_true")
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--one-peak", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.programs) - set(PROGRAMS):
        parser.error(
            f"unknown program {min(unknown)!r}; there are {', '.join(PROGRAMS)}"
        )
    if options.kept_malloc and "MALLOC_MMAP_MAX_" not in os.environ:
        command = [sys.executable, "-m", "bench.large_memory", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | KEPT_MALLOC)
    names = options.programs or ["transpose_add", "softmax", "whiten", "rotary"]
    if options.one_peak:
        print(peak(names[0], options.one_peak))
        return
    if options.peak:
        _peaks(names)
        return
    large_memory.loaded(wait=True)
    print("processor ms, in brackets wall ms; how often srcjit's goes into it")
    print(
        f"{'':>24} {'srcjit':>16}" + "".join(f"{c:>28}" for c in NAMES if c != "srcjit")
    )
    for name in names:
        for use, calls in uses(name):
            found = measure(calls, options.rounds)
            own = found.pop("srcjit")
            cells = "".join(
                f"{used:9.2f} ({wall:6.2f}) {used / own[0]:4.2f} ({wall / own[1]:4.2f})"
                for used, wall in found.values()
            )
            print(
                f"{name:>15} {use:>8} {own[0]:7.2f} ({own[1]:6.2f}) {cells}", flush=True
            )


if __name__ == "__main__":
    main()
