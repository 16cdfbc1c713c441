"""What stands behind many breaks is not compiled for each way that leads to it."""

from __future__ import annotations

from typing import Any

import torch

import srcjit
from srcjit import control
from srcjit.dispatch import Dispatcher
from srcjit.family import COPIES


@srcjit.disable
def keep(k: int) -> None:
    """Nothing that can be traced."""


def descend(a: torch.Tensor, k: int) -> torch.Tensor:
    if k == 0:
        return a
    keep(k)
    for i in range(2):
        a = descend(a, k - 1)
        if a.sum() > 3:
            a = a - 2
        keep(i)
    return a + k


def test_a_tree_of_breaks_is_compiled_so_often_and_no_more(caplog: Any) -> None:
    made: list[Dispatcher] = []

    def seen(event: str, dispatcher: Dispatcher, detail: Any) -> None:
        if event == "specialized":
            made.append(dispatcher)

    jitted = srcjit.jit(descend, options={"stage": "specialize", "limit": 1})
    control.observers.append(seen)
    try:
        for k in (3, 4, 3):
            a = torch.tensor([0.5, float(k)])
            assert torch.equal(jitted(a.clone(), k), descend(a, k))
    finally:
        control.observers.remove(seen)
    lines = [d.source.first_line for d in made]
    assert max(map(lines.count, lines)) <= COPIES
    told = [r.getMessage() for r in caplog.records if "begins here" in r.getMessage()]
    assert told and len(told) == len({t.split("`")[0] for t in told})
    assert "test_family.py:" in told[0]
