"""What is kept along a row between two passes over it."""

from __future__ import annotations

import torch

from tests.backend.support import compiled


def repeated(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, -1).softmax(-1)


def test_what_an_axis_repeats_is_kept_once() -> None:
    x = torch.randn(5, 9)
    run = compiled(repeated, x, target="cpp")
    torch.testing.assert_close(run(x)[0], repeated(x))
    assert "[9];" in run.text and "[18];" not in run.text
