"""Runs kernels of the loop form with torch, point by point at once: the printers' oracle.

Every value becomes a tensor over the whole iteration space, so a kernel of a million points
takes milliseconds. Memory is checked: an index outside of a buffer is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from srcjit.passes.loops import (
    Const,
    IndexValue,
    Kernel,
    Load,
    Op,
    Place,
    Reduce,
    Ref,
    ScalarArg,
    Store,
    Value,
    walk,
)
from srcjit.passes.schedule import Call, Schedule, Summed

UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "bitwise_not": torch.bitwise_not,
    "rsqrt": torch.rsqrt,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "signbit": torch.signbit,
    **{
        n: getattr(torch, n)
        for n in (
            "floor ceil trunc round sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin "
            "acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid"
        ).split()
    },
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "rem": torch.fmod,
    "mod": torch.remainder,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    **{
        n: getattr(torch, n)
        for n in (
            "fmod pow atan2 hypot copysign fmax fmin nextafter eq ne lt le gt ge bitwise_and "
            "bitwise_or bitwise_xor"
        ).split()
    },
}


def flat_memory(tensor: torch.Tensor) -> torch.Tensor:
    """All elements from the tensor's first on, in memory order, aliased."""
    extent = 1 + sum(
        (s - 1) * t for s, t in zip(tensor.size(), tensor.stride(), strict=True)
    )
    if tensor.numel() == 0:
        extent = 0
    return torch.as_strided(tensor, (extent,), (1,), tensor.storage_offset())


class Interpreter:
    """One call of a kernel."""

    def __init__(self, kernel: Kernel, arguments: list[Any]) -> None:
        self.kernel = kernel
        self.given = dict(zip(kernel.parameters, arguments, strict=True))
        sizes = {p: v for p, v in self.given.items() if isinstance(p, sympy.Symbol)}
        self.sizes = sizes
        axes = [*kernel.outer, *kernel.inner]
        self.rank = len(axes)
        self.points: dict[Any, Any] = dict(sizes)
        self.shape = [int(a.size.xreplace(sizes)) for a in axes]
        for position, axis in enumerate(axes):
            view = [1] * self.rank
            view[position] = -1
            self.points[axis.symbol] = torch.arange(self.shape[position]).view(view)
        self.inner = list(range(len(kernel.outer), self.rank))
        self.reduced: dict[str, torch.Tensor] = {}

    def run(self) -> None:
        for statement in self.kernel.body:
            if isinstance(statement, Store) and statement.adds:
                self.add(statement)
                continue
            value = self.value(statement.value)
            if isinstance(statement, Reduce):
                self.reduced[statement.name] = self.reduce(statement.kind, value)
            else:
                self.store(statement, value)

    def add(self, statement: Store) -> None:
        """Adds one element for each point to memory."""
        place, more = statement.value.operands
        assert isinstance(place, Load)
        done: dict[Value, torch.Tensor] = {}
        for v in walk([more, *(p.value for p in place.indirect)]):
            done[v] = self.one(v, done)
        for part in place.indirect:
            self.check(part, None, done)
        extra = {part.symbol: done[part.value] for part in place.indirect}
        where = self.index(place.index, extra).expand(self.shape).reshape(-1)
        memory = flat_memory(self.given[statement.buffer])
        memory.index_add_(0, where, done[more].expand(self.shape).reshape(-1))

    def index(self, expr: Any, extra: Mapping[Any, Any] = {}) -> torch.Tensor:
        points = {**self.points, **extra}

        def visit(e: Any) -> Any:
            if e in points:
                return points[e]
            if e.is_Integer:
                return int(e)
            parts = [visit(a) for a in e.args]
            if e.is_Add:
                return sum(parts[1:], parts[0])
            if e.is_Mul:
                result = parts[0]
                for part in parts[1:]:
                    result = result * part
                return result
            if isinstance(e, FloorDiv):
                return parts[0] // parts[1]
            if isinstance(e, Mod):
                return parts[0] % parts[1]
            raise TypeError(e)

        return torch.as_tensor(visit(sympy.sympify(expr)), dtype=torch.int64)

    def value(self, root: Value) -> torch.Tensor:
        done: dict[Value, torch.Tensor] = {}
        for v in walk([root]):
            done[v] = self.one(v, done)
            if not isinstance(v, Load):
                assert done[v].dtype is v.dtype, (v, done[v].dtype)
        return done[root]

    def one(self, v: Value, done: dict[Value, torch.Tensor]) -> torch.Tensor:
        match v:
            case Const(value=number):
                return torch.tensor(number, dtype=v.dtype)
            case IndexValue(index=index):
                return self.index(index).to(v.dtype)
            case ScalarArg():
                return torch.tensor(self.given[v], dtype=v.dtype)
            case Ref(name=name):
                return self.reduced[name]
            case Load(buffer=buffer, index=index, mask=mask):
                for place in v.indirect:
                    self.check(place, mask, done)
                extra = {place.symbol: done[place.value] for place in v.indirect}
                where = self.index(index, extra)
                return self.load(self.given[buffer], where, mask, done)
            case Op(name="cast", args=(a,)):
                return done[a].to(v.dtype)
            case Op(name="where", args=(c, a, b)):
                return torch.where(done[c], done[a], done[b])
            case Op(name="fma", args=(a, b, c)):
                return torch.addcmul(done[c], done[a], done[b])
            case Op(name=name, args=(a,)):
                return UNARY[name](done[a])
            case Op(name=name, args=(a, b)):
                return BINARY[name](done[a], done[b])
        raise TypeError(v)

    def check(self, place: Place, mask: Any, done: Any) -> None:
        """What a kernel asserts of an index that is computed at run time."""
        if place.size is None:
            return
        chosen, live = done[place.value], torch.tensor(True)
        if mask is not None:
            chosen, live = torch.broadcast_tensors(chosen, done[mask])
        outside = (chosen < 0) | (chosen >= self.index(place.size))
        if (outside & live).any():
            raise IndexError("index out of range")

    def load(
        self, tensor: Any, place: torch.Tensor, mask: Any, done: Any
    ) -> torch.Tensor:
        memory = flat_memory(tensor)
        if mask is None:
            assert place.numel() == 0 or (
                place.min() >= 0 and place.max() < memory.numel()
            )
            return memory[place]
        place, inside = torch.broadcast_tensors(place, done[mask])
        live = place[inside]
        assert live.numel() == 0 or (live.min() >= 0 and live.max() < memory.numel())
        if memory.numel() == 0:
            return torch.zeros(place.shape, dtype=tensor.dtype)
        zero = torch.zeros((), dtype=tensor.dtype)
        return torch.where(inside, memory[torch.where(inside, place, 0)], zero)

    def reduce(self, kind: str, value: torch.Tensor) -> torch.Tensor:
        value = value.expand(*self.shape) if self.rank else value
        dims = self.inner
        if kind == "sum":
            return value.sum(dims, keepdim=True, dtype=value.dtype)
        if kind in ("max", "min"):
            return getattr(torch, f"a{kind}")(value, dims, keepdim=True)
        flat = value.reshape(*value.shape[: dims[0]], -1)
        result = {
            "prod": lambda: flat.prod(-1, dtype=value.dtype),
            "any": lambda: flat.any(-1),
            "all": lambda: flat.all(-1),
            "argmax": lambda: flat.argmax(-1),
            "argmin": lambda: flat.argmin(-1),
        }[kind]()
        return result.reshape(*result.shape, *(1 for _ in dims))

    def store(self, statement: Store, value: torch.Tensor) -> None:
        memory = flat_memory(self.given[statement.buffer])
        outer = statement.level == "outer" or not self.kernel.inner
        shape = self.shape[: len(self.kernel.outer)] if outer else self.shape
        full = [*shape, *(1 for _ in range(self.rank - len(shape)))]
        place = self.index(statement.index).expand(full).reshape(-1)
        assert place.unique().numel() == place.numel(), (
            "two points store to one element"
        )
        memory[place] = value.expand(full).reshape(-1)


