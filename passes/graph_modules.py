"""Graphs as modules whose Python text is written only for those who ask for it.

`torch.fx.GraphModule` writes and compiles the text of its graph when it is made: 50 µs for each
operation, and PyTorch keeps that text for good. The passes read graphs and never call them.
"""

from __future__ import annotations

from torch import fx, nn

try:
    from torch.fx import _lazy_graph_module as _lazy
except ImportError:  # it is private
    _lazy = None  # type: ignore[assignment]


def graph_module(
    graph: fx.Graph, name: str = "GraphModule", root: nn.Module | None = None
) -> fx.GraphModule:
    """Returns a module of `graph` that has no text yet.

    Args:
        graph: The graph.
        name: Its name.
        root: Holds what the graph's `get_attr` nodes name.
    """
    made = fx.GraphModule if _lazy is None else _lazy._LazyGraphModule
    return made(root or nn.Module(), graph, name)


def with_text(module: fx.GraphModule) -> fx.GraphModule:
    """Returns the same module with its text, for code that is not ours."""
    if _lazy is not None:
        _lazy._LazyGraphModule.force_recompile(module)
    return module
