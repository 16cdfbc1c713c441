"""How a host function reaches the sizes that its text names.

    def segment_0(x, n):            # x has s0 rows and 2*s1 columns
        s0 = x.size(0)
        s1 = (x.size(1)) // 2

An input that is a size itself has its own name (`n`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

import sympy
import torch

from .indexing import as_expr
from .plans import ATenGraph
from .spelling import spell_expr


def size_symbols(
    graph: ATenGraph, absent: Container[str] = ()
) -> tuple[dict[sympy.Symbol, str], list[str]]:
    """How the host reaches each size symbol, and lines that bind those that are no input.

    Inputs whose names are in `absent` are not asked.
    """
    symbols: dict[sympy.Symbol, str] = {}
    lines: list[str] = []
    inputs = [
        (node, value)
        for node, value in zip(graph.placeholders, graph.inputs, strict=True)
        if node.name not in absent
    ]
    for node, value in inputs:
        if isinstance(value, torch.SymInt):
            expr = as_expr(value)
            if expr.is_Symbol:
                symbols.setdefault(expr, node.name)
    for node, value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        for part, method in ((value.size(), "size"), (value.stride(), "stride")):
            for d, number in enumerate(part):
                expr = as_expr(number)
                if expr.is_Symbol and expr not in symbols:
                    symbols[expr] = str(expr)
                    lines.append(f"{expr} = {node.name}.{method}({d})")
    for node, value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        for d, number in enumerate(value.size()):
            # What remains may be found from a size that is computed from it: n + 2, 4*n.
            expr = as_expr(number)
            unknown = [s for s in expr.free_symbols if s not in symbols]
            if len(unknown) != 1:
                continue
            step = sympy.expand(expr).coeff(unknown[0], 1)
            rest = sympy.expand(expr - step * unknown[0])
            if step.is_Integer and step != 0 and not rest.has(unknown[0]):
                size = sympy.Symbol("size")
                names = {**symbols, size: f"{node.name}.size({d})"}
                text = spell_expr(size - rest, names)
                if step != 1:
                    text = f"({text}) // {int(step)}"
                symbols[unknown[0]] = str(unknown[0])
                lines.append(f"{unknown[0]} = {text}")
    return symbols, lines


class UnknownSize(Exception):
    """A function needs a size that none of its inputs tells."""


def check_sizes(
    graph: ATenGraph, symbols: Mapping[sympy.Symbol, str], lines: Iterable[str]
) -> None:
    """Raises UnknownSize if the text names a size that is not bound."""
    unknown: set[str] = set()
    for node in graph.graph_module.graph.nodes:
        value = node.meta.get("val")
        for v in value if isinstance(value, tuple | list) else (value,):
            numbers: tuple[Any, ...] = (v,)
            if isinstance(v, torch.Tensor):
                numbers = (*v.size(), *v.stride())
            for number in numbers:
                if isinstance(number, torch.SymInt):
                    unknown |= {str(s) for s in as_expr(number).free_symbols}
    unknown -= {str(s) for s in symbols}
    named = unknown.intersection(re.findall(r"\w+", "\n".join(lines)))
    if named:
        raise UnknownSize(f"`{min(named)}` is not the size of an input")
