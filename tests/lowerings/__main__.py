"""`python -m tests.lowerings cpp|triton [--quick]`: a JSON line for each dtype and layout."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("language", choices=("cpp", "triton"))
parser.add_argument("--quick", action="store_true", help="what the default suite runs")
options = parser.parse_args()
if options.language == "triton":
    # The interpreter must be chosen before Triton is imported.
    os.environ["TRITON_INTERPRET"] = "1"

import torch  # noqa: E402

from tests.lowerings.run import QUICK, WHOLE, name_of, run  # noqa: E402

torch.set_num_threads(min(2, torch.get_num_threads()))
wrong = False
for dtype, layout in QUICK if options.quick else WHOLE:
    start = time.perf_counter()
    report = run(options.language, dtype, layout, sampled=options.quick)
    wrong |= bool(report.problems)
    seconds = round(time.perf_counter() - start, 2)
    line = {"name": name_of(dtype, layout), "problems": report.problems}
    print(json.dumps({**line, "seconds": seconds}), flush=True)
sys.exit(int(wrong))
