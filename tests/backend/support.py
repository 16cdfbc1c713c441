"""Makes segments from Python functions and runs the text of every stage."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

from srcjit.options import Options
from srcjit.passes.program import Segment, SegmentCode
from srcjit.passes.segment import compile_segment


class _Recorder(TorchFunctionMode):
    """Records torch-level calls on fakes, one node each (the front end's work, in short)."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.alive: list[Any] = []

    def know(self, value: Any, node: fx.Node) -> None:
        if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat):
            self.nodes[id(value)] = node
            self.alive.append(value)
        elif isinstance(value, tuple | list):
            for k, part in enumerate(value):
                if isinstance(part, torch.Tensor):
                    self.know(
                        part, self.graph.call_function(operator.getitem, (node, k))
                    )

    def argument(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            parts = [self.argument(v) for v in value]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, slice):
            return slice(*map(self.argument, (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {k: self.argument(v) for k, v in value.items()}
        return self.nodes.get(id(value), value)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if function is torch.Tensor.__setitem__:
            self.graph.call_function(operator.setitem, self.argument(args))
        elif _has_tensors(result):
            if function is torch.Tensor.__getitem__:
                function = operator.getitem
            node = self.graph.call_function(
                function, self.argument(args), self.argument(kwargs)
            )
            self.know(result, node)
        return result


def _has_tensors(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_tensors, value))
    return isinstance(value, torch.Tensor)


def segment_of(
    function: Callable[..., Any], *args: Any, dynamic: bool = False
) -> Segment:
    """Traces a straight-line function at torch level.

    With `dynamic`, all sizes of tensors are symbols.
    """
    mode = FakeTensorMode(
        shape_env=ShapeEnv() if dynamic else None, static_shapes=not dynamic
    )
    fakes = tuple(
        mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args
    )
    recorder = _Recorder()
    names = (
        list(inspect.signature(function).parameters) if _is_python(function) else "ab"
    )
    for name, fake in zip(names, fakes, strict=False):
        recorder.know(fake, recorder.graph.placeholder(name))
    # Of symbolic sizes some of PyTorch's own rules in C++ make numbers.
    rules = enable_python_dispatcher() if dynamic else contextlib.nullcontext()
    with mode, rules, recorder:
        results = function(*fakes)
    results = results if isinstance(results, tuple | list) else (results,)
    recorder.graph.output(tuple(recorder.argument(r) for r in results))
    module = fx.GraphModule(torch.nn.Module(), recorder.graph)
    fresh = tuple(
        mode.from_tensor(a, source=None)
        if isinstance(a, torch.Tensor) and not dynamic
        else f
        for a, f in zip(args, fakes, strict=True)
    )
    return Segment("segment_0", module, fresh, (), torch.is_grad_enabled())


def _is_python(function: Any) -> bool:
    return hasattr(function, "__code__")


def load(code: SegmentCode) -> Callable[..., tuple[Any, ...]]:
    """Executes the text of a segment and returns its function."""
    text = "\n".join([*code.imports, code.definitions, code.function])
    scope: dict[str, Any] = dict(code.bindings)
    # Triton asks for the source of its kernels.
    name = f"<{code.name} {len(linecache.cache)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
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
