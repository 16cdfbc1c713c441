"""Keeps the cyclic garbage collector away while something is compiled.

Finalizers and callbacks of the program's would run under the compiler's locks. And whatever was
made meanwhile is young: a collection of the middle generation, due after ten of the youngest,
looks at all that several compilations left behind, which took 63 ms on a machine with a GPU, with
a thread waiting to read the text of a kernel. So when nothing is compiled any more, the garbage
goes, and the rest, which mostly lives as long as the program, counts as old. That would make a
collection of all that is old due within one of the next calls, a quarter of a second with
PyTorch's compiler and Triton in it, so from then on the program is granted its ten collections
of the middle generation before that. So is the compilation of a kernel, which takes some of them.
"""

from __future__ import annotations

import gc
import os
import threading

FROZEN = 1000
"""Objects that Python itself may keep from the collector: 3.12 does 375."""

_lock = threading.RLock()
"""What runs between two instructions (finalizers, handlers of signals) may compile, too."""

_holders: list[int] = []
"""The threads that compile, each as often as it does."""

_off = False
"""Whether the collector is off because of them; the program may have turned it off itself."""


def hold() -> None:
    """No garbage is collected until each `hold` has had its `release`, in the same thread."""
    global _off
    with _lock:
        _holders.append(threading.get_ident())
        if gc.isenabled():
            gc.disable()
            _off = True


def grow_old() -> None:
    """Counts all objects as old, unseen, and starts counting towards collections anew.

    Not where the program keeps objects from the collector, which would lose them.
    """
    if gc.get_freeze_count() <= FROZEN:
        gc.freeze()
        gc.unfreeze()


def release(compiled: bool) -> None:
    """Ends a `hold`.

    Args:
        compiled: Whether much was made meanwhile.

    NOTE: to be called without a lock of the compiler's held: finalizers may run.
    """
    with _lock:
        _holders.remove(threading.get_ident())
        if _holders or not _off:
            return
    try:
        if compiled:
            # What it finds in use moves to the oldest generation.
            gc.collect(1)
            grow_old()
    finally:
        _enable()


def _enable() -> None:
    global _off
    with _lock:
        if _off and not _holders:
            _off = False
            gc.enable()


def _after_fork_in_child() -> None:
    # Other threads of the parent's do not exist here.
    global _lock, _holders
    _lock = threading.RLock()
    _holders = [t for t in _holders if t == threading.get_ident()]
    _enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
