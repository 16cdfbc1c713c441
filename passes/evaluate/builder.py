"""The open segment: a torch-level `fx.Graph` that grows by one node per tensor operation.

Each operation is run on fake tensors by PyTorch itself, which gives shape, dtype, strides and
errors; nothing here knows an operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..contents import contents
from ..graph_modules import graph_module
from ..program import Segment
from ..versions import counts_of
from . import fake_runs, size_bounds
from .breaks import Break
from .frozen import is_frozen
from .raising import Facts
from .sizes import is_symbolic
from .values import (
    DictValue,
    Known,
    ListValue,
    Scalar,
    SliceValue,
    TensorValue,
    TupleValue,
    Unknown,
    Value,
    constant,
    described,
    is_constant,
)

if TYPE_CHECKING:
    from .evaluator import Evaluator


def no_operand(value: Value) -> Break:
    """The break for what PyTorch takes no part of an operation from."""
    if isinstance(value, Unknown):
        return Break("SJ020", "a tensor operation needs a value that is not known")
    return Break("SJ015", f"{described(value)} is an operand of a tensor operation")


def _no_result(result: Any) -> Break:
    return Break(
        "SJ105",
        f"an operation returns a `{type(result).__name__}`",
        hint="return tensors, numbers, or tuples and lists of them",
    )


class SegmentBuilder:
    """Records tensor operations between two graph breaks.

    NOTE: every change is journaled, so that a statement that breaks leaves no trace.
    """

    def __init__(self, evaluator: Evaluator, name: str) -> None:
        self.evaluator = evaluator
        self._facts = Facts()
        self.risks = 0
        """Number of operations that may raise when they run."""
        self.watched = False
        """Whether code of the program's runs if an operation fails."""
        self.name = name
        self.graph = torch.fx.Graph()
        self.inputs: list[Value] = []
        self.operations = 0
        self.touched: list[Value] = []
        self.mutates = False
        self._first: torch.fx.Node | None = None

    # ── operands ──────────────────────────────────────────────────────────────────

    def _placeholder(self, value: TensorValue | Scalar, hint: str) -> torch.fx.Node:
        journal = self.evaluator.journal
        anchor = self._last_placeholder()
        context = (
            self.graph.inserting_after(anchor)
            if anchor is not None
            else self.graph.inserting_before(self._first_node())
        )
        with context:
            node = self.graph.placeholder(hint)
            node.target = node.name
        journal.record(lambda: self.graph.erase_node(node))
        journal.append(self.inputs, value)
        journal.set_attr(value, "node", node)
        journal.append(self.touched, value)
        return node

    def _last_placeholder(self) -> torch.fx.Node | None:
        last = None
        for node in self.graph.nodes:
            if node.op != "placeholder":
                break
            last = node
        return last

    def _first_node(self) -> torch.fx.Node:
        return self.graph._root.next

    def operand(self, value: Value) -> Any:
        """Returns the fx argument for `value`, making it an input of the segment if need be."""
        match value:
            case TensorValue():
                if value.node is not None:
                    return value.node
                hint = value.source.hint if value.source else value.name or "tensor"
                return self._placeholder(value, hint)
            case Scalar():
                assert value.symbol is not None
                if value.node is not None:
                    return value.node
                return self._placeholder(value, value.name or "scalar")
            case TupleValue():
                items = [self.operand(item) for item in value.items]
                return (
                    value.cls(*items) if hasattr(value.cls, "_fields") else tuple(items)
                )
            case ListValue():
                return [self.operand(i) for i in self.evaluator.list_items(value)]
            case DictValue():
                return {
                    k: self.operand(v)
                    for k, v in self.evaluator.dict_items(value).items()
                }
            case SliceValue():
                return slice(
                    self.operand(value.start),
                    self.operand(value.stop),
                    self.operand(value.step),
                )
            case Known():
                constant_operand = self.evaluator.operand_constant(value)
                if isinstance(constant_operand, np.generic):
                    return constant_operand.item()
                return constant_operand
        raise no_operand(value)

    def fake(self, value: Value) -> Any:
        """Returns what `value` is in the fake execution of an operation."""
        match value:
            case TensorValue():
                return value.fake
            case Scalar():
                return value.symbol
            case TupleValue():
                items = [self.fake(item) for item in value.items]
                if value.cls is torch.Size:
                    return torch.Size(items)
                return (
                    value.cls(*items) if hasattr(value.cls, "_fields") else tuple(items)
                )
            case ListValue():
                return [self.fake(i) for i in self.evaluator.list_items(value)]
            case DictValue():
                return {
                    k: self.fake(v) for k, v in self.evaluator.dict_items(value).items()
                }
            case SliceValue():
                return slice(
                    self.fake(value.start), self.fake(value.stop), self.fake(value.step)
                )
            case Known():
                cls = type(value.obj)
                if not is_frozen(cls.__module__):
                    # PyTorch would call methods of the user's now, and again when it runs.
                    raise no_operand(value)
                return value.obj
        raise no_operand(value)

    # ── operations ────────────────────────────────────────────────────────────────

    def call(
        self,
        kind: str,
        target: Callable[..., Any] | str,
        args: list[Value],
        kwargs: dict[str, Value],
        hint: str,
    ) -> Value:
        """Runs one operation on fakes and records it.

        Args:
            kind: `call_function` or `call_method`.
            target: The function, or the method's name (the receiver is `args[0]`).
            args: Positional operands.
            kwargs: Keyword operands.
            hint: Name for the node.

        Returns:
            The result as a value: new tensors, the operand itself for in-place operations, or a
            constant for metadata.

        Raises:
            GraphBreak: SJ030 when eager would raise, SJ103 to SJ105 when fakes cannot run it.
        """
        if args and isinstance(args[0], Known) and isinstance(args[0].obj, np.generic):
            raise Break("SJ015", "NumPy makes the first step of this operation")
        fake_args = [self.fake(a) for a in args]
        fake_kwargs = {k: self.fake(v) for k, v in kwargs.items()}
        try:
            result, self._facts = fake_runs.run(
                self.evaluator, kind, target, fake_args, fake_kwargs
            )
            if size_bounds.is_wide((fake_args, fake_kwargs), self.evaluator.wide):
                self._facts = replace(self._facts, risky=True)
        except Break as stop:
            if stop.diagnostic.code == "SJ020":
                stop.needs_known = _first_scalar([*args, *kwargs.values()])
            raise
        if result is None or (not _has_tensor(result) and is_constant(result)):
            if result is None:
                # Such as `x.__setitem__(0, 1)`: what it does would be lost.
                raise Break(
                    "SJ015",
                    f"`{getattr(target, '__name__', target)}` returns no tensor",
                    hint="write it as the statement that it stands for, such as "
                    "`x[i] = y`, or use a form that returns a tensor",
                )
            for value in [*args, *kwargs.values()]:
                self.evaluator.use_deep(value)
            return constant(result)
        if not _has_tensor(result) and is_symbolic(result):
            for value in [*args, *kwargs.values()]:
                self.evaluator.use_deep(value)
            try:
                return self.evaluator.sizes.value(result)
            except Break as stop:
                stop.needs_known = _first_scalar([*args, *kwargs.values()])
                raise
        if _has_unknown_size(result, self.evaluator):
            # NOTE: a size that depends on a number whose value is not at hand fixes it.
            raise Break(
                "SJ020",
                "a size depends on a run-time number",
                needs_known=_first_scalar([*args, *kwargs.values()]),
            )
        known = {
            id(v.fake): v for v in _tensors([*args, *kwargs.values()], self.evaluator)
        }
        node_args = tuple(self.operand(a) for a in args)
        node_kwargs = {k: self.operand(v) for k, v in kwargs.items()}
        node = self._operation(kind, target, node_args, node_kwargs, hint)
        if (counts := counts_of(result)) and id(result) not in known:
            node.meta["versions"] = counts
        return self._wrap(result, node, known)

    def _node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        hint: str,
    ) -> torch.fx.Node:
        journal = self.evaluator.journal
        node = self.graph.create_node(kind, target, args, kwargs, name=hint)
        journal.record(lambda: self.graph.erase_node(node))
        journal.set_attr(self, "operations", self.operations + 1)
        origin = self.evaluator.statement_origin()
        if origin is not None:
            node.meta["origin"] = origin
        return node

    def _operation(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        hint: str,
    ) -> torch.fx.Node:
        """Adds the call that has just been run on fakes."""
        node = self._node(kind, target, args, kwargs, hint)
        node.meta["facts"] = self._facts
        if self._facts.risky:
            self.evaluator.journal.set_attr(self, "risks", self.risks + 1)
            node.meta["stack"] = self.evaluator.call_stack()
            node.meta["contents"] = contents(
                self.evaluator, self.evaluator.effect_values
            )
        return node

    def last_operation(self) -> torch.fx.Node | None:
        """The operation that was recorded last."""
        node = self.graph._root.prev
        return node if node.op not in ("root", "placeholder") else None

    def watch(self) -> None:
        """Notes that code of the program's runs if an operation of the segment fails."""
        self.evaluator.journal.set_attr(self, "watched", True)

    def store(self, target: Callable[..., Any], args: list[Value]) -> None:
        """Records `args[0][args[1]] = args[2]`, an in-place operation without a result."""
        fakes = [self.fake(a) for a in args]
        _, self._facts = fake_runs.run(
            self.evaluator, "call_function", target, fakes, {}
        )
        node = self._operation(
            "call_function", target, tuple(self.operand(a) for a in args), {}, "store"
        )
        node.meta["writes"] = True
        self.evaluator.journal.changes += 1
        self.evaluator.journal.set_attr(self, "mutates", True)

    def effect(self, target: Callable[..., Any], *args: Any) -> torch.fx.Node:
        """Records a call without tensor operands, such as a change of the grad mode."""
        name = getattr(target, "__name__", "effect").strip("_")
        node = self._node("call_function", target, args, {}, name)
        journal = self.evaluator.journal
        journal.set_attr(self, "operations", self.operations - 1)
        node.meta["effect"] = True
        return node

    def _wrap(
        self, result: Any, node: torch.fx.Node, known: dict[int, TensorValue]
    ) -> Value:
        journal = self.evaluator.journal
        if isinstance(result, torch.Tensor):
            if id(result) in known:
                node.meta["writes"] = True
                journal.set_attr(self, "mutates", True)
                journal.changes += 1
                return known[id(result)]
            value = TensorValue(result, node, cls=_eager_class(result))
            node.meta["value"] = value
            journal.append(self.touched, value)
            return value
        if isinstance(result, (tuple, list)):
            items: list[Value] = []
            for index, item in enumerate(result):
                if isinstance(item, torch.Tensor) and id(item) in known:
                    items.append(known[id(item)])
                elif isinstance(item, (torch.Tensor, tuple, list)):
                    child = self._node(
                        "call_function",
                        operator.getitem,
                        (node, index),
                        {},
                        f"{node.name}_{index}",
                    )
                    journal.set_attr(self, "operations", self.operations - 1)
                    items.append(self._wrap(item, child, known))
                elif is_constant(item):
                    items.append(constant(item))
                elif is_symbolic(item):
                    items.append(self.evaluator.sizes.value(item))
                else:
                    raise _no_result(item)
            if isinstance(result, list):
                return ListValue(items)
            return TupleValue(items, type(result))
        if is_constant(result):
            return constant(result)
        raise _no_result(result)

    # ── closing ───────────────────────────────────────────────────────────────────

    def close(self, outputs: list[TensorValue], grad_enabled: bool) -> Segment:
        """Ends the segment; `outputs` become its results, in order."""
        self.graph.output(tuple(value.node for value in outputs))
        for node in reversed(list(self.graph.nodes)):
            if node.op == "placeholder" and not node.users:
                self.inputs.pop(self._position(node))
                self.graph.erase_node(node)
        self._add_sizes()
        self.graph.lint()
        module = graph_module(self.graph, self.name)
        return Segment(
            name=self.name,
            graph_module=module,
            inputs=tuple(self.fake(value) for value in self.inputs),
            outputs=tuple(value.fake for value in outputs),
            grad_enabled=grad_enabled,
            origins={
                n.name: n.meta["origin"] for n in self.graph.nodes if "origin" in n.meta
            },
        )

    def _add_sizes(self) -> None:
        """Adds the sizes that no input of the segment has as one of its own."""
        inputs = [self.fake(value) for value in self.inputs]
        for scalar in self.evaluator.sizes.placeholders(inputs, inputs):
            self._placeholder(scalar, scalar.name or "size")

    def _position(self, node: torch.fx.Node) -> int:
        placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        return placeholders.index(node)


