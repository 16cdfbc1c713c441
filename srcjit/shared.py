"""Specializations by the code that they were made for, to be used again.

Functions that share their code share what was compiled for it: the instances of a module
class, whose `forward` is one function, and the closures that a factory or a loop makes. Each
jitted function still has a list and a limit of its own; on a miss it looks here before it
compiles. What is kept holds none of the user's closure cells; but it holds the namespace that
the code runs in, and so is kept only while that is the namespace of a loaded module.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from srcjit.load import closure_cells
from srcjit.options import Options

if TYPE_CHECKING:
    from srcjit.compiler import Specialization

MOST = 64
"""Specializations kept for one code object; the oldest go first."""

_bypassed = False
_lock = threading.Lock()
_table: dict[int, tuple[weakref.ref[CodeType], dict[Any, list[Specialization]]]] = {}
_namespaces: dict[int, dict[str, Any]] = {}
"""The namespaces of what is kept, by identity."""
# NOTE: by identity; code objects compare by value and leave the file out.


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def share(function: FunctionType, made: Specialization) -> None:
    """Keeps a new specialization of `function` for functions with the same code."""
    if not made.portable or _bypassed or not _loaded(function.__globals__):
        return
    empty = {name: CellType() for name in function.__code__.co_freevars}
    with _lock:
        _forget_unloaded()
        kept = _entry(function.__code__).setdefault(_key(function, made.options), [])
        _namespaces[id(function.__globals__)] = function.__globals__
        kept.append(made.with_cells(empty))
        del kept[:-MOST]


def find(
    function: FunctionType, options: Options, values: tuple[Any, ...]
) -> Specialization | None:
    """Returns a specialization for `function` whose guards hold for `values`."""
    if _bypassed:
        return None
    cells = closure_cells(function)
    for made in _kept(function, options):
        bound = made.with_cells(cells)
        if bound.guard(*values):
            return bound
    return None


@contextlib.contextmanager
def bypassed() -> Iterator[None]:
    """Neither finds nor keeps anything inside the block: all is compiled anew."""
    global _bypassed
    before, _bypassed = _bypassed, True
    try:
        yield
    finally:
        _bypassed = before


def clear() -> None:
    """Forgets everything."""
    with _lock:
        _table.clear()
        _namespaces.clear()


def _kept(function: FunctionType, options: Options) -> Iterator[Specialization]:
    with _lock:
        entry = _table.get(id(function.__code__))
        if entry is None or entry[0]() is not function.__code__:
            return
        kept = list(entry[1].get(_key(function, options), ()))
    # The newest is the likeliest to fit.
    yield from reversed(kept)


def _key(function: FunctionType, options: Options) -> Any:
    return options, id(function.__globals__)


def _loaded(namespace: dict[str, Any]) -> bool:
    """Whether a namespace is that of a module which can be imported."""
    module = sys.modules.get(namespace.get("__name__", ""))
    return getattr(module, "__dict__", None) is namespace


def _forget_unloaded() -> None:
    """Drops what was kept for modules that have been unloaded or loaded anew."""
    gone = {key for key, space in _namespaces.items() if not _loaded(space)}
    if gone:
        for key in gone:
            del _namespaces[key]
        for _, by_key in list(_table.values()):
            for options, space in [k for k in by_key if k[1] in gone]:
                del by_key[options, space]


def _entry(code: CodeType) -> dict[Any, list[Specialization]]:
    key = id(code)
    entry = _table.get(key)
    if entry is None or entry[0]() is not code:
        # NOTE: when Python exits, the module's variables may be gone before the code is.
        forget = functools.partial(_table.pop, key)
        entry = (weakref.ref(code, lambda _: forget(None)), {})
        _table[key] = entry
    return entry[1]
