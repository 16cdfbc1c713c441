"""Sums of symbolic sizes, which PyTorch gets wrong once one of the symbols is replaced.

    n = x.size(0) + y.size(0)     s0 + s1, marked as a sum of symbols that all differ
    w = x + y                     so the sizes are equal, and n is 2*s0 from now on
    n + z.size(0)                 PyTorch: 2 + s0 + s2; here: 2*s0 + s2

To a sum that is marked PyTorch adds without looking at it: it puts the next symbol between
the operands of `s0 + s1`. But the mark stays when the sum has become something else, whose
operands are a product's, or none at all.
"""

from __future__ import annotations

from typing import Any


def correct() -> None:
    """Lets PyTorch look whether what is marked as a sum of symbols still is one.

    NOTE: PyTorch's own function is replaced, because its rules for shapes add sizes, too.
    It gives the same results as before, except where they were wrong.
    """
    from torch.fx.experimental import sym_node

    global _torch_add
    module: Any = sym_node
    if getattr(module, "_optimized_add", _add) is not _add:
        _torch_add, module._optimized_add = module._optimized_add, _add


_torch_add: Any = None


def _add(
    left: Any, right: Any, left_marked: bool = False, right_marked: bool = False
) -> Any:
    return _torch_add(
        left,
        right,
        left_marked and _is_sum_of_symbols(left),
        right_marked and _is_sum_of_symbols(right),
    )


def _is_sum_of_symbols(expression: Any) -> bool:
    return expression.is_Add and all(term.is_Symbol for term in expression.args)
