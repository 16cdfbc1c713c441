"""Runs the table of lowerings for a dtype and a layout."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from srcjit.passes.loops import FLOAT8
from tests.lowerings.compare import problems, recorded
from tests.lowerings.operands import DTYPES, LAYOUTS, laid_out, pairs, rows
from tests.lowerings.table import FOLDED, POINTWISE, SPACE

OTHERS = (torch.float32, torch.bfloat16, torch.int32)
SELDOM = (torch.int16, torch.int8, *FLOAT8[2:])
QUICK = [
    *((d, "contiguous") for d in DTYPES if d not in SELDOM),
    *(
        (OTHERS[n % len(OTHERS)], layout)
        for n, layout in enumerate(LAYOUTS)
        if layout != "contiguous"
    ),
    # Divisions of literals that are rounded at once.
    (torch.bfloat16, "empty_rows"),
]
"""What the default suite runs: dtypes, contiguous, and each layout with one dtype."""

WHOLE = [(dtype, layout) for dtype in DTYPES for layout in LAYOUTS]
"""Everything."""


@dataclass(frozen=True)
class Report:
    """What differs from eager, and which lowerings gave a loop form."""

    problems: list[str]
    used: frozenset[str]


def name_of(dtype: torch.dtype, layout: str) -> str:
    """`"float32 transposed"`."""
    return f"{str(dtype).removeprefix('torch.')} {layout}"


def run(
    language: str, dtype: torch.dtype, layout: str, *, sampled: bool = False
) -> Report:
    """Compares the rows of the table with eager.

    `sampled` takes one in six of the operators that are computed element by element, unless
    the layout is the contiguous one: a layout changes how they load, which is alike in all.
    """
    found = []
    step = 6 if sampled and layout != "contiguous" else 1
    pointwise = list(POINTWISE)[::step]
    with recorded() as used, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for group, make in ((pointwise, pairs), (SPACE, pairs), (FOLDED, rows)):
            if dtype in FLOAT8 and make is rows:
                continue  # nothing is computed in them
            found += problems(group, laid_out(make(dtype), layout), language)
    return Report(found, frozenset(used))
