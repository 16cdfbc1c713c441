"""`python -m tests.lowerings cpp|triton|sm_90 [--part PART] [--quick]`: JSON, a line a piece."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

PARTS = ("table", "pairs", "numbers", "folds", "chains", "chosen", "symbols")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("language", choices=("cpp", "triton", "sm_90"))
parser.add_argument("--part", choices=PARTS, action="append", help="all if left out")
parser.add_argument("--only", default="", help="pieces whose name has this in it")
parser.add_argument("--quick", action="store_true", help="what the default suite runs")
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
wrong = False


def report(name: str, problems: list[str], start: float) -> None:
    """Prints a line."""
    global wrong
    wrong |= bool(problems)
    seconds = round(time.perf_counter() - start, 2)
    line = {"name": name, "problems": problems, "seconds": seconds}
    print(json.dumps(line), flush=True)


parts = options.part or PARTS
if "table" in parts:
    for dtype, layout in QUICK if options.quick else WHOLE:
        if options.only in name_of(dtype, layout):
            start = time.perf_counter()
            made = run(options.language, dtype, layout, sampled=options.quick)
            report(name_of(dtype, layout), made.problems, start)
if "symbols" in parts and not options.quick:
    for dtype, layout in WHOLE:
        name = f"symbols {name_of(dtype, layout)}"
        if options.only in name:
            start = time.perf_counter()
            made = run(options.language, dtype, layout, symbolic=True)
            report(name, made.problems, start)
if options.quick:
    start = time.perf_counter()
    for name, found in sampled(options.language, parts, options.only):
        report(name, found, start)
        start = time.perf_counter()
else:
    for part in parts:
        for piece in pieces(part) if part not in ("table", "symbols") else ():
            if options.only in piece.name:
                start = time.perf_counter()
                found = piece.problems(options.language)
                report(f"{part} {piece.name}", found, start)
sys.exit(int(wrong))
