"""srcjit's back end as a backend of `torch.compile`.

    >>> import torch
    >>> f = torch.compile(
    ...     lambda x: torch.sin(x) * 2, backend="srcjit"
    ... )  # doctest: +SKIP

Dynamo captures, srcjit compiles each captured graph as one segment. So each half of srcjit can
be measured against the other's rival: this back end under Dynamo's front end, and any other
back end under `srcjit.jit(backend=...)`.

The entry point `torch_dynamo_backends` in `setup.cfg` makes PyTorch find it without an import;
where srcjit is not installed, `import srcjit.backend` registers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo import list_backends, register_backend
from torch._subclasses import FakeTensor, FakeTensorMode

from srcjit import cache
from srcjit.lines import register_lines
from srcjit.options import Options
from srcjit.origin import Origin

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def srcjit_backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Compiles a graph that Dynamo captured.

    Args:
        graph_module: The graph, at torch level.
        example_inputs: One tensor or number for each placeholder, real or fake.
        options: As `srcjit.jit(options=...)`.

    Returns:
        A function of the placeholders that returns a tuple.
    """
    from srcjit.passes.program import Segment
    from srcjit.passes.segment import compile_segment

    segment = Segment(
        "segment_0",
        graph_module,
        _fakes(graph_module, example_inputs),
        (),
        torch.is_grad_enabled(),
        _origins(graph_module),
    )
    code = compile_segment(segment, Options().with_user_options(options))
    text = "\n".join([*code.imports, "", code.definitions, code.function])
    path = cache.store_text("modules", "dynamo", text)
    register_lines(str(path), text)
    scope: dict[str, Any] = {"__name__": "srcjit.emitted", **code.bindings}
    exec(compile(text, str(path), "exec"), scope)
    function: Callable[..., tuple[Any, ...]] = scope[code.name]
    return function


def _fakes(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """What Dynamo knows of each input: its own fakes where it made them."""
    mode: FakeTensorMode | None = None
    found = []
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    for node, example in zip(placeholders, example_inputs, strict=True):
        value = node.meta.get("example_value", node.meta.get("val", example))
        if isinstance(value, FakeTensor):
            mode = value.fake_mode
        found.append(value)
    if mode is None:
        mode = FakeTensorMode()
    return tuple(
        mode.from_tensor(v)
        if isinstance(v, torch.Tensor) and not isinstance(v, FakeTensor)
        else v
        for v in found
    )


def _origins(graph_module: fx.GraphModule) -> dict[str, Origin]:
    """The user's line of each node, from the stack that Dynamo noted."""
    origins = {}
    for node in graph_module.graph.nodes:
        frames = list(_FRAME.finditer(node.stack_trace or ""))
        if frames:
            last = frames[-1]
            line = int(last["line"])
            origins[node.name] = Origin(
                last["file"], line, end_line=line, function=last["function"]
            )
    return origins


if "srcjit" not in list_backends(exclude_tags=()):
    register_backend(srcjit_backend, name="srcjit")
