"""What functionalization makes of a segment, as data: graphs, output plans, mutations.

`passes.functional` builds these, `passes.autograd` wires them to autograd, and the host
printer spells them. All of it is immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx


@dataclass(frozen=True, eq=False)
class ATenGraph:
    """A graph of ATen calls without side effects.

    Every node is a `placeholder`, a `get_attr` of an entry of `constants`, a
    `call_function` of an `OpOverload` (or of `operator` functions on symbolic sizes and of
    `operator.getitem` on an op with several results), or the `output`, whose only argument
    is a flat tuple of nodes and numbers.
    No op writes to memory. `node.meta["val"]` holds the fake value of each node.

    NOTE: random ops stand in eager's order and none is missing, dead or not, so that the
    generator's state afterwards is eager's.

    Attributes:
        graph_module: The graph.
        inputs: The fake (or SymInt, SymFloat, number) for each placeholder, in order.
        constants: Real tensors by the name of the `get_attr` target.
    """

    graph_module: fx.GraphModule
    inputs: tuple[Any, ...]
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def placeholders(self) -> list[fx.Node]:
        """The placeholder nodes in order; one for each entry of `inputs`."""
        return [n for n in self.graph_module.graph.nodes if n.op == "placeholder"]

    @property
    def results(self) -> tuple[Any, ...]:
        """The nodes (or None, or numbers) that the graph returns."""
        output = next(iter(reversed(self.graph_module.graph.nodes)))
        return tuple(output.args[0])


@dataclass(frozen=True)
class View:
    """How to make one tensor from another one's memory.

    Attributes:
        expression: Python text with `{base}` in it, such as `"{base}.transpose(0, 1)"`,
            which needs only the name `torch`.
        unrecorded: Autograd did not record how the view was made: evaluate `expression`
            under `torch.no_grad()`. A `.detach()` is part of `expression`.
    """

    expression: str
    unrecorded: bool = False

    def text(self, base: str) -> str:
        """Returns the Python expression that makes the view of the tensor named `base`."""
        return self.expression.replace("{base}", base)


@dataclass(frozen=True)
class Value:
    """The segment's output is the forward graph's result number `index`, as it is."""

    index: int


@dataclass(frozen=True)
class SameAsInput:
    """The segment's output is its input number `input`: the same Python object."""

    input: int


@dataclass(frozen=True)
class ViewOfInput:
    """The segment's output is a view of input number `input`, made after the mutations."""

    input: int
    view: View


@dataclass(frozen=True)
class ViewOfOutput:
    """The segment's output is a view of the forward graph's result number `index`.

    That result may also be an output by itself (`Value(index)`), or serve as a base only.
    """

    index: int
    view: View


@dataclass(frozen=True)
class ViewOfShown:
    """The segment's output is a view of its output number `output`, which is detached."""

    output: int
    view: View


@dataclass(frozen=True)
class SameAsOutput:
    """The segment's output is the same Python object as segment output number `output`.

    `output` is smaller than the position of this plan.
    """

    output: int


@dataclass(frozen=True)
class Constant:
    """The segment's output is a Python value that is known now (number, None, dtype …)."""

    value: Any


OutputPlan: TypeAlias = (
    Value
    | SameAsInput
    | ViewOfInput
    | ViewOfOutput
    | ViewOfShown
    | SameAsOutput
    | Constant
)


@dataclass(frozen=True)
class Mutation:
    """After the graph ran, forward result `output` is copied into input `input`.

    The copy is `input.copy_(result)`, before any view is made for the outputs. A kernel may
    write into the input's memory itself where no later read of the graph wants the old
    values; it then calls `torch.autograd.graph.increment_version(input)`.

    Attributes:
        input: Position of the input.
        output: Index of the forward result.
        versions: How often eager counts a write in the input's version; not at all where
            only a kernel writes to running statistics (then copy into `input.data`).
    """

    input: int
    output: int
    versions: int = 1


@dataclass(frozen=True)
class SavedInput:
    """The backward graph reads forward input number `index`."""

    index: int


@dataclass(frozen=True)
class SavedOutput:
    """The backward graph reads forward result number `index`."""

    index: int


@dataclass(frozen=True)
class Checked:
    """Eager refuses a backward pass when this was written to after the segment.

    Attributes:
        place: The forward input or result.
        tangents: Positions of the tangents; eager asks where any of them is there.
        later: For an input that the segment itself writes to, how often it counts that
            after the forward graph has run.
    """

    place: SavedInput | SavedOutput
    tangents: tuple[int, ...]
    later: int | None = None


@dataclass(frozen=True, eq=False)
class Backward:
    """The backward graph of a segment and how it is wired to the forward graph.

    The placeholders of `graph` are one for each of `saved`, then one for each of `tangents`.

    Attributes:
        graph: Functional graph from saved values and tangents to gradients.
        saved: What each leading placeholder is. Tensors among them go through
            `ctx.save_for_backward`, numbers (symbolic sizes) are attributes of `ctx`.
        tangents: Forward results that have a tangent, in the order of the placeholders.
            `graph.inputs` has the strides that the graph expects of it; a tangent that
            arrives with others is copied to these first (`passes.autograd` emits that).
        gradients: For each forward input, the index of its gradient among the results of
            `graph`, or None for an input that gets none.
        depends: For each result of `graph`, the positions (in `tangents`) of the tangents
            that it is computed from. It is None where all of these are None.
        outputs: Number of leading forward results that the segment itself needs (outputs,
            bases and mutations); those behind them exist only to be saved.
        not_differentiable: Forward results below `outputs` that carry no gradient.
        checked: What eager has saved, whether or not it is among `saved`.
    """

    graph: ATenGraph
    saved: tuple[SavedInput | SavedOutput, ...]
    tangents: tuple[int, ...]
    gradients: tuple[int | None, ...]
    depends: tuple[tuple[int, ...], ...]
    outputs: int
    not_differentiable: tuple[int, ...]
    checked: tuple[Checked, ...] = ()


@dataclass(frozen=True, eq=False)
class Functional:
    """A segment as functional graphs and a plan for what is around them.

    Attributes:
        forward: The graph. Its placeholders are the segment's, all of them, in order.
        outputs: A plan for each output of the segment.
        mutations: Copies into inputs, in order.
        versions: For each of the first forward results, how often eager has counted a write
            in the version of that tensor; none where it is shorter.
        backward: The backward graph, or None when nothing is differentiated.
        autocast: It was traced with autocast on. The graph has the casts written out, so it
            must run under `torch._C._DisableAutocast()`.
        no_grad: The graph must run under `torch.no_grad()`: inputs require grad, but nothing
            that it gives does.
        torch_level: The segment must run as torch-level Python; `forward` is then None.
        reason: Why, as a lower-case phrase for the log.
    """

    forward: ATenGraph | None
    outputs: tuple[OutputPlan, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    versions: tuple[int, ...] = ()
    backward: Backward | None = None
    autocast: bool = False
    no_grad: bool = False
    torch_level: bool = False
    reason: str = ""
