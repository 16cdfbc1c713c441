"""What emitted text says of an operation: its name, the user's line, the user's function.

    y = torch.sin(x)              # the user's line 20

    sin = torch.ops.aten.sin.default(x)  # 20: y = torch.sin(x)

A node of an ATen graph knows the node of the segment that it came from
(`meta["segment_node"]`), and the segment where that one stands in the user's file.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping

from torch import fx

from srcjit.origin import Origin

from .plans import ATenGraph
from .program import Segment


def user_lines(origins: Mapping[str, Origin]) -> dict[str, str]:
    """The user's line for each node name: `21: y = torch.sin(x) * 2`."""
    lines = {}
    for name, origin in origins.items():
        text = (
            linecache.getline(origin.file, origin.line).strip() if origin.file else ""
        )
        # The comment may stand in a kernel, which is text in triple quotes, in C++ where a
        # backslash at the end joins the next line.
        text = text.replace('"""', "'''").rstrip("\\")
        lines[name] = f"{origin.line}: {text}" if text else ""
    return lines


def node_comments(graph: ATenGraph, comments: Mapping[str, str]) -> dict[fx.Node, str]:
    """The user's line for each node of a graph, from those of the segment's nodes."""
    return {
        node: comment
        for node in graph.graph_module.graph.nodes
        if (comment := comments.get(node.meta.get("segment_node") or "", ""))
    }


def functions_called(graph: ATenGraph, segment: Segment) -> dict[fx.Node, str]:
    """The name of the torch function that each node came from; empty where there is none."""
    functions: dict[str, str] = {}
    for node in segment.graph_module.graph.nodes:
        target = node.target
        word = target if isinstance(target, str) else getattr(target, "__name__", "")
        functions[node.name] = word
    return {
        node: functions.get(node.meta.get("segment_node") or "", "")
        for node in graph.graph_module.graph.nodes
    }


_OVERLOAD = re.compile(
    r"_(default|tensor|scalar|int|self|dim|dims|dim_int_list|correction|start|start_step|scalar_self"
    r"|scalar_other|tensor_mode|scalar_mode|tensor_scalar|tensor_tensor|dim_int)(_\d+)?$"
)


def shorten_names(graph: ATenGraph) -> None:
    """Drops the overload from the names of calls: `addmm_default_1` is called `addmm_1`."""
    for node in graph.graph_module.graph.nodes:
        if node.op == "call_function":
            short = _OVERLOAD.sub(r"\2", node.name)
            if short != node.name and short.isidentifier():
                node._rename(short)
