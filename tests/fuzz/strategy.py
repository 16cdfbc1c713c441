"""Random programs as a Hypothesis strategy: what it draws are the generator's choices.

So Hypothesis shrinks a program that fails by making other choices, and keeps it well typed.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from .generate import GENERATORS
from .running import Case
from .unknown import MODES

settings.register_profile(
    "ci",
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def cases(
    draw: st.DrawFn, flavour: str, most: int = 8, numbers: str | None = None
) -> Case:
    """Draws a program and how it is run.

    Args:
        draw: Given by Hypothesis.
        flavour: `tensors` or `plain`.
        most: The largest size that is aimed at.
        numbers: Which numbers are unknown to the compiler; drawn if it is not given.
    """
    size = draw(st.integers(1, most))
    source: random.Random = draw(st.randoms(use_true_random=False))
    body = GENERATORS[flavour](source, size).program()
    return Case(
        body,
        number=draw(st.integers(0, 1000)),
        flavour=flavour,
        numbers=numbers or draw(st.sampled_from(MODES)),
    )
