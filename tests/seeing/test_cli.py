"""The command line: what was asked for on standard output, one clear line for bad input."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from srcjit.cli import main
from srcjit.options import STAGES

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

SCRIPT = '''\
"""A script with two jitted functions."""
import sys

import torch

import srcjit


@srcjit.jit
def wave(x, scale=2.0):
    y = torch.sin(x) * scale
    return y + 1


def plain(x, n, *, shift=0):
    for _ in range(n):
        x = x.cos() + shift
    return x


@srcjit.jit
def greet(x):
    x = x.sin()
    print("hello from greet")
    return x.cos()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu()


net = Net()
number = 3

if __name__ == "__main__":
    print("main ran with", sys.argv[1:])
    wave(torch.ones(3))
    greet(torch.ones(3))
'''


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(SCRIPT)
    return "script.py"


def run(*arguments):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


# ── What is printed ─────────────────────────────────────────────────────────────────


def test_help_shows_whole_sentences():
    commands = run("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(commands) == 3 and not any(c.endswith("...") for c in commands)


def test_emit_prints_modules_and_nothing_else(script):
    result = run("emit", script, "--", "a", "-b")
    assert result.exit_code == 0
    tree = ast.parse(result.stdout)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {"wave", "greet"} <= functions
    assert "\x1b" not in result.stdout
    assert "main ran with ['a', '-b']" in result.stderr
    assert "hello from greet" in result.stderr


def test_ptx_info_says_what_each_kernel_takes(script):
    pytest.importorskip("triton")
    asked = ("emit", script, "--fn", "wave", "--args", "torch.ones(3)", "--ptx-info")
    result = run(*asked, "--backend", "triton")
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last.startswith("# sm_90: ") and "registers, 0 bytes spilled" in last
    refused = run(*asked, "--backend", "cpp")
    assert refused.exit_code == 2 and "no Triton kernels" in refused.stderr


def test_emit_is_the_same_each_time(script):
    assert run("emit", script).stdout == run("emit", script).stdout


def test_emit_one_function_that_ran(script):
    result = run("emit", script, "--fn", "wave")
    assert result.exit_code == 0
    assert "def wave(" in result.stdout and "def greet(" not in result.stdout


def test_emit_with_arguments_does_not_run_main(script):
    result = run("emit", script, "--fn", "plain", "--args", "torch.ones(4), 2, shift=1")
    assert result.exit_code == 0
    assert "def plain(" in result.stdout
    assert "main ran" not in result.stderr


def test_emit_module(script):
    result = run("emit", script, "--fn", "net", "--args", "torch.ones(2, 3)")
    assert result.exit_code == 0
    assert "def forward(" in result.stdout


def test_emit_what_the_script_calls_by_another_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("names.py").write_text(
        "import torch, srcjit\n\n"
        "double = srcjit.jit(lambda x: x * 2)\n"
        "net = srcjit.jit(torch.nn.Sequential(torch.nn.ReLU()))\n"
        "net(double(torch.ones(3)))\n"
    )
    for name in ("double", "<lambda>"):
        assert "· <lambda>" in run("emit", "names.py", "--fn", name).stdout
    for name in ("net", "Sequential", "Sequential.forward"):
        result = run("emit", "names.py", "--fn", name)
        assert "· Sequential.forward" in result.stdout and "mul" not in result.stdout
    assert "# reproduce: srcjit emit " in run("emit", "names.py").stdout
    assert "--fn '<lambda>'\n" in run("emit", "names.py").stdout
    agrees = run("bisect", "names.py", "--fn", "net").stdout.splitlines()
    assert agrees[0] == "eager       1 call of jitted functions"
    assert "defines no `nobody`" in refused("bisect", "names.py", "--fn", "nobody")
    assert "defines no `nobody`" in refused("emit", "names.py", "--fn", "nobody")


@pytest.mark.parametrize("stage", STAGES)
def test_emit_stage(script, stage):
    result = run("emit", script, "--fn", "wave", "--stage", stage)
    assert result.exit_code == 0
    ast.parse(result.stdout)
    code = re.sub(r"(#|//) .*", "", result.stdout)
    assert ("torch.sin(" in code) == (stage == "specialize")


def test_emit_triton_needs_no_gpu(script):
    pytest.importorskip("triton")
    result = run("emit", script, "--fn", "wave", "--backend", "triton")
    assert result.exit_code == 0
    assert "@triton.jit" in result.stdout
    ast.parse(result.stdout)


def test_emit_to_files(script):
    result = run("emit", script, "-o", "out")
    assert result.exit_code == 0
    names = sorted(path.name for path in Path("out").iterdir())
    assert "wave.py" in names and "greet.py" in names
    assert sorted(result.stdout.split()) == [f"out/{name}" for name in names]
    for name in names:
        ast.parse(Path("out", name).read_text())


def test_emit_make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(
        "import torch\n\n\n"
        "def double(x):\n    return x * 2 + x.sin()\n\n\n"
        "def make():\n    return double, (torch.ones(3),)\n"
    )
    result = run("emit", "program.py")
    assert result.exit_code == 0
    assert "def double(" in result.stdout


def test_explain(script):
    result = run("explain", script)
    assert result.exit_code == 0
    assert "wave: 1 specialization, 1 segment" in result.stdout
    assert "greet: 1 specialization, 2 segments" in result.stdout
    assert "graph break[SJ012]" in result.stdout
    line = SCRIPT.splitlines().index('    print("hello from greet")') + 1
    assert f"--> script.py:{line}:5\n" in result.stdout
    assert f'{line} |     print("hello from greet")\n' in result.stdout


def test_bisect_agrees(script):
    result = run("bisect", script)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "every stage agrees with eager PyTorch"
    assert "compiler fault" not in result.stdout


def test_bisect_finds_the_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A backend that is wrong is wrong at every stage: the first one is named.
    Path("wrong.py").write_text(
        "import torch\n\nimport srcjit\n\n\n"
        "def backend(gm, inputs):\n"
        "    return lambda *args: tuple(out + 1 for out in gm(*args))\n\n\n"
        "@srcjit.jit(backend=backend)\n"
        "def f(x):\n    return x.sin()\n\n\n"
        "f(torch.ones(3))\n"
    )
    result = run("bisect", "wrong.py")
    assert result.exit_code == 1, result.output
    assert "call 1, `f`: 3 of 3 elements differ" in result.stdout
    named = result.stdout.splitlines()[-1]
    assert named == f"the first stage that differs is `{STAGES[0]}`"


# ── Bad input ───────────────────────────────────────────────────────────────────────


def refused(*arguments, code=2):
    result = run(*arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    return result.stderr


def test_missing_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("emit", "explain", "bisect"):
        assert refused(command, "none.py") == "srcjit: none.py: no such file\n"
    assert refused("emit", ".") == "srcjit: .: is a directory, not a script\n"


def test_syntax_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("x = 1\ndef f(:\n")
    error = refused("emit", "bad.py", "-o", "out")
    assert error.startswith("srcjit: bad.py:2: syntax error: ")
    assert error.count("\n") == 1
    assert not Path("out").exists()


def test_not_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_bytes(b"x = 1\0\n")
    assert refused("emit", "bad.py").count("\n") == 1
    Path("bad.py").write_bytes(b"x = '\xff'\n")
    assert refused("emit", "bad.py").count("\n") == 1


def test_script_raises_and_keeps_its_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("raises.py").write_text(
        "def inner():\n    raise ValueError('my own')\n\n\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    inner()\n"
    )
    for command in ("emit", "explain", "bisect"):
        error = refused(command, "raises.py", code=2 if command == "bisect" else 1)
        assert error.splitlines()[-1] == "ValueError: my own"
        assert 'File "raises.py", line 2, in inner' in error
        assert "ZeroDivisionError" in error
        assert "srcjit" not in error
        files = [line for line in error.splitlines() if line.startswith("  File ")]
        assert all('"raises.py"' in line for line in files)


def test_script_raises_inside_a_jitted_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("raises.py").write_text(
        "import torch, srcjit\n\n\n@srcjit.jit\ndef f(x, w):\n"
        "    y = x.sin()\n    return y @ w\n\n\n"
        "f(torch.ones(3, 4), torch.ones(3, 4))\n"
    )
    result = run("emit", "raises.py")
    assert result.exit_code == 1
    assert "def segment_0" in result.stdout  # of what had been compiled until then
    error = result.stderr
    assert error.splitlines()[-1].startswith("RuntimeError: mat1 and mat2 shapes")
    files = [line for line in error.splitlines() if line.startswith("  File ")]
    assert files == [
        '  File "raises.py", line 10, in <module>',
        '  File "raises.py", line 7, in f',
    ]
    assert run("emit", "raises.py", "-o", "out", "--fn", "f").exit_code == 1
    assert [*Path("out").iterdir()]
    result = run("explain", "raises.py")
    assert result.exit_code == 1
    assert result.stdout.startswith("f: 1 specialization, 1 segment")
    assert result.stderr.splitlines()[-1] == error.splitlines()[-1]


def test_script_leaves_with_a_status(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("leaves.py").write_text("import sys\n\nsys.exit(3)\n")
    assert refused("emit", "leaves.py", code=1) == "leaves.py: the script left with 3\n"


def test_names_that_are_not_there(script):
    say = "srcjit: script.py: "
    assert refused("emit", script, "--fn", "nobody", "--args", "") == (
        f"{say}defines no `nobody`\n"
    )
    assert refused("emit", script, "--fn", "net.nobody", "--args", "") == (
        f"{say}`net` has no attribute `nobody`\n"
    )
    assert refused("emit", script, "--fn", "number", "--args", "") == (
        f"{say}`number` cannot be called\n"
    )
    assert "is a class; name an instance" in refused(
        "emit", script, "--fn", "Net", "--args", ""
    )
    assert "`plain` was not called" in refused("emit", script, "--fn", "plain")


def test_bad_arguments(script):
    assert "--args 'x y': syntax error" in refused(
        "emit", script, "--fn", "wave", "--args", "x y"
    )
    assert "--args 'nope': NameError" in refused(
        "emit", script, "--fn", "wave", "--args", "nope"
    )
    assert "name it with --fn" in refused("emit", script, "--args", "3")
    assert "TypeError" in refused(
        "emit", script, "--fn", "wave", "--args", "1, 2, 3, 4", code=1
    )


def test_nothing_jitted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text("x = 1\n")
    for command in ("emit", "explain"):
        assert "no jitted function was called" in refused(command, "plain.py")


def test_output_is_a_file(script):
    Path("taken").write_text("")
    assert refused("emit", script, "-o", "taken").startswith("main ran")
    assert Path("taken").read_text() == ""


def test_unknown_stage(script):
    assert "'nonsense' is not one of" in refused("emit", script, "--stage", "nonsense")


# ── The process around it ───────────────────────────────────────────────────────────


def test_version_and_module():
    result = subprocess.run(
        [sys.executable, "-m", "srcjit", "--version"],
        capture_output=True, text=True, cwd=ROOT, check=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert result.stdout == "srcjit, version 0.1.0\n"


def test_script_runs_as_python_runs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/neighbour.py").write_text("VALUE = 5\n")
    Path("sub/script.py").write_text(
        "import sys, os, torch, srcjit, neighbour\n"
        "assert __name__ == '__main__' and __file__ == 'sub/script.py'\n"
        "assert sys.modules['__main__'].torch is torch\n"
        "assert sys.argv == ['sub/script.py', '--flag'], sys.argv\n"
        "assert os.path.samefile(sys.path[0], 'sub')\n"
        "f = srcjit.jit(lambda x: x * neighbour.VALUE + 1)\n"
        "f(torch.ones(2))\n"
    )
    before = list(sys.path), list(sys.argv), sys.modules["__main__"]
    assert run("emit", "sub/script.py", "--", "--flag").exit_code == 0
    assert (list(sys.path), list(sys.argv), sys.modules["__main__"]) == before


@pytest.mark.parametrize(
    "name", sorted(p.name for p in (ROOT / "examples").glob("*.py"))
)
def test_example(name, tmp_path):
    environment = {**ENVIRONMENT, "SRCJIT_CACHE_DIR": str(tmp_path / "cache")}
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        capture_output=True, text=True, cwd=ROOT, env=environment, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "SJ900" not in result.stderr, result.stderr
    assert "eager PyTorch" in result.stdout
