"""Sums at chosen places in Triton's interpreter: `python -m tests.triton.scatters`.

It prints a JSON line for each program. The interpreter must be chosen before Triton is
imported, so this is a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch

from srcjit.options import Options
from srcjit.passes.lowerings import gathers, scatters
from srcjit.passes.segment import compile_segment
from tests.backend.scatter_programs import PROGRAMS, Program
from tests.backend.support import clones, load, segment_of

FORMS = ("plain", "symbolic")


def as_on_a_gpu() -> None:
    """Lets the CPU's kernels check indices and add atomically."""
    gathers.CHECKED = {"cpu", "cuda"}
    scatters.ATOMIC = {"cpu", "cuda"}


def emitted(program: Program, *, dynamic: bool = False) -> str:
    """The Triton module of a program."""
    function, arguments = program
    segment = segment_of(function, *arguments, dynamic=dynamic)
    code = compile_segment(segment, Options(target="triton"))
    return "\n".join([*code.imports, code.definitions, code.function])


def problem_of(program: Program, *, dynamic: bool) -> str:
    """How a compiled program differs from eager, inputs included; empty if it does not."""
    function, arguments = program
    segment = segment_of(function, *arguments, dynamic=dynamic)
    run = load(compile_segment(segment, Options(target="triton")))
    theirs, own = clones(arguments), clones(arguments)
    expected, got = function(*theirs), run(*own)
    expected = expected if isinstance(expected, tuple) else (expected,)
    kept = [r for r in got if r is not None]
    pairs = [*zip(expected[-len(kept) :], kept, strict=True)] if kept else []
    for want, have in (*pairs, *zip(theirs, own, strict=True)):
        try:
            torch.testing.assert_close(have, want)
        except AssertionError as why:
            return f"{why}\n{run.text}"
    return ""


def main(names: list[str]) -> None:
    """Runs the named programs, or all, with sizes that are numbers and symbols."""
    torch.set_num_threads(1)
    as_on_a_gpu()
    for name in names or PROGRAMS:
        for form in FORMS:
            try:
                found = problem_of(PROGRAMS[name], dynamic=form == "symbolic")
            except Exception:
                found = traceback.format_exc()
            print(json.dumps({"name": f"{name}, {form}", "problem": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
