"""A tiny executor of functionalized segments, and the comparison with eager."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

from srcjit.passes.autograd import (
    IMPORTS,
    backward_parameters,
    emit_autograd,
    emit_segment,
)
from srcjit.passes.functional import Functional, functionalize
from srcjit.passes.plans import Backward
from srcjit.passes.program import Segment

_CAPTURES: list[Capture] = []


def autocast_region(function: Callable[[], Any]) -> Any:
    """Runs `function` under bf16 autocast; the region is recorded as two calls."""
    enter, leave = (
        torch.amp.autocast_mode._enter_autocast,
        torch.amp.autocast_mode._exit_autocast,
    )
    given = ("cpu", torch.bfloat16, True, True)
    context = enter(*given)
    if _CAPTURES:
        node = _CAPTURES[-1].graph.call_function(enter, given)
    result = function()
    leave(context)
    if _CAPTURES:
        _CAPTURES[-1].graph.call_function(leave, (node,))
    return result


class Capture(TorchFunctionMode):
    """Records torch-level calls on fakes as an fx graph, as the front end does."""

    def __init__(self, inputs: Sequence[Any], names: Sequence[str]) -> None:
        self.graph = fx.Graph()
        self.nodes: dict[int, tuple[Any, fx.Node]] = {}
        for name, value in zip(names, inputs):
            self.bind(value, self.graph.placeholder(name))

    def bind(self, value: Any, node: fx.Node) -> None:
        self.nodes[id(value)] = (value, node)

    def node(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.node, value))
        if isinstance(value, dict):
            return {k: self.node(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(*map(self.node, (value.start, value.stop, value.step)))
        known = self.nodes.get(id(value))
        return known[1] if known and not isinstance(value, (int, bool)) else value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = (
            tuple(self.node(a) for a in args),
            {k: self.node(v) for k, v in kwargs.items()},
        )
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            if isinstance(result, torch.Tensor):
                attribute = func.__self__.__name__
                self.bind(
                    result, self.graph.call_function(getattr, (*given[0], attribute))
                )
            return result
        if name == "__setitem__":
            self.graph.call_function(operator.setitem, *given)
            return result
        is_state = name == "_set_grad_enabled"
        if not isinstance(result, (torch.Tensor, tuple, list)) and not is_state:
            return result
        if name == "__getitem__":
            node = self.graph.call_function(operator.getitem, *given)
        elif getattr(torch.Tensor, name, None) is func:
            node = self.graph.call_method(name, *given)
        else:
            node = self.graph.call_function(func, *given)
        self._bind_all(result, node)
        return result

    def _bind_all(self, result: Any, node: fx.Node) -> None:
        if isinstance(result, torch.Tensor):
            if not any(result is v for v, _ in self.nodes.values()):
                self.bind(result, node)
        elif isinstance(result, (tuple, list)):
            for i, part in enumerate(result):
                self._bind_all(
                    part, self.graph.call_function(operator.getitem, (node, i))
                )


def segment_of(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    grad: bool = True,
    names: Sequence[str] = (),
) -> Segment:
    """The segment that the front end would make of `function`."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    scratch = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    names = names or list(inspect.signature(function).parameters)

    def fakes(mode: FakeTensorMode) -> list[Any]:
        return [
            mode.from_tensor(i) if isinstance(i, torch.Tensor) else i for i in inputs
        ]

    given = fakes(scratch)
    capture = Capture(given, names)
    _CAPTURES.append(capture)
    try:
        with torch.set_grad_enabled(grad), scratch, capture:
            outputs = function(*given)
    finally:
        _CAPTURES.pop()
        result = capture.node(outputs)
    capture.graph.output(result)
    module = fx.GraphModule(torch.nn.Module(), capture.graph)
    return Segment("segment_0", module, tuple(fakes(mode)), (), grad)


def text_of(functional: Functional) -> str:
    """The program text of a functional segment (without the graphs)."""
    if functional.backward is None:
        return emit_segment(functional, "segment_0", "segment_0_forward")
    return emit_autograd(
        functional,
        "segment_0",
        forward_name="segment_0_forward",
        backward_name="segment_0_backward",
        class_name="Segment0",
    )


def executable(functional: Functional) -> Callable[..., Any]:
    """Makes a function of a functional segment: graphs by fx, the rest from its text."""
    assert functional.forward is not None, functional.reason
    names: dict[str, Any] = {"segment_0_forward": functional.forward.graph_module}
    if functional.backward is not None:
        names["segment_0_backward"] = _taking_a_list(functional.backward)
    text = "\n".join(IMPORTS) + "\n" + text_of(functional)
    exec(compile(text, "<segment>", "exec"), names)
    return names["segment_0"]


def _taking_a_list(backward: Backward) -> Callable[..., Any]:
    """The backward graph with the parameters that emitted functions have."""
    parameters, tensors, _ = backward_parameters(backward)
    order = [n.name for n in backward.graph.placeholders]

    def run(*arguments: Any) -> Any:
        given = dict(zip(parameters, arguments, strict=True))
        given.update(zip(tensors, given[parameters[0]] if tensors else (), strict=True))
        return backward.graph.graph_module(*(given[name] for name in order))

    return run


