"""Compiling warns of nothing: the program itself does, on the user's line."""

from __future__ import annotations

import warnings

import torch

import srcjit


def _warned(call, *args) -> list[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args)
    return [(str(w.message).splitlines()[0], w.lineno) for w in caught]


def test_warnings_are_those_of_eager() -> None:
    def program(x):
        return torch.nn.functional.softmax(x * 2)  # warns: no dim is given

    x = torch.randn(3)
    expected = _warned(program, x)
    jitted = srcjit.jit(program, options={"stage": "specialize"})
    first = _warned(jitted, x)
    assert [text for text, _ in first] == [text for text, _ in expected]
    assert _warned(jitted, x) == first
