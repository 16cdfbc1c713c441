"""Groups of definitions, and the plan that grouping makes of them.

group 0 over (i | k): total, sq, y      a loop nest, with what it keeps in memory
group 1: aten.mm                        one extern call
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from .definitions import VIEW, Definition, Lowered
from .spaces import Frame


@dataclass(eq=False)
class Group:
    """Anchors that share a loop nest, or one extern call.

    Attributes:
        position: Position of the first member, for a stable order.
        frame: The iteration space; None for an extern call.
        members: Definition -> level.
        extern: The node of an extern call.
        before: Groups that must run before this one, transitively, as a bit set of `number`.
        reads: The memory that it reads.
        weight: Primitives that it computes at each point; costly ones count as several.
    """

    number: int
    position: int
    frame: Frame | None = None
    members: dict[Definition, str] = field(default_factory=dict)
    extern: fx.Node | None = None
    before: int = 0
    reads: dict[Definition, None] = field(default_factory=dict)
    weight: int = 0


@dataclass(frozen=True, eq=False)
class Plan:
    """What grouping decided.

    Attributes:
        groups: In an order in which they can run.
        home: Anchor -> its group.
        stored: Anchors that must be in memory: results, operands of extern calls, and what
            other groups read.
        lowered: The definitions.
    """

    groups: tuple[Group, ...]
    home: dict[Definition, Group]
    stored: frozenset[Definition]
    lowered: Lowered
    inlined: frozenset[Definition]


def base_of(definition: Definition) -> Definition:
    """The definition whose memory a view shares."""
    while definition.kind == VIEW:
        definition = definition.accesses[0].operand
    return definition


def start_of(definition: Definition) -> Definition:
    """The definition that writes first into memory that others add to, or the one given."""
    return definition.summed.start if definition.summed else definition


def extern_operands(node: fx.Node, lowered: Lowered) -> Iterator[Definition]:
    """Tensors that an extern call takes, or that a sum waits for."""
    if node in lowered.streams:
        yield from lowered.streams[node].operands
        return
    result = lowered.values.get(node)
    if isinstance(result, Definition) and result.added and result.summed:
        yield from (result.added, result.summed.start)
        return
    for used in node.all_input_nodes:
        value = lowered.values[used]
        for d in value if isinstance(value, tuple | list) else (value,):
            if isinstance(d, Definition):
                yield d
