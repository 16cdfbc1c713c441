"""Tracing a segment: from torch-level calls to one joint ATen graph and the output plans.

Before (torch level, `w` requires grad):         After (the joint graph, not yet cut):

    def segment_0(x, w):                             def joint(x, w, grad_y):
        y = torch.tanh(x * w)                            y = tanh(mul(x, w))
        return y, y.t()                                  d = mul(grad_y, sub(1, mul(y, y)))
                                                         return (y,), (None, mul(d, x))

                                                     Value(0), ViewOfOutput(0, "{base}.t()")

Autograd runs on top of functionalization, so the rules of eager mode (what a view is, what a
write to a saved tensor means, which output requires grad) are eager's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .asked import Asked
from .decompositions import LOOK_AT_DATA
from .evaluate.writes import writes_to_first
from .output_plans import Planner, storage_key
from .plans import Mutation, OutputPlan, ViewOfInput, ViewOfOutput
from .program import Segment
from .python_rules import needs_python_rules, python_rules
from .record import (
    CannotRecord,
    Recorder,
    functionalization,
    no_functionalization,
    unshadowing,
    unwrap,
)
from .versions import WriteCounter

aten = torch.ops.aten

CHANGES_THE_TENSOR = frozenset(
    """
    resize_ resize_as_ set_ requires_grad_ retain_grad register_hook detach_ rename_
    share_memory_ backward register_post_accumulate_grad_hook
    """.split()
)
"""Methods that change a tensor's metadata or its part in autograd."""


NEW_VIEW_IN_PLACE = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_".split()
)
"""Methods that make a tensor another view of its memory."""


@dataclass
class Traced:
    """What tracing found. Indices into `results` are those of the forward graph.

    Attributes:
        recorder: Holds the joint graph.
        placeholders: A node for each input of the segment.
        results: Nodes (or numbers) that the forward half must give.
        outputs: A plan for each output of the segment.
        mutations: Copies into inputs.
        versions: For each of `results`, how often the segment writes to it.
        owning: For each of `results`, whether it is a tensor that autograd has no base for.
        tangents: Forward result -> placeholder of its tangent.
        gradients: For each input its gradient's node, or None; empty without a backward.
        asked_inputs: For each input, the positions of the tangents with which eager's
            autograd looks at whether it was written to.
        asked_results: The same for each of `results`.
        mutated: Placeholders of inputs that the segment writes to.
        autocast: Autocast was on.
        no_grad: Inputs require grad in grad mode, but no result does.
    """

    recorder: Recorder
    placeholders: list[fx.Node]
    results: list[Any] = field(default_factory=list)
    outputs: list[OutputPlan] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    owning: list[bool] = field(default_factory=list)
    tangents: dict[int, fx.Node] = field(default_factory=dict)
    gradients: list[Any] = field(default_factory=list)
    asked_inputs: list[frozenset[int]] = field(default_factory=list)
    asked_results: list[frozenset[int]] = field(default_factory=list)
    mutated: set[fx.Node] = field(default_factory=set)
    autocast: bool = False
    no_grad: bool = False


def trace(segment: Segment, table: Mapping[Any, Callable[..., Any]]) -> Traced:
    """Runs `segment` on fakes and records what it does.

    Raises:
        CannotRecord: When it has no functional form; the message says why.
    """
    return _Tracing(segment, table).run()


