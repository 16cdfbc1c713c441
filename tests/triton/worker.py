"""Runs cases in Triton's interpreter: `python -m tests.triton.worker` prints a JSON line each.

The interpreter must be chosen before Triton is imported, so this is a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch

from tests.backend.examples import Case
from tests.triton.cases import CASES
from tests.triton.running import difference, run


def tolerance(case: Case, dtype: torch.dtype) -> float:
    """What a case asks for, or a few units in the last place."""
    asked = getattr(case, "tolerance", None)
    return (
        {torch.bfloat16: 8e-3, torch.float16: 1e-3}.get(dtype, 1e-5)
        if asked is None
        else asked
    )


def main(names: list[str]) -> None:
    """Runs the named cases, or all."""
    torch.set_num_threads(1)
    for name in names or CASES:
        torch.manual_seed(0)
        start = time.perf_counter()
        text = ""
        try:
            case = CASES[name]()
            text = run(case.kernel, case.arguments())
            problems = [
                f"{output}: {problem}"
                for output, expected in case.expected.items()
                if (
                    problem := difference(
                        case.outputs[output], expected, tolerance(case, expected.dtype)
                    )
                )
            ]
        except Exception:
            problems = [traceback.format_exc()]
        seconds = time.perf_counter() - start
        report = {"name": name, "problems": problems, "text": text, "seconds": seconds}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
