"""The garbage collector is off while something is compiled, and then as the program had it."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from srcjit import collector


class Node:
    """Garbage by itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_what_was_made_is_collected_once_at_the_end() -> None:
    collector.hold()
    garbage = weakref.ref(Node())
    collector.hold()
    collector.release(True)
    assert not gc.isenabled() and garbage() is not None
    collector.release(True)
    assert gc.isenabled() and garbage() is None


def test_what_the_program_turned_off_stays_off() -> None:
    gc.disable()
    garbage = weakref.ref(Node())
    collector.hold()
    collector.release(True)
    assert not gc.isenabled() and garbage() is not None


def test_the_last_thread_turns_it_on() -> None:
    go = threading.Event()

    def other() -> None:
        collector.hold()
        held.set()
        go.wait(10)
        collector.release(False)

    held = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    held.wait(10)
    collector.hold()
    collector.release(True)
    assert not gc.isenabled()
    go.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.parametrize("compiled", [False, True])
def test_what_runs_between_two_instructions_may_compile(compiled: bool) -> None:
    """From Python 3.12 on, finalizers run between any two, those under the lock included."""

    def compile_in_the_middle() -> None:
        with collector._lock:
            collector.hold()
            collector.release(compiled)

    thread = threading.Thread(target=compile_in_the_middle, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_does_not_wait_for_threads_that_it_lacks() -> None:
    go, held = threading.Event(), threading.Event()

    def other() -> None:
        collector.hold()
        held.set()
        go.wait(10)
        collector.release(False)

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
        collector.hold()
        collector.release(True)
    assert gc.get_count()[2] < 3


def test_what_the_program_keeps_from_the_collector_stays_there() -> None:
    gc.freeze()
    try:
        kept = gc.get_freeze_count()
        collector.hold()
        collector.release(True)
        assert kept > collector.FROZEN and gc.get_freeze_count() == kept
    finally:
        gc.unfreeze()
