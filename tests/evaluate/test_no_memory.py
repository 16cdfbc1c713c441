"""Operations that find no memory: what came before them, and who sees it."""

from __future__ import annotations

import contextlib
import logging

import pytest
import torch

import srcjit
from tests import harness

LARGE = 1 << 45
"""Rows of three numbers that no machine can hold."""


class Object:
    flag = False


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, kind, value, trace):
        self.log.append(("exit", kind))


@contextlib.contextmanager
def manager(log):
    log.append("enter")
    try:
        yield
    finally:
        log.append("exit")


def effect_before(x, log, o):
    log.append(1)
    return x.expand(LARGE, 3).clone()


def effects_between(x, log, o):
    y = x + 1
    log.append(y)
    z = y.expand(LARGE, 3).clone()
    log.append(2)
    return z


def with_finally(x, log, o):
    before, o.flag = o.flag, True
    try:
        y = x * 2
        log.append(o.flag)
        z = y.expand(LARGE, 3).clone()
    except ValueError:
        log.append("caught")
    finally:
        o.flag = before
        log.append("finally")
    return z


def finally_returns(x, log, o):
    try:
        y = x.expand(LARGE, 3).clone()
    finally:
        return x + len(log)


def with_manager(x, log, o):
    with Manager(log):
        return x.expand(LARGE, 3).clone()


def with_function(x, log, o):
    with manager(log):
        return x.expand(LARGE, 3).clone()


def callee(x, log, *, rows, **others):
    try:
        return x.expand(rows, 3).clone()
    finally:
        log.append(others)


def inlined(x, log, o):
    return callee(x + 1, log, rows=LARGE, other=1)


def keywords(x, log, *rest, rows=LARGE, **others):
    try:
        return x.expand(rows, 3).clone()
    finally:
        log.append((rest, rows, others))


def behind_a_break(x, log, o):
    known = float(x.sum())
    log.append(known)
    if known > 1:
        try:
            return x.expand(LARGE, 3).clone()
        finally:
            log.append("finally")
    return x


def behind_a_print(x, log, o):
    print(
        "once",
    )
    try:
        return x.expand(LARGE, 3).clone()
    finally:
        log.append("finally")


@pytest.fixture(autouse=True)
def python_may_return(monkeypatch):
    monkeypatch.delenv("SRCJIT_RAISE", raising=False)


def compare(function, stage, *extra, **named):
    jitted = srcjit.jit(function, options={"stage": stage})
    for turn in range(2):
        outcomes = []
        for call in (function, jitted):
            arguments = (torch.ones(3), [], *(extra or (Object(),)))
            made = function, arguments, named
            outcomes.append(harness.run(call, made))
        harness.compare(*outcomes, stage, turn)
    assert jitted.__srcjit__.disabled is None
    return jitted


@pytest.mark.parametrize("stage", ["specialize", "emit"])
@pytest.mark.parametrize(
    "function",
    [
        effect_before,
        effects_between,
        with_finally,
        finally_returns,
        with_manager,
        with_function,
        inlined,
        behind_a_break,
    ],
    ids=lambda f: f.__name__,
)
def test_no_memory(function, stage):
    compare(function, stage)


def test_what_was_printed_is_not_printed_again(capsys):
    jitted = srcjit.jit(behind_a_print, options={"stage": "specialize"})
    with pytest.raises(RuntimeError, match="alloc|memory"):
        jitted(torch.ones(3), [], Object())
    assert capsys.readouterr().out == "once\n"


def test_every_kind_of_parameter():
    compare(keywords, "specialize", 1, 2, other=3)


def test_closures_that_share_what_was_compiled():
    def make(log):
        def closure(x, rows):
            try:
                return x.expand(rows, 3).clone()
            finally:
                log.append(rows)

        return closure

    for _ in range(2):
        log: list[int] = []
        jitted = srcjit.jit(make(log), options={"stage": "specialize"})
        assert jitted(torch.ones(3), 2).shape == (2, 3)
        with pytest.raises(RuntimeError, match="alloc|memory"):
            jitted(torch.ones(3), LARGE)
        assert log == [2, LARGE]


def test_what_fails_only_when_compiled_is_told(caplog):
    def function(x, log):
        y = x + 1
        log.append(1)
        return y * 2

    def fail(*_):
        raise MemoryError("none left")

    jitted = srcjit.jit(function, options={"stage": "specialize"})
    log: list[int] = []
    jitted(torch.ones(3), log)
    (made,) = jitted.__srcjit__.specializations
    names = made.run.__code__.co_freevars
    made.run.__closure__[names.index("segment_0")].cell_contents = fail
    with caplog.at_level(logging.WARNING, "srcjit"):
        assert jitted(torch.ones(3), log).tolist() == [4, 4, 4]
    assert log == [1, 1]
    assert "MemoryError: none left" in caplog.text
