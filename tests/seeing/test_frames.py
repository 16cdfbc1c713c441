"""Frames as a program sees them: behind breaks, in inlined callees, in tracebacks.

Eager is the oracle: the functions and lines that an exception's traceback lists, where a
warning with a `stacklevel` points, and what a log record calls its function.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import srcjit
from srcjit.tails import Tail

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python puts entries back into tracebacks"
)

LOG = logging.getLogger("tests.frames")
FOUND: list[Any] = []


def looked(n: int) -> int:
    """Is inlined; what it tells, it tells of its own frame and of its caller's."""
    warnings.warn("seen", stacklevel=n)
    LOG.warning("seen", stacklevel=n - 1)
    return n


def stack() -> int:
    """Is inlined; what it calls is not, and notes this file's functions that are live."""
    FOUND.append(CALLERS())
    return 1


class Callers:
    """Has no source that could be inlined."""

    def __init__(self) -> None:
        scope: dict[str, Any] = {"sys": sys, "file": __file__}
        exec(
            "def call(self):\n"
            "    found, frame = [], sys._getframe(1)\n"
            "    while frame.f_code.co_name != 'observed':\n"
            "        if frame.f_code.co_filename == file:\n"
            "            found.append((frame.f_code.co_name, frame.f_lineno))\n"
            "        frame = frame.f_back\n"
            "    return found\n",
            scope,
        )
        self.call = scope["call"]

    def __call__(self) -> list[Any]:
        return self.call(self)


CALLERS = Callers()


def rest(x: Tensor) -> Tensor:
    y = x.sin() * looked(2)
    warnings.warn("own", stacklevel=2)
    z = y * looked(3)
    stack()
    return z[looked(2) + 10]


def two_ways(x: Tensor) -> Tensor:
    y = x.sin()
    if y.sum() > 100:
        y = y + 1
    else:
        y = y * looked(2)
        warnings.warn("own", stacklevel=2)
    stack()
    return y[y.shape[0] + 1]


def early(x: Tensor, n: int = 3) -> Tensor:
    n = n * looked(2)
    if n > 100:
        return x
    if x.sum() > 1e6:
        return x + n
    stack()
    warnings.warn("own", stacklevel=2)
    return x[n]


class Manager:
    def __enter__(self) -> Manager:
        looked(2)
        return self

    def __exit__(self, *exception: object) -> None:
        looked(2)


def managed(x: Tensor) -> Tensor:
    y = x.cos()
    with Manager():
        y = y * looked(2)
        with Manager():
            y = y[looked(2) + 10]
    return y


def tried(x: Tensor) -> Tensor:
    y = x.cos()
    try:
        n = looked(2)
        y = y[n + 10]
    except IndexError as error:
        FOUND.append(
            [(e.name, e.lineno) for e in traceback.extract_tb(error.__traceback__)]
        )
        raise RuntimeError("another") from error
    return y


def nameless(x: Tensor) -> Tensor:
    try:
        y = x * looked(2)
        y = y[looked(2) + 10]
    except (IndexError, KeyError):
        shown = traceback.format_exc()
        FOUND.append([line for line in shown.splitlines() if "line " in line])
        y = x
    return y.sin()


def looped(x: Tensor) -> Tensor:
    y = x
    for i in range(3):
        y = y + looked(2) * i
        if i > 2:
            raise KeyError(i)
    stack()
    warnings.warn("own", stacklevel=2)
    for i in range(6):
        y = y + looked(2) * i
        if i > 2:
            raise KeyError(i)
    return y


def refuses(x: Tensor) -> Tensor:
    y = x + 1
    if len(x.shape) == 1:
        raise ValueError("no")
    return y


def refused(x: Tensor) -> Tensor:
    y = x.cos()
    return refuses(y)


def inner(x: Tensor, n: int) -> Tensor:
    v = looked(n)
    stack()
    return x.sum() * [1, 2][v + n]


def outer(x: Tensor, n: int) -> Tensor:
    return inner(x * 2, n) + 1


def deep(x: Tensor) -> Tensor:
    return outer(x, 3) * 2


def counted(x: Tensor, n: int) -> Tensor:
    v = looked(2)
    stack()
    if n == 0:
        raise KeyError(v)
    return counted(x, n - 1) * v


