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
writes it. A call that makes a copy and writes some elements of it (`index_copy`) writes them
into the input under the same conditions: the cache of a decoder is not copied at every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch import fx

from .crossed_form import Crossed
from .definitions import Definition, Lowered
from .groups import Group, Plan, base_of, extern_operands, start_of
from .loops import Kernel, Load, Store, walk

Targets = Mapping[Definition, Definition]
"""Result -> the input (`source`) into which it goes."""


def candidates(plan: Plan, wanted: Targets) -> dict[Definition, Definition]:
    """Those of `wanted` for which the order of groups allows it."""
    position = {group: n for n, group in enumerate(plan.groups)}
    found: dict[Definition, Definition] = {}
    for whole, source in wanted.items():
        result = start_of(whole)
        home = plan.home.get(result)
        if home is None or (home.extern is None and result not in plan.stored):
            continue
        if home.extern is not None and not overwrites(
            home.extern, source, result, plan.lowered
        ):
            continue
        if result.dtype is not source.dtype or result.size != source.size:
            continue
        if source in found.values() or is_wanted_apart(whole, plan.lowered):
            continue
        named = home.extern is None and result is whole
        if not any(
            _reads_too_late(g, home, position, result if named else None, source)
            for g in plan.groups
        ):
            found[result] = source
    return found


OVERWRITING = frozenset(
    """
    index_copy index_add index_put index_fill index_reduce scatter scatter_add
    scatter_reduce masked_scatter
    """.split()
)
"""Operators that copy their first operand and write some elements of the copy."""


def writing_form(node: fx.Node) -> Any:
    """The overload that writes into its first operand what `node` writes into a copy.

    For a part that `passes.overwrites` has found, that of the part.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target.overloadpacket.__name__
    if node.meta.get("part_of_input"):
        return torch.ops.aten.copy_.default
    packet = getattr(torch.ops.aten, f"{name}_", None) if name in OVERWRITING else None
    return getattr(packet, target._overloadname, None)


def overwrites(
    node: fx.Node, operand: Definition, result: Definition, lowered: Lowered
) -> bool:
    """Whether an extern call may write its result into the memory of its first operand.

    PyTorch refuses operands that share memory with what is written.
    """
    if writing_form(node) is None or operand.stride != result.stride:
        return False
    first, *others = node.all_input_nodes
    if node.args[0] is not first or lowered.values[first] is not operand:
        return False
    read = [d for d in extern_operands(node, lowered) if d is not operand]
    return len(read) == len(others) and all(base_of(d) is not operand for d in read)


def is_wanted_apart(result: Definition, lowered: Lowered) -> bool:
    """Whether a result of the graph shows the memory of what goes into the input."""
    own = [r for r in lowered.results if isinstance(r, Definition)]
    return sum(base_of(r) is result for r in own) > 1


def _reads_too_late(
    group: Group,
    home: Group,
    position: Mapping[Group, int],
    unnamed: Definition | None,
    source: Definition,
) -> bool:
    if group is home:
        return False
    # What a call or an addition has written has the name of its result, what a kernel has not.
    return unnamed in group.reads or (
        source in group.reads and position[group] > position[home]
    )


def safe(kernel: Kernel | Crossed, buffer_name: str) -> bool:
    """True if each element of the buffer is read only at the point that writes it, and before.

    What a statement has read, later ones know without memory. What a crossed pass stores of
    columns it stores behind the walk over rows.

    NOTE: the kernel stores in place last, so that a printer that makes several passes over
    the inner axes has read the old values by then. Another store may be in a later pass, so
    it must not read them.
    """
    if isinstance(kernel, Crossed):
        if all(b.name != buffer_name for b in kernel.rows.outputs):
            return safe(kernel.columns, buffer_name)
        late = walk(s.value for s in kernel.stores)
        if any(isinstance(v, Load) and v.buffer.name == buffer_name for v in late):
            return False
        kernel = replace(kernel.rows, body=(*kernel.rows.body, *kernel.reduces))
    stores = [
        s for s in kernel.body if isinstance(s, Store) and s.buffer.name == buffer_name
    ]
    if any(s.adds for s in stores):
        return False
    first: dict[Load, int] = {}
    for number, statement in enumerate(kernel.body):
        for value in walk([statement.value]):
            if not (isinstance(value, Load) and value.buffer.name == buffer_name):
                continue
            if value.indirect or (
                kernel.inner
                and isinstance(statement, Store)
                and statement not in stores
            ):
                return False
            first.setdefault(value, number)
    for value, number in first.items():
        own = [s for s in stores if sympy.expand(value.index - s.index) == 0]
        if not own or any(s in own for s in kernel.body[:number]):
            return False
    return True
