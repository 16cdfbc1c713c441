"""Which code is taken as fixed: PyTorch, the standard library and the compiler itself.

Attributes of frozen modules and the bodies of their functions are read during evaluation without
a guard: a program that assigns to `torch.sin` after the first call is not noticed.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from functools import cache

_LIBRARIES = frozenset({"torch", "numpy", "srcjit", "triton", "einops", "libcst"})


def is_member(obj: object, table: Container[object]) -> bool:
    """Whether one of the library's own callables is in `table`; a user's object never is.

    The hash and equality of a user's object are the user's code, which must not run here.
    """
    try:
        return is_frozen(type(obj).__module__) and obj in table
    except TypeError:
        return False  # a library's object without a hash


@cache
def is_frozen(module_name: str | None) -> bool:
    """Whether a module's contents are taken as fixed."""
    if module_name is None:
        return False
    top = module_name.split(".")[0]
    if top in ("__main__", "srcjit_tests"):
        return False
    return top in _LIBRARIES or top in sys.stdlib_module_names
