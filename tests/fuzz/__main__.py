"""`python -m tests.fuzz --minutes 10`: random programs until the time is over.

A program that fails is made as small as possible and saved, with what was wrong, under
`--out`. Its seed gives the same program again: `--seed N --count 1`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from .generate import Generator
from .running import failure, source_of
from .tree import Body, smaller

LIMIT = 30
"""Seconds that one program may take, all its calls together."""


class TooSlow(BaseException):
    """A program that did not end in time; no `except Exception` of a program stops it."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises `TooSlow` in the block after so many seconds."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(path: Path, body: Body, number: int, stage: str) -> str:
    """What is wrong with a program; empty if nothing is."""
    try:
        with time_limit(LIMIT):
            return failure(path, body, number, stage)
    except TooSlow:
        return "TooSlow: the program did not end in time"
    finally:
        torch.set_grad_enabled(True)


def kind_of(message: str) -> str:
    """What sort of failure a message tells of, so that shrinking keeps to it."""
    for word in (
        "TooSlow",
        "Invalid",
        "SyntaxError",
        "CompilerFault",
        "SJ900",
        "failure",
        "stdout",
    ):
        if word in message:
            return word
    return "difference"


def shrink(path: Path, body: Body, number: int, stage: str, seconds: float) -> Body:
    """Returns the smallest program found that fails in the same way."""
    wanted = kind_of(judge(path, body, number, stage))
    end = time.monotonic() + seconds
    again = True
    while again and time.monotonic() < end:
        again = False
        for less in smaller(body):
            if time.monotonic() > end:
                break
            if kind_of(judge(path, less, number, stage) or "Invalid") == wanted:
                body, again = less, True
                break
    return body


def main() -> int:
    """Runs the command line; returns the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--emit", type=float, default=0.05, help="share at stage emit")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    given = parser.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    warnings.simplefilter("ignore")
    end = time.monotonic() + 60 * given.minutes
    failures = programs = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("SRCJIT_CACHE_DIR", f"{scratch}/cache")
        folder = Path(scratch) / "tests" / "programs"
        for seed in range(given.seed, given.seed + given.count):
            if time.monotonic() > end:
                break
            programs += 1
            stage = "emit" if seed % 1000 < 1000 * given.emit else "specialize"
            body = Generator(seed, given.size).program()
            path = folder / f"fuzz_{seed}.py"
            message = judge(path, body, seed, stage)
            if message:
                failures += 1
                if kind_of(message) != "TooSlow":
                    body = shrink(path, body, seed, stage, given.shrink)
                message = judge(path, body, seed, stage) or message
                given.out.mkdir(parents=True, exist_ok=True)
                note = "\n".join(f"# {line}" for line in message[:3000].splitlines())
                text = f"# seed {seed}, stage {stage}\n{note}\n{source_of(body)}"
                (given.out / f"fuzz_{seed}.py").write_text(text)
                shown = text.split("def program(")[1]
                print(
                    f"seed {seed}, stage {stage}\n{message[:1200]}\ndef program({shown}",
                    flush=True,
                )
            path.unlink(missing_ok=True)
            if programs % 50 == 0:
                gc.collect()
    print(f"{programs} programs, {failures} failures")
    return failures


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
