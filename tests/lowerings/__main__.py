"""`python -m tests.lowerings cpp|triton|sm_90 [--part PART] [--quick]`: JSON, a line a piece.

With `--log FILE` the lines go to a file, too, and pieces that it has are not run again; a piece
in which the process ended has a line that says so. What then remains is taken in an order of
which every beginning is spread over all pieces, so that a run that is cut short is a sample.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

PARTS = ("table", "pairs", "numbers", "folds", "chains", "chosen", "symbols")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("language", choices=("cpp", "triton", "sm_90"))
parser.add_argument("--part", choices=PARTS, action="append", help="all if left out")
parser.add_argument("--only", default="", help="pieces whose name has this in it")
parser.add_argument("--quick", action="store_true", help="what the default suite runs")
parser.add_argument("--log", type=Path, help="adds to a file what it does not have")
options = parser.parse_args()
if options.language == "triton":
    # The interpreter must be chosen before Triton is imported.
    os.environ["TRITON_INTERPRET"] = "1"

import torch  # noqa: E402

from tests.lowerings.run import (  # noqa: E402
    QUICK,
    WHOLE,
    name_of,
    pieces,
    run,
    sampled,
)

torch.set_num_threads(min(2, torch.get_num_threads()))
Task = tuple[str, Callable[[], list[str]]]
parts = options.part or PARTS


def whole() -> Iterator[Task]:
    """All pieces of the parts."""
    for part in parts:
        if part in ("table", "symbols"):
            symbolic = part == "symbols"
            for dtype, layout in WHOLE:
                name = "symbols " * symbolic + name_of(dtype, layout)
                yield name, partial(table, dtype, layout, symbolic=symbolic)
        else:
            for piece in pieces(part):
                name = f"{part} {piece.name}"
                yield name, partial(piece.problems, options.language)


def table(dtype: torch.dtype, layout: str, **how: bool) -> list[str]:
    """What differs in one piece of the table."""
    return run(options.language, dtype, layout, **how).problems


def spread(tasks: list[Task]) -> list[Task]:
    """In the order of the multiples of the golden ratio, modulo 1."""
    ratio = (5**0.5 - 1) / 2
    return [tasks[n] for n in sorted(range(len(tasks)), key=lambda n: n * ratio % 1)]


def log(name: str, problems: list[str], seconds: float) -> None:
    """Adds a line to the log, if there is one."""
    line = {"name": name, "problems": problems, "seconds": round(seconds, 2)}
    text = json.dumps(line)
    if options.log:
        with options.log.open("a") as file:
            file.write(f"{text}\n")
    if seconds:
        print(text, flush=True)


wrong = False


def report(name: str, problems: list[str], start: float) -> None:
    """Prints a line."""
    global wrong
    wrong |= bool(problems)
    log(name, problems, time.perf_counter() - start)


if options.quick:
    if "table" in parts:
        for dtype, layout in QUICK:
            if options.only in name_of(dtype, layout):
                start = time.perf_counter()
                found = table(dtype, layout, sampled=True)
                report(name_of(dtype, layout), found, start)
    start = time.perf_counter()
    for name, found in sampled(options.language, parts, options.only):
        report(name, found, start)
        start = time.perf_counter()
    sys.exit(int(wrong))
tasks = [task for task in whole() if options.only in task[0]]
if options.log:
    known = options.log.read_text().splitlines() if options.log.exists() else []
    done = {json.loads(line)["name"] for line in known}
    tasks = [task for task in spread(tasks) if task[0] not in done]
for name, problems_of in tasks:
    start = time.perf_counter()
    if options.log:
        log(name, ["the process ended in it"], 0.0)
    try:
        found = problems_of()
    except Exception as reason:  # a fault of one piece, which others do not have
        found = [f"raised {reason!r}"[:500]]
    report(name, found, start)
sys.exit(int(wrong))
