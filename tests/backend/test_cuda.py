"""Whole segments on a GPU: the Triton back end against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.backend.support import assert_same, compiled
from tests.backend.test_segment import PROGRAMS, _flat

pytestmark = pytest.mark.cuda


def on_gpu(args: list[Any]) -> list[Any]:
    return [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages(name: str) -> None:
    function, arguments = PROGRAMS[name]
    low = arguments[0].dtype is torch.bfloat16
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if low else {"rtol": 1e-4, "atol": 1e-4}
    own, given = on_gpu(arguments), on_gpu(arguments)
    with torch.no_grad():
        run = compiled(_flat(function), *given, stage="emit")
        for _ in range(2):
            torch.manual_seed(3)
            expected = _flat(function)(*own)
            torch.manual_seed(3)
            got = run(*given)
            assert_same(got, expected, **tolerance)
            assert_same(tuple(given), tuple(own), **tolerance)


@pytest.mark.parametrize(
    "name", ["feed_forward", "cross_entropy", "several_groups", "rotary"]
)
def test_training(name: str) -> None:
    function, arguments = PROGRAMS[name]
    own = [a.cuda().requires_grad_(a.is_floating_point()) for a in arguments]
    given = [a.cuda().requires_grad_(a.is_floating_point()) for a in arguments]
    run = compiled(_flat(function), *given)
    expected, got = _flat(function)(*own), run(*given)
    assert_same(got, expected, rtol=1e-4, atol=1e-4)
    for results in (expected, got):
        sum(r.float().pow(2).sum() for r in results if r.requires_grad).backward()
    for g, o in zip(given, own, strict=True):
        if o.grad is not None:
            torch.testing.assert_close(g.grad, o.grad, rtol=1e-3, atol=1e-3)
