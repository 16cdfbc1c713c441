"""The differential test: eager PyTorch is the oracle, at every stage of the pipeline.

`check(make)` builds the same program twice, runs one copy with eager PyTorch and the other
under `srcjit.jit`, several times each, and compares everything that a caller can observe:
values, dtypes, devices, shapes, strides, `requires_grad`, which outputs share memory or
identity with inputs and with one another, what the arguments look like afterwards, the
state of the random generators, the text printed, and exceptions with their type, message
and the last of the user's lines in the traceback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import srcjit
from srcjit.facts import GlobalState
from srcjit.observe import View, difference, layout
from srcjit.options import STAGES

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]

EXACT = "specialize"
"""The stage at which the very same torch operations run, so that results are equal bit by bit."""

_USER_CODE = ("tests/programs", "tests/constructs", "examples")
"""Where the functions stand that tests compile."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception as the user sees it."""

    type: type[BaseException]
    message: str
    file: str
    line: int


@dataclasses.dataclass
class Outcome:
    """All that one call has done."""

    stdout: str
    failure: Failure | None
    structure: Any
    numbers: list[float]
    tensors: list[torch.Tensor]
    layout: list[tuple[Any, ...]]
    random: tuple[Any, ...]
    modes: str
    """PyTorch's global state behind the call, as text."""


def run(call: Callable[..., Any], made: Made, backward: bool = False) -> Outcome:
    """Calls the program once and records what a caller can observe.

    Args:
        call: The function to call: the program itself or its jitted form.
        made: The program, whose attributes and cells are looked at, and its arguments.
        backward: Whether to run the backward pass of what the call returned as well.
    """
    function, args, kwargs = made
    stdout = io.StringIO()
    result, failure = None, None
    grad = torch.is_grad_enabled()
    with contextlib.redirect_stdout(stdout):
        try:
            result = call(*args, **kwargs)
            if backward:
                _backward(result)
        except Exception as exception:
            failure = _failure(exception)
    # A mode that a program leaves on must not change what the next call means.
    modes = GlobalState.now().text
    torch.set_grad_enabled(grad)
    view = View()
    structure = view.of([result, args, kwargs, _state(function)])
    return Outcome(
        stdout.getvalue(),
        failure,
        structure,
        view.numbers,
        [tensor.detach().clone() for tensor in view.tensors],
        layout(view.tensors),
        (
            torch.get_rng_state().tolist(),
            random.getstate(),
            np.random.get_state()[1].tolist(),  # type: ignore[index]
        ),
        modes,
    )


def _backward(result: Any) -> None:
    view = View()
    view.of(result)
    roots = [t for t in view.tensors if t.requires_grad and t.grad_fn is not None]
    torch.autograd.backward(roots, [torch.ones_like(t) * 0.5 for t in roots])


def _state(function: Any) -> Any:
    """What a call can change besides its arguments: closure cells and module attributes."""
    if isinstance(function, types.MethodType):
        return function.__self__
    if isinstance(function, types.FunctionType):
        cells = function.__closure__ or ()
        return [cell.cell_contents for cell in cells if _filled(cell)]
    return function


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _failure(exception: BaseException) -> Failure:
    """The exception and the last line of its traceback that lies in a user's file."""
    file, line = "", 0
    trace = exception.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if any(f"/{folder}/" in name for folder in _USER_CODE):
            file, line = name, trace.tb_lineno
        trace = trace.tb_next
    return Failure(type(exception), str(exception), file, line)


def compare(expected: Outcome, actual: Outcome, stage: str, call: int) -> None:
    """Asserts that two calls cannot be told apart."""
    where = f"call {call} at stage {stage!r}"
    assert actual.failure == expected.failure, where
    assert actual.stdout == expected.stdout, where
    assert actual.modes == expected.modes, where
    assert actual.structure == expected.structure, where
    assert actual.layout == expected.layout, where
    factor = 0.0 if stage == EXACT else 1.0
    leaves = zip(
        [torch.tensor(actual.numbers, dtype=torch.float64).float(), *actual.tensors],
        [
            torch.tensor(expected.numbers, dtype=torch.float64).float(),
            *expected.tensors,
        ],
        strict=True,
    )
    for got, wanted in leaves:
        assert not (what := difference(got, wanted, factor)), f"{where}: {what}"
    assert actual.random == expected.random, f"{where}: random state differs"


@contextlib.contextmanager
def no_faults() -> Iterator[None]:
    """Fails if the compiler reported a fault of its own: Python then gave the answer."""
    records: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    handler = Recorder(logging.WARNING)
    log = logging.getLogger("srcjit")
    log.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        log.removeHandler(handler)
    texts = records + [str(warning.message) for warning in caught]
    faults = [text for text in texts if "SJ900" in text]
    assert not faults, "the compiler failed:\n" + "\n".join(faults)


def seed() -> None:
    """Sets every random generator that a program may use."""
    # `torch.manual_seed` keeps a stack trace for each device that is not there yet.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)
    random.seed(0)
    np.random.seed(0)


def check(
    make: Callable[[], Made],
    *,
    stage: str = "emit",
    calls: int = 3,
    backward: bool = False,
    **options: Any,
) -> None:
    """Asserts that the program behaves under `srcjit.jit` as it does without it.

    Args:
        make: Builds the program anew: function or module, arguments, keyword arguments.
        stage: The stage of the pipeline whose program runs.
        calls: How often each copy is called, with the same argument objects.
        backward: Whether to run the backward pass as well, and compare gradients.
        options: Further arguments of `srcjit.jit`.
    """
    assert stage in STAGES
    seed()
    made = make()
    expected = [run(made[0], made, backward) for _ in range(calls)]
    seed()
    made = make()
    given = {"stage": stage, **options.pop("options", {})}
    jitted = srcjit.jit(made[0], options=given, **options)
    with no_faults():
        for number, wanted in enumerate(expected, 1):
            compare(wanted, run(jitted, made, backward), stage, number)