def copied(inputs: Sequence[Any]) -> list[Any]:
    """Copies of tensors with their strides; parameters stay leaves."""

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
        flat = torch.as_strided(value.detach(), (max(span, 1),), (1,)).clone()
        copy = torch.as_strided(flat, value.shape, value.stride())
        if value.numel() == 0:
            copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return copy.detach().requires_grad_(value.requires_grad)

    return [one(v) for v in inputs]


def same(got: Any, want: Any, what: str) -> None:
    """Asserts value, dtype, size and strides."""
    if not isinstance(want, torch.Tensor):
        assert got == want and type(got) is type(want), (what, got, want)
        return
    assert got.dtype is want.dtype, (what, got.dtype, want.dtype)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    if want.numel() > 1:
        strides = [
            (a, b) for n, a, b in zip(want.shape, got.stride(), want.stride()) if n > 1
        ]
        assert all(a == b for a, b in strides), (what, got.stride(), want.stride())
    close = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-9}
    tolerance = close.get(want.dtype, 2e-5)
    torch.testing.assert_close(
        got.detach(),
        want.detach(),
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}",
    )


def aliasing(tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of positions that share memory."""
    keyed = [
        (i, t.untyped_storage().data_ptr())
        for i, t in enumerate(tensors)
        if isinstance(t, torch.Tensor) and t.untyped_storage().size()
    ]
    return [(i, j) for i, a in keyed for j, b in keyed if i < j and a == b]


def identity(tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of positions that hold one object."""
    keyed = [(i, t) for i, t in enumerate(tensors) if isinstance(t, torch.Tensor)]
    return [(i, j) for i, a in keyed for j, b in keyed if i < j and a is b]


def check(
    function: Callable[..., Any],
    *inputs: Any,
    grad: bool = True,
    use: Callable[[tuple[Any, ...]], list[Any]] | None = None,
    views: bool = True,
) -> Functional:
    """Compares a segment with eager; returns what functionalization gave.

    Args:
        function: Returns a tuple.
        inputs: Its arguments.
        grad: Grad mode.
        use: Picks the outputs that the gradient is taken of; all by default.
        views: Also compare which outputs are views.
    """
    functional = functionalize(segment_of(function, inputs, grad))
    assert not functional.torch_level, functional.reason
    compare(function, executable(functional), inputs, grad=grad, use=use, views=views)
    return functional


def compare(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    grad: bool = True,
    use: Callable[[tuple[Any, ...]], list[Any]] | None = None,
    views: bool = True,
) -> None:
    """Runs both on copies of the inputs, twice, and asserts that they do the same."""
    for round_ in range(2):
        theirs, ours = copied(inputs), copied(inputs)
        torch.manual_seed(round_)
        with torch.set_grad_enabled(grad):
            want = function(*theirs)
        state = torch.get_rng_state()
        torch.manual_seed(round_)
        with torch.set_grad_enabled(grad):
            got = compiled(*ours)
        assert torch.equal(state, torch.get_rng_state()), "random state"
        assert isinstance(got, tuple) and len(got) == len(want)
        for i, (a, b) in enumerate(zip(got, want)):
            same(a, b, f"output {i}")
            if isinstance(b, torch.Tensor):
                assert a.requires_grad == b.requires_grad, (
                    f"requires_grad of output {i}"
                )
                if views:
                    assert a._is_view() == b._is_view(), f"view-ness of output {i}"
        for i, (a, b) in enumerate(zip(ours, theirs)):
            same(a, b, f"input {i}")
            if isinstance(b, torch.Tensor):
                assert (a._version > 0) == (b._version > 0), f"version of input {i}"
        assert aliasing([*ours, *got]) == aliasing([*theirs, *want]), "aliasing"
        assert identity([*ours, *got]) == identity([*theirs, *want]), "identity"
        _check_gradients(ours, theirs, got, want, use)


def _check_gradients(
    ours: list[Any],
    theirs: list[Any],
    got: tuple[Any, ...],
    want: tuple[Any, ...],
    use: Callable[[tuple[Any, ...]], list[Any]] | None,
) -> None:
    def ends(outputs: tuple[Any, ...]) -> list[torch.Tensor]:
        chosen = use(outputs) if use else list(outputs)
        return [
            o
            for o in chosen
            if isinstance(o, torch.Tensor) and o.requires_grad and o.grad_fn
        ]

    if not ends(want):
        return
    torch.manual_seed(7)
    tangents = [torch.randn_like(o) for o in ends(want)]
    try:
        torch.autograd.backward(ends(want), tangents)
    except RuntimeError as error:
        # What eager refuses (a saved value was written to) has to be refused here as well.
        with pytest.raises(RuntimeError, match=re.escape(str(error)[:40])):
            torch.autograd.backward(ends(got), tangents)
        return
    torch.autograd.backward(ends(got), tangents)
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if not isinstance(b, torch.Tensor):
            continue
        assert (a.grad is None) == (b.grad is None), f"presence of gradient {i}"
        if b.grad is not None:
            same(a.grad, b.grad, f"gradient {i}")
