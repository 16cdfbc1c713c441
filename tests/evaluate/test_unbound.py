"""Variables that are not bound raise what CPython raises, on the line that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.harness import check
from tests.programs.unbound import UNBOUND


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("function", UNBOUND, ids=lambda f: f.__name__)
def test_unbound(function: Callable[..., Any], number: int) -> None:
    def make() -> Any:
        return function, (torch.ones(2), number), {}

    check(make, stage="specialize")
