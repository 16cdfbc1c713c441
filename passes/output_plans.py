"""Output plans: which of a segment's outputs are values, inputs, or views of either.

Before (what tracing has in hand after `z = x * y`, all of them functional tensors):

    x, z, z.t(), z[0]                     outputs of the segment
    {x}, {z, z.t(), z[0]}                 the memory that they show

After:

    SameAsInput(0), Value(0), ViewOfOutput(0, "{base}.t()"), ViewOfOutput(0, "{base}[0]")

An output that is the only one to show its memory is a value even if eager makes it a view,
unless it is differentiable: then the program may write to it, and its base must be real.
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
)
from .record import (
    NUMBER_TYPES,
    CannotRecord,
    Recorder,
    no_functionalization,
    unwrap,
)
from .views import chain, evaluate, strided_facts


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
        plans: list[OutputPlan] = []
        seen: dict[int, int] = {}
        for position, (node, value) in enumerate(zip(nodes, values, strict=True)):
            plans.append(self._plan(node, value, seen, bases))
            if isinstance(value, torch.Tensor):
                seen.setdefault(id(value), position)
        return plans

    def _plan(
        self, node: Any, value: Any, seen: dict[int, int], bases: dict[int, Any]
    ) -> OutputPlan:
        if isinstance(value, NUMBER_TYPES):
            return Value(self.result(value))
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (tuple, list, dict)):
                raise CannotRecord("an output is a collection")
            return Constant(value)
        for position, given in enumerate(self.inputs):
            if given is value:
                return SameAsInput(position)
        if id(value) in seen:
            return SameAsOutput(seen[id(value)])
        if not torch._is_functional_tensor(value):
            raise CannotRecord("an output was made outside of the recorded calls")
        for position, given in enumerate(self.inputs):
            if isinstance(given, torch.Tensor) and storage_key(given) == storage_key(
                value
            ):
                return ViewOfInput(position, self._view(node, value, given))
        base = bases.get(storage_key(value), value)
        if base is value:
            return Value(self.result(value))
        return ViewOfOutput(self.result(base), self._view(node, value, base))

    def _bases(self, values: list[Any]) -> dict[int, Any]:
        """For each storage that outputs show in part or together, the tensor that owns it."""
        groups: dict[int, list[torch.Tensor]] = {}
        for value in values:
            if isinstance(value, torch.Tensor) and torch._is_functional_tensor(value):
                group = groups.setdefault(storage_key(value), [])
                if not any(value is known for known in group):
                    group.append(value)
        bases: dict[int, Any] = {}
        for storage, group in groups.items():
            first = group[0]
            if len(group) == 1 and not (first.requires_grad and first._is_view()):
                continue
            owners = [g for g in group if not g._is_view()]
            owners.sort(key=lambda g: not g.requires_grad)
            base = owners[0] if owners else first._base
            if base is None:
                raise CannotRecord("outputs share memory that no tensor owns")
            bases[storage] = base
        return bases

    def _view(self, node: fx.Node, value: torch.Tensor, base: torch.Tensor) -> View:
        shown, owner = unwrap(value), unwrap(base)
        offset = shown.storage_offset() - owner.storage_offset()
        size, stride = tuple(shown.size()), tuple(shown.stride())
        detached = self.grad_enabled and base.requires_grad and value.grad_fn is None
        found = chain(node, lambda n: self.values[n] is base)
        if found is not None:
            expression, detaches = found
            with no_functionalization(), self.recorder.paused():
                made = evaluate(expression, owner)
            if strided_facts(made) == strided_facts(shown):
                return View(size, stride, offset, expression, detached and not detaches)
        same = shown.dtype is owner.dtype and shown.is_conj() == owner.is_conj()
        if not same or shown.is_neg() != owner.is_neg():
            raise CannotRecord("an output shows memory as another dtype")
        if not all(isinstance(n, int) for n in (*size, *stride, offset)):
            raise CannotRecord("an output is a view of a symbolic size")
        where = "{base}.storage_offset()" + (f" + {offset}" if offset else "")
        expression = f"torch.as_strided({{base}}, {size}, {stride}, {where})"
        return View(size, stride, offset, expression, detached)

    def result(self, value: Any) -> int:
        """Returns the index of `value` among the results, adding it if it is new."""
        for position, known in enumerate(self.results):
            if known is value:
                return position
        self.results.append(value)
        return len(self.results) - 1


def storage_key(tensor: torch.Tensor) -> int:
    """Returns what two tensors that show the same memory have in common."""
    return int(tensor.untyped_storage()._cdata)