class _Tracing:
    """The state of one call of `trace`."""

    def __init__(
        self, segment: Segment, table: Mapping[Any, Callable[..., Any]]
    ) -> None:
        self.segment = segment
        self.mode = _fake_mode(segment)
        self.recorder = Recorder(self.mode, table)
        self.nodes = [
            n for n in segment.graph_module.graph.nodes if n.op == "placeholder"
        ]
        self.traced = Traced(self.recorder, [])
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[Any] = []
        self.asked = Asked(())
        self.counter = WriteCounter()
        self.windows: set[int] = set()
        self.planner = Planner(
            self.recorder, self.inputs, self.values, segment.grad_enabled
        )

    # -- the run -------------------------------------------------------------------------

    def run(self) -> Traced:
        segment = self.segment
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(self.mode)
            fresh = [_fresh(value) for value in segment.inputs]
            if needs_python_rules(segment.graph_module.graph, fresh):
                stack.enter_context(python_rules())
            stack.enter_context(_without_autocast_cache())
            stack.enter_context(torch.set_grad_enabled(segment.grad_enabled))
            stack.enter_context(self.recorder)
            stack.enter_context(functionalization())
            self._open(fresh)
            state = _global_state()
            self.traced.autocast = any(on for on, _ in state[1:])
            with torch.autograd.graph.saved_tensors_hooks(self._save, self._load):
                self._interpret()
            if _global_state() != state:
                raise CannotRecord("it leaves grad mode or autocast changed")
            try:
                output = next(iter(reversed(segment.graph_module.graph.nodes)))
                self.traced.outputs = self.planner.plan(output)
                self._refuse_own_counts(output.args[0])
                self._find_mutations()
                results = self.planner.results
                self.traced.versions = self._versions_of_results()
                self.traced.owning = self._owning_results()
                self.traced.results = [self._result_node(r) for r in results]
            except RuntimeError as error:
                # Such as: a view that autograd no longer lets anyone use.
                raise CannotRecord(f"an output raises: {_one_line(error)}") from error
            self._differentiate()
        return self.traced

    def _open(self, fresh: list[Any]) -> None:
        for node, original, value in zip(
            self.nodes, self.segment.inputs, fresh, strict=True
        ):
            if isinstance(value, (bool, int, float)) and node.users:
                raise CannotRecord(f"the number `{node.name}` has no symbol")
            placeholder = self.recorder.placeholder(node.name, value)
            self.traced.placeholders.append(placeholder)
            if isinstance(value, torch.Tensor):
                value = torch._to_functional_tensor(value)
                if original.requires_grad:
                    value.requires_grad_(True)
                self.counter.add(value)
            self.inputs.append(value)
            self.values[node] = value

    def _interpret(self) -> None:
        module = self.segment.graph_module
        for node in module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            called = getattr(node.target, "__name__", node.target)
            if called in CHANGES_THE_TENSOR:
                raise CannotRecord(f"`{called}` changes a tensor itself")
            self.recorder.here = node.name
            try:
                self.values[node] = self._run_node(module, node)
            except CannotRecord:
                raise
            except Exception as error:
                raise CannotRecord(
                    f"`{node.name}` raised {type(error).__name__} on fakes: "
                    f"{_one_line(error)}"
                ) from error
            self._name_after(node)
        self.recorder.here = None

    def _name_after(self, node: fx.Node) -> None:
        """Gives what was recorded for the result of `node` its name."""
        value = self.values[node]
        if isinstance(value, torch.Tensor) and torch._is_functional_tensor(value):
            made = self.recorder.known(torch._from_functional_tensor(value))
            if made is not None and made.meta.get("segment_node") == node.name:
                made._rename(unshadowing(node.name))

    def _run_node(self, module: fx.GraphModule, node: fx.Node) -> Any:
        if node.op == "get_attr":
            value: Any = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            return value
        args = fx.map_arg(node.args, self.values.__getitem__)
        kwargs = fx.map_arg(node.kwargs, self.values.__getitem__)
        if (
            args
            and isinstance(args[0], torch.Tensor)
            and _writes(node)
            and _overlaps_itself(args[0])
        ):
            # PyTorch's functionalization adds such writes up.
            raise CannotRecord("it writes to an expanded tensor")
        if self.windows and args and _writes(node) and self._is_windowed(args[0]):
            # It has zeros between windows, and adds up windows that overlap.
            raise CannotRecord("it may write to what `unfold` shows")
        written = (
            _writes(node) or kwargs.get("inplace") or kwargs.get("out") is not None
        )
        layouts = _layouts((*args, kwargs.get("out"))) if written else []
        self.recorder.writing = bool(written)
        looks = LOOK_AT_DATA.get(node.target)
        if node.target == "unfold" or node.target is torch.Tensor.unfold:
            result = cast(Callable[..., Any], self._unfold)(*args, **kwargs)
        elif node.op == "call_function":
            function = looks.form if looks is not None else node.target
            result = cast(Callable[..., Any], function)(*args, **kwargs)
        elif node.op == "call_method":
            result = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            raise CannotRecord(f"a node of kind {node.op}")
        self.recorder.writing = False
        name = str(getattr(node.target, "__name__", node.target))
        self.counter.wrote(name, (*args, *kwargs.values()))
        counts = node.meta.get("versions", looks.versions if looks is not None else ())
        apart = node.target is getattr and node.args[1] == "data"
        self.counter.add(result, () if apart else args, counts)
        if node.target not in NEW_VIEW_IN_PLACE:
            self._keep_layouts(layouts)
        return result

    def _unfold(self, x: torch.Tensor, dimension: int, size: Any, step: Any) -> Any:
        """Windows that are apart are rows of blocks: a view that can be written to."""
        result = x.unfold(dimension, size, step)
        if x.dim() and all(type(n) is int for n in (*x.size(), size, step)):
            dimension %= x.dim()
            count = result.size(dimension)
            if size <= step and count * step <= x.size(dimension):
                blocks = x.narrow(dimension, 0, count * step)
                sizes = (*x.shape[:dimension], count, step, *x.shape[dimension + 1 :])
                rows = blocks.view(sizes)
                window = rows.narrow(dimension + 1, 0, size)
                return window.movedim(dimension + 1, -1)
        self.windows.add(storage_key(x))
        return result

    def _is_windowed(self, written: Any) -> bool:
        several = written if isinstance(written, (list, tuple)) else [written]
        tensors = [t for t in several if isinstance(t, torch.Tensor)]
        return any(storage_key(t) in self.windows for t in tensors)

    def _keep_layouts(
        self, layouts: list[tuple[torch.Tensor, tuple[Any, ...]]]
    ) -> None:
        """Undoes that a write, as a value, has other strides than what it is written to."""
        for tensor, stride in layouts:
            value = unwrap(tensor)
            if tensor.stride() == stride:
                continue
            with no_functionalization():
                value = self.recorder.exactly_strided(value, stride)
            torch._functionalize_replace(tensor, value)
            torch._functionalize_commit_update(tensor)
            torch._functionalize_sync(tensor)

    # NOTE: hooks turn autograd's own check of versions off, so it is made here.
    def _save(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        return tensor, tensor._version

    def _load(self, saved: tuple[torch.Tensor, int]) -> torch.Tensor:
        tensor, version = saved
        if tensor._version != version:
            raise CannotRecord("a value that a gradient needs is modified in place")
        self.asked.look(tensor)
        return tensor

    # -- effects and results -------------------------------------------------------------

    def _find_mutations(self) -> None:
        memory: dict[int, int] = {}
        for value in self.segment.inputs:
            if isinstance(value, torch.Tensor):
                key = storage_key(value)
                memory[key] = memory.get(key, 0) + 1
        for position, (original, value) in enumerate(
            zip(self.segment.inputs, self.inputs, strict=True)
        ):
            if not isinstance(value, torch.Tensor):
                continue
            if torch._functionalize_has_metadata_mutation(
                value
            ) or torch._functionalize_was_storage_changed(value):
                raise CannotRecord("an input's size or memory is changed")
            written = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]
            if not written(value):
                continue
            if memory[storage_key(original)] > 1:
                raise CannotRecord(
                    "it writes to an input that shares memory with another"
                )
            if value.requires_grad and self.segment.grad_enabled:
                raise CannotRecord("it writes to an input that requires grad")
            self.traced.mutated.add(self.traced.placeholders[position])
            writes = self.counter.writes(value)
            self.traced.mutations.append(
                Mutation(position, self.planner.result(value), writes)
            )

    def _refuse_own_counts(self, outputs: Any) -> None:
        for node, plan in zip(outputs, self.traced.outputs, strict=True):
            if isinstance(plan, ViewOfInput | ViewOfOutput):
                if ".data" in plan.view.expression and self.counter.writes(
                    self.values[node]
                ):
                    raise CannotRecord("it writes to a tensor made by `.data`")

    def _versions_of_results(self) -> list[int]:
        """How often each result was written to; a result that goes into an input counts there."""
        inputs = {id(value) for value in self.inputs}
        return [
            self.counter.writes(value)
            if isinstance(value, torch.Tensor) and id(value) not in inputs
            else 0
            for value in self.planner.results
        ]

    def _owning_results(self) -> list[bool]:
        inputs = {id(value) for value in self.inputs}
        return [
            isinstance(value, torch.Tensor)
            and value._base is None
            and id(value) not in inputs
            for value in self.planner.results
        ]

    def _result_node(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return self.recorder.node(value)
        fake = unwrap(value)
        with no_functionalization():
            laid_out = self.recorder.exactly_strided(fake, value.stride())
            return self.recorder.node(laid_out)

    # -- the backward half ---------------------------------------------------------------

    def _differentiate(self) -> None:
        wanted = [
            position
            for position, value in enumerate(self.inputs)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        ends = [
            position
            for position, value in enumerate(self.planner.results)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if not ends or not self.segment.grad_enabled:
            self.traced.no_grad = bool(wanted) and self.segment.grad_enabled
            return
        if not wanted or any(self.planner.results[p].grad_fn is None for p in ends):
            raise CannotRecord("it makes a leaf that requires grad")
        tangents = []
        for position in ends:
            tangent = self._tangent(position)
            tangents.append(torch._to_functional_tensor(tangent))
        self.asked = Asked([self.planner.results[p] for p in ends])
        # A backward pass runs outside of the region that its forward pass was in.
        with torch._C._DisableAutocast():
            try:
                gradients = torch.autograd.grad(
                    [self.planner.results[p] for p in ends],
                    [self.inputs[p] for p in wanted],
                    tangents,
                    allow_unused=True,
                )
            except CannotRecord:
                raise
            except Exception as error:
                raise CannotRecord(
                    f"its gradient raised {type(error).__name__} on fakes: "
                    f"{_one_line(error)}"
                ) from error
        self.traced.gradients = [None] * len(self.inputs)
        for position, gradient in zip(wanted, gradients, strict=True):
            if gradient is not None:
                node = self._result_node(gradient)
                self.traced.gradients[position] = node
        asked = self.asked.tangents
        self.traced.asked_inputs = [asked(value) for value in self.inputs]
        self.traced.asked_results = [asked(value) for value in self.planner.results]

    def _tangent(self, position: int) -> torch.Tensor:
        like = unwrap(self.planner.results[position])
        with no_functionalization(), self.recorder.paused():
            tangent = torch.empty_strided(
                like.size(), like.stride(), dtype=like.dtype, device=like.device
            )
        result = self.traced.results[position]
        node = self.recorder.placeholder(f"grad_{result.name}", tangent)
        self.traced.tangents[position] = node
        return tangent


def _fake_mode(segment: Segment) -> FakeTensorMode:
    for value in segment.inputs:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    for value in segment.outputs:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode()


def _fresh(value: Any) -> Any:
    """A fake like `value` without history; it shows the same storage."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_inference():
        return torch.empty_strided(
            value.size(), value.stride(), dtype=value.dtype, device=value.device
        )
    return value.detach()


def _layouts(args: Iterable[Any]) -> list[tuple[torch.Tensor, tuple[Any, ...]]]:
    """Tensors among the arguments, and what they are views of, with their strides."""
    found = []
    for value in args:
        if isinstance(value, torch.Tensor) and torch._is_functional_tensor(value):
            if value._base is not None:
                found.append((value, value.stride()))
            owner = value._base if value._base is not None else value
            found.append((owner, owner.stride()))
    return found


def _writes(node: fx.Node) -> bool:
    """True for a call that may write to its first argument."""
    return writes_to_first(str(getattr(node.target, "__name__", node.target)))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    return any(
        n > 1 and s == 0 for n, s in zip(tensor.size(), tensor.stride(), strict=True)
    )


def _global_state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        *(
            (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in ("cpu", "cuda")
        ),
    )


@contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """The cache would answer with tensors that were never recorded."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
