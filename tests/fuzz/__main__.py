"""`python -m tests.fuzz --minutes 10 --jobs 2`: random programs until the time is over.

A program that fails is made as small as possible and saved under `--out`, as a file that
says what was wrong and runs the program again: `PYTHONPATH=. python FILE`, or
`python -m tests.fuzz --replay FILE`. A seed gives the same program again:
`--seed N --count 1`.

With `--inject NAME` the compiler has a fault (see `tests.fuzz.inject`), and the run ends as
soon as it is found; with `--inject all` each fault has a run of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
import warnings
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from . import inject, judging

RENEW = 1500
"""Programs after which a worker process makes way for a new one."""


def work(given: argparse.Namespace, first: int, step: int, out: Connection) -> None:
    """Runs every `step`-th program from the seed `first` on, and reports each.

    What is sent: the seed and None before a program is run; afterwards the seed, its number
    of statements, its flavour, and the text to save (empty if nothing is wrong).
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    judging.quiet_memory()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SRCJIT_CACHE_DIR"] = f"{scratch}/cache"
        folder = Path(scratch) / "tests" / "programs"
        for seed in range(first, first + step * RENEW, step):
            out.send((seed, None))
            case = judging.case_for(
                seed, plain=given.plain, emit=given.emit, size=given.size
            )
            path = folder / f"fuzz_{seed}.py"
            with inject.injected(given.inject):
                small, message = judging.smallest(case, path, given.shrink)
            # A fault that is there without the injected one is no proof that it is seen.
            if given.inject and message and judging.judge(small, path):
                message = ""
            text = judging.saved_text(small, message) if message else ""
            path.unlink(missing_ok=True)
            out.send((seed, (judging.statements(case), case.flavour, text)))


class Run:
    """A run of worker processes, and what they have found."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.sizes: Counter[int] = Counter()
        self.flavours: Counter[str] = Counter()
        self.failures = 0
        self.current: dict[Connection, int] = {}
        self.processes: dict[Connection, Any] = {}
        self.began = time.monotonic()

    @property
    def programs(self) -> int:
        """How many programs have been run."""
        return sum(self.sizes.values())

    def start(self, first: int) -> None:
        """Starts a worker at the seed `first`."""
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        arguments = (self.given, first, self.given.jobs, there)
        process = context.Process(target=work, args=arguments, daemon=True)
        process.start()
        there.close()
        self.processes[here] = process
        self.current[here] = first

    def go(self) -> None:
        """Runs programs until the time is over, or as many as are wanted."""
        given = self.given
        end = self.began + 60 * given.minutes
        for number in range(given.jobs):
            self.start(given.seed + number)
        try:
            while self.processes and (left := end - time.monotonic()) > 0:
                for ready in wait(list(self.processes), timeout=left):
                    assert isinstance(ready, Connection)
                    self._hear(ready)
                if self.programs >= given.count or (given.inject and self.failures):
                    break
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        finally:
            for process in self.processes.values():
                process.kill()
                process.join()

    def _hear(self, ready: Connection) -> None:
        given = self.given
        try:
            seed, report = ready.recv()
        except EOFError:
            process = self.processes.pop(ready)
            process.join()
            seed = self.current.pop(ready)
            if process.exitcode:
                case = judging.case_for(
                    seed, plain=given.plain, emit=given.emit, size=given.size
                )
                message = f"the process ended with {process.exitcode}"
                self._failed(seed, judging.saved_text(case, message))
            self.start(seed + given.jobs)
            return
        self.current[ready] = seed
        if report is not None:
            size, flavour, text = report
            self.sizes[size] += 1
            self.flavours[flavour] += 1
            if text:
                self._failed(seed, text)

    def _failed(self, seed: int, text: str) -> None:
        self.failures += 1
        given = self.given
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / f"fuzz_{seed}.py").write_text(text)
        head, _, body = text.partition("\ndef program(")
        notes = [line for line in head.splitlines() if line.startswith("#")]
        shown = "\n".join(notes)[:1200]
        body = body.partition("\n\nif __name__")[0]
        print(f"seed {seed}\n{shown}\ndef program({body}\n", flush=True)

    def report(self) -> str:
        """Says how much was run: programs, speed, sizes."""
        seconds = time.monotonic() - self.began
        sizes = sorted(self.sizes.elements()) or [0]
        bounds = ((1, 4), (5, 8), (9, 16), (17, 32), (33, 10**6))
        shares = ", ".join(
            f"{low}–{high if high < 10**6 else '…'}: "
            f"{sum(low <= n <= high for n in sizes) / len(sizes):.0%}"
            for low, high in bounds
        )
        rate = self.programs * 60 / seconds
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = (used.ru_utime + used.ru_stime) / max(self.programs, 1)
        return (
            f"{self.programs} programs ({dict(self.flavours)}) from seed "
            f"{self.given.seed} in {seconds:.0f} s on {self.given.jobs} cores: "
            f"{rate:.0f} a minute, {rate / self.given.jobs:.0f} a minute and core; "
            f"{busy:.3f} s of CPU each\n"
            f"statements: mean {sum(sizes) / len(sizes):.1f}, median "
            f"{sizes[len(sizes) // 2]}, most {sizes[-1]}; {shares}\n"
            f"{self.failures} failures"
        )


def main() -> int:
    """Runs the command line; returns 1 if something was found that should not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--size", type=int, help="statements; drawn if not given")
    parser.add_argument(
        "--plain",
        type=float,
        nargs="?",
        const=1.0,
        default=0.3,
        help="share of programs without tensors; all of them if no number follows",
    )
    parser.add_argument("--emit", type=float, default=0.01, help="share at stage emit")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--replay", type=Path, help="run a saved program again")
    parser.add_argument("--inject", choices=[*inject.INJECTIONS, "all"])
    given = parser.parse_args()
    if given.replay:
        return judging.replay(given.replay)
    if given.inject is None:
        run = Run(given)
        run.go()
        print(run.report())
        return min(run.failures, 1)
    missed = 0
    names = list(inject.INJECTIONS) if given.inject == "all" else [given.inject]
    for name in names:
        given.inject = name
        run = Run(given)
        run.go()
        seconds = time.monotonic() - run.began
        found = "found" if run.failures else "missed"
        print(f"{name}: {found} after {run.programs} programs, {seconds:.1f} s")
        missed += not run.failures
    return min(missed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
