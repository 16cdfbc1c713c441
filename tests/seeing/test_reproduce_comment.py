"""The comment in emitted text that says how to emit it again."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

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


def scaled(x, *more, scale=2.0, **others):
    for y in more:
        x = x + y
    return x * scale + others["bias"]


def test_arguments_that_can_be_spelled(tmp_path):
    stub = srcjit.jit(scaled)
    x = torch.ones(4, 3, dtype=torch.float64).t()
    stub(x, torch.ones(3, 1, requires_grad=True), scale=3, bias=[1, 2.5][1])
    command = _comment(stub).removeprefix("# reproduce: ")
    *head, args = shlex.split(command)
    assert head == [
        *("srcjit", "emit", "seeing/test_reproduce_comment.py"),
        *("--fn", "scaled", "--args"),
    ]
    assert args == (
        "torch.empty_strided((3, 4), (1, 3), dtype=torch.float64), "
        "torch.randn(3, 1, requires_grad=True), scale=3, bias=2.5"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "srcjit", *head[1:], args],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "def scaled(" in ran.stdout


class Plain:
    pass


def of_an_object(x, plain):
    return x + 1


def test_an_object_has_no_text():
    stub = srcjit.jit(of_an_object)
    stub(torch.ones(3), Plain())
    assert _comment(stub).endswith("--fn of_an_object")
