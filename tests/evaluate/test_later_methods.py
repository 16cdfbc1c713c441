"""A special method that a class gets after the first call is noticed."""

from __future__ import annotations

import torch

import srcjit


def test_equality_is_defined_later() -> None:
    class Plain:
        pass

    def program(x, o):
        return x + 1 if o == 3 else x - 1

    jitted = srcjit.jit(program, options={"stage": "specialize"})
    x, o = torch.zeros(2), Plain()
    assert torch.equal(jitted(x, o), program(x, o))
    Plain.__eq__ = lambda self, other: other == 3  # type: ignore[method-assign,assignment]
    assert torch.equal(jitted(x, o), program(x, o))


def test_setattr_is_defined_later() -> None:
    class Holder:
        pass

    seen = []

    def program(x, o):
        o.value = x.sum()
        return x * 2

    jitted = srcjit.jit(program, options={"stage": "specialize"})
    x, o = torch.zeros(2), Holder()
    jitted(x, o)

    def set_and_note(self, name, value):
        seen.append(name)
        object.__setattr__(self, name, value)

    Holder.__setattr__ = set_and_note  # type: ignore[method-assign,assignment]
    jitted(x, o)
    assert seen == ["value"]
