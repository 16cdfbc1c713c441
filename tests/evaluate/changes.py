"""Functions whose surroundings change between calls, and what compares them with eager.

Each case makes a function, its arguments, and steps that change something. The function is
jitted once; after every step the jitted and the plain function are called on equal terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import srcjit
from tests.harness import no_faults, run

Step = Callable[[], Any]
Case = Callable[[], tuple[Any, Callable[[], tuple[Any, ...]], list[Step]]]


class Cases(dict[str, Case]):
    """Cases by name; as a decorator, it adds one."""

    def __call__(self, make: Case) -> Case:
        self[make.__name__] = make
        return make


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


class Plain:
    kind = 1

    def __init__(self) -> None:
        self.value = 2
        self.items = [1, 2]

    def scale(self, t: torch.Tensor) -> torch.Tensor:
        return t * self.value * self.kind


def setting(holder: Any, name: str, value: Any) -> Step:
    """A step that sets an attribute."""
    return lambda: setattr(holder, name, value)


def check_changes(make: Case) -> Any:
    """Calls the plain and the jitted function of a case after each of its steps.

    Returns:
        The jitted function.
    """
    function, arguments, steps = make()
    jitted = srcjit.jit(function, options={"stage": "specialize"})
    try:
        with no_faults():
            for step in [lambda: None, lambda: None, *steps]:
                step()
                args = arguments()
                snapshot = _snapshot(args)
                expected = run(function, (function, args, {}))
                _restore(args, snapshot)
                actual = run(jitted, (function, args, {}))
                _restore(args, snapshot)
                assert actual.failure == expected.failure
                assert actual.structure == expected.structure
                assert [repr(n) for n in actual.numbers] == [
                    repr(n) for n in expected.numbers
                ]
                # Restoring has written to the arguments: versions, which are last, differ.
                assert [facts[:-1] for facts in actual.layout] == [
                    facts[:-1] for facts in expected.layout
                ]
                for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
                    assert torch.equal(got, wanted)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    return jitted


def _snapshot(args: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg.detach().clone())
        elif isinstance(arg, list):
            found.append(list(arg))
        elif isinstance(arg, Plain):
            found.append(dict(vars(arg)))
        else:
            found.append(None)
    return found


def _restore(args: tuple[Any, ...], snapshot: list[Any]) -> None:
    for arg, saved in zip(args, snapshot):
        if isinstance(arg, torch.Tensor):
            with torch.no_grad():
                arg.copy_(saved)
        elif isinstance(arg, list):
            arg[:] = saved
        elif isinstance(arg, Plain):
            vars(arg).clear()
            vars(arg).update(saved)
