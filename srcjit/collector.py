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

UNASKED = 100
"""How many compilations do not ask a program that keeps objects whether it still does.

The answer takes a look at each: 35 ms for a million.
"""

_lock = threading.RLock()
"""What runs between two instructions (finalizers, handlers of signals) may compile, too."""

_holders: dict[int, int] = {}
"""The threads that compile, by the identity of each `Hold`."""

_unasked = 0
"""How many compilations still do not ask."""

_off = False
"""Whether the collector is off because of them; the program may have turned it off itself."""


class Hold:
    """While there is one, no garbage is collected: until its `release`, or until it is dropped.

    An exception from outside (a second Ctrl-C) comes between any two instructions, also where
    a `finally` that would release is not entered yet, or has been left; but then the frame
    that has the `Hold` goes, and the `Hold` with it.
    """

    def __init__(self) -> None:
        global _off
        with _lock:
            _holders[id(self)] = threading.get_ident()
            if gc.isenabled():
                _off = True
                gc.disable()

    def release(self, compiled: bool) -> None:
        """Ends it.

        Args:
            compiled: Whether much was made meanwhile.

        NOTE: to be called without a lock of the compiler's held: finalizers may run.
        """
        with _lock:
            _holders.pop(id(self), None)
            if _holders or not _off:
                return
        try:
            if compiled:
                # What it finds in use moves to the oldest generation.
                gc.collect(1)
                grow_old()
        finally:
            _enable()

    def __del__(self) -> None:
        _holders.pop(id(self), None)
        if _off:
            _enable()


def grow_old() -> None:
    """Counts all objects as old, unseen, and starts counting towards collections anew.

    Not where the program keeps objects from the collector, which would lose them.
    """
    global _unasked
    if _unasked:
        _unasked -= 1
    elif gc.get_freeze_count() > FROZEN:
        _unasked = UNASKED
    else:
        try:
            gc.freeze()
        finally:
            gc.unfreeze()


def _enable() -> None:
    global _off
    with _lock:
        if _off and not _holders:
            gc.enable()
            _off = False


def _after_fork_in_child() -> None:
    # Other threads of the parent's do not exist here.
    global _lock, _holders
    _lock = threading.RLock()
    here = threading.get_ident()
    _holders = {hold: thread for hold, thread in _holders.items() if thread == here}
    _enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
