"""Threads that compile and call the same functions; what runs while a lock is held."""

from __future__ import annotations

import _thread
import gc
import logging
import threading
import warnings
import weakref
from typing import ClassVar

import pytest
import torch

import srcjit
from srcjit import control, quiet
from tests.threads import stress

EAGERLY = {"stage": "specialize"}


@pytest.mark.parametrize("name", stress.PROGRAMS)
def test_eight_threads(name: str) -> None:
    srcjit.reset()
    outcome = stress.run(name, 1000 if name == "shapes" else 40)
    assert not outcome.wrong
    assert not outcome.twice
    assert outcome.compiled


def test_alternating_thread_counts_stay_on_the_fast_path(monkeypatch) -> None:
    def program(x):
        return x.sin() + 1

    jitted = srcjit.jit(program, options=EAGERLY)
    x = torch.ones(3)
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 1, 2):
            torch.set_num_threads(count)
            jitted(x)
        misses: list[object] = []
        monkeypatch.setattr(
            type(jitted.__srcjit__), "_existing", lambda self, v: misses.append(v)
        )
        for count in (1, 2, 1, 2):
            torch.set_num_threads(count)
            jitted(x)
    finally:
        torch.set_num_threads(before)
    assert not misses


def _unseen(program):
    """A function that nothing compiled before has the code of."""
    return srcjit.jit(program, options=EAGERLY)


def test_finalizers_do_not_run_under_the_lock(monkeypatch) -> None:
    seen = []

    class Node:
        def __del__(self):
            seen.append(control.is_compiling())

    def program(x):
        return x.sin() + 1

    jitted = _unseen(program)
    real = srcjit.dispatch.compile_specialization

    def compiling(*arguments):
        node = Node()
        node.itself = node
        del node
        made = real(*arguments)
        assert not seen  # else a finalizer may wait for a thread that waits for us
        return made

    monkeypatch.setattr(srcjit.dispatch, "compile_specialization", compiling)
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        jitted(torch.ones(3))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert seen == [False] and gc.isenabled()


def test_log_handlers_run_when_no_lock_is_held() -> None:
    def program(x, log):
        log.append(x.sum().item())
        return x.sin()

    held = []

    class Handler(logging.Handler):
        def emit(self, record):
            other = threading.Thread(target=self.other)
            other.start()
            other.join(10)
            held.append(other.is_alive())

        def other(self):
            with control.compile_lock, jitted.__srcjit__.lock:
                pass

    handler = Handler()
    logger = logging.getLogger("srcjit.breaks")
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logger.propagate = False
    jitted = _unseen(program)
    try:
        jitted(torch.ones(3), [])
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    assert held and not any(held)


class Nosy:
    """Notes which of its special methods run while the compiler does."""

    seen: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.scale = 2.0

    def _note(self, name):
        if control.is_compiling():
            self.seen.append(name)

    def __eq__(self, other):
        self._note("eq")
        return True

    def __hash__(self):
        self._note("hash")
        return 1

    def __bool__(self):
        self._note("bool")
        return True

    def __len__(self):
        self._note("len")
        return 1

    def __getattr__(self, name):
        self._note(f"getattr {name}")
        raise AttributeError(name)

    def __repr__(self):
        self._note("repr")
        return "nosy"

    def __getitem__(self, key):
        self._note("getitem")
        return 3.0

    def __contains__(self, key):
        self._note("contains")
        return True

    def __add__(self, other):
        self._note("add")
        return other

    def __call__(self, x):
        self._note("call")
        return x

    @property
    def size(self):
        self._note("property")
        return 4


@pytest.mark.parametrize("stage", ["specialize", "emit"])
def test_special_methods_do_not_run_while_compiling(stage: str) -> None:
    def program(x, nosy, table):
        if nosy and nosy == 3 and len(nosy) and 2 in nosy:
            x = nosy(x) * nosy.size + nosy[0]
        text = f"{nosy!r} {hasattr(nosy, 'other')}"
        return (nosy + x).sin() * nosy.scale, table[nosy], text

    Nosy.seen.clear()
    nosy = Nosy()
    arguments = torch.ones(3), nosy, {nosy: 5}
    jitted = srcjit.jit(program, options={"stage": stage})
    for _ in range(2):
        result, expected = jitted(*arguments), program(*arguments)
        assert torch.allclose(result[0], expected[0]) and result[1:] == expected[1:]
    assert not Nosy.seen


