"""Programs written to break the compiler: each once gave a wrong answer, or nearly did."""

from __future__ import annotations

from tests.programs import Made

from . import flow, state, tensors

ATTACKS = {**tensors.ATTACKS, **flow.ATTACKS, **state.ATTACKS}
"""Each program, and what makes its arguments."""


def made(name: str, number: int) -> Made:
    """Builds the arguments of a program anew, and resets the globals."""
    state.reset()
    function, makers = next((f, m) for f, m in ATTACKS.items() if f.__name__ == name)
    return function, makers[number](), {}