def run_kernel(kernel: Kernel, arguments: list[Any]) -> None:
    """Executes `kernel` on tensors and numbers in the order of `kernel.parameters`."""
    Interpreter(kernel, arguments).run()


def run_schedule(schedule: Schedule, inputs: dict[Any, Any]) -> list[Any]:
    """Executes a schedule; `inputs` maps placeholder nodes to tensors and numbers."""
    import torch.fx as fx

    values: dict[Any, Any] = dict(inputs)
    lowered = schedule.lowered
    by_name: dict[str, torch.Tensor] = {}
    for node, value in inputs.items():
        by_name[node.name] = value
    symbols = {}
    for node, lowered_value in lowered.values.items():
        expr = getattr(lowered_value, "expr", None)
        if node in inputs and expr is not None:
            symbols[expr] = inputs[node]

    def size_of(exprs: Any) -> tuple[int, ...]:
        return tuple(int(e.xreplace(symbols)) for e in exprs)

    for d in (*schedule.stored, *schedule.empty):
        by_name[d.name] = torch.empty_strided(
            size_of(d.size), size_of(d.stride), dtype=d.dtype
        )

    def fetch(node: Any) -> Any:
        """A node's value for an extern call: memory, or a view of memory."""
        if node in values:
            return values[node]
        lowered_value = lowered.values[node]
        name = getattr(lowered_value, "name", None)
        if name in by_name:
            return by_name[name]
        args, kwargs = fx.map_arg((node.args, node.kwargs), fetch)
        values[node] = node.target(*args, **kwargs)
        return values[node]

    for step in schedule.steps:
        if isinstance(step, Summed):
            by_name[step.result.name] = by_name[step.start.name]
        elif isinstance(step, Call):
            result = fetch(step.node)
            lowered_value = lowered.values[step.node]
            if isinstance(lowered_value, tuple):
                for d, r in zip(lowered_value, result, strict=True):
                    if d is not None:
                        by_name[d.name] = r
            else:
                by_name[lowered_value.name] = result
        else:
            arguments = [
                by_name[p.name]
                if hasattr(p, "name") and p.name in by_name
                else symbols[p]
                for p in step.kernel.parameters
            ]
            run_kernel(step.kernel, arguments)
    results = []
    graph = next(iter(lowered.values)).graph
    output = next(reversed(graph.nodes))
    for node in output.args[0]:
        results.append(fetch(node) if isinstance(node, fx.Node) else node)
    return results