def test_warnings_of_other_threads_are_shown(monkeypatch) -> None:
    def program(x):
        return x.sin() + 2

    real = srcjit.dispatch.compile_specialization

    def compiling(*arguments):
        made = real(*arguments)
        other = threading.Thread(target=lambda: warnings.warn("mine", stacklevel=1))
        other.start()
        other.join()
        return made

    monkeypatch.setattr(srcjit.dispatch, "compile_specialization", compiling)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        _unseen(program)(torch.ones(3))
        assert warnings.filters == before
    assert [str(w.message) for w in caught] == ["mine"]


def test_compiling_makes_no_module_warn_again() -> None:
    def program(x):
        return x.sin() + 3

    space = {"__name__": "warner", "warnings": warnings}
    exec("def warn():\n    warnings.warn('once here')\n", space)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        space["warn"]()
        _unseen(program)(torch.ones(3))
        space["warn"]()
    assert len(caught) == 1


def test_random_numbers_of_other_threads_do_not_come_again(monkeypatch) -> None:
    def program(x):
        return x.sin() + 4

    real = srcjit.dispatch.compile_specialization
    ready, go, drawn = threading.Event(), threading.Event(), []

    def draw():
        ready.set()
        go.wait(10)
        drawn.append(torch.rand(4))
        ready.set()
        go.wait(10)

    def compiling(*arguments):
        return real(*arguments)

    other = threading.Thread(target=draw)
    other.start()
    ready.wait(10)
    ready.clear()
    original = srcjit.compiler.assemble

    def assembling(*arguments):
        go.set()
        ready.wait(10)
        return original(*arguments)

    monkeypatch.setattr(srcjit.compiler, "assemble", assembling)
    _unseen(program)(torch.ones(3))
    other.join()
    assert not torch.equal(torch.rand(4), drawn[0])


def test_jit_at_run_time_inside_a_jitted_function() -> None:
    def inner(x):
        return x.cos() * 2

    def program(x):
        y = x.sin()
        made = srcjit.jit(inner, options=EAGERLY)
        return made(y) + 1

    jitted = _unseen(program)
    x = torch.linspace(-1, 1, 5)
    for _ in range(3):
        assert torch.allclose(jitted(x), program(x))


# ── What is dropped is freed ────────────────────────────────────────────────────────


def test_a_dropped_namespace_is_freed(tmp_path) -> None:
    class Token:
        pass

    file = tmp_path / "dropped.py"
    file.write_text("def program(x):\n    return x.sin() + 5\n")
    space = {"__name__": "dropped", "token": Token()}
    exec(compile(file.read_text(), str(file), "exec"), space)
    token = weakref.ref(space["token"])
    jitted = srcjit.jit(space["program"], options=EAGERLY)
    jitted(torch.ones(3))
    assert jitted.__srcjit__.specializations
    del space, jitted
    gc.collect()
    assert token() is None


def test_a_dropped_module_and_its_function_are_freed() -> None:
    module = srcjit.jit(stress.Layer(), options=EAGERLY)
    module(torch.ones(2, 8), {"calls": 0})
    weight = weakref.ref(module.linear.weight)
    kept = weakref.ref(module.__class__)
    del module
    gc.collect()
    assert weight() is None and kept() is stress.Layer

    def make():
        big = torch.ones(100)

        def program(x):
            print("here")
            return x * big

        jitted = srcjit.jit(program, options=EAGERLY)
        jitted(torch.ones(100))
        return weakref.ref(big), weakref.ref(jitted)

    dead = make()
    gc.collect()
    assert [ref() for ref in dead] == [None, None]


def test_a_thread_that_threading_has_not_started_moves_no_random_numbers() -> None:
    """It stands among those that `threading` knows, once it has asked for its name."""
    asked, over = threading.Event(), threading.Event()

    def ask() -> None:
        threading.current_thread()
        asked.set()
        over.wait(10)

    _thread.start_new_thread(ask, ())
    assert asked.wait(10)
    try:
        assert len(threading.enumerate()) > 1
        before = torch.get_rng_state()
        with quiet.undisturbed():
            torch.rand(3)
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        over.set()
