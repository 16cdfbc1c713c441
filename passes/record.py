"""Recording: run torch-level code on fakes and write down the ATen calls it comes to.

Before (torch level):              After (the recorder's graph):

    h = F.linear(x, w, b)              t    = aten.t.default(w)
    y = F.relu(h, inplace=True)        h    = aten.addmm.default(b, x, t)
                                       relu = aten.relu.default(h)

Writes are turned into values by PyTorch's functionalization, which sits between autograd and
the recorder, so that the same recording serves for the forward and the backward half.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode

from .views import size_key

aten = torch.ops.aten

NUMBER_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)

_SAME_VALUE = frozenset(
    {
        aten.alias.default,
        aten.detach.default,
        aten.lift.default,
        aten.lift_fresh.default,
    }
)


_OURS = frozenset(
    """
    torch math operator triton tl cpp_kernels empty_cpu empty_large_cpu empty_cuda laid_out
    checks launch precompile Graphs first_derivative unpacked attend_cpu attend_cuda
    versions_of refuse_written
    """.split()
)
"""What emitted functions have their modules' globals for."""


def unshadowing(name: str) -> str:
    """Returns a name that hides nothing which an emitted function reads.

    >>> [unshadowing(n) for n in ("y", "empty_cpu", "segment_0_kernels", "segments")]
    ['y', 'empty_cpu_', 'segment_0_kernels_', 'segments']
    """
    ours = name in _OURS or re.fullmatch(r"[sS]egment(_?\d+)*(_[a-z]\w*)?", name)
    return f"{name}_" if ours else name


