"""Partition: cut a joint graph into its forward and its backward half.

Before (the joint graph; `grad_y` is a tangent):

    def joint(x, grad_y):
        e = exp(x); y = sin(e)
        return (y,), (mul(mul(grad_y, cos(e)), e),)

After (`e` is saved: `cos(e)` is cheap to compute again from it):

    def forward(x):                     def backward(e, grad_y):
        e = exp(x); y = sin(e)              return mul(mul(grad_y, cos(e)), e)
        return y, e

What is saved is a minimum cut: every value that the backward half needs is either computed
again from saved values (if that is cheap), or saved; the bytes written and read for saved
values are as few as possible (the idea of Chen et al., "Training Deep Nets with Sublinear
Memory Cost", as max-flow/min-cut).
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

aten = torch.ops.aten

VIEWS = frozenset(
    """
    view permute expand slice select squeeze unsqueeze transpose t as_strided diagonal
    alias unfold split split_with_sizes unbind view_as_real view_as_complex real imag
    _unsafe_view _reshape_alias narrow
    """.split()
)

CHEAP = VIEWS | frozenset(
    """
    add sub mul div neg abs reciprocal pow sqrt rsqrt exp exp2 expm1 log log2 log10 log1p
    sin cos tan tanh sigmoid erf relu gelu silu leaky_relu elu hardtanh hardswish hardsigmoid
    softplus mish celu selu sign sgn floor ceil round trunc square clamp clamp_min clamp_max
    maximum minimum where eq ne lt le gt ge logical_and logical_or logical_not logical_xor
    bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf isfinite masked_fill
    _to_copy clone copy full full_like zeros zeros_like ones ones_like scalar_tensor arange
    empty_like new_full new_zeros new_empty new_empty_strided remainder fmod floor_divide
    addcmul addcdiv lerp rsub atan2 slice_scatter select_scatter constant_pad_nd fill
    sinh cosh asin acos atan sym_size sym_stride sym_numel sym_storage_offset
    """.split()
)
"""Ops that may run again in the backward half: one value from a few, no reduction."""

_INFINITE = math.inf


@dataclass(frozen=True)
class Cut:
    """Where the joint graph is cut.

    Attributes:
        saved: Nodes of the forward half that the backward half reads.
        backward: Nodes that the backward half computes, in order (without placeholders).
    """

    saved: tuple[fx.Node, ...]
    backward: tuple[fx.Node, ...]


def find_cut(
    graph: fx.Graph,
    tangents: Iterable[fx.Node],
    gradients: Iterable[fx.Node],
    results: Iterable[fx.Node],
    must_stay: Iterable[fx.Node] = (),
    asked: Mapping[fx.Node, frozenset[int]] | None = None,
) -> Cut:
    """Chooses what to save.

    Args:
        graph: The joint graph.
        tangents: Placeholders of the backward half.
        gradients: What the backward half returns.
        results: What the forward half returns anyway.
        must_stay: Inputs and results that the caller may write to later although eager's
            autograd does not save them: none of these is saved. (A result may be computed
            again.)
        asked: Those that eager's autograd saves, and the positions of the tangents with
            which it asks for them. What goes with others is not computed again from them.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    tangents = list(tangents)
    late = descendants(graph, set(tangents))
    ends = _ancestors(gradients) & late - set(tangents)
    needed: set[fx.Node] = set()
    for node in ends:
        needed.update(i for i in node.all_input_nodes if i not in late)
    needed.update(g for g in gradients if g not in late)
    if not needed:
        return Cut((), tuple(sorted(ends, key=order.__getitem__)))
    early = [n for n in graph.nodes if n in _ancestors(needed)]
    fixed = set(must_stay)
    again = {n: _may_run_again(n) for n in early}
    if len(tangents) > 1:
        again |= dict.fromkeys(_saved_for_others(graph, tangents, asked or {}), False)
    results = set(results)

    flow = _Flow(len(early) * 2 + 2)
    source, sink = len(early) * 2, len(early) * 2 + 1
    number = {n: i for i, n in enumerate(early)}
    for node, i in number.items():
        # What a call of the backward half reads would else be written to memory there.
        discount = 0.5 if _is_operand(node, late) else 0.0
        price = _INFINITE if node in fixed else _cost(node, results) - discount
        flow.edge(2 * i, 2 * i + 1, price)
        if not again[node]:
            flow.edge(source, 2 * i, _INFINITE)
        if node in needed:
            flow.edge(2 * i + 1, sink, _INFINITE)
        for user in node.users:
            if user in number:
                flow.edge(2 * i + 1, 2 * number[user], _INFINITE)
    reached = flow.cut(source, sink)
    saved = [
        n for n, i in number.items() if 2 * i in reached and 2 * i + 1 not in reached
    ]
    backward = _computed_from(saved, needed) | ends
    return Cut(tuple(saved), tuple(sorted(backward, key=order.__getitem__)))


def is_view(node: fx.Node) -> bool:
    """True for a node that shows the memory of its first argument."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    return _op_name(node) in VIEWS


def base_of(node: fx.Node) -> fx.Node:
    """Returns the node that owns the memory that `node` shows."""
    while is_view(node):
        base = node.args[0]
        assert isinstance(base, fx.Node)
        node = base
    return node


def is_random(node: fx.Node) -> bool:
    """True for a call that draws from a generator."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _op_name(node: fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__ if packet else getattr(node.target, "__name__", "")


