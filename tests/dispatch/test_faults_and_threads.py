"""What a dispatcher does when compiling fails, is interrupted, or is done by several threads."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

import pytest
import torch

import srcjit
from srcjit.diagnostics import CompilerFault, GraphBreak, GraphBreakError
from srcjit.origin import Origin
from srcjit.passes.program import Guard
from srcjit.source import SourceUnavailable

from .front_end import FrontEnd

FAULTS = [
    RuntimeError("internal detail"),
    CompilerFault("lowering failed", Origin(__file__, 3)),
    GraphBreak("SJ003", "calls `locals`", Origin(__file__, 3)),
    SourceUnavailable("no file"),
    AssertionError(),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: type(f).__name__)
def test_a_fault_leaves_eager_and_one_warning(front_end, warnings, fault):
    front_end.fault = fault

    @srcjit.jit
    def triple(x):
        return x * 3

    for n in range(3):
        x = torch.full((n + 1,), 2.0)
        assert torch.equal(triple(x), x * 3)
    (warning,) = warnings
    assert f"{Path(__file__).name}:" in warning
    assert (
        "Python runs `test_a_fault_leaves_eager_and_one_warning.<locals>.triple`"
        in (warning)
    )
    assert str(getattr(fault, "diagnostic", fault)).split(": ")[-1] in warning
    # What it costs now is one more Python call.
    assert "    return native(x)\n" in triple.__srcjit__.stub_text


def test_a_fault_spares_what_is_compiled(front_end: FrontEnd, warnings):
    @srcjit.jit
    def triple(x):
        return x * 3

    triple(torch.ones(2))
    front_end.fault = RuntimeError("later")
    triple(torch.ones(3))
    front_end.fault = None
    triple(torch.ones(4))
    triple(torch.ones(2))
    assert len(triple.__srcjit__.specializations) == 1
    assert len(front_end.compiled) == len(warnings) == 1


def test_a_kernel_that_does_not_compile_is_a_fault(front_end: FrontEnd, warnings):
    front_end.definitions = """
from srcjit.runtime import cpp_kernels

segment_0_kernels = cpp_kernels('extern "C" void broken(float* y) { y[0] = missing; }')
"""
    add = srcjit.jit(lambda x: x + 1)
    assert (add(1), add(2)) == (2, 3)
    (warning,) = warnings
    assert "the C++ compiler rejected a kernel" in warning and "missing" in warning


def test_raise_setting_shows_the_fault(front_end: FrontEnd, monkeypatch):
    monkeypatch.setenv("SRCJIT_RAISE", "1")
    front_end.fault = RuntimeError("here")
    with pytest.raises(RuntimeError, match="here"):
        srcjit.jit(lambda x: x)(1)


def test_a_guard_that_refuses_its_own_arguments_is_a_fault(front_end, warnings):
    front_end.extra = (Guard("x is None"),)
    assert srcjit.jit(lambda x: x + 1)(1) == 2
    assert "does not fit: x is None" in warnings[0]


def test_fullgraph_raises_the_diagnostic(front_end: FrontEnd):
    front_end.fault = GraphBreak("SJ012", "call to `print` has a side effect")

    @srcjit.jit(fullgraph=True)
    def noisy(x):
        print(x)

    for _ in range(2):
        with pytest.raises(GraphBreakError, match="SJ012"):
            noisy(1)
    front_end.fault = None
    noisy(1)


def test_keyboard_interrupt_leaves_a_usable_state(front_end: FrontEnd, warnings):
    def interrupt():
        raise KeyboardInterrupt

    @srcjit.jit
    def half(x):
        return x / 2

    front_end.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        half(4)
    front_end.before = lambda: None
    assert not srcjit.is_compiling()
    assert half(4) == 2
    assert front_end.compiled == [half.__qualname__]
    assert not warnings


def test_calls_inside_the_compiler_run_natively(front_end: FrontEnd):
    seen = []

    @srcjit.jit
    def inner(x):
        seen.append(srcjit.is_compiling())
        return x + 1

    @srcjit.jit
    def outer(x):
        return inner(x)

    front_end.before = lambda: (inner(0), outer(0))
    outer(1)
    # Twice while compiling `outer`, then at run time: compiling `inner` first.
    assert seen[:2] == [True, True]
    assert seen[-1] is False


def test_threads_compile_each_specialization_once(front_end: FrontEnd):
    @srcjit.jit(options={"limit": 64})
    def scale(x, n):
        return x * n

    wrong: list[object] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        for call in range(1000):
            n = (call + seed) % 5
            size = 1 + (call // 5 + seed) % 4
            if not torch.equal(
                scale(torch.ones(size), n), torch.full((size,), float(n))
            ):
                wrong.append((size, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(front_end.compiled) == 20


def test_threads_hear_of_one_fault_once(front_end: FrontEnd, warnings):
    front_end.before = lambda: time.sleep(0.05)
    front_end.fault = RuntimeError("inside")
    add = srcjit.jit(lambda x: x + 1)
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(add(n))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == list(range(1, 9))
    assert len(warnings) == 1


def test_compiling_prints_nothing(front_end: FrontEnd, caplog):
    def fail():
        logging.getLogger("torch._subclasses.fake_tensor").error("failed while")

    front_end.before = fail
    assert srcjit.jit(lambda x: x + 1)(1) == 2
    assert not caplog.records


def test_no_lock_is_held_while_user_code_runs(front_end: FrontEnd):
    entered, leave = threading.Event(), threading.Event()

    @srcjit.jit
    def wait(x):
        entered.set()
        return leave.wait(30) and x

    thread = threading.Thread(target=wait, args=(1,))
    thread.start()
    assert entered.wait(30)
    assert wait.__srcjit__.lock.acquire(timeout=10)
    wait.__srcjit__.lock.release()
    leave.set()
    thread.join(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_during_a_compile_does_not_deadlock(
    front_end: FrontEnd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("srcjit.control.FORK_WAIT", 0.1)
    inside, leave = threading.Event(), threading.Event()

    @srcjit.jit
    def add(x):
        return x + 1

    def hold():
        inside.set()
        leave.wait(30)

    front_end.before = hold
    thread = threading.Thread(target=add, args=(1,))
    thread.start()
    assert inside.wait(30)
    child = os.fork()
    if child == 0:
        front_end.before = lambda: None
        os._exit(0 if add(2) == 3 else 1)
    leave.set()
    thread.join(30)
    _, status = os.waitpid(child, 0)
    assert status == 0
