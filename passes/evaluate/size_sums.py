"""Sums of symbolic sizes, which PyTorch gets wrong once one of the symbols is replaced.

    n = x.size(0) + y.size(0)     s0 + s1, marked as a sum of symbols that all differ
    w = x + y                     so the sizes are equal, and n is 2*s0 from now on
    n + z.size(0)                 PyTorch: 2 + s0 + s2; here: 2*s0 + s2

To a sum that is marked PyTorch adds without looking at it: it puts the next symbol between
the operands of `s0 + s1`. But the mark stays when the sum has become something else, whose
operands are a product's, or none at all.
"""

from __future__ import annotations

import functools
from typing import Any

import sympy


@functools.cache
def correct() -> None:
    """Lets PyTorch look whether what is marked as a sum of symbols still is one.

    NOTE: PyTorch's own function is replaced, for good, because its rules for shapes add sizes,
    too. It gives the same results as before, except where they were wrong; a PyTorch that is
    right, or has no such function, is left as it is.
    """
    from torch.fx.experimental import sym_node

    module: Any = sym_node
    add = getattr(module, "_optimized_add", None)
    if add is None or not _is_wrong(add):
        return

    @functools.wraps(add)
    def corrected(left: Any, right: Any, *marks: bool) -> Any:
        sums = map(_is_sum_of_symbols, (left, right))
        return add(left, right, *(m and s for m, s in zip(marks, sums)))

    module._optimized_add = corrected


def _is_wrong(add: Any) -> bool:
    """Whether `2*a`, marked as a sum of symbols, plus `b` is something else than that."""
    a, b = sympy.symbols("a b", integer=True, positive=True)
    try:
        return bool(add(2 * a, b, True, False)[1] != 2 * a + b)
    except TypeError:  # it is given something else
        return False


def _is_sum_of_symbols(expression: Any) -> bool:
    return expression.is_Add and all(term.is_Symbol for term in expression.args)
