"""A schedule: what the host does for a graph, step by step.

    Schedule(
        steps=(
            Launch(kernel sin_mul over i < 4096: mul[i] = mul(sin(x[i]), 2.0)),
            Call(mm = aten.mm.default(mul, w)),
        ),
        stored=(mul,),
    )

`passes.fuse` makes it, `passes.reuse`, `passes.takeovers` and `passes.crossing` improve it, and
`passes.host` writes it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from torch import fx

from .attention_form import Attention
from .attention_library import Library
from .crossed_form import Crossed
from .definitions import Definition, Lowered
from .in_place import Targets
from .loops import Kernel
from .placement import Place, Places

Launched: TypeAlias = Kernel | Attention | Crossed
"""What a launch runs."""


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel call: `kernel` reads and writes the definitions of the same names.

    Those in `reused` it writes into the memory of another (`passes.reuse`).
    """

    kernel: Launched
    nodes: tuple[fx.Node, ...]
    reused: Targets = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Call:
    """An extern call that the host makes: the ATen call of `node`.

    With `in_place` it writes over its first operand, which nothing reads afterwards; with
    `out` its results into these inputs; with `place` its result there.
    """

    node: fx.Node
    in_place: bool = False
    out: tuple[Definition, ...] = ()
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class Attend(Call):
    """The call of a library that gives what the call of `node` gives."""

    library: Library = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Summed(Call):
    """No call: launches have added all that the result of `node` is the sum of.

    It lies in the memory of `start`, which was written first.
    """

    result: Definition = field(kw_only=True)
    start: Definition = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Schedule:
    """What the host does, in order.

    Attributes:
        steps: Kernel launches and extern calls.
        stored: Definitions that kernels put into memory, in order of their launch.
        lowered: The definitions.
        empty: Definitions without elements, which no kernel writes.
        in_place: Results that kernels write into the memory of an input.
        landed: Results that end in the memory of an input, because what the steps before
            leave there is written over (`passes.reuse`).
        places: Where what has no memory of its own lies (`passes.placement`).
    """

    steps: tuple[Launch | Call, ...]
    stored: tuple[Definition, ...]
    lowered: Lowered
    empty: tuple[Definition, ...] = ()
    in_place: Targets = field(default_factory=dict)
    landed: Targets = field(default_factory=dict)
    places: Places = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[Launched, ...]:
        """The kernels in order of their launch, but for those that have nothing to do."""
        launches = (s.kernel for s in self.steps if isinstance(s, Launch))
        return tuple(k for k in launches if k.outputs or isinstance(k, Attention))
