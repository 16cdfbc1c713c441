"""Runs one random program eagerly and under `srcjit.jit`, and compares what can be observed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

import srcjit
from srcjit import shared
from srcjit.lines import register_lines
from tests.harness import EXACT, Made, Outcome, compare, no_faults, run, seed

from .generate import GENERATORS
from .prelude import PRELUDES
from .tree import Body, text_of
from .unknown import traced

PRELUDE_FILE = "/tests/programs/fuzz_prelude_{flavour}.py"
"""Where the prelude claims to stand; its text is registered for who looks for it."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and how it is run.

    Attributes:
        body: The statements of the program.
        number: Chooses the arguments of the calls; the seed that the program was made from.
        flavour: `tensors` or `plain`.
        stage: The stage of the pipeline whose program runs.
        numbers: Which numbers are unknown while compiling (see `unknown.traced`).
    """

    body: Body
    number: int
    flavour: str = "tensors"
    stage: str = "specialize"
    numbers: str = "known"


def program_text(case: Case) -> str:
    """Returns the text of the function alone."""
    parameters = ", ".join(GENERATORS[case.flavour].parameters)
    return f"def program({parameters}):\n{text_of(case.body, 1)}"


def source_of(case: Case) -> str:
    """Returns the module text of a program."""
    return f"{PRELUDES[case.flavour]}\n\n{program_text(case)}"


@functools.cache
def _prelude(flavour: str) -> CodeType:
    file = PRELUDE_FILE.format(flavour=flavour)
    register_lines(file, PRELUDES[flavour])
    return compile(PRELUDES[flavour], file, "exec")


def load(case: Case, path: Path) -> ModuleType:
    """Runs the prelude and the program anew, as one module with globals of its own.

    The prelude is compiled once, so that its functions are parsed once.
    """
    module = sys.modules[path.stem] = ModuleType(path.stem)  # dataclasses look there
    RemovableHandle.next_id = 0  # of hooks; it is to be seen in them
    exec(_prelude(case.flavour), module.__dict__)
    exec(compile(program_text(case), str(path), "exec"), module.__dict__)
    return module


def calls(
    module: ModuleType, number: int, flavour: str
) -> Iterator[Callable[[], tuple[Any, ...]]]:
    """Yields what makes the arguments of each call; state and module persist.

    The second call repeats the first with new objects, the third with the very same ones;
    later ones change numbers, shapes, dtypes, lengths, aliasing, memory formats, gradients.
    """
    choice = random.Random(number)
    maker = _plain_arguments if flavour == "plain" else _tensor_arguments
    make = maker(module, number, choice)
    last: list[tuple[Any, ...]] = []

    def made(**changes: Any) -> tuple[Any, ...]:
        last[:] = [make(**changes)]
        return last[0]

    yield made
    yield made
    yield lambda: last[0]
    shared_changes: list[dict[str, Any]] = [
        {"n": 3},
        {"n": 0, "length": 0},
        {"flag": False},
        {"mode": "y", "r": 1.75},
        {"length": 4},
        {"r": float("nan")},
    ]
    own = _PLAIN_CHANGES if flavour == "plain" else _TENSOR_CHANGES
    for change in choice.sample([*shared_changes, *own], 3):
        yield functools.partial(made, **change)
    yield made


_PLAIN_CHANGES: list[dict[str, Any]] = [
    {"n": 2**80, "m": -3},
    {"n": -1},
    {"m": 0, "r": -0.0},
    {"variant": "bool"},
    {"variant": "same"},
    {"variant": "float"},
]

_TENSOR_CHANGES: list[dict[str, Any]] = [
    {"rows": 5},
    *(
        {"variant": name}
        for name in "same view overlap strided double int grad leaf expanded".split()
    ),
]


def _plain_arguments(
    module: ModuleType, number: int, choice: random.Random
) -> Callable[..., tuple[Any, ...]]:
    st = module.State()

    def make(
        n: int = 2,
        m: int = 5,
        r: float = 0.25,
        flag: bool = True,
        mode: str = "x",
        length: int = 2,
        variant: str = "",
    ) -> tuple[Any, ...]:
        nums: list[Any] = [choice.randint(0, 3) for _ in range(length)]
        if variant == "same":
            module.GLOBAL[:] = [nums]
        elif variant == "bool":
            n = True
        elif variant == "float":
            nums = [float(v) for v in nums]
        return n, r, flag, mode, nums, {"k": 1, "b": m}, st, m

    return make


def _tensor_arguments(
    module: ModuleType, number: int, choice: random.Random
) -> Callable[..., tuple[Any, ...]]:
    torch.default_generator.manual_seed(number)
    st, net = module.State(), module.Net()
    net.requires_grad_(number % 3 == 0)

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
        match variant:
            case "same":
                c = a
            case "view":
                b = a[1]
            case "overlap":
                c = a.view(rows, 4)
            case "strided":
                a = torch.randn(4, rows).t()
            case "double":
                a, c = a.double(), c.double()
            case "int":
                c = torch.arange(rows * 4).reshape(rows, 4)
            case "grad":
                b = torch.randn(4).requires_grad_()
            case "leaf":
                a = a.requires_grad_()
            case "expanded":
                c = torch.randn(4).expand(rows, 4)
        nums = [choice.randint(0, 3) for _ in range(length)]
        parts = [torch.randn(4) for _ in range(length)]
        table = {"k": torch.randn(4), "b": b}
        return a, b, c, parts, table, net, n, r, flag, mode, nums, {"k": 1}, st

    return make


EAGER = "the program ran without the compiler"
"""The note on what stopped a program that was not compiled."""


def check(case: Case, path: Path) -> None:
    """Asserts that a program behaves under `srcjit.jit` as without it.

    Args:
        case: The program.
        path: The file that its text stands in.
    """
    seed()
    try:
        expected = list(outcomes(load(case, path), case, lambda function: function))
    except BaseException as stopped:
        stopped.add_note(EAGER)
        raise
    seed()
    module = load(case, path)

    def jit(function: Callable[..., Any]) -> Callable[..., Any]:
        return srcjit.jit(function, options={"stage": case.stage})

    with no_faults(), traced(case.numbers):
        for call, outcome in enumerate(outcomes(module, case, jit), 1):
            wanted = expected[call - 1]
            if case.stage != EXACT:
                as_rounded(wanted[0], outcome[0])
            if what := distinction(wanted[0], outcome[0]):
                raise AssertionError(f"call {call} at stage {case.stage!r}: {what}")
            compare(wanted[0], outcome[0], case.stage, call)
            assert outcome[1] == wanted[1], f"globals differ, call {call}"


_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?")
"""A float as Python prints it."""


def as_rounded(expected: Outcome, actual: Outcome) -> None:
    """Takes the expected texts for actual ones that differ in how kernels round.

    A fused kernel sums in another order than eager; what is printed shows it.
    """

    def close(got: str, wanted: str) -> bool:
        numbers = [[float(n) for n in _NUMBER.findall(text)] for text in (got, wanted)]
        return _NUMBER.sub("", got) == _NUMBER.sub("", wanted) and all(
            math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6)
            for a, b in zip(*numbers, strict=True)
        )

    for outcome in (expected, actual):
        # What a call left in a float32 tensor, a later one may have made a float64 of.
        outcome.tensors = [
            t.float() if t.dtype is torch.float64 else t for t in outcome.tensors
        ]
    if close(actual.stdout, expected.stdout):
        actual.stdout = expected.stdout
    got, wanted = actual.failure, expected.failure
    if got is not None and wanted is not None and close(got.message, wanted.message):
        actual.failure = dataclasses.replace(got, message=wanted.message)


def distinction(expected: Outcome, actual: Outcome) -> str:
    """Says in which part of what can be observed two calls differ; empty if in none."""
    for name in ("failure", "stdout", "modes", "structure", "layout"):
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
    module: ModuleType, case: Case, wrap: Callable[..., Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields what each call did, and the program's globals behind it."""
    function = wrap(module.program)
    for make in calls(module, case.number, case.flavour):
        args = make()
        watched: Made = (module.GLOBAL, (*args,), {})
        seed()
        outcome = run(function, watched)
        if outcome.failure is not None:
            # An operation that only raises at run time does so in a call of its segment,
            # whose line is that of the segment's first operation: the caller's, where the
            # one that raises is in a function called later.
            place = "the user's" if outcome.failure.file else ""
            outcome.failure = dataclasses.replace(outcome.failure, line=0, file=place)
        # A compiled segment is a node of its own in autograd's graph.
        outcome.stdout = re.sub(r"grad_fn=<\w+>", "grad_fn", outcome.stdout)
        yield outcome, (module.COUNT, module.State.shared, module.State().count)


def failure(case: Case, path: Path) -> str:
    """Writes a program, checks it, and returns what is wrong; empty if nothing is.

    NOTE: leaves all objects frozen; who calls it for the last time unfreezes them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(program_text(case))
    gc.disable()  # finalizers of what is in a cycle print: never in a later call
    try:
        with _raising():
            check(case, path)
    except SyntaxError as error:
        return f"Invalid: {error}"
    except AssertionError as error:
        return f"AssertionError: {error}"
    finally:
        sys.modules.pop(path.stem, None)
        shared.clear()
        torch.set_grad_enabled(True)
        gc.enable()
        gc.collect()
        gc.freeze()  # what stays need not be walked over behind each program
    return ""


@contextlib.contextmanager
def _raising() -> Iterator[None]:
    """Lets faults of the compiler be raised."""
    before = os.environ.get("SRCJIT_RAISE")
    os.environ["SRCJIT_RAISE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SRCJIT_RAISE"]
        else:
            os.environ["SRCJIT_RAISE"] = before
