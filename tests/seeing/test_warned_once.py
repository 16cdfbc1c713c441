"""A warning comes once for each place, however often and from wherever it is reached."""

from __future__ import annotations

import importlib
import logging
import threading

import pytest
import torch

import srcjit

X = torch.ones(3)


@pytest.fixture
def warned(caplog, monkeypatch):
    monkeypatch.delenv("SRCJIT_RAISE", raising=False)
    caplog.set_level(logging.WARNING, logger="srcjit")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "srcjit"]


def _without_source():
    names = {"torch": torch}
    exec("def f(x): return x.sin()", names)
    return names["f"]


def _own_frame(number):
    def f(x):
        return x + len(locals()) + number

    return f


def _generator(number):
    def g(x):
        yield x + number

    return g


def test_many_functions_of_one_place(warned):
    for number in range(3):
        f = srcjit.jit(_own_frame(number))
        for size in (3, 4, 5):
            f(torch.ones(size))
    (text,) = warned()
    assert text.startswith("graph break[SJ003]")


def test_generators_of_one_place(warned):
    for number in range(3):
        list(srcjit.jit(_generator(number))(X))
    assert len(warned()) == 1


def test_functions_without_source(warned):
    for _ in range(3):
        srcjit.jit(_without_source())(X)
    assert len(warned()) == 1


def test_what_runs_as_it_is(warned):
    for _ in range(3):
        srcjit.jit(torch.sin)(X)
    assert len(warned()) == 1


def test_threads(warned):
    functions = [srcjit.jit(_own_frame(number)) for number in range(4)]
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        for size in range(1, 4):
            functions[number % 4](torch.ones(size))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(warned()) == 1


def test_the_limit(warned):
    def make():
        def f(x, word):
            return x + len(word)

        return srcjit.jit(f, options={"limit": 2})

    for f in (make(), make()):
        for word in ("a", "bb", "ccc", "dddd", "eeeee"):
            f(X, word)
    assert len(warned()) == 1


def test_a_fault(warned, monkeypatch):
    from srcjit import dispatch

    def fails(*args, **kwargs):
        raise ValueError("no")

    monkeypatch.setattr(dispatch, "compile_specialization", fails)
    for number in range(3):
        f = srcjit.jit(lambda x: x + 1)
        f(X)
        f(torch.ones(4))
    (text,) = warned()
    assert text.startswith("compiler fault[SJ900]")


def test_an_expression_deeper_than_the_stack(warned, tmp_path, monkeypatch):
    """Eager runs any depth that Python parses; that it is not compiled is no fault."""
    monkeypatch.delenv("SRCJIT_RAISE", raising=False)
    text = "def f(x):\n    return " + " + ".join(["x"] * 1500) + "\n"
    (tmp_path / "deep_sum.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    f = importlib.import_module("deep_sum").f
    assert torch.equal(srcjit.jit(f)(X), f(X))
    (text,) = warned()
    assert text.startswith("graph break[SJ040]: `f` nests deeper than Python's stack")


def test_told_again_after_a_reset(warned):
    f = srcjit.jit(_own_frame(0))
    f(X)
    srcjit.reset()
    f(X)
    assert len(warned()) == 2
