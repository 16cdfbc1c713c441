"""Lowering: each ATen call becomes a tensor as a function of its index, or stays a call.

Before:

    def forward(x, w):
        x_t = aten.t.default(x)
        mm = aten.mm.default(x_t, w)
        return aten.relu.default(mm)

After (definitions):

    x_t[i, j]  = x[j, i]                    view
    mm         = aten.mm.default(x_t, w)    extern
    relu[i, j] = maximum(mm[i, j], 0)       map

Nothing is decided here about memory or kernels. An operator without a loop form, a dtype
without one, or a call whose corner cases only eager knows is `extern`; that is never an error.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .definitions import EXTERN, SOURCE, Definition, Lowered, Number
from .functional import ATenGraph
from .indexing import as_expr
from .loops import DTYPES, FLOAT8
from .lowerings import TABLE, Builder, NoLoopForm
from .lowerings.float8 import moves


def lower(graph: ATenGraph) -> Lowered:
    """Returns a definition for each tensor of the graph."""
    return _Lowering(graph).run()


def operator_name(node: fx.Node) -> str:
    """`"aten.add.Tensor"` for a call of that overload."""
    return str(node.target)


class _Lowering:
    def __init__(self, graph: ATenGraph) -> None:
        self.graph = graph
        self.values: dict[fx.Node, Any] = {}
        self.definitions: list[Definition] = []
        self.notes: dict[str, None] = {}
        # Names of definitions are names of variables of the host: each node has its own.
        self.owners = {n.name: n for n in graph.graph_module.graph.nodes}
        self.used: set[str] = set()

    def run(self) -> Lowered:
        for node in self.graph.graph_module.graph.nodes:
            if node.op == "output":
                continue
            self.values[node] = self._node(node)
        results = tuple(
            self.values[r] if isinstance(r, fx.Node) else r for r in self.graph.results
        )
        return Lowered(self.values, tuple(self.definitions), results, tuple(self.notes))

    def _node(self, node: fx.Node) -> Any:
        fake = node.meta.get("val")
        if node.op in ("placeholder", "get_attr"):
            if isinstance(fake, torch.Tensor):
                return self._tensor(node, fake, SOURCE, known=self._known(node))
            return _number(node, fake)
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, fx.Node)
            return self.values[source][index]
        if not isinstance(node.target, torch._ops.OpOverload) or not _has_tensor(fake):
            return self._outside(node, fake)
        # What nobody reads is here for what it does: raise, or draw random numbers.
        unread = not node.users and node not in self.graph.results
        lowered = None if unread else self._loop_form(node, fake)
        return self._outside(node, fake) if lowered is None else lowered

    def _loop_form(self, node: fx.Node, fake: Any) -> Any:
        name = operator_name(node)
        function = TABLE.get(name) or TABLE.get(name.rpartition(".")[0])
        if function is None:
            self.notes[f"{name} has no loop form"] = None
            return None
        args, kwargs = (
            _resolve(node.args, self.values),
            _resolve(node.kwargs, self.values),
        )
        problem = _unsupported(name, [*_tensors((args, kwargs)), *_outputs(fake)])
        if problem:
            return None
        builder = Builder(node)
        try:
            made = function(builder, *args, **kwargs)
            for definition in builder.made:
                # Evaluated once now, so that whatever has no loop form says so here.
                _ = definition.accesses
        except NoLoopForm as reason:
            self.notes[f"{name}: {reason}"] = None
            return None
        for definition in builder.made:
            self._keep(definition)
        return made

    def _outside(self, node: fx.Node, fake: Any) -> Any:
        """A call that the host makes."""
        if isinstance(fake, tuple | list):
            parts = {
                user.args[1]: user.name
                for user in node.users
                if user.target is operator.getitem
            }
            self.owners.update(dict.fromkeys(parts.values(), node))
            if not parts:
                self._without_result(node)
            # What nobody takes out has no definition.
            return tuple(
                self._tensor(node, f, EXTERN, parts[k])
                if isinstance(f, torch.Tensor) and k in parts
                else None
                for k, f in enumerate(fake)
            )
        if isinstance(fake, torch.Tensor):
            return self._tensor(node, fake, EXTERN)
        if fake is None:
            self._without_result(node)
        return _number(node, fake)

    def _without_result(self, node: fx.Node) -> None:
        """A call that the host makes for what it does: it stands for a tensor of nothing."""
        nothing = torch.empty(0, device="meta")
        self._tensor(node, nothing, EXTERN, f"{node.name}_done")

    def _known(self, node: fx.Node) -> int | float | bool | None:
        """The value of a constant of one element."""
        value = (
            self.graph.constants.get(str(node.target))
            if node.op == "get_attr"
            else None
        )
        if value is None or value.numel() != 1 or value.dtype not in DTYPES:
            return None
        return value.item()

    def _tensor(
        self,
        node: fx.Node,
        fake: torch.Tensor,
        kind: str,
        name: str = "",
        known: int | float | bool | None = None,
    ) -> Definition:
        strided = fake.layout is torch.strided
        definition = Definition(
            name or node.name,
            kind,
            tuple(map(as_expr, fake.size())),
            fake.dtype,
            fake.device,
            tuple(map(as_expr, fake.stride())) if strided else (),
            node,
            known=known,
        )
        self._keep(definition)
        return definition

    def _keep(self, definition: Definition) -> None:
        name = definition.name
        if self.owners.setdefault(name, definition.node) is not definition.node or (
            name in self.used
        ):
            name = next(
                n for k in range(1, 10_000) if (n := f"{name}_{k}") not in self.owners
            )
            self.owners[name] = definition.node
        self.used.add(name)
        object.__setattr__(definition, "name", name)
        object.__setattr__(definition, "position", len(self.definitions))
        self.definitions.append(definition)


def _number(node: fx.Node, fake: Any) -> Any:
    if isinstance(fake, torch.SymInt):
        return Number(node, as_expr(fake), torch.int64)
    if isinstance(fake, bool | torch.SymBool):
        return Number(node, None, torch.bool)
    if isinstance(fake, int):
        return Number(node, as_expr(fake), torch.int64)
    if isinstance(fake, float | torch.SymFloat):
        return Number(node, None, torch.float64)
    return None


def _has_tensor(fake: Any) -> bool:
    return any(isinstance(f, torch.Tensor) for f in _outputs(fake))


def _outputs(fake: Any) -> list[Any]:
    return list(fake) if isinstance(fake, tuple | list) else [fake]


def _resolve(arguments: Any, values: dict[fx.Node, Any]) -> Any:
    """Replaces nodes by what they were lowered to; sequences become lists."""
    if isinstance(arguments, fx.Node):
        return values[arguments]
    if isinstance(arguments, tuple | list):
        return [_resolve(a, values) for a in arguments]
    if isinstance(arguments, dict):
        return {k: _resolve(a, values) for k, a in arguments.items()}
    return arguments


def _tensors(arguments: Any) -> list[Definition]:
    if isinstance(arguments, Definition):
        return [arguments]
    if isinstance(arguments, tuple | list):
        return [d for a in arguments for d in _tensors(a)]
    if isinstance(arguments, dict):
        return [d for a in arguments.values() for d in _tensors(a)]
    return []


def _unsupported(name: str, tensors: list[Any]) -> str:
    """Why these tensors have no loop form together, or an empty text."""
    devices = set()
    for tensor in tensors:
        if isinstance(tensor, Definition):
            dtype, device, strided = tensor.dtype, tensor.device, True
            strided = len(tensor.stride) == len(tensor.size)
        elif isinstance(tensor, torch.Tensor):
            dtype, device = tensor.dtype, tensor.device
            strided = tensor.layout is torch.strided
        else:
            continue
        if not (isinstance(tensor, Definition) and tensor.placeless):
            devices.add(device)
        computed = dtype in FLOAT8 and not moves(name, device.type)
        if dtype not in DTYPES or computed:
            return f"elements of {dtype}"
        if not strided:
            return "a layout that is not strided"
    return "several devices" if len(devices) > 1 else ""
