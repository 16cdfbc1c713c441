"""Checks: what a backward pass looks at to refuse what eager refuses.

Before (eager has saved `y` and `b`; of what is saved here, `h` goes with `grad_y` alone):

    saved     (h, w)                tangents     (grad_y, grad_z)
    checked   (y: grad_y, b: grad_z)

After (lines of the forward and, where a tangent is absent, of the backward function):

    ctx.save_for_backward(h, w)
    ctx.versions = versions_of([y, b])

    refuse_written(ctx.versions, [grad_y is not None, grad_z is not None])
    saved = unpacked(ctx, [grad_y is not None, grad_y is not None or grad_z is not None])

Autograd itself checks what it saves; where all tangents are there, it is not told which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import fx

from .absent import PRODUCTS_ADDED
from .plans import Backward, Checked, SavedInput


def checked_alone(backward: Backward) -> list[Checked]:
    """What eager has saved and asks for, but the backward graph does not read."""
    return [c for c in backward.checked if c.place not in backward.saved]


def keep_versions(
    backward: Backward, parameters: Sequence[str], names: Sequence[str], ctx: str
) -> list[str]:
    """Lines that keep the versions of what is checked without being saved."""
    alone = checked_alone(backward)
    if not alone:
        return []
    tensors = [
        parameters[c.place.index]
        if isinstance(c.place, SavedInput)
        else names[c.place.index]
        for c in alone
    ]
    later = ", ".join(str(c.later) for c in alone)
    counts = f", [{later}]" if any(c.later is not None for c in alone) else ""
    return [f"{ctx}.versions = versions_of([{', '.join(tensors)}]{counts})"]


def used_apart(backward: Backward) -> list[list[int]] | None:
    """For each saved tensor, the positions of the tangents with which it is used.

    It is None where each goes with any tangent.
    """
    count = len(backward.saved)
    given = backward.graph.placeholders
    late = {n: {i} for i, n in enumerate(given[count:])}
    used: dict[fx.Node, set[int]] = {n: set() for n in given[:count]}
    made_from: dict[fx.Node, set[fx.Node]] = {n: {n} for n in given[:count]}
    for node in backward.graph.graph_module.graph.nodes:
        if node.op == "placeholder":
            continue
        read = set[fx.Node]().union(
            *(made_from.get(i, ()) for i in node.all_input_nodes)
        )
        tangents = set[int]().union(*(late.get(i, ()) for i in node.all_input_nodes))
        if node.op == "output":
            early = [r for r in backward.graph.results if r in made_from]
            read = set[fx.Node]().union(*(made_from[r] for r in early))
            tangents = set(range(len(backward.tangents)))
        if not tangents:
            made_from[node] = read
            continue
        late[node] = tangents
        factors = [i for i in node.args[1:3] if isinstance(i, fx.Node)]
        if node.target in PRODUCTS_ADDED and any(i in late for i in factors):
            # What it is added to may be there when there is no product.
            read -= set[fx.Node]().union(*(made_from.get(i, ()) for i in factors))
            theirs = set[int]().union(*(late.get(i, ()) for i in factors))
            for factor in factors:
                for saved in made_from.get(factor, ()):
                    used[saved] |= theirs
        for saved in read:
            used[saved] |= tangents
    asked = {c.place: set(c.tangents) for c in backward.checked}
    found = [
        sorted(used[node] | asked.get(place, set()))
        for node, value, place in zip(
            given, backward.graph.inputs, backward.saved, strict=False
        )
        if isinstance(value, torch.Tensor)
    ]
    apart = any(len(those) < len(backward.tangents) for those in found)
    return found if apart else None


def each_there(tangents: Sequence[str], chosen: Iterable[Sequence[int]]) -> str:
    """A list that says of each choice whether any of its tangents is there."""
    texts = (
        " or ".join(f"{tangents[t]} is not None" for t in those) or "False"
        for those in chosen
    )
    return f"[{', '.join(texts)}]"
