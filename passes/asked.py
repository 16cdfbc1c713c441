"""Asked: for which tangents eager's autograd looks at each tensor that it has saved.

Before (the nodes of eager's graph behind two results; `Exp` has saved `e`):

    y = x.exp()          y.grad_fn: Exp → AccumulateGrad(x)
    z = y * w            z.grad_fn: Mul → Exp, AccumulateGrad(w)

After (`Mul` runs where the tangent of `z` is there, `Exp` where any is):

    y is asked for with the tangents {0, 1}, w with {1}

A tensor shares its version with its views, so what counts is the memory that they show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .output_plans import storage_key


class Asked:
    """What one run of the backward pass, with all tangents, looks at."""

    def __init__(self, results: Sequence[torch.Tensor]) -> None:
        """Takes the results that have tangents, in order."""
        self._leading = _leading_to([r.grad_fn for r in results])
        self._all = frozenset(range(len(results)))
        self._asked: dict[int, frozenset[int]] = {}

    def look(self, tensor: torch.Tensor) -> None:
        """Called while autograd takes out what it has saved."""
        node = torch._C._current_autograd_node()
        key = storage_key(tensor)
        found = self._leading.get(node, self._all)
        self._asked[key] = self._asked.get(key, frozenset()) | found

    def tangents(self, tensor: Any) -> frozenset[int]:
        """The positions of the tangents with which what `tensor` shows is looked at."""
        if not isinstance(tensor, torch.Tensor):
            return frozenset()
        return self._asked.get(storage_key(tensor), frozenset())


def _leading_to(ends: Sequence[Any]) -> dict[Any, frozenset[int]]:
    """For each node of autograd's graph, the positions of the ends that it is behind."""
    order: list[Any] = []
    seen: set[Any] = set()
    open_ = [(end, False) for end in ends]
    while open_:
        node, is_done = open_.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            open_.append((node, True))
            open_ += [(n, False) for n, _ in node.next_functions if n is not None]
    leading: dict[Any, frozenset[int]] = {}
    for position, end in enumerate(ends):
        leading[end] = leading.get(end, frozenset()) | {position}
    for node in reversed(order):
        for following, _ in node.next_functions:
            if following is not None:
                before = leading.get(following, frozenset())
                leading[following] = before | leading[node]
    return leading