def _may_run_again(node: fx.Node) -> bool:
    if node.op == "get_attr":
        return True
    if node.op != "call_function" or is_random(node):
        return False
    if not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)):
        return True
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    return _op_name(node) in CHEAP


def _cost(node: fx.Node, results: set[fx.Node]) -> float:
    """Bytes moved to save `node`: written and read, or only read if it exists anyway."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return _INFINITE
    if not isinstance(value, torch.Tensor):
        return 1.0
    size = float(_hint(value.numel())) * value.dtype.itemsize
    exists = node.op in ("placeholder", "get_attr") or node in results
    # A view is computed again for nothing, so its base is preferred at equal cost.
    return size * (1 if exists else 2) + (2 if is_view(node) else 1)


def _saved_for_others(
    graph: fx.Graph,
    tangents: Sequence[fx.Node],
    asked: Mapping[fx.Node, frozenset[int]],
) -> set[fx.Node]:
    """Early nodes that read what eager saves, but not for all tangents that they go with."""
    goes_with = {n: {i} for i, n in enumerate(tangents)}
    for node in graph.nodes:
        found = set[int]().union(*(goes_with.get(i, ()) for i in node.all_input_nodes))
        if found:
            goes_with[node] = found
    late = set(goes_with)
    wrong = set()
    for node in reversed(graph.nodes):
        if node in late:
            continue
        found = set[int]().union(*(goes_with.get(u, ()) for u in node.users))
        goes_with[node] = found
        for base in {base_of(i) for i in node.all_input_nodes} & asked.keys():
            if not is_view(node) and not found <= asked[base]:
                wrong.add(node)
    return wrong


def _is_operand(node: fx.Node, late: set[fx.Node]) -> bool:
    """True if one of `late` that no kernel computes reads the memory of `node`."""
    stack = list(node.users)
    while stack:
        user = stack.pop()
        if is_view(user):
            stack.extend(user.users)
        elif user in late and not _may_run_again(user):
            return True
    return False


def _hint(number: int | torch.SymInt) -> int:
    if isinstance(number, int):
        return number
    hint = number.node.hint if number.node.has_hint() else None
    return int(hint) if hint is not None else 4096


def descendants(graph: fx.Graph, roots: set[fx.Node]) -> set[fx.Node]:
    """The nodes that are computed from some, and these."""
    found = set(roots)
    for node in graph.nodes:
        if any(i in found for i in node.all_input_nodes):
            found.add(node)
    return found


def _ancestors(roots: Iterable[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    open_ = list(roots)
    while open_:
        node = open_.pop()
        if node not in found:
            found.add(node)
            open_.extend(node.all_input_nodes)
    return found


def _computed_from(saved: list[fx.Node], needed: set[fx.Node]) -> set[fx.Node]:
    """Nodes between the saved ones and the needed ones (the saved ones left out)."""
    stop, found = set(saved), set()
    open_ = [n for n in needed if n not in stop]
    while open_:
        node = open_.pop()
        if node not in found:
            found.add(node)
            open_.extend(i for i in node.all_input_nodes if i not in stop)
    return found


class _Flow:
    """Maximum flow by Dinic's algorithm, for the few thousand edges of a graph."""

    def __init__(self, count: int) -> None:
        self.to: list[int] = []
        self.left: list[float] = []
        self.out: list[list[int]] = [[] for _ in range(count)]

    def edge(self, start: int, end: int, capacity: float) -> None:
        """Adds an edge and its reverse."""
        for a, b, c in ((start, end, capacity), (end, start, 0.0)):
            self.out[a].append(len(self.to))
            self.to.append(b)
            self.left.append(c)

    def cut(self, source: int, sink: int) -> set[int]:
        """Returns the vertices on the source's side of a minimum cut."""
        while True:
            level = self._levels(source)
            if sink not in level:
                return set(level)
            following = [0] * len(self.out)
            while self._push(source, sink, level, following):
                continue

    def _levels(self, source: int) -> dict[int, int]:
        level, queue = {source: 0}, deque([source])
        while queue:
            vertex = queue.popleft()
            for e in self.out[vertex]:
                if self.left[e] > 0 and self.to[e] not in level:
                    level[self.to[e]] = level[vertex] + 1
                    queue.append(self.to[e])
        return level

    def _push(
        self, source: int, sink: int, level: dict[int, int], following: list[int]
    ) -> float:
        """Sends flow along one path of rising levels; returns how much (0 at the end)."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            while following[vertex] < len(self.out[vertex]):
                e = self.out[vertex][following[vertex]]
                if self.left[e] > 0 and level.get(self.to[e]) == level[vertex] + 1:
                    break
                following[vertex] += 1
            else:
                if not path:
                    return 0.0
                vertex = self.to[path.pop() ^ 1]
                following[vertex] += 1
                continue
            path.append(e)
            vertex = self.to[e]
        amount = min(self.left[e] for e in path)
        if amount == _INFINITE:
            raise AssertionError("a value that cannot be saved is needed")
        for e in path:
            self.left[e] -= amount
            self.left[e ^ 1] += amount
        return amount