def recursive(x: Tensor) -> Tensor:
    return counted(x, 2)


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * looked(2)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[looked(2) + 10]


MODULE = Outer()


def module(x: Tensor) -> Tensor:
    y: Tensor = MODULE(x)
    return y


def asserted(x: Tensor) -> Tensor:
    y = x.sin()
    return checked(y) + 1


def checked(y: Tensor) -> Tensor:
    assert y.sum() > 100, "too little"
    return y


PROGRAMS: list[Callable[[Tensor], Tensor]] = [
    *(rest, two_ways, early, managed, tried, nameless, looped),
    *(refused, deep, recursive, module, asserted),
]


class Records(logging.Handler):
    """Keeps what log records call their function and line."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.funcName, record.lineno))


def shown(error: BaseException | None) -> list[Any]:
    """What a traceback lists, and those of the exceptions that it came from."""
    if error is None:
        return []
    entries = [
        ("torch" if "/torch/" in e.filename else e.filename, e.name, e.lineno)
        for e in traceback.extract_tb(error.__traceback__)
    ]
    return [
        [e for e in entries if e[0] != "torch"],
        *shown(error.__cause__ or error.__context__),
    ]


def observed(function: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """What a call shows of frames."""
    FOUND.clear()
    handler, error = Records(), None
    LOG.addHandler(handler)
    LOG.propagate = False
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            function(torch.ones(3))
        except Exception as problem:
            error = problem
    LOG.removeHandler(handler)
    return {
        "warnings": [(w.filename, w.lineno, str(w.message)) for w in warned],
        "records": handler.found,
        "error": shown(error),
        "found": [*FOUND],
    }


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_frames_are_eagers(function: Callable[[Tensor], Tensor]) -> None:
    expected = observed(function)
    jitted = srcjit.jit(function)
    for _ in range(3):
        assert observed(jitted) == expected


def body_of_with(x: Tensor) -> Tensor:
    with Manager():
        y = x * looked(2)
        warnings.warn("own", stacklevel=2)
    return y


def body_of_loop(x: Tensor) -> Tensor:
    for i in range(9):
        x = x * looked(2)
        warnings.warn("own", stacklevel=2)
    return x


@pytest.mark.xfail(reason="the frame of a statement is live in its body", strict=True)
@pytest.mark.parametrize("function", [body_of_with, body_of_loop])
def test_a_body_is_one_frame_more(function: Callable[[Tensor], Tensor]) -> None:
    expected = observed(function)
    assert observed(srcjit.jit(function)) == expected


class Noted:
    """Notes when it is dropped."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        FOUND.append(f"drops {self.name}")


def held(x: Tensor) -> Tensor:
    one = Noted("one")
    FOUND.append(f"has {one.name}")
    y = x * looked(2)
    FOUND.append("goes on")
    if y.sum() > 100:
        return y
    y = y * looked(2)
    z = y * looked(2)
    FOUND.append("ends")
    return z


def held_in_ways(x: Tensor) -> Tensor:
    n = looked(2)
    if n == len(FOUND) + 2:
        one = Noted("one")
        FOUND.append(f"has {one.name}")
        y = x * looked(2)
    else:
        y = x
    FOUND.append("goes on")
    z = y * looked(2)
    FOUND.append("ends")
    return z


def watched(x: Tensor) -> Tensor:
    y = x.sin()
    z = y.cos()
    gone = weakref.ref(z)
    w = y * looked(2)
    FOUND.append(gone() is None)
    return w * looked(2)


@pytest.mark.parametrize("function", [held, held_in_ways, watched])
def test_variables_live_until_the_end(function: Callable[[Tensor], Tensor]) -> None:
    expected = observed(function)
    jitted = srcjit.jit(function)
    for _ in range(3):
        assert observed(jitted) == expected


def test_a_reset_leaves_calls_in_old_stubs_alone() -> None:
    tail = Tail(2, True)
    go, *given, _ = tail.answer(lambda x: x + 1)(1)
    assert go(*given) == 2
    go, given, _ = Tail(None, True).answer(lambda x: x + 1)(1)
    assert go(*given) == 2
