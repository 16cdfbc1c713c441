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


FINALIZER = """
import faulthandler, torch, srcjit
faulthandler.dump_traceback_later(60, exit=True)
found = []
double = srcjit.jit(lambda x: x * 2)
more = srcjit.jit(lambda x: x + 1)

class Node:
    def __init__(self):
        self.itself = self

    def __del__(self):
        found.append(double(torch.ones(2)))

Node()
assert torch.equal(more(torch.ones(2)), torch.full((2,), 2.0))
assert len(found) == 1 and torch.equal(found[0], torch.full((2,), 2.0))
"""

FORK = """
import faulthandler, gc, os, sys, threading, time
import torch, srcjit
from srcjit import ready

def call():
    assert srcjit.jit(lambda x: x + 1)(torch.ones(1)).item() == 2

thread = threading.Thread(target=call)
thread.start()
while "torch._dynamo" not in sys.modules:
    time.sleep(0.001)
assert not ready._loaded.is_set()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    assert gc.isenabled()
    call()
    os._exit(0)
status = os.waitpid(child, 0)[1]
thread.join()
assert status == 0 and gc.isenabled()
"""


@pytest.mark.parametrize(
    ("collecting", "frozen"), [(True, False), (True, True), (False, False)]
)
def test_a_first_call(collecting: bool, frozen: bool, tmp_path: Path) -> None:
    succeeds(PROGRAM.format(collecting=collecting, frozen=frozen), tmp_path)


def test_a_finalizer_may_make_the_first_call(tmp_path: Path) -> None:
    """What is collected in front of the imports is the program's, and may compile."""
    succeeds(FINALIZER, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_the_imports(tmp_path: Path) -> None:
    succeeds(FORK, tmp_path)


def succeeds(program: str, folder: Path) -> None:
    """Runs a program in a process of its own."""
    script = folder / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