class CannotRecord(Exception):
    """The code cannot be written as a functional graph; the message says why."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes each ATen call on fakes as one node of `graph`.

    Calls come in at the level below autograd and functionalization. A call in the table of
    decompositions is run instead of recorded, and so is what PyTorch itself defines as a
    composite.

    Attributes:
        graph: The graph that grows.
        constants: Tensors with known values that traced code made, by `get_attr` target.
        here: Name of the torch-level node that runs now; goes to `node.meta["segment_node"]`.
        writing: That node is a write in place: what an op gives then has the strides of
            what is written to, which are not always those of the op's own result.
    """

    def __init__(
        self, mode: FakeTensorMode, decompositions: Mapping[Any, Callable[..., Any]]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.here: str | None = None
        self.writing = False
        self._mode = mode
        self._decompositions = decompositions
        # The tensors are kept, so that no id is used twice.
        self._nodes: dict[int, tuple[torch.Tensor, fx.Node]] = {}
        self._symbols: dict[sympy.Symbol, fx.Node] = {}
        self._numbers: dict[sympy.Expr, fx.Node] = {}
        self._paused = False

    # -- inputs and results --------------------------------------------------------------

    def placeholder(self, name: str, value: Any) -> fx.Node:
        """Adds a placeholder for a fake tensor or a run-time number."""
        node = self.graph.placeholder(unshadowing(name))
        node.meta["val"] = value
        if isinstance(value, torch.Tensor):
            self.bind(value, node)
            sizes = (*value.size(), *value.stride(), value.storage_offset())
            for position, size in enumerate(sizes):
                self._learn_size(size, node, position, value.dim())
        elif isinstance(value, NUMBER_TYPES):
            expression = value.node.expr
            if isinstance(expression, sympy.Symbol):
                self._symbols[expression] = node
            self._numbers[expression] = node
        return node

    def bind(self, value: torch.Tensor, node: fx.Node) -> None:
        """Makes `node` the node that holds `value`."""
        self._nodes[id(value)] = (value, node)

    def node(self, value: Any) -> Any:
        """Returns what stands for `value` in the graph: a node, or the value itself.

        Raises:
            CannotRecord: For a tensor that the recorder has not seen.
        """
        if isinstance(value, torch.Tensor):
            known = self._nodes.get(id(value))
            if known is not None:
                return known[1]
            if not isinstance(value, FakeTensor):
                return self._constant(value)
            raise CannotRecord("it reads a tensor that is not an input")
        if isinstance(value, NUMBER_TYPES):
            return self._number(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.node(v) for v in value)
        return value

    def known(self, value: torch.Tensor) -> fx.Node | None:
        """Returns the node that holds `value`, or None."""
        found = self._nodes.get(id(value))
        return found[1] if found else None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Runs ATen calls without writing them down."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # -- calls ---------------------------------------------------------------------------

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused or func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        args = self._as_fakes(args)
        rule = self._decompositions.get(func)
        if rule is not None:
            with self:
                result = rule(*args, **kwargs)
            if result is not NotImplemented:
                return self._with_strides_of(func, args, kwargs, result)
        if func in _SAME_VALUE:
            return self._same_value(func, args[0])
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        if func._schema.is_mutable:
            raise CannotRecord(f"{func} writes to memory below functionalization")
        return self._record(func, args, kwargs)

    def _with_strides_of(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        """Gives what a decomposition made the strides that `func` itself would give."""
        if func in _SAME_VALUE or _all_contiguous((args, kwargs, result)):
            return result
        if self.writing and has_in_place_form(func):
            return self.restrided(result, args[0].stride())
        with self.paused():
            expected = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            return self.restrided(result, expected.stride())
        return tuple(
            self.restrided(r, e.stride()) if isinstance(e, torch.Tensor) else r
            for r, e in zip(result, expected, strict=True)
        )

    def exactly_strided(
        self, value: torch.Tensor, stride: Sequence[Any]
    ) -> torch.Tensor:
        """As `restrided`, with these strides also where dimensions have size 1."""
        result = self.restrided(value, stride)
        if (
            len(stride) != value.dim()
            or value.numel() == 0
            or not all(type(n) is int for n in (*value.size(), *stride))
            or result.stride() == tuple(stride)
        ):
            return result
        with self.paused():
            shown = torch.empty_strided(
                value.size(), stride, dtype=value.dtype, device=value.device
            )
        node = self.graph.call_function(aten.clone.default, (self.node(result),))
        node.meta["val"] = shown
        node.meta["segment_node"] = self.here
        self.bind(shown, node)
        return shown

    def restrided(self, value: torch.Tensor, stride: Sequence[Any]) -> torch.Tensor:
        """Returns `value` in memory of the given (dense) layout, recording the copy.

        NOTE: strides of dimensions of size 1 address nothing and are not compared.
        """
        if len(stride) != value.dim():
            return value
        meant = [
            (size_key(have), size_key(want))
            for size, have, want in zip(
                value.size(), value.stride(), stride, strict=True
            )
            if size_key(size) != 1
        ]
        if all(have == want for have, want in meant) or value.numel() == 0:
            return value
        order = sorted(range(value.dim()), key=lambda d: (-stride[d], d))
        back = [order.index(d) for d in range(value.dim())]
        with self:
            moved = aten.permute.default(value, order)
            dense = aten.clone.default(moved, memory_format=torch.contiguous_format)
            result: torch.Tensor = aten.permute.default(dense, back)
        return result

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is aten.bernoulli.p and not args[0].is_contiguous():
            # Stands for `bernoulli_`, which draws in the order of memory; this op does not.
            raise CannotRecord("it fills a tensor that is not contiguous at random")
        node_args = tuple(self.node(a) for a in args)
        node_kwargs = {k: self.node(v) for k, v in kwargs.items()}
        result = func(*args, **kwargs)
        node = self.graph.call_function(func, node_args, node_kwargs)
        node.meta["val"] = result
        node.meta["segment_node"] = self.here
        self._bind_result(result, node)
        if self.writing and has_in_place_form(func):
            return self.restrided(result, args[0].stride())
        return result

    def _bind_result(self, result: Any, node: fx.Node) -> None:
        if isinstance(result, torch.Tensor):
            self.bind(result, node)
        elif isinstance(result, (list, tuple)):
            for position, part in enumerate(result):
                if isinstance(part, (torch.Tensor, *NUMBER_TYPES)):
                    item = self.graph.call_function(operator.getitem, (node, position))
                    item.meta.update(val=part, segment_node=self.here)
                    self._bind_result(part, item)
        elif isinstance(result, NUMBER_TYPES):
            expression = result.node.expr
            if isinstance(expression, sympy.Symbol):
                self._symbols[expression] = node
            self._numbers[expression] = node

    def _same_value(self, func: Any, value: torch.Tensor) -> torch.Tensor:
        node = self.node(value)
        with self.paused():
            result: torch.Tensor = func(value)
        self.bind(result, node)
        return result

    def _as_fakes(self, args: Any) -> Any:
        """Replaces real tensors (constants) among the arguments by their fakes."""
        return type(args)(
            self._as_fakes(a)
            if isinstance(a, (list, tuple))
            else self.node(a).meta["val"]
            if isinstance(a, torch.Tensor) and not isinstance(a, FakeTensor)
            else a
            for a in args
        )

    def _constant(self, value: torch.Tensor) -> fx.Node:
        with self.paused():
            fake = self._mode.from_tensor(value, static_shapes=True)
        if value.dim() == 0 and not value.is_complex():
            node = self.graph.call_function(
                aten.full.default,
                ([], _item(value)),
                {"dtype": value.dtype, "device": value.device},
            )
        else:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = _copy(value)
            node = self.graph.create_node("get_attr", name, name=name)
        node.meta.update(val=fake, segment_node=self.here)
        self.bind(value, node)
        self.bind(fake, node)
        return node

    # -- numbers -------------------------------------------------------------------------

    def _learn_size(self, size: Any, node: fx.Node, position: int, rank: int) -> None:
        if not isinstance(size, torch.SymInt) or size.node.expr in self._numbers:
            return
        call = (
            (aten.sym_size.int, (node, position))
            if position < rank
            else (aten.sym_stride.int, (node, position - rank))
            if position < 2 * rank
            else (aten.sym_storage_offset.default, (node,))
        )
        made = self.graph.call_function(*call)
        made.meta["val"] = size
        expression = size.node.expr
        self._numbers[expression] = made
        if isinstance(expression, sympy.Symbol):
            self._symbols[expression] = made

    def _number(self, value: Any) -> Any:
        expression = value.node.expr
        if expression.is_number:
            return _plain(expression)
        node = self._numbers.get(expression)
        if node is None:
            node = self._numbers[expression] = self._compute(expression)
        if isinstance(node, fx.Node):
            # It may have been computed before as a part of another number.
            node.meta.setdefault("val", value)
        return node

    def _compute(self, expression: sympy.Expr) -> Any:
        """Writes an expression over known symbols as calls of `operator` functions."""
        known = self._numbers.get(expression, self._symbols.get(expression))
        if known is not None:
            return known
        if expression.is_number:
            return _plain(expression)
        function = _OPERATORS.get(type(expression).__name__)
        if function is None or not expression.args:
            raise CannotRecord(f"the size {expression} is not known before it runs")
        parts = [self._compute(a) for a in expression.args]
        result = (
            parts[0]
            if len(parts) > 1
            else self.graph.call_function(function, (parts[0],))
        )
        for part in parts[1:]:
            result = self.graph.call_function(function, (result, part))
        self._numbers[expression] = result
        return result


_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloatPow": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
    "ToFloat": float,
    "TruncToInt": int,
}


def _item(value: torch.Tensor) -> Any:
    with unset_fake_temporarily():
        return value.item()


def _copy(value: torch.Tensor) -> torch.Tensor:
    with unset_fake_temporarily():
        return value.detach().clone()


def _all_contiguous(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_contiguous()
    if isinstance(value, dict):
        return all(map(_all_contiguous, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_all_contiguous, value))


def _plain(expression: sympy.Expr) -> int | float | bool:
    if expression.is_integer:
        return int(expression)
    return float(expression)


@functools.cache
def _is_composite(func: Any) -> bool:
    """True for an op that PyTorch defines by other ops alone."""
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), torch._C.DispatchKey.CompositeImplicitAutograd
        )
    )


@functools.cache
def has_in_place_form(func: Any) -> bool:
    """True for an op such as `aten.mul.Tensor`, beside which there is `aten.mul_.Tensor`."""
    packet = getattr(aten, func._schema.name.split("::")[1] + "_", None)
    return packet is not None and func._overloadname in packet.overloads()


@contextmanager
def functionalization() -> Iterator[None]:
    """Turns on PyTorch's functionalization (views stay views)."""
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()  # type: ignore[no-untyped-call]


@contextmanager
def no_functionalization() -> Iterator[None]:
    """Turns it off again inside `functionalization()`."""
    torch._disable_functionalization()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch._enable_functionalization(reapply_views=True)


def unwrap(value: torch.Tensor) -> torch.Tensor:
    """Returns the fake that holds the current value of a functional tensor."""
    if not torch._is_functional_tensor(value):
        return value
    torch._functionalize_sync(value)
    return torch._from_functional_tensor(value)
