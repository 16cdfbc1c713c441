"""Random programs: with tensors, or of plain Python alone.

A program is well typed most of the time: the generator knows of each variable what it holds.
Where a program does raise, the exception has to be the same.
"""

from __future__ import annotations

import random
from typing import ClassVar

from .simple import Simple
from .tensors import Tensors

SIZES = ((0.62, 3, 8), (0.28, 9, 15), (0.10, 16, 28))
"""How large programs are: share, and the least and most statements that are aimed at."""

SHARED = {
    "n": "int",
    "r": "float",
    "flag": "bool",
    "mode": "str",
    "nums": "nlist",
    "scores": "pdict",
    "st": "state",
}


class PlainGenerator(Simple):
    """Programs without tensors: CPython's own semantics are what counts."""

    parameters: ClassVar[dict[str, str]] = {**SHARED, "m": "int"}
    kinds: ClassVar[tuple[str, ...]] = (
        *("int", "int", "int", "float", "bool", "str", "nlist", "nlist"),
        *("pdict", "pset", "point", "gen", "fn"),
    )


class Generator(Tensors):
    """Programs on tensors and everything else."""

    parameters: ClassVar[dict[str, str]] = {
        "a": "mat",
        "b": "vec",
        "c": "mat",
        "parts": "tlist",
        "table": "tdict",
        "net": "net",
        **SHARED,
    }


GENERATORS: dict[str, type[Simple]] = {"tensors": Generator, "plain": PlainGenerator}


def size_for(seed: int) -> int:
    """Draws the size of the program with this seed."""
    choice = random.Random(~seed)
    shares = [share for share, _, _ in SIZES]
    _, least, most = choice.choices(SIZES, shares)[0]
    return choice.randint(least, most)
