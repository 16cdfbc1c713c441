"""Floats of 8 bits against eager, bit for bit: all of them widened, and what is made of others.

    python -m tests.lowerings.float8 cpp|triton      a JSON list of what differs

Loaded are all 256; stored are all float16 and bfloat16, and of float32 and float64 every number
of a format, what lies in the middle between two and its neighbours, and a sample of the rest.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

if __name__ == "__main__" and sys.argv[1] == "triton":
    # The interpreter must be chosen before Triton is imported.
    os.environ["TRITON_INTERPRET"] = "1"

import torch

from srcjit.options import Options
from srcjit.passes.loops import FLOAT8
from srcjit.passes.segment import compile_segment
from tests.backend.support import load, segment_of
from tests.lowerings.compare import INTEGER_OF

INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TARGETS = (
    *(torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.bool),
    *FLOAT8,
)
BYTES = torch.arange(256).to(torch.uint8)


def numbers() -> torch.Tensor:
    """Of float32: all that decide how a format rounds, and some others."""
    around = []
    for dtype in FLOAT8:
        values = BYTES.view(dtype).float()
        values = values[values.isfinite()].unique()
        middle = (values[1:] + values[:-1]) / 2
        above, below = (torch.full_like(middle, s * torch.inf) for s in (1, -1))
        around += [values, middle, middle.nextafter(above), middle.nextafter(below)]
    limits = torch.tensor([448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0, 2.0**127])
    for n in (limits, -limits):
        around += [n, n.nextafter(n * 2), n.nextafter(n / 2)]
    sample = torch.arange(0, 2**32, 65537).to(torch.int32).view(torch.float32)
    return torch.cat([*around, sample])


def sources() -> list[torch.Tensor]:
    """What is stored, a tensor for each element type."""
    halves = torch.arange(65536).to(torch.int32).to(torch.int16)
    single = numbers()
    integers = [
        0,
        1,
        -1,
        7,
        100,
        447,
        448,
        449,
        464,
        465,
        -465,
        1000,
        57344,
        61439,
        61440,
    ]
    whole = torch.tensor([*integers, 2**31 - 1, 2**40, -(2**62), 2**63 - 1])
    return [
        halves.view(torch.float16),
        halves.view(torch.bfloat16),
        single,
        single.double() * (1 + 2.0**-40),
        *(whole.to(dtype) for dtype in INTS),
        whole > 3,
    ]


def compiled(function: Any, *given: torch.Tensor, language: str) -> Any:
    """The results of one segment, in which nothing is left to eager."""
    code = compile_segment(segment_of(function, *given), Options(target=language))
    assert "torch.ops" not in code.function, code.function
    return load(code)(*given)


def differences(name: str, got: torch.Tensor, expected: torch.Tensor) -> list[str]:
    """One line if the bits are not the same."""
    same, floats = got == expected, got.is_floating_point()
    if floats:
        bits = INTEGER_OF[got.dtype.itemsize]
        same = got.view(bits) == expected.view(bits)
    if floats and got.dtype.itemsize == 2:  # eager's loops differ in what NaN they make
        same |= got.isnan() & expected.isnan()
    wrong = (~same).nonzero().flatten().tolist()
    if not wrong:
        return []
    at = wrong[0]
    return [f"{name}: {len(wrong)}, first at {at}: {got[at]!r}, not {expected[at]!r}"]


def widening(dtype: torch.dtype) -> Any:
    """A function from elements of `dtype`, and those of them that integers hold."""

    def widened(x: Any, small: Any) -> tuple[Any, ...]:
        others = [t for t in TARGETS if t is not dtype]
        return (*(x.to(t) for t in others), *(small.to(t) for t in INTS))

    return widened


def narrowing(dtype: torch.dtype) -> Any:
    """A function from `sources()` to `dtype`."""

    def narrowed(
        a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any
    ) -> tuple[Any, ...]:
        return tuple(v.to(dtype) for v in (a, b, c, d, e, f, g, h, i, j))

    return narrowed


def problems(language: str) -> list[str]:
    """What differs from eager."""
    found = []
    given = sources()
    for dtype in FLOAT8:
        x = BYTES.view(dtype)
        small = x[x.float().abs() < 100]
        for function, values in (
            (widening(dtype), [x, small]),
            (narrowing(dtype), given),
        ):
            expected = function(*values)
            got = compiled(function, *values, language=language)
            for g, e in zip(got, expected, strict=True):
                found += differences(f"{function.__name__} {dtype} {e.dtype}", g, e)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(problems(sys.argv[1])))
