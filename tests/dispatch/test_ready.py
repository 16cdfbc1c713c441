"""The compiler's modules are imported at once, and the garbage collector stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, sys, weakref
import torch
import srcjit
from srcjit.runtime import cpp_build

class Node:
    pass

def f(x):
    return x * 2 + 1

def g(x, y):
    return torch.softmax(x @ y.mT, -1) @ y + (x.reshape(2, -1, 8).sum(0) * 3).mean()

gc.disable()
node = Node()
node.itself = node
garbage = weakref.ref(node)
del node
if {collecting}:
    gc.enable()
if {frozen}:
    gc.freeze()
assert "torch._dynamo" not in sys.modules

x = torch.randn(4, 8)
assert torch.equal(srcjit.jit(f)(x), f(x))
assert gc.isenabled() == {collecting}
assert (gc.get_freeze_count() > 1000) == {frozen}  # 3.12 keeps some itself
assert (garbage() is None) == ({collecting} and not {frozen})

loaded = set(sys.modules)
torch.testing.assert_close(srcjit.jit(g)(x, x), g(x, x))
late = [n for n in set(sys.modules) - loaded if n.startswith(("sympy.", "torch._dynamo"))]
assert not late, late

# The launcher is built beside the imports, and nobody asks for a compiler twice.
asked = [f.cache_info().misses for f in (cpp_build._toolchain, cpp_build.start_launcher)]
assert torch.cuda.is_available() or asked == [1, 1], asked
"""


@pytest.mark.parametrize(
    ("collecting", "frozen"), [(True, False), (True, True), (False, False)]
)
def test_a_first_call(collecting: bool, frozen: bool, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(collecting=collecting, frozen=frozen))
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
