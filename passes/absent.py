"""Absent tangents: the backward graph as text that takes None for some of its tangents.

Before (a line of the backward graph; `grad_y` and `grad_z` are tangents):

    a = aten.mul.Tensor(grad_y, w)
    d_x = aten.add.Tensor(a, grad_z)

After:

    a = None if grad_y is None else torch.ops.aten.mul.Tensor(grad_y, w)
    d_x = a if grad_z is None else grad_z if a is None else torch.ops.aten.add.Tensor(…)

A tangent is absent when the program did not use that output. Zeros in its place would be
wrong where a derivative is infinite (0 · inf is NaN), and where eager leaves `.grad` None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .host_sizes import size_symbols
from .indexing import as_expr
from .plans import ATenGraph
from .spelling import spell_expr


def emit_partial(graph: ATenGraph, name: str, tangents: Sequence[str]) -> list[str]:
    """Returns a function like the backward graph that takes None for absent tangents.

    A tangent is absent when the program did not use that output. Zeros in its place would
    be wrong where a derivative is infinite (0 · inf is NaN), so what depends only on absent
    tangents is absent as well. It is run call by call: this is the rare path.
    """
    nodes = list(graph.graph_module.graph.nodes)
    parameters = [n.name for n in graph.placeholders]
    absent = {n for n in nodes if n.op == "placeholder" and n.name in set(tangents)}
    lines, sizes = [], Sizes(graph, tangents)
    for node in nodes:
        if node.op == "get_attr":
            constant = literal(graph.constants[str(node.target)])
            lines.append(f"{node.name} = {constant}")
        if node.op != "call_function":
            continue
        call = spell_call(node)
        doubtful = [i for i in node.all_input_nodes if i in absent]
        if not doubtful:
            lines.append(f"{node.name} = {call}")
            continue
        absent.add(node)
        lines += _absent_lines(node, call, doubtful, sizes)
    returned = "".join(f"{r.name}, " for r in graph.results)
    body = [*sizes.lines, *lines, f"return ({returned.strip()})"]
    return [f"def {name}({', '.join(parameters)}):", *indented(body, 1)]


class Sizes:
    """Text of sizes, of which those with symbols are asked of what is never absent.

    Attributes:
        lines: Bind the symbols, if any size has some.
    """

    def __init__(self, graph: ATenGraph, tangents: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._symbols, self._bound = size_symbols(graph, frozenset(tangents))

    def text(self, size: Sequence[Any], present: fx.Node | None) -> str:
        """The size as a tuple, where the tensor `present` may be asked as well.

        Raises:
            TypeError: For a size that no such tensor tells.
        """
        symbols = dict(self._symbols)
        for d, number in enumerate(present.meta["val"].size() if present else ()):
            if (expr := as_expr(number)).is_Symbol:
                symbols.setdefault(expr, f"{present}.size({d})")
        parts = []
        for number in size:
            if unknown := as_expr(number).free_symbols - symbols.keys():
                raise TypeError(f"no text for the size {min(map(str, unknown))}")
            if isinstance(number, torch.SymInt):
                self.lines = self._bound
            parts.append(spell_expr(as_expr(number), symbols))
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _absent_lines(
    node: fx.Node, call: str, doubtful: list[fx.Node], sizes: Sizes
) -> list[str]:
    name = node.name
    if len(doubtful) == 1:
        return [f"{name} = None if {doubtful[0].name} is None else {call}"]
    if node.target is torch.ops.aten.add.Tensor and _plain_sum(node, 2):
        a, b = (i.name for i in doubtful)
        return [f"{name} = {a} if {b} is None else {b} if {a} is None else {call}"]
    if node.target in PRODUCTS_ADDED and _plain_sum(node, 1, factors=2):
        added, *factors = node.args
        lacking = [f.name for f in factors if isinstance(f, fx.Node) and f in doubtful]
        if added in doubtful and lacking:
            none = " or ".join(f"{f} is None" for f in lacking)
            product = ", ".join(literal(f) for f in factors)
            product = f"torch.ops.aten.{PRODUCTS_ADDED[node.target]}.default({product})"
            bias = literal(added)
            return [
                f"{name} = {bias} if {none} else {product} if {bias} is None else {call}"
            ]
    none = " and ".join(f"{d.name} is None" for d in doubtful)
    lines = [f"if {none}:", f"    {name} = None", "else:"]
    filled = {d: f"{d.name}_or_0" for d in doubtful}
    for operand, variable in filled.items():
        value = operand.meta["val"]
        others = [d for d in doubtful if d is not operand]
        # Of two, the other is there if this one is not.
        size = sizes.text(value.size(), others[0] if len(others) == 1 else None)
        kind = f"dtype={value.dtype}, device={str(value.device)!r}"
        zeros = f"torch.zeros({size}, {kind})"
        lines.append(
            f"    {variable} = {zeros} if {operand.name} is None else {operand.name}"
        )
    return [*lines, f"    {name} = {spell_call(node, filled)}"]


PRODUCTS_ADDED = {
    torch.ops.aten.addmm.default: "mm",
    torch.ops.aten.baddbmm.default: "bmm",
}
"""Sums of their first operand and a product of the others, and that product."""

_LARGEST_LITERAL = 64
"""Elements of a constant tensor that is written out."""


def _plain_sum(node: fx.Node, summands: int, factors: int = 0) -> bool:
    """Whether each summand, of which factors of one more may follow, may be the result instead."""
    if len(node.args) != summands + factors or node.kwargs:
        return False
    result = node.meta["val"]
    return all(
        isinstance(a, fx.Node)
        and a.meta["val"].size() == result.size()
        and a.meta["val"].dtype is result.dtype
        for a in node.args[:summands]
    )


def spell_call(node: fx.Node, names: Mapping[fx.Node, str] | None = None) -> str:
    """Returns the Python text of a call node, `torch.ops.aten.mul.Tensor(x, 2)`.

    Args:
        node: A `call_function` node.
        names: Names for some of its operands; the nodes' own for the others.
    """
    arguments = [literal(a, names) for a in node.args]
    arguments += [f"{k}={literal(v, names)}" for k, v in node.kwargs.items()]
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        function = f"torch.ops.{target.namespace}.{target._schema.name.split('::')[1]}"
        return f"{function}.{target._overloadname}({', '.join(arguments)})"
    if target.__name__ == "getitem":
        return f"{arguments[0]}[{arguments[1]}]"
    symbol = _SYMBOLS.get(target.__name__)
    if symbol and len(arguments) == 2:
        return f"({arguments[0]} {symbol} {arguments[1]})"
    return f"{target.__name__}({', '.join(arguments)})"


_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "pow": "**",
    "floordiv": "//",
    "truediv": "/",
    "mod": "%",
}


def literal(value: Any, names: Mapping[fx.Node, str] | None = None) -> str:
    """Returns Python text for a value in a graph or plan (`names`: see `spell_call`).

    Raises:
        TypeError: For an object that text cannot spell.
    """
    if isinstance(value, fx.Node):
        return (names or {}).get(value, value.name)
    if value is None or value is Ellipsis or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float):
        finite = value == value and value not in (float("inf"), float("-inf"))
        return repr(value) if finite else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, slice):
        return f"slice({literal(value.start)}, {literal(value.stop)}, {literal(value.step)})"
    if isinstance(value, torch.Size):
        return f"torch.Size({literal(tuple(value))})"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(literal(v, names) for v in value)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, torch.Tensor) and value.numel() <= _LARGEST_LITERAL:
        data = literal(value.tolist())
        return (
            f"torch.tensor({data}, dtype={value.dtype}, device={str(value.device)!r})"
        )
    raise TypeError(f"no text for {type(value).__name__}")


def indented(lines: Iterable[str], depth: int) -> list[str]:
    """Returns the lines behind `depth` steps of indentation."""
    return ["    " * depth + line if line else "" for line in lines]