def _has_unknown_size(result: Any, evaluator: Evaluator) -> bool:
    if isinstance(result, torch.Tensor):
        return any(
            isinstance(s, torch.SymInt) and not evaluator.sizes.is_backed(s)
            for s in (*result.shape, *result.stride())
        )
    if isinstance(result, (tuple, list)):
        return any(_has_unknown_size(item, evaluator) for item in result)
    return False


def _first_scalar(values: list[Value]) -> Scalar | None:
    for value in values:
        if isinstance(value, Scalar) and not value.sizes:
            return value
        if isinstance(value, (TupleValue, ListValue)) and value.items:
            found = _first_scalar(list(value.items))
            if found is not None:
                return found
    return None


def _eager_class(result: torch.Tensor) -> type:
    return (
        torch.nn.Parameter if isinstance(result, torch.nn.Parameter) else torch.Tensor
    )


def _has_tensor(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return True
    if isinstance(result, (tuple, list)):
        return any(_has_tensor(item) for item in result)
    return False


def _tensors(values: list[Value], evaluator: Evaluator) -> list[TensorValue]:
    found: list[TensorValue] = []
    for value in values:
        match value:
            case TensorValue():
                found.append(value)
            case TupleValue():
                found += _tensors(value.items, evaluator)
            case ListValue():
                found += _tensors(evaluator.list_items(value), evaluator)
            case DictValue():
                found += _tensors(list(evaluator.dict_items(value).values()), evaluator)
    return found
