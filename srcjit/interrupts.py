"""Signals that arrive while a specialization is being made: it is finished first.

    with later():
        ...  # signals are noted here
    # and their handlers run here; for a second signal of its kind, at once

To the program a compile is one long instruction, as a call of a C function is, and Python runs
no handler in the middle of those. Otherwise the exception of a handler (Ctrl-C, a timeout) would
come at any instruction of the compiler and of the libraries that it uses: inside the entry of a
context, which would stay open, or where an exception means something else and is caught.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class later:
    """Puts signals off until the end of the block, if this thread handles them at all."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._noted: dict[int, FrameType | None] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        except BaseException:  # of the handler of a signal that came before its turn
            self.__exit__()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._noted:
            self._handlers[number](number, frame)
        self._noted[number] = frame

    def __exit__(self, *exception: object) -> None:
        handlers = dict(self._handlers)
        try:
            self._put_back()
        finally:
            _run([(handlers[n], n, frame) for n, frame in self._noted.items()])

    def _put_back(self) -> None:
        """Puts all handlers back, also where one of them runs meanwhile and raises."""
        try:
            while self._handlers:
                number, handler = next(iter(self._handlers.items()))
                signal.signal(number, handler)
                del self._handlers[number]
        finally:
            if self._handlers:
                self._put_back()


def _run(noted: list[tuple[Handler, int, FrameType | None]]) -> None:
    """Runs handlers: all of them, also where one raises, as Python does."""
    if not noted:
        return
    (handler, number, frame), *others = noted
    try:
        handler(number, frame)
    finally:
        _run(others)
