"""The garbage collector is off while something is compiled, and then as the program had it."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

import srcjit
from srcjit import collector

from .front_end import FrontEnd


class Node:
    """Garbage by itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    assert gc.isenabled()
    monkeypatch.setattr(collector, "_unasked", 0)
    yield
    gc.enable()


def test_what_was_made_is_collected_once_at_the_end() -> None:
    outer = collector.Hold()
    garbage = weakref.ref(Node())
    collector.Hold().release(True)
    assert not gc.isenabled() and garbage() is not None
    outer.release(True)
    assert gc.isenabled() and garbage() is None


def test_what_the_program_turned_off_stays_off() -> None:
    gc.disable()
    garbage = weakref.ref(Node())
    collector.Hold().release(True)
    assert not gc.isenabled() and garbage() is not None


def test_the_last_thread_turns_it_on() -> None:
    go = threading.Event()

    def other() -> None:
        hold = collector.Hold()
        held.set()
        go.wait(10)
        hold.release(False)

    held = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    held.wait(10)
    collector.Hold().release(True)
    assert not gc.isenabled()
    go.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.parametrize("compiled", [False, True])
def test_what_runs_between_two_instructions_may_compile(compiled: bool) -> None:
    """From Python 3.12 on, finalizers run between any two, those under the lock included."""

    def compile_in_the_middle() -> None:
        with collector._lock:
            collector.Hold().release(compiled)

    thread = threading.Thread(target=compile_in_the_middle, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_does_not_wait_for_threads_that_it_lacks() -> None:
    go, held = threading.Event(), threading.Event()

    def other() -> None:
        hold = collector.Hold()
        held.set()
        go.wait(10)
        hold.release(False)

    thread = threading.Thread(target=other)
    thread.start()
    held.wait(10)
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)
    _, status = os.waitpid(child, 0)
    go.set()
    thread.join()
    assert status == 0 and gc.isenabled()


def test_no_collection_of_everything_becomes_due() -> None:
    """However often something is compiled, that takes many of the program's own objects."""
    for _ in range(30):
        collector.Hold().release(True)
    assert gc.get_count()[2] < 3


def test_what_the_program_keeps_from_the_collector_stays_there() -> None:
    gc.freeze()
    try:
        kept = gc.get_freeze_count()
        collector.Hold().release(True)
        # Some are dropped where they are: another thread's, say.
        assert kept > collector.FROZEN and gc.get_freeze_count() > kept / 2
    finally:
        gc.unfreeze()


def test_a_program_that_keeps_objects_is_seldom_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, asked = gc.get_freeze_count, []

    def count() -> int:
        asked.append(real())
        return asked[-1]

    monkeypatch.setattr(gc, "get_freeze_count", count)
    gc.freeze()
    try:
        for _ in range(collector.UNASKED + 1):
            collector.Hold().release(True)
    finally:
        gc.unfreeze()
    assert len(asked) == 1
    collector.Hold().release(True)
    collector.Hold().release(True)
    assert len(asked) == 3 and asked[-1] <= collector.FROZEN


def interrupted_at(count: int, call: Callable[[], Any]) -> bool:
    """Whether an exception came from outside, at the moment with this number.

    Handlers of signals run when a call begins or has ended: here of what keeps the collector
    away, and in who asks for it.
    """
    numbers = itertools.count()
    asks = srcjit.dispatch.Dispatcher.specialize.__wrapped__.__code__  # type: ignore

    def moment(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        keeps = code.co_filename == collector.__file__ and code.co_name != "__del__"
        if (keeps or code is asks) and event != "c_call" and next(numbers) == count:
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(moment)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def test_an_exception_from_outside_leaves_it_as_it_was(front_end: FrontEnd) -> None:
    """A handler of a second signal may raise between any two instructions."""
    for count in itertools.count():
        jitted = srcjit.jit(lambda x: x + 1)
        came = interrupted_at(count, lambda: jitted(torch.ones(2)))
        assert not collector._holders and gc.isenabled(), count
        assert gc.get_freeze_count() <= collector.FROZEN, count
        if not came:
            break
    assert count > 10
