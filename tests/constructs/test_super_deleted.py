"""`super()` whose argument has been deleted or is of another class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import srcjit


class Base:
    def scale(self, x: Tensor) -> Tensor:
        return x * 2


class Deletes(Base):
    def scale(self, x: Tensor) -> Tensor:
        x = x + 1
        del self
        return super().scale(x)


class MayDelete(Base):
    def scale(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            del self
        return super().scale(x)


class Caught(Base):
    def scale(self, x: Tensor) -> Any:
        del self
        try:
            return super().scale(x)
        except RuntimeError as error:
            return x + 1, str(error)


class Rebinds(Base):
    def scale(self, x: Tensor) -> Tensor:
        self = 3  # type: ignore[assignment]  # noqa: F841
        return super().scale(x)


class Explicit(Base):
    def scale(self, x: Tensor) -> Tensor:
        y = super(Explicit, self).scale(x)  # noqa: UP008
        del self
        return y + 1


def outcome(call: Any, x: Tensor) -> Any:
    try:
        return str(call(x))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("cls", [Deletes, MayDelete, Caught, Rebinds, Explicit])
@pytest.mark.parametrize("inlined", [False, True])
def test_super_says_what_python_says(cls: Any, inlined: bool) -> None:
    one = cls()

    def called(x: Tensor) -> Any:
        return one.scale(x.sin()) if inlined else one.scale(x)

    method = srcjit.jit(cls.scale)
    jitted = srcjit.jit(called) if inlined else lambda x: method(one, x)
    for sign in (1, -1, 1):
        x = torch.ones(2) * sign
        assert outcome(jitted, x) == outcome(called, x)
