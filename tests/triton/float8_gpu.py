"""`python -m tests.triton.float8_gpu`: floats of 8 bits on a GPU, against eager bit for bit.

Prints what differs, which operators eager has for them there, and how fast quantization is.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch

import srcjit
from srcjit.passes.loops import FLOAT8
from tests.lowerings.float8 import (
    BYTES,
    compiled,
    differences,
    narrowing,
    sources,
    widening,
)
from tests.lowerings.table import ROWS, Operands
from tests.programs.float8 import quantize_blocks, quantize_rows


def conversions() -> list[str]:
    """What differs from eager on this GPU."""
    found: list[str] = []
    given = [s.cuda() for s in sources()]
    for dtype in FLOAT8:
        x = BYTES.view(dtype)
        small = x[x.float().abs() < 100].cuda()
        for function, values in (
            (widening(dtype), [x.cuda(), small]),
            (narrowing(dtype), given),
        ):
            expected = function(*values)
            got = compiled(function, *values, language="triton")
            for v, g, e in zip([*given], got, expected, strict=False):
                name = f"{function.__name__} {dtype} {e.dtype}"
                problem = differences(name, g, e)
                if problem and function.__name__ == "narrowed":
                    g8, e8 = g.view(torch.uint8), e.view(torch.uint8)
                    at = (g8 != e8).nonzero().flatten()[:4]
                    problem.append(
                        f"{v[at].tolist()} {g8[at].tolist()} {e8[at].tolist()}"
                    )
                found += problem
    return found


def supported(dtype: torch.dtype) -> list[str]:
    """Calls of the table of lowerings that eager does not refuse."""
    raw = torch.arange(35, dtype=torch.uint8, device="cuda").reshape(5, 7)
    x, y, z = ((raw + n).view(dtype) for n in (0, 20, 60))
    operands = Operands(x, y, z, raw % 2 == 0, (raw % 5).long())
    found = []
    for name, calls in ROWS.items():
        for number, call in enumerate(calls):
            try:
                call(operands)
            except (RuntimeError, IndexError, TypeError, ValueError):
                continue
            found.append(f"{name.removeprefix('aten.')} {number}")
    return found


def dequantize(q: Any, scale: Any) -> Any:
    """Rows back to bfloat16."""
    return (q.to(torch.float32) * scale).to(torch.bfloat16)


def milliseconds(function: Any, *args: Any) -> float:
    """The median of a call's time on the GPU."""
    times = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function(*args)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times[3:]), 4)


def main() -> None:
    """Prints everything as JSON lines."""
    begin = time.perf_counter()
    print(torch.__version__, torch.full((1,), 1e4, device="cuda").to(FLOAT8[0]).float())
    print(json.dumps(conversions()), round(time.perf_counter() - begin, 1), flush=True)
    x = torch.randn(16384, 8192, device="cuda").bfloat16()
    q, scale = quantize_rows(x)
    for function, given in (
        (quantize_rows, (x,)),
        (quantize_blocks, (x,)),
        (dequantize, (q, scale)),
    ):
        jitted = srcjit.jit(function)
        got, expected = jitted(*given), function(*given)
        pair = (got, expected) if torch.is_tensor(got) else (got[0], expected[0])
        bits = [t.view(torch.uint8) for t in pair]
        timed = [milliseconds(f, *given) for f in (function, jitted)]
        same = torch.equal(*bits)
        print(json.dumps([function.__name__, same, *timed]), flush=True)
    print(round(time.perf_counter() - begin, 1))
    base = supported(FLOAT8[0])
    print(json.dumps(base))
    for dtype in FLOAT8[1:]:
        ours = supported(dtype)
        print(dtype, sorted(set(ours) ^ set(base)), flush=True)
    print(round(time.perf_counter() - begin, 1))


if __name__ == "__main__":
    main()
