"""The comment in emitted text that says how to emit it again."""

from __future__ import annotations

import torch

import srcjit


def _comment(function) -> str:
    (made,) = function.__srcjit__.specializations
    return next(t for t in made.text.splitlines() if t.startswith("# reproduce: "))


def test_a_function_of_a_file():
    def f(x):
        return x + 1

    stub = srcjit.jit(f)
    stub(torch.ones(3))
    name = "test_a_function_of_a_file.<locals>.f"
    assert _comment(stub) == (
        f"# reproduce: srcjit emit seeing/test_reproduce_comment.py --fn '{name}'"
    )


def test_a_function_of_an_installed_package():
    stub = srcjit.jit(torch.nn.Sequential.forward)
    stub(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(3))
    assert _comment(stub) == (
        "# reproduce: srcjit emit SCRIPT --fn Sequential.forward"
        "  # the script that calls it"
    )
