"""Output plans: which of a segment's outputs are values, inputs, or views of either.

Before (what tracing has in hand after `z = x * y`, all of them functional tensors):

    x, z, z.t(), z[0]                     outputs of the segment
    {x}, {z, z.t(), z[0]}                 the memory that they show

After:

    SameAsInput(0), Value(0), ViewOfOutput(0, "{base}.t()"), ViewOfOutput(0, "{base}[0]")

An output that is the only one to show its memory is a value even if eager makes it a view,
unless it is differentiable: then the program may write to it, and its base must be real.

What `detach()` or `.data` gives shows the same memory, but is no view for autograd: it has no
base, and what is made from it has *it* for a base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .plans import (
    Constant,
    OutputPlan,
    SameAsInput,
    SameAsOutput,
    Value,
    View,
    ViewOfInput,
    ViewOfOutput,
    ViewOfShown,
)
from .record import (
    NUMBER_TYPES,
    CannotRecord,
    Recorder,
    no_functionalization,
    unwrap,
)
from .views import chain, detaching, evaluate, strided_facts


class Planner:
    """Plans the outputs of one traced segment.

    Attributes:
        results: What the forward graph must give, in order: functional tensors and numbers.
    """

    def __init__(
        self,
        recorder: Recorder,
        inputs: Sequence[Any],
        values: Mapping[fx.Node, Any],
        grad_enabled: bool,
    ) -> None:
        self.recorder = recorder
        self.inputs = inputs
        self.values = values
        self.grad_enabled = grad_enabled
        self.results: list[Any] = []

    def plan(self, output: fx.Node) -> list[OutputPlan]:
        """Returns a plan for each output, given the `output` node of the segment's graph.

        Raises:
            CannotRecord: For outputs that cannot be made outside of the graph.
        """
        wanted = output.args[0]
        nodes = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
        values = [self.values[n] if isinstance(n, fx.Node) else n for n in nodes]
        bases = self._bases(values)
        shown: dict[int, int] = {}
        for position, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                shown.setdefault(id(value), position)
        return [
            self._plan(position, node, value, shown, bases)
            for position, (node, value) in enumerate(zip(nodes, values, strict=True))
        ]

    def _plan(
        self,
        position: int,
        node: Any,
        value: Any,
        shown: dict[int, int],
        bases: dict[int, Any],
    ) -> OutputPlan:
        if isinstance(value, NUMBER_TYPES):
            return Value(self.result(value))
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (tuple, list, dict)):
                raise CannotRecord("an output is a collection")
            return Constant(value)
        for number, given in enumerate(self.inputs):
            if given is value:
                return SameAsInput(number)
        if shown[id(value)] != position:
            return SameAsOutput(shown[id(value)])
        if not torch._is_functional_tensor(value):
            raise CannotRecord("an output was made outside of the recorded calls")
        root, key = _root(value), storage_key(value)
        source = next(
            (
                n
                for n, given in enumerate(self.inputs)
                if isinstance(given, torch.Tensor) and storage_key(given) == key
            ),
            None,
        )
        owner = bases.get(key, value) if source is None else self.inputs[source]
        if owner is value:
            return Value(self.result(value))
        if root is not value and root is not owner and id(root) in shown:
            return ViewOfShown(shown[id(root)], self._view(node, value, root))
        view = self._view(node, value, owner)
        if source is None:
            return ViewOfOutput(self.result(owner), view)
        return ViewOfInput(source, view)

    def _bases(self, values: list[Any]) -> dict[int, Any]:
        """For each storage that outputs show in part or together, the tensor that owns it."""
        groups: dict[int, list[torch.Tensor]] = {}
        for value in values:
            if isinstance(value, torch.Tensor) and torch._is_functional_tensor(value):
                group = groups.setdefault(storage_key(value), [])
                if not any(value is known for known in group):
                    group.append(value)
        shared = {
            storage: group
            for storage, group in groups.items()
            if len(group) > 1 or (group[0].requires_grad and group[0]._is_view())
        }
        if not shared:
            return {}
        made: dict[int, int] = {}
        for number, value in enumerate(self.values.values()):
            if isinstance(value, torch.Tensor):
                made.setdefault(id(_root(value)), number)
        bases: dict[int, Any] = {}
        for storage, group in shared.items():
            # What is detached from a tensor is made behind it.
            roots = [_root(g) for g in group]
            bases[storage] = min(roots, key=lambda root: made.get(id(root), 0))
        return bases

    def _view(self, node: fx.Node, value: torch.Tensor, base: torch.Tensor) -> View:
        shown, owner = unwrap(value), unwrap(base)
        offset = shown.storage_offset() - owner.storage_offset()
        size, stride = tuple(shown.size()), tuple(shown.stride())
        root = _root(value)
        apart = root is not base and root is not _root(base)
        recorded = self.grad_enabled and base.requires_grad
        unrecorded = recorded and not apart and value.grad_fn is None
        is_base = lambda n: self.values[n] is base  # noqa: E731
        expression = chain(node, is_base)
        if expression is not None:
            with no_functionalization(), self.recorder.paused():
                made = evaluate(expression, owner)
            if strided_facts(made) == strided_facts(shown):
                return View(expression, unrecorded)
        same = shown.dtype is owner.dtype and shown.is_conj() == owner.is_conj()
        if not same or shown.is_neg() != owner.is_neg():
            raise CannotRecord("an output shows memory as another dtype")
        if not all(isinstance(n, int) for n in (*size, *stride, offset)):
            raise CannotRecord("an output is a view of a symbolic size")
        where = "{base}.storage_offset()" + (f" + {offset}" if offset else "")
        cut = detaching(node, is_base) if apart else ""
        start, end = (cut, "") if root is not value else ("", cut)
        expression = (
            f"torch.as_strided({{base}}{start}, {size}, {stride}, {where}){end}"
        )
        return View(expression, unrecorded)

    def result(self, value: Any) -> int:
        """Returns the index of `value` among the results, adding it if it is new."""
        for position, known in enumerate(self.results):
            if known is value:
                return position
        self.results.append(value)
        return len(self.results) - 1


def _root(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or what autograd has for the base of the view that it is."""
    return tensor if tensor._base is None else tensor._base


def storage_key(tensor: torch.Tensor) -> int:
    """Returns what two tensors that show the same memory have in common."""
    return int(tensor.untyped_storage()._cdata)
