"""Runs pieces of the product of lowerings, dtypes, layouts, shapes and numbers.

table      every row with one dtype and one layout
pairs      operators of operands of two dtypes
numbers    operators of a tensor and each of the Python numbers
folds      reductions over every set of dimensions
chains     what moves elements, and what reads them moved
chosen     elements chosen, and places written, by tensors of positions
symbols    the table where sizes are only known when it runs
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch

from srcjit.passes.loops import FLOAT8
from tests.lowerings.chains import MOVES, READERS, moved_twice, read
from tests.lowerings.chains import operands as positioned
from tests.lowerings.chosen import CHOSEN
from tests.lowerings.compare import problems, recorded
from tests.lowerings.composed import ELEMENTS, LOST, MOVED, NORMALIZED
from tests.lowerings.folds import FOLDS, folded
from tests.lowerings.folds import SHAPES as FOLDED_SHAPES
from tests.lowerings.operands import DTYPES, LAYOUTS, laid_out, pairs, rows
from tests.lowerings.promoted import NUMBERED, PROMOTED, SHAPES, mixed, whole
from tests.lowerings.table import FOLDED, POINTWISE, SPACE, Call, Operands

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
"""What the default suite runs of the table: dtypes, contiguous; each layout with one dtype."""

COMPOSED_TOO = [
    (torch.float32, "contiguous"),
    (torch.bfloat16, "contiguous"),
]
"""Of these the default suite runs the rows of operators that are taken apart, too."""

WHOLE = [(dtype, layout) for dtype in DTYPES for layout in LAYOUTS]
"""All of the table."""

NUMBERS = tuple(d for d in DTYPES if d not in FLOAT8)


@dataclass(frozen=True)
class Report:
    """What differs from eager, and which lowerings gave a loop form."""

    problems: list[str]
    used: frozenset[str]


def name_of(dtype: torch.dtype, layout: str) -> str:
    """`"float32 transposed"`."""
    return f"{str(dtype).removeprefix('torch.')} {layout}"


def run(
    language: str,
    dtype: torch.dtype,
    layout: str,
    *,
    sampled: bool = False,
    symbolic: bool = False,
) -> Report:
    """Compares the rows of the table with eager.

    `sampled` takes one in six of the operators that are computed element by element, unless
    the layout is the contiguous one: a layout changes how they load, which is alike in all.
    """
    found = []
    step = 6 if sampled and layout != "contiguous" else 1
    pointwise = {name: POINTWISE[name] for name in list(POINTWISE)[::step]}
    groups = [(pointwise, pairs), (SPACE, pairs), (FOLDED, rows)]
    if not sampled or (dtype, layout) in COMPOSED_TOO:
        groups += [(ELEMENTS, pairs), (MOVED, pairs), (NORMALIZED, rows), (LOST, rows)]
    with recorded() as used, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for group, make in groups:
            if dtype in FLOAT8 and make is rows:
                continue  # nothing is computed in them
            operands = laid_out(make(dtype), layout)
            found += problems(group, operands, language, symbolic=symbolic)
    return Report(found, frozenset(used))


@dataclass(frozen=True)
class Piece:
    """A part of the product: calls and operands."""

    part: str
    name: str
    rows: Mapping[str, list[Call]]
    operands: Operands

    def problems(self, language: str, step: int = 1) -> list[str]:
        """What differs from eager, of one call in `step`."""
        numbers = itertools.count()
        chosen = {
            name: [call for call in calls if next(numbers) % step == 0]
            for name, calls in self.rows.items()
        }
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for some in portions(chosen):
                try:
                    with recorded():
                        found += problems(some, self.operands, language)
                except Exception as reason:
                    if len(some) == 1:
                        found.append(f"{next(iter(some))}: raised {reason!r}"[:500])
                        continue
                    # One of them raises: which?
                    for name, calls in some.items():
                        alone = Piece(
                            self.part, self.name, {name: calls}, self.operands
                        )
                        found += alone.problems(language)
        return found


def portions(rows: Mapping[str, list[Call]]) -> Iterator[dict[str, list[Call]]]:
    """Rows of some hundred calls; what a C++ compiler takes for more grows faster than they."""
    some: dict[str, list[Call]] = {}
    for name, calls in rows.items():
        if some and sum(map(len, some.values())) + len(calls) > PORTION:
            yield some
            some = {}
        some[name] = calls
    yield some


PORTION = 150
"""Calls of a segment."""


def pieces(part: str) -> list[Piece]:
    """All of a part, but of the table and that of symbolic sizes."""
    if part == "numbers":
        return [Piece(part, str(d)[6:], NUMBERED, whole(d)) for d in NUMBERS]
    if part == "folds":
        return [
            Piece(part, name_of(d, shape), FOLDS, folded(d, shape))
            for d in NUMBERS
            for shape in FOLDED_SHAPES
        ]
    if part == "chosen":
        return [
            Piece(part, name_of(d, shape), CHOSEN, positioned(d, shape))
            for d in NUMBERS
            for shape in ("odd", "columns")
        ]
    if part == "chains":
        chained = {r: read(r) for r in READERS} | {m: moved_twice(m) for m in MOVES}
        return [
            Piece(part, f"{name} {name_of(d, shape)}", rows, positioned(d, shape))
            for d, shape in CHAINED
            for name, rows in chained.items()
        ]
    return [
        Piece(part, f"{name_of(d, str(e)[6:])} {shape}", PROMOTED, mixed(d, e, shape))
        for d in NUMBERS
        for e in NUMBERS
        if d is not e
        for shape in SHAPES
    ]


CHAINED = (
    (torch.float32, "odd"),
    (torch.bfloat16, "odd"),
    (torch.int64, "odd"),
    (torch.bool, "odd"),
    (torch.float32, "ones"),
    (torch.float32, "none between"),
)
"""Dtypes and shapes of what is moved and read."""

SAMPLES = (
    *(("pairs", f"{pair} {shape}", 3) for pair, shape in zip(
        ("float32 float64", "uint8 float16", "int64 int8", "bfloat16 float32"),
        ("no_dimension", "row", "tensor", "no_dimension"),
        strict=True,
    )),
    ("numbers", "float64", 61),
    ("numbers", "bfloat16", 67),
    ("numbers", "int32", 71),
    ("folds", "float32 odd", 29),
    ("folds", "int64 none between", 19),
    ("chains", "softmax float32 odd", 4),
    ("chains", "several bfloat16 odd", 9),
    ("chains", "flip int64 odd", 17),
    ("chosen", "float32 odd", 7),
)  # fmt: skip
"""What the default suite runs of them: a part, a piece, and one call in how many."""


def sampled(
    language: str, parts: Collection[str] | None = None, only: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """The samples of some parts, whose names have `only` in them, and what differs."""
    made = (piece for part in PARTS[1:-1] for piece in pieces(part))
    every = {(p.part, p.name): p for p in made}
    for part, name, step in SAMPLES:
        if part in (parts or PARTS) and only in name:
            yield f"{part} {name}", every[part, name].problems(language, step)


PARTS = ("table", "pairs", "numbers", "folds", "chains", "chosen", "symbols")
