"""An exception from outside at any moment of a compile or call: what is left is whole."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import warnings

import pytest
import torch

import srcjit
from srcjit import control, interrupts, quiet

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="POSIX signals"
)


class Alarm(Exception):
    """Raised by a handler of the program's own."""


def _state():
    return (
        torch.is_grad_enabled(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        torch.is_warn_always_enabled(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        list(warnings.filters),
        control.is_compiling(),
        signal.getsignal(signal.SIGINT),
        type(torch.ones(2) + 1),
    )


def _free() -> bool:
    """Whether another thread can compile."""
    found = []

    def ask():
        found.append(control.compile_lock.acquire(timeout=5))
        if found[0]:
            control.compile_lock.release()

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return found[0]


def _program():
    def program(x, log):
        y = (x.sin() * 2).cos()
        log.append(y.sum().item())
        try:
            with torch.no_grad():
                y = y + log[-1]
        finally:
            log.append("done")
        for i in range(3):
            y = y * i + 1
        return y.tanh()

    return program


X = torch.linspace(-1, 1, 6)


def _works(jitted, program) -> None:
    for _ in range(2):
        ours, theirs = [], []
        assert torch.allclose(jitted(X, ours), program(X, theirs), atol=1e-5)
        assert len(ours) == len(theirs) == 2


@pytest.mark.parametrize("stage", ["specialize", "emit"])
def test_alarms_while_compiling(stage: str) -> None:
    def ring(number, frame):
        raise Alarm

    old = signal.signal(signal.SIGALRM, ring)
    chance = random.Random(7)
    _works(srcjit.jit(_program(), options={"stage": stage}), _program())
    before, rung = _state(), 0
    try:
        for _ in range(8):
            srcjit.reset()
            program = _program()
            jitted = srcjit.jit(program, options={"stage": stage})
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0002, 0.06))
                jitted(X, [])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                rung += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert _state() == before
            assert _free()
            _works(jitted, program)
            assert jitted.__srcjit__.disabled is None
            assert jitted.__srcjit__.specializations
    finally:
        signal.signal(signal.SIGALRM, old)
    assert rung


def test_contexts_left_open_are_closed() -> None:
    from torch._subclasses import FakeTensorMode

    before = _state()
    with pytest.raises(Alarm), quiet.undisturbed():
        torch._C._set_grad_enabled(False)
        FakeTensorMode().__enter__()
        raise Alarm
    assert _state() == before


def test_control_c_waits_for_the_compiler(monkeypatch) -> None:
    calls = []

    def program(x):
        calls.append(len(calls))
        return x.sin() + 1

    real = srcjit.dispatch.compile_specialization

    def compiling(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        return real(*arguments)

    monkeypatch.setattr(srcjit.dispatch, "compile_specialization", compiling)
    jitted = srcjit.jit(program, options={"stage": "specialize"})
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            jitted(X)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert not calls and len(jitted.__srcjit__.specializations) == 1
        assert torch.equal(jitted(X), X.sin() + 1) and calls == [0]
    finally:
        signal.signal(signal.SIGINT, old)


def test_a_second_control_c_does_not_wait(monkeypatch) -> None:
    def program(x):
        return x.sin() + 2

    real = srcjit.dispatch.compile_specialization
    finished = []

    def compiling(*arguments):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        finished.append(1)

    monkeypatch.setattr(srcjit.dispatch, "compile_specialization", compiling)
    jitted = srcjit.jit(program, options={"stage": "specialize"})
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            jitted(X)
        assert not finished and not jitted.__srcjit__.specializations
        monkeypatch.setattr(srcjit.dispatch, "compile_specialization", real)
        assert torch.equal(jitted(X), X.sin() + 2)
        assert _free() and not control.is_compiling()
    finally:
        signal.signal(signal.SIGINT, old)


@pytest.mark.parametrize("stage", ["specialize", "emit"])
def test_control_c_while_a_compiled_program_runs(stage: str) -> None:
    log = []

    def program(x):
        for i in range(10_000_000):
            x = (x * 0.5).sin()
            log.append(x.sum().item())
            if i == 5:
                os.kill(os.getpid(), signal.SIGINT)
        return x

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    jitted = srcjit.jit(program, options={"stage": stage})
    try:
        with pytest.raises(KeyboardInterrupt):
            jitted(X)
        assert 6 <= len(log) < 10_000 and not control.is_compiling()
    finally:
        signal.signal(signal.SIGINT, old)


def test_of_two_signals_that_were_put_off_each_has_its_handler_run() -> None:
    rung = []

    def ring(number, frame):
        rung.append(number)
        raise Alarm

    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    old = [signal.signal(number, ring) for number in numbers]
    try:
        with pytest.raises(Alarm), interrupts.later():
            for number in numbers:
                os.kill(os.getpid(), number)
                time.sleep(0.001)
            assert not rung
        assert sorted(rung) == sorted(numbers)
        assert [signal.getsignal(number) for number in numbers] == [ring, ring]
    finally:
        for number, handler in zip(numbers, old, strict=True):
            signal.signal(number, handler)


def test_a_signal_while_others_begin_to_be_put_off(monkeypatch) -> None:
    def ring(number, frame):
        raise Alarm

    real, begun = signal.signal, []

    def interrupted(number, handler):
        made = real(number, handler)
        if not begun:
            begun.append(number)
            os.kill(os.getpid(), signal.SIGUSR2)
        return made

    old = signal.signal(signal.SIGUSR2, ring)
    before = signal.getsignal(signal.SIGINT)
    try:
        monkeypatch.setattr(interrupts.signal, "signal", interrupted)
        with pytest.raises(Alarm), interrupts.later():
            time.sleep(0.001)
        monkeypatch.undo()
        assert begun and signal.getsignal(signal.SIGINT) is before
        assert signal.getsignal(signal.SIGUSR2) is ring
    finally:
        real(signal.SIGUSR2, old)
