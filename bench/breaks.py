"""What a graph break costs, beside TorchDynamo: `python -m bench.breaks`.

Each program of `bench.break_programs` is called under `srcjit.jit` and under `torch.compile`, in
one process, with equal arguments, and must return and print what eager does.

How it is counted: both compilers get the *same* backend, `Counter`, which runs each graph that
it is handed node by node and counts, each time the graph runs, the nodes that are tensor
operations: calls that take or return a tensor, taking an item out of a tuple not among them. So
an operation in the body of a loop counts once for every iteration, whether the compiler unrolled
the loop or compiled its body once; and an operation that was left to Python, or a graph that is
compiled and not run, counts nothing. *Graphs* are those that were compiled; *breaks* and the
operations in all compiled graphs are what `srcjit.explain` and `torch._dynamo.explain` report for
the first call; *gave up* is a frame that Dynamo leaves to Python as a whole.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

if __name__ == "__main__":  # as a script, this folder is what Python looks into
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import srcjit
from bench.break_programs import PROGRAMS


class Counter:
    """A `torch.compile` backend that counts the tensor operations that run in its graphs.

    Attributes:
        graphs: Graphs that were compiled.
        ran: Tensor operations that have run in them.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.ran = 0

    def __call__(
        self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Takes one graph."""
        self.graphs += 1
        counting = _Counting(graph_module, self)
        return counting.run


class _Counting(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, counter: Counter) -> None:
        super().__init__(module)
        self._counter = counter

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n.op.startswith("call_"):
            taken = self.fetch_args_kwargs_from_env(n)
            picks = n.target is operator.getitem and isinstance(
                taken[0][0], (tuple, list)
            )
            leaves = pytree.tree_leaves((taken, result))
            if not picks and any(isinstance(leaf, torch.Tensor) for leaf in leaves):
                self._counter.ran += 1
        return result


@dataclass(frozen=True)
class Count:
    """What one compiler made of one program.

    Attributes:
        graphs: Graphs compiled in all calls.
        breaks: Graph breaks, as `explain` counts them in the first call.
        ops: Operations in the graphs of the first call, as `explain` counts them.
        ran: Tensor operations that ran in graphs, in all calls.
        same: Whether all calls gave eager's results and text.
    """

    graphs: int
    breaks: int
    ops: int
    ran: int
    same: bool


def by_srcjit(name: str) -> Count:
    """Counts what srcjit traces of a program."""
    counter = Counter()
    function, calls = PROGRAMS[name]()
    srcjit.reset()
    same = _as_eager(name, srcjit.jit(function, backend=counter))
    with contextlib.redirect_stdout(io.StringIO()):
        found = srcjit.explain(function, backend="eager")(*calls[0])
    return Count(
        counter.graphs, found.graph_break_count, found.op_count, counter.ran, same
    )


def by_dynamo(name: str) -> Count:
    """Counts what TorchDynamo traces of a program."""
    counter = Counter()
    function, calls = PROGRAMS[name]()
    torch._dynamo.reset()
    same = _as_eager(name, torch.compile(function, backend=counter))
    torch._dynamo.reset()
    with contextlib.redirect_stdout(io.StringIO()):
        found = torch._dynamo.explain(function)(*calls[0])
    torch._dynamo.reset()
    return Count(
        counter.graphs, found.graph_break_count, found.op_count, counter.ran, same
    )


def _as_eager(name: str, compiled: Callable[..., Any]) -> bool:
    """Makes all calls of a program; true if results and printed text are eager's."""
    eager, expected = PROGRAMS[name]()
    _, calls = PROGRAMS[name]()
    same = True
    for wanted, arguments in zip(expected, calls, strict=True):
        text, printed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(text):
            answer = eager(*wanted)
        with contextlib.redirect_stdout(printed):
            result = compiled(*arguments)
        same &= text.getvalue() == printed.getvalue()
        same &= torch.allclose(answer, result) and _plain(wanted) == _plain(arguments)
    return same


def _plain(arguments: tuple[Any, ...]) -> list[Any]:
    """What a call left in its arguments, tensors aside."""
    return [a for a in arguments if not isinstance(a, torch.Tensor)]


def row(name: str, ours: Count, theirs: Count) -> str:
    """One line of the table."""
    mark = "" if ours.same else " (differs!)"
    their_mark = "" if theirs.same else " (differs!)"
    cells = [
        name.replace("_", " "),
        f"{ours.graphs} / {theirs.graphs}",
        f"{ours.breaks} / {theirs.breaks if theirs.breaks >= 0 else 'gave up'}",
        f"{ours.ops} / {theirs.ops}",
        f"**{ours.ran}**{mark} / {theirs.ran}{their_mark}",
    ]
    return f"| {' | '.join(cells)} |"


HEADING = """\
| program | graphs compiled: srcjit / Dynamo | breaks | operations in graphs | tensor operations run in graphs |
|---|---|---|---|---|"""


def main() -> None:
    """Prints the table for the programs named, or for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    names = parser.parse_args().programs or list(PROGRAMS)
    if unknown := set(names) - set(PROGRAMS):
        parser.error(
            f"unknown program {min(unknown)!r}; there are {', '.join(PROGRAMS)}"
        )
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    print(HEADING)
    totals = [0, 0]
    for name in names:
        ours, theirs = by_srcjit(name), by_dynamo(name)
        totals = [totals[0] + ours.ran, totals[1] + theirs.ran]
        print(row(name, ours, theirs), flush=True)
    print(f"\nTensor operations run in graphs: srcjit {totals[0]}, Dynamo {totals[1]}.")


if __name__ == "__main__":
    main()
