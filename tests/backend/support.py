"""Makes segments from Python functions and runs the text of every stage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from srcjit.options import Options
from srcjit.passes.program import Segment, SegmentCode
from srcjit.passes.segment import compile_segment


def segment_of(
    function: Callable[..., Any], *args: Any, dynamic: bool = False
) -> Segment:
    """Traces a straight-line function at torch level (the front end's work, in short)."""
    module = fx.symbolic_trace(function)
    for node in module.graph.nodes:
        if node.op == "output":
            result = node.args[0]
            node.args = (
                tuple(result) if isinstance(result, tuple | list) else (result,),
            )
    module.recompile()
    mode = FakeTensorMode(
        shape_env=ShapeEnv() if dynamic else None, static_shapes=not dynamic
    )
    fakes = tuple(
        mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args
    )
    return Segment("segment_0", module, fakes, (), torch.is_grad_enabled())


def load(code: SegmentCode) -> Callable[..., tuple[Any, ...]]:
    """Executes the text of a segment and returns its function."""
    text = "\n".join([*code.imports, code.definitions, code.function])
    scope: dict[str, Any] = dict(code.bindings)
    exec(compile(text, f"<{code.name}>", "exec"), scope)
    function = scope[code.name]
    function.text = text
    return function


def compiled(
    function: Callable[..., Any], *args: Any, stage: str = "emit", **options: Any
) -> Callable[..., tuple[Any, ...]]:
    """A function compiled at a stage, for arguments like `args`."""
    return load(
        compile_segment(segment_of(function, *args), Options(stage=stage, **options))
    )


def clones(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of tensors with the same strides."""

    def copy(a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return a
        made = torch.empty_strided(a.size(), a.stride(), dtype=a.dtype)
        made.copy_(a.detach())
        return made.requires_grad_(a.requires_grad)

    return tuple(map(copy, args))


def assert_same(
    got: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None
):
    """Values, dtypes, sizes and strides agree."""
    got = got if isinstance(got, tuple) else (got,)
    expected = expected if isinstance(expected, tuple | list) else (expected,)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        if not isinstance(e, torch.Tensor):
            assert g == e and type(g) is type(e)
            continue
        assert g.dtype is e.dtype, (g.dtype, e.dtype)
        assert g.size() == e.size(), (g.size(), e.size())
        if e.numel() > 1:
            strides = [
                (s, t) for s, t, n in zip(g.stride(), e.stride(), e.size()) if n > 1
            ]
            assert all(s == t for s, t in strides), (g.stride(), e.stride())
        tolerance = {} if rtol is None else {"rtol": rtol, "atol": atol or 0.0}
        torch.testing.assert_close(
            g.detach(), e.detach(), equal_nan=True, check_stride=False, **tolerance
        )


@contextlib.contextmanager
def seeded(seed: int = 0):
    """A fixed random stream."""
    torch.manual_seed(seed)
    yield


def check_stages(
    function: Callable[..., Any],
    *args: Any,
    stages: tuple[str, ...] = ("lower", "fuse", "emit"),
    rtol: float | None = None,
    atol: float | None = None,
) -> dict[str, str]:
    """Compares every stage with eager; returns the texts."""
    texts = {}
    with seeded():
        expected = function(*clones(args))
    for stage in stages:
        run = compiled(function, *args, stage=stage)
        with seeded():
            got = run(*clones(args))
        assert_same(got, expected, rtol=rtol, atol=atol)
        texts[stage] = run.text
    return texts
