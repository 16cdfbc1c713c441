"""Runs one random program eagerly and under `srcjit.jit`, and compares what can be observed."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import srcjit
from tests.harness import Made, Outcome, compare, no_faults, run, seed

from .generate import PARAMETERS
from .prelude import PRELUDE
from .tree import Body, text_of


def source_of(body: Body) -> str:
    """Returns the module text of a program."""
    text = PRELUDE.replace("{parameters}", ", ".join(PARAMETERS))
    return text.replace("{body}", text_of(body, 1))


def load(path: Path) -> ModuleType:
    """Imports a program anew, with globals of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls(module: ModuleType, number: int) -> Iterator[Callable[[], tuple[Any, ...]]]:
    """Yields what makes the arguments of each call; state and module persist.

    The second call repeats the first; later ones change numbers, shapes, dtypes, lengths,
    aliasing, memory formats and gradients.
    """
    torch.default_generator.manual_seed(number)
    st, net = module.State(), module.Net()
    net.requires_grad_(number % 3 == 0)
    choice = random.Random(number)

    def make(
        rows: int = 3,
        n: int = 2,
        r: float = 0.25,
        flag: bool = True,
        mode: str = "x",
        length: int = 2,
        variant: str = "",
    ) -> tuple[Any, ...]:
        torch.default_generator.manual_seed(rows)
        a = torch.randn(rows, 4)
        b = torch.randn(4)
        c = torch.randn(rows, 4)
        if variant == "same":
            c = a
        elif variant == "view":
            b = a[1]
        elif variant == "overlap":
            c = a.view(rows, 4)
        elif variant == "strided":
            a = torch.randn(4, rows).t()
        elif variant == "double":
            a, c = a.double(), c.double()
        elif variant == "int":
            c = torch.arange(rows * 4).reshape(rows, 4)
        elif variant == "grad":
            b = torch.randn(4).requires_grad_()
        elif variant == "leaf":
            a = a.requires_grad_()
        nums = [choice.randint(0, 3) for _ in range(length)]
        parts = [b, torch.ones(4)][: max(length - 1, 0)]
        table = {"k": b} if flag else {}
        return a, b, c, n, r, flag, mode, nums, parts, table, st, net

    yield make
    yield make
    changes: list[dict[str, Any]] = [
        {"n": 3},
        {"n": 0, "length": 0},
        {"rows": 5},
        {"flag": False},
        {"mode": "y", "r": 1.75},
        {"length": 4},
        {"variant": "same"},
        {"variant": "view"},
        {"variant": "overlap"},
        {"variant": "strided"},
        {"variant": "double"},
        {"variant": "int"},
        {"variant": "grad"},
        {"variant": "leaf"},
    ]
    for change in choice.sample(changes, 3):
        yield lambda change=change: make(**change)
    yield make


def check(path: Path, number: int, stage: str) -> None:
    """Asserts that the program in `path` behaves under `srcjit.jit` as without it.

    Args:
        path: The program's file; a traceback's lines in it are compared.
        number: Chooses the arguments of the calls.
        stage: The stage of the pipeline whose program runs.
    """
    seed()
    expected = list(outcomes(load(path), number, lambda function: function))
    seed()
    module = load(path)

    def jit(function: Callable[..., Any]) -> Callable[..., Any]:
        return srcjit.jit(function, options={"stage": stage})

    with no_faults():
        for call, outcome in enumerate(outcomes(module, number, jit), 1):
            if what := distinction(expected[call - 1][0], outcome[0]):
                raise AssertionError(f"call {call} at stage {stage!r}: {what}")
            compare(expected[call - 1][0], outcome[0], stage, call)
            assert outcome[1] == expected[call - 1][1], f"globals differ, call {call}"


def distinction(expected: Outcome, actual: Outcome) -> str:
    """Says in which part of what can be observed two calls differ; empty if in none."""
    for name in ("failure", "stdout", "structure", "layout"):
        wanted, got = getattr(expected, name), getattr(actual, name)
        if wanted != got:
            return f"{name} is\n{_apart(got, wanted)}"
    return ""


def _apart(actual: Any, expected: Any) -> str:
    """The innermost part in which two structures differ."""
    if (
        isinstance(actual, (list, tuple))
        and type(actual) is type(expected)
        and len(actual) == len(expected)
    ):
        for got, wanted in zip(actual, expected):
            if got != wanted:
                return _apart(got, wanted)
    return f"{actual}\ninstead of\n{expected}"


def outcomes(
    module: ModuleType, number: int, wrap: Callable[..., Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields what each call did, and the program's globals behind it."""
    function = wrap(module.program)
    for make in calls(module, number):
        args = make()
        watched: Made = (module.GLOBAL, (*args,), {})
        seed()
        outcome = run(function, watched)
        if outcome.failure is not None:
            # An operation that only raises at run time does so in a call of its segment,
            # whose line is that of the segment's first operation.
            outcome.failure = dataclasses.replace(outcome.failure, line=0)
        # A compiled segment is a node of its own in autograd's graph.
        outcome.stdout = re.sub(r"grad_fn=<\w+>", "grad_fn", outcome.stdout)
        yield outcome, (module.COUNT, module.State.shared)


def failure(path: Path, body: Body, number: int, stage: str) -> str:
    """Writes a program, checks it, and returns what is wrong; empty if nothing is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source_of(body))
    before = os.environ.get("SRCJIT_RAISE")
    os.environ["SRCJIT_RAISE"] = "1"
    try:
        check(path, number, stage)
    except SyntaxError as error:
        return f"Invalid: {error}"
    except AssertionError as error:
        return f"AssertionError: {error}"
    finally:
        if before is None:
            del os.environ["SRCJIT_RAISE"]
        else:
            os.environ["SRCJIT_RAISE"] = before
    return ""
