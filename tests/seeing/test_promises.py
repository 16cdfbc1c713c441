"""A user's bug is Python's to report; a fault of the compiler's costs only speed."""

from __future__ import annotations

import logging
import traceback
import warnings

import pytest
import torch

import srcjit
import srcjit.continuations
import srcjit.dispatch
import srcjit.passes.pipeline
from srcjit.passes import segment
from tests.programs import breaks


def last_user_line(error):
    frames = traceback.extract_tb(error.__traceback__)
    return [f.line for f in frames if f.filename.endswith("programs/breaks.py")][-1]


def test_wrong_shapes_raise_eagers_exception():
    x, w = torch.ones(3, 4), torch.ones(3, 4)
    with pytest.raises(RuntimeError) as expected:
        breaks.bad_shapes(x, w)
    jitted = srcjit.jit(breaks.bad_shapes)
    for _ in range(3):
        with pytest.raises(RuntimeError) as actual:
            jitted(x, w)
        assert str(actual.value) == str(expected.value)
        assert last_user_line(actual.value) == "return h @ w"
    # The same function is compiled for arguments that fit.
    fits = torch.ones(4, 2)
    torch.testing.assert_close(jitted(x, fits), breaks.bad_shapes(x, fits))


def broken(*args, **kwargs):
    raise AssertionError("a bug that was put here")


@pytest.mark.parametrize(
    ("module", "name"),
    [(srcjit.passes.pipeline, "specialize"), (segment, "compile_segment")],
)
def test_compiler_fault_gives_eagers_result_and_one_warning(
    module, name, monkeypatch, caplog, capsys
):
    monkeypatch.setattr(module, name, broken)
    jitted = srcjit.jit(breaks.greet)
    x = torch.linspace(-1, 1, 5)
    with caplog.at_level(logging.WARNING, logger="srcjit"):
        for _ in range(3):
            torch.testing.assert_close(jitted(x), x.sin().cos())
    assert capsys.readouterr().out == "hello\n" * 3
    (record,) = caplog.records
    text = record.getMessage()
    assert "compiler fault[SJ900]: AssertionError: a bug that was put here" in text
    assert "breaks.py:" in text and "def greet(x):" in text


def test_compiler_fault_in_a_continuation(monkeypatch, caplog):
    """Only what comes behind the break runs natively."""
    jitted = srcjit.jit(breaks.gate)
    x = torch.linspace(0, 1, 5)
    original = srcjit.passes.pipeline.specialize
    calls = []

    def second_fails(*args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs) if len(calls) == 1 else broken()

    monkeypatch.setattr(srcjit.passes.pipeline, "specialize", second_fails)
    with caplog.at_level(logging.WARNING, logger="srcjit"):
        for _ in range(3):
            torch.testing.assert_close(jitted(x), breaks.gate(x))
    assert len(calls) == 2
    assert len(caplog.records) == 1


def effects(x, log):
    y = x.sin()
    log.append(len(log))
    for _ in range(int(y.sum().item()) + 1):
        log.append("turn")
        y = helper(y, log)
    with Manager(log):
        y = y * opaque(2)
    return y


def helper(y, log):
    log.append(opaque(3))
    return y + 1


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enters")

    def __exit__(self, *exception):
        self.log.append("leaves")


def opaque(n):
    return eval(str(n))


@pytest.mark.parametrize("turn", range(8))
@pytest.mark.parametrize("what", ["writes", "dispatches"])
def test_compiler_fault_while_a_continuation_is_built(what, turn, monkeypatch, caplog):
    """Whichever it is: what the program does is done once, and one warning says why."""
    module, name = {
        "writes": (srcjit.continuations, "function_from_source"),
        "dispatches": (srcjit.dispatch, "stub_defaults"),
    }[what]
    original = getattr(module, name)
    calls = []

    def fails(*args, **kwargs):
        calls.append(args)
        if len(calls) == turn + 1 + (what == "dispatches"):
            raise AssertionError("a bug that was put here")
        return original(*args, **kwargs)

    jitted = srcjit.jit(effects)
    monkeypatch.setattr(module, name, fails)
    x = torch.linspace(0, 1, 5)
    with caplog.at_level(logging.WARNING, logger="srcjit"):
        for _ in range(3):
            expected, found = [], []
            torch.testing.assert_close(jitted(x, found), effects(x, expected))
            assert found == expected
    failed = len(calls) > turn + (what == "dispatches")
    texts = [record.getMessage() for record in caplog.records]
    assert len([t for t in texts if "a bug that was put here" in t]) == failed
    assert all("Python runs" in text for text in texts)


def test_fullgraph():
    jitted = srcjit.jit(breaks.greet, fullgraph=True)
    with pytest.raises(srcjit.GraphBreakError, match=r"graph break\[SJ012\]") as error:
        jitted(torch.ones(3))
    assert error.value.diagnostic.origin.file.endswith("breaks.py")
    torch.testing.assert_close(
        srcjit.jit(breaks.gate_traced, fullgraph=True)(torch.ones(3)),
        breaks.gate_traced(torch.ones(3)),
    )


@pytest.mark.parametrize("value", [3, "text", None, torch.ones(3)])
def test_not_callable(value):
    if value is None:
        assert callable(srcjit.jit(value))  # A decorator with options.
        return
    with pytest.raises(TypeError, match=r"srcjit\.jit needs a function or a module"):
        srcjit.jit(value)


def test_generators_and_c_functions_run_as_they_are(caplog):
    def rows(x):
        yield from x

    async def later(x):
        return x

    assert srcjit.jit(rows) is rows
    assert srcjit.jit(later) is later
    assert srcjit.jit(torch.sin) is torch.sin
    assert srcjit.jit(len) is len
    assert len(caplog.records) == 4
    with pytest.raises(TypeError, match="jit an instance, or decorate the methods"):
        srcjit.jit(dict)


def test_a_warning_names_the_caller() -> None:
    def old(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("use new", DeprecationWarning, stacklevel=2)
        return x + 1

    jitted = srcjit.jit(old, options={"stage": "specialize"})
    for _ in range(2):
        with pytest.warns(DeprecationWarning) as caught:
            jitted(torch.ones(2))
        assert caught[0].filename == __file__
