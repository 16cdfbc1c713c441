"""Judges random programs, makes those that fail small, and keeps them as files that run."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import signal
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

from .generate import GENERATORS, size_for
from .running import EAGER, Case, failure, source_of
from .tree import Line, size_of, smaller
from .unknown import MODES

LIMIT = 30
"""Seconds of CPU time that one program may take, all its calls together.

A loaded machine gives a program less of each second, and does not make it slow.
"""

STUCK = 600
"""Seconds after which a program that waits, and uses no CPU time, is given up."""


class TooSlow(BaseException):
    """A program that did not end in time; no `except Exception` of a program stops it."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises `TooSlow` in the block after so many seconds of the process's CPU time."""

    def stop(*_: object) -> None:
        raise TooSlow

    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, seconds),
        signal.ITIMER_REAL: (signal.SIGALRM, STUCK),
    }
    before = {number: signal.signal(number, stop) for number, _ in timers.values()}
    for timer, (_, wait) in timers.items():
        signal.setitimer(timer, wait, 10)  # again, should the first one be caught
    try:
        yield
    finally:
        for timer, (number, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def case_for(
    seed: int, *, plain: float = 0.3, emit: float = 0.01, size: int | None = None
) -> Case:
    """Returns the program with this seed.

    Args:
        seed: The same seed gives the same program and the same calls.
        plain: The share of programs without tensors.
        emit: The share of programs that run at stage `emit`, whose kernels are compiled.
        size: About how many statements; drawn if it is not given.
    """
    choice = random.Random(f"case {seed}")
    flavour = "plain" if choice.random() < plain else "tensors"
    stage = "emit" if choice.random() < emit else "specialize"
    # Known numbers are what users have; the others send every statement through evaluation.
    weights = (1, 2, 2) if flavour == "plain" else (8, 1, 1)
    numbers = choice.choices(MODES, weights)[0]
    generator = GENERATORS[flavour](seed, size or size_for(seed))
    return Case(generator.program(), seed, flavour, stage, numbers)


def judge(case: Case, path: Path) -> str:
    """What is wrong with a program; empty if nothing is."""
    try:
        with time_limit(LIMIT):
            return failure(case, path)
    except TooSlow as stopped:
        # A text that gets its own `repr` in a loop, say, doubles each time: no one's fault.
        if EAGER in getattr(stopped, "__notes__", ()):
            return ""
        return "TooSlow: the program did not end in time"
    except Exception as error:
        if "integer string conversion" in str(error):
            # Squares of squares have more digits than Python writes, with or without us.
            if EAGER in getattr(error, "__notes__", ()):
                return ""
        # The program cannot be run: what went wrong is the fuzzer's own.
        return f"Invalid: {type(error).__name__}: {error}\n{traceback.format_exc()}"


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


def shrink(case: Case, path: Path, seconds: float) -> Case:
    """Returns the smallest program found that fails in the same way."""
    wanted = kind_of(judge(case, path))
    end = monotonic() + seconds
    again = True
    for numbers in (
        "known",
        "symbolic",
    ):  # the simpler way to run it, if it still fails
        simpler = replace(case, numbers=numbers)
        if case.numbers != "known" and kind_of(judge(simpler, path)) == wanted:
            case = simpler
            break
    while again and monotonic() < end:
        again = False
        for less in smaller(case.body):
            if monotonic() > end:
                break
            smaller_case = replace(case, body=less)
            if kind_of(judge(smaller_case, path) or "Invalid") == wanted:
                case, again = smaller_case, True
                break
    return case


def smallest(case: Case, path: Path, seconds: float) -> tuple[Case, str]:
    """Judges a program; returns it, made smaller if it fails, and what is wrong."""
    message = judge(case, path)
    if message and kind_of(message) != "TooSlow":
        small = shrink(case, path, seconds)
        # What fails only in the state that an earlier run has left stays as it was.
        if found := judge(small, path):
            return small, found
    return case, message


RUNNER = """

if __name__ == "__main__":
    from tests.fuzz.judging import replay

    raise SystemExit(replay(__file__))
"""


def saved_text(case: Case, message: str) -> str:
    """Returns a file that holds the program, what was wrong, and runs it when it is run."""
    facts = {
        name: getattr(case, name) for name in ("number", "flavour", "stage", "numbers")
    }
    notes = "\n".join(f"# {line}".rstrip() for line in message[:3000].splitlines())
    return (
        f"# fuzz: {json.dumps(facts)}\n# run: PYTHONPATH=. python FILE\n{notes}\n"
        f"{source_of(case)}{RUNNER}"
    )


def replay(file: str | Path) -> int:
    """Runs a saved program again; prints what is wrong and returns 1, or returns 0.

    The program may have been edited: what counts is the text of `program` in the file.
    """
    text = Path(file).read_text()
    head = text.splitlines()[0]
    facts = json.loads(head.removeprefix("# fuzz: "))
    body = text.split("\ndef program(", 1)[1].split(":\n", 1)[1]
    body = body.split("\nif __name__", 1)[0].rstrip("\n")
    lines = tuple(Line(line[4:]) for line in body.split("\n"))
    case = Case(lines, **facts)
    path = Path(file).resolve().parent / "tests" / "programs" / Path(file).name
    try:
        message = failure(case, path)
    finally:
        path.unlink(missing_ok=True)
    print(message or "no difference")
    return int(bool(message))


def statements(case: Case) -> int:
    """Returns the number of statements of a program."""
    return size_of(case.body)


def quiet_memory() -> None:
    """Leaves what is alive now out of garbage collection, which would go over it again."""
    gc.collect()
    gc.freeze()


__all__ = [
    "case_for",
    "judge",
    "kind_of",
    "quiet_memory",
    "replay",
    "saved_text",
    "shrink",
    "smallest",
    "statements",
]
