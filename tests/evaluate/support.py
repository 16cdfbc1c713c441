"""Programs that evaluation is tested with: each is compared with eager, effects included."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.harness import check

X = torch.linspace(-2, 2, 32).reshape(4, 8)
"""The tensor that most programs get."""


@dataclass
class Program:
    """A function or module with arguments; `whole` ones must have no graph break."""

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    whole: bool

    def check(self) -> None:
        """Asserts that the jitted program cannot be told from the plain one."""

        def make() -> Any:
            return copy.deepcopy((self.function, self.args, self.kwargs))

        check(make, stage="specialize", calls=2, fullgraph=self.whole)


class Programs:
    """The programs of one test module."""

    def __init__(self) -> None:
        self._found: list[Program] = []

    def __call__(
        self, *args: Any, whole: bool = True, **kwargs: Any
    ) -> Callable[[Any], Any]:
        """Decorates a function with the arguments to call it with."""

        def register(function: Any) -> Any:
            name = getattr(function, "__name__", None) or type(function).__name__
            self._found.append(Program(name, function, args, kwargs, whole))
            return function

        return register

    def __iter__(self) -> Iterator[Program]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, program: object) -> bool:
        return program in self._found


def name_of(program: Program) -> str:
    """The id of a parametrized test."""
    return program.name
