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
import math
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import srcjit
from srcjit.options import STAGES

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]

EXACT = ("source", "specialize")
"""Stages at which the very same torch operations run, so that results are equal bit by bit."""

TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (2e-3, 2e-3),
    torch.complex64: (2e-5, 2e-5),
}
"""Relative and absolute tolerance where the order of float operations may differ."""


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
    sharing: list[tuple[Any, ...]]
    random: tuple[Any, ...]


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
    with contextlib.redirect_stdout(stdout):
        try:
            result = call(*args, **kwargs)
            if backward:
                _backward(result)
        except Exception as exception:
            failure = _failure(exception)
    view = _View()
    structure = view.of([result, args, kwargs, _state(function)])
    return Outcome(
        stdout.getvalue(),
        failure,
        structure,
        view.numbers,
        [tensor.detach().clone() for tensor in view.tensors],
        _sharing(view.tensors),
        (
            torch.get_rng_state().tolist(),
            random.getstate(),
            np.random.get_state()[1].tolist(),  # type: ignore[index]
        ),
    )


def _backward(result: Any) -> None:
    view = _View()
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
        if "/tests/programs/" in name or "/examples/" in name:
            file, line = name, trace.tb_lineno
        trace = trace.tb_next
    return Failure(type(exception), str(exception), file, line)


class _View:
    """Takes a value apart into a structure that compares with `==`, and its leaves.

    Tensors and floats are collected in order; an object met again is a reference, so that
    identity is part of the structure.
    """

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.numbers: list[float] = []
        # Each object is kept alive, so that its id is not used again.
        self.seen: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> Any:
        """Returns the structure of `value`."""
        if isinstance(value, float):
            self.numbers.append(value)
            return "float"
        if isinstance(value, (int, complex, str, bytes, type(None))):
            return (type(value).__name__, repr(value))
        if isinstance(value, (torch.dtype, torch.device, torch.Size, range)):
            return repr(value)
        if id(value) in self.seen:
            return ("again", self.seen[id(value)][0])
        self.seen[id(value)] = (len(self.seen), value)
        return (type(value).__name__, self._inside(value))

    def _inside(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return len(self.tensors), self.of(value.grad if value.is_leaf else None)
        if isinstance(value, np.ndarray):
            return str(value.dtype), value.shape, self.of(value.tolist())
        if isinstance(value, dict):
            return [(self.of(key), self.of(item)) for key, item in value.items()]
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, value))
        if isinstance(value, torch.nn.Module):
            public = sorted(name for name in vars(value) if not name.startswith("_"))
            names = ("_parameters", "_buffers", "_modules", *public)
            return [(name, self.of(vars(value)[name])) for name in names]
        if type(value).__module__.startswith("tests.") and hasattr(value, "__dict__"):
            return self.of(vars(value))
        return None


def _sharing(tensors: list[torch.Tensor]) -> list[tuple[Any, ...]]:
    """For each tensor: layout, and the first tensor that lives in the same storage."""
    first: dict[int, int] = {}
    facts = []
    for number, tensor in enumerate(tensors):
        storage = tensor.untyped_storage().data_ptr()
        owner = first.setdefault(storage, number) if storage else number
        facts.append(
            (
                tensor.dtype,
                tensor.device,
                tuple(tensor.shape),
                tensor.stride(),
                tensor.requires_grad,
                tensor.is_leaf,
                owner,
                tensor.storage_offset() if owner != number else None,
            )
        )
    return facts


def compare(expected: Outcome, actual: Outcome, stage: str, call: int) -> None:
    """Asserts that two calls cannot be told apart."""
    where = f"call {call} at stage {stage!r}"
    assert actual.failure == expected.failure, where
    assert actual.stdout == expected.stdout, where
    assert actual.structure == expected.structure, where
    assert actual.sharing == expected.sharing, where
    for got, wanted in zip(actual.numbers, expected.numbers, strict=True):
        exact = stage in EXACT or not math.isfinite(wanted)
        same = repr(got) == repr(wanted) or (
            not exact and math.isclose(got, wanted, rel_tol=2e-5, abs_tol=2e-5)
        )
        assert same, f"{where}: {got!r} is not {wanted!r}"
    for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
        rtol, atol = TOLERANCE.get(wanted.dtype, (0.0, 0.0))
        if stage in EXACT:
            rtol = atol = 0.0
        torch.testing.assert_close(
            got,
            wanted,
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda m: f"{where}: {m}",
        )
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
    torch.manual_seed(0)
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
