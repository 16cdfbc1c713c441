"""What is printed, logged or warned of may reach an object of the program's, or not, call by call."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import srcjit


class Stream:
    def __init__(self) -> None:
        self.count = 0

    def write(self, text: str) -> int:
        self.count += 1
        return len(text)

    def flush(self) -> None:
        pass


class File(io.TextIOBase):
    count = 0

    def write(self, text: str) -> int:
        self.count += 1
        return len(text)


class Handler(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class Heard(list[Any]):
    pass


def printing(x, stream):
    print("hello")
    return x + stream.count


def logging_something(x, handler):
    logging.error("hello")
    return x + handler.count


def warning(x, heard):
    warnings.warn("hello", stacklevel=1)
    return x + len(heard)


@contextlib.contextmanager
def handled(handler: logging.Handler) -> Iterator[None]:
    root = logging.getLogger()
    before, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = before


@contextlib.contextmanager
def shown() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings._showwarnmsg_impl = quiet  # type: ignore[attr-defined]
        warnings.showwarning = original
        yield


def quiet(message: Any) -> None:
    pass


quiet.__module__ = "warnings"
original = warnings._showwarning_orig  # type: ignore[attr-defined]

Use = Callable[[Any], AbstractContextManager[Any]]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("function", "make", "use", "unused"),
    [
        (printing, Stream, contextlib.redirect_stdout, contextlib.nullcontext),
        (printing, File, contextlib.redirect_stdout, contextlib.nullcontext),
        (logging_something, Handler, handled, lambda _: handled(logging.NullHandler())),
    ],
)
def test_state_changes(
    function: Any, make: Any, use: Use, unused: Use, first: bool
) -> None:
    jitted = srcjit.jit(function)
    for heard in (first, not first, first):
        results = []
        for call in (function, jitted):
            receiver = make()
            with use(receiver) if heard else unused(receiver):
                results.append(call(torch.zeros(1), receiver).item())
        assert results[0] == results[1]
        assert (results[0] > 0) == heard


@pytest.mark.parametrize("first", [True, False])
def test_warnings(first: bool) -> None:
    jitted = srcjit.jit(warning)
    for heard in (first, not first, first):
        if heard:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                assert jitted(torch.zeros(1), found).item() == 1
        else:
            with shown():
                assert jitted(torch.zeros(1), []).item() == 0


def behind_a_break(x):
    eval("1")
    warnings.warn("hello", stacklevel=2)
    return x


def test_a_first_call_behind_a_break_is_nobodys_frame() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        srcjit.jit(behind_a_break)(torch.zeros(1))
    assert [warning.filename for warning in found] == [__file__]
