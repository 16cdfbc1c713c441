"""Puts a mask on every load under a value (`cat`, `pad`: pieces that end).

    >>> # masked(add(a[i - 5], w[i - 5]), i >= 5)
    >>> # add(a[i - 5 if i >= 5], w[i - 5 if i >= 5])

A `Ref` needs no mask: it is the result of a reduction, which exists at every outer point.
"""

from __future__ import annotations

from .loops import Load, Op, Value, op, rebuild, walk


def masked(value: Value, mask: Value) -> Value:
    """Returns `value` with its loads done only where `mask` is true."""
    done: dict[Value, Value] = {}
    for v in walk([value]):
        if isinstance(v, Load):
            own = mask if v.mask is None else _both(mask, done[v.mask])
            indirect = tuple(p._replace(value=done[p.value]) for p in v.indirect)
            done[v] = Load(v.buffer, v.index, own, indirect)
        elif v.operands:
            done[v] = rebuild(v, tuple(done[o] for o in v.operands))
        else:
            done[v] = v
    return done[value]


def _both(first: Value, second: Value) -> Value:
    if first is second or (
        isinstance(second, Op) and second.name == "bitwise_and" and first in second.args
    ):
        return second
    return op("bitwise_and", first, second)
