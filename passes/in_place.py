"""Results that a kernel may write into an input's own memory.

Before (the segment's plan says `x.copy_(add)` behind the graph):

    add = empty_cpu((1000,), (1,), torch.float32)
    segment_0_kernels.add_kernel(x, add)
    x.copy_(add)

After:

    segment_0_kernels.add_kernel(x)
    torch.autograd.graph.increment_version(x)

That is legal when nothing reads the old values afterwards, nobody wants the new values in
memory of their own, and the kernel itself reads each element of `x` only at the point that
writes it.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from .definitions import Definition
from .groups import Group, Plan
from .loops import Kernel, Load, Store, walk

Targets = Mapping[Definition, Definition]
"""Result -> the input (`source`) into which it goes."""


def candidates(plan: Plan, wanted: Targets) -> dict[Definition, Definition]:
    """Those of `wanted` for which the order of groups allows it."""
    position = {group: n for n, group in enumerate(plan.groups)}
    found: dict[Definition, Definition] = {}
    for result, source in wanted.items():
        home = plan.home.get(result)
        if result not in plan.stored or home is None or home.extern is not None:
            continue
        if result.dtype is not source.dtype or result.size != source.size:
            continue
        if source in found.values():
            continue
        if not any(
            _reads_too_late(g, home, position, result, source) for g in plan.groups
        ):
            found[result] = source
    return found


def _reads_too_late(
    group: Group,
    home: Group,
    position: Mapping[Group, int],
    result: Definition,
    source: Definition,
) -> bool:
    if group is home:
        return False
    return result in group.reads or (
        source in group.reads and position[group] > position[home]
    )


def safe(kernel: Kernel, buffer_name: str) -> bool:
    """True if each element of the buffer is read only at the point that writes it.

    NOTE: the kernel stores in place last, so that a printer that makes several passes over
    the inner axes has read the old values by then. Another store may be in a later pass, so
    it must not read them.
    """
    stores = [
        s for s in kernel.body if isinstance(s, Store) and s.buffer.name == buffer_name
    ]
    for number, statement in enumerate(kernel.body):
        later = [s.index for s in kernel.body[number:] if s in stores]
        for value in walk([statement.value]):
            if not (isinstance(value, Load) and value.buffer.name == buffer_name):
                continue
            own = any(sympy.expand(value.index - index) == 0 for index in later)
            if value.indirect or not own:
                return False
            if (
                kernel.inner
                and isinstance(statement, Store)
                and statement not in stores
            ):
                return False
    return True
