"""Takeovers: a value gets the memory of a temporary that died before, with no new memory between.

Before, in what the host does for twenty layers of `relu(linear(x))`:

    linear_1 = torch._addmm_activation(b1, linear, w1.t())
    del linear
    linear_2 = torch._addmm_activation(b2, linear_1, w2.t())

After:

    linear_1 = torch._addmm_activation(b1, linear, w1.t())
    linear_2 = linear
    del linear
    torch._addmm_activation(b2, linear_1, w2.t(), out=linear_2)

An allocation costs the host more than a microsecond on a GPU; on a CPU large memory is fresh
each time, and each of its pages has to be brought. What is held for a later step would add to
the peak if something else were allocated meanwhile, so then it is freed as it was.

`passes.reuse` comes first: it lets a kernel write where it reads.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

import torch
from torch import fx

from .definitions import Definition
from .placement import alike
from .reuse import memory_of, names_made
from .schedule import Call, Launch, Schedule, Summed

aten = torch.ops.aten

PRODUCTS = (
    aten.mm.default,
    aten.addmm.default,
    aten._addmm_activation.default,
    aten.bmm.default,
    aten.baddbmm.default,
)
"""Calls that compute right into the memory they are given, and give contiguous results."""


@dataclass(eq=False)
class _Memory:
    """One piece of memory, and the values that lie in it one after another.

    Attributes:
        first: The value that it was made for.
        name: The value that is used last.
        last: The last step that uses it.
    """

    first: Definition
    name: str
    last: int

    def hold(self, name: str, last: int) -> None:
        """Notes that one more value lies here."""
        if last >= self.last:
            self.name, self.last = name, last


def takeovers(
    schedule: Schedule, last: Mapping[str, int], given: Container[str] = ()
) -> dict[str, str]:
    """Returns for values that need no new memory the dead temporaries whose they get.

    What the caller gets is in memory of its own, which nothing was written to before.

    Args:
        schedule: What the host does.
        last: The last step that uses each temporary (`reuse.last_uses`).
        given: Values that the caller gives memory for.
    """
    stored = {d.name: d for d in schedule.stored if d not in schedule.in_place}
    moves = [pair for step in schedule.steps for pair in _moved(step, schedule)]
    shown = {name for name, _ in moves if name not in last}
    for name, source in reversed(moves):
        if name in shown:
            shown.add(source)
    home: dict[str, _Memory] = {}
    free: list[_Memory] = []
    found: dict[str, str] = {}
    for number, step in enumerate(schedule.steps):
        made, fresh = _made(step, stored, home.keys(), schedule)
        for d in made:
            if d.name not in last or d.name in shown or d.name in given:
                fresh = True
                continue
            memory = next((m for m in free if alike(d, m.first)), None)
            if memory is None:
                fresh = True
                memory = _Memory(d, d.name, number)
            else:
                free.remove(memory)
                found[d.name] = memory.name
            memory.hold(d.name, last[d.name])
            home[d.name] = memory
        for name, source in _moved(step, schedule):
            if source in home:
                home[name] = home[source]
                home[name].hold(name, last[name])
        if fresh:
            free.clear()
        free += [m for m in dict.fromkeys(home.values()) if m.last == number]
    return found


def _made(
    step: Launch | Call,
    stored: Mapping[str, Definition],
    known: Container[str],
    schedule: Schedule,
) -> tuple[list[Definition], bool]:
    """What a step needs memory for, and whether it allocates more than that."""
    if isinstance(step, Launch):
        new = (b.name for b in step.kernel.outputs if b.name not in known)
        return [stored[name] for name in new if name in stored], False
    if step.place is not None:
        memory = step.place.memory
        fresh = memory.name in stored and memory.name not in known
        return [memory] if fresh else [], False
    if step.in_place or step.out or isinstance(step, Summed):
        return [], False
    value = schedule.lowered.values[step.node]
    if type(step) is Call and step.node.target in PRODUCTS:
        assert isinstance(value, Definition)
        return [value], False
    return [], True


def _moved(step: Launch | Call, schedule: Schedule) -> list[tuple[str, str]]:
    """Values that a step leaves in the memory of others."""
    if isinstance(step, Summed):
        return [(step.result.name, step.start.name)]
    if isinstance(step, Launch):
        return [(d.name, source.name) for d, source in step.reused.items()]
    if not step.in_place or step.place is not None:
        return []
    first = step.node.args[0]
    assert isinstance(first, fx.Node)
    (source,) = memory_of(first, schedule)
    return [(name, source) for name in names_made(step, schedule)]
