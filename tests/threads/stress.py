"""Eight threads call one jitted function with changing shapes: `python -m tests.threads.stress`.

Each program is called by all threads at once, every answer is compared with eager's, and what is
compiled is counted by key: the dispatcher and the guards with the program that they admit to.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import srcjit
from srcjit import control

THREADS = 8


@dataclass
class Outcome:
    """What came of one program.

    Attributes:
        wrong: Descriptions of wrong results, exceptions and faults.
        compiled: How often each specialization was compiled.
        calls: Calls that were made.
    """

    wrong: list[str] = field(default_factory=list)
    compiled: Counter[Any] = field(default_factory=Counter)
    calls: int = 0

    @property
    def twice(self) -> list[Any]:
        """Specializations that were compiled more than once."""
        return [key for key, count in self.compiled.items() if count > 1]


# ── Programs ────────────────────────────────────────────────────────────────────────


def shapes(x, k):
    """No break; sizes, a number and a branch on a size change."""
    y = x.sin() * k
    if x.shape[0] > 4:
        y = y + 1
    return y.cos()


def breaks(x, log):
    """Resume functions, a branch on data and a loop over what Python made."""
    y = x.sin()
    log.append(y.sum().item())
    z = y * 2
    if z.sum() > 0:
        z = z + 1
    for value in log[-1:]:
        z = z * value
    return z.cos()


def raises(x, table, key):
    """A handler of the user's, and an exception that leaves the function."""
    y = x.sin()
    try:
        y = y * table[key]
    except KeyError:
        y = y - 1
    if key == "bad":
        raise ValueError(key)
    return y.cos()


class Layer(nn.Module):
    """Shared parameters; state in an argument that is each thread's own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x, state):
        state["calls"] += 1
        state["last"] = h = self.linear(x)
        with torch.no_grad():
            mean = h.mean()
        return h - mean


def graded(x, w):
    """Called with gradients on in half of the threads."""
    return (x * w).sin().sum()


def descend(x, depth):
    """Calls its own jitted form."""
    if depth == 0:
        return x.cos()
    return JITTED["descend"](x + 1, depth - 1).sin()


JITTED: dict[str, Any] = {}


def _shapes(thread: int, i: int) -> tuple[Any, ...]:
    return torch.linspace(-1, 1, 1 + (i * 7 + thread) % 13), i % 3 + 1


def _breaks(thread: int, i: int) -> tuple[Any, ...]:
    return torch.linspace(-1, 1.5, 2 + (i * 7 + thread) % 13), []


def _raises(thread: int, i: int) -> tuple[Any, ...]:
    key = ("a", "none", "bad")[(i + thread) % 3]
    return torch.linspace(-1, 1, 2 + i % 5), {"a": 2.0}, key


def _layer(thread: int, i: int) -> tuple[Any, ...]:
    return torch.full((2 + (i + thread) % 5, 8), float(i % 4)), {"calls": i}


def _graded(thread: int, i: int) -> tuple[Any, ...]:
    return torch.arange(3.0) + i % 9, torch.ones(3, requires_grad=True)


def _descend(thread: int, i: int) -> tuple[Any, ...]:
    return torch.linspace(-1, 1, 2 + (i + thread) % 4), (i + thread) % 3


PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[int, int], tuple[Any, ...]]]] = {
    "shapes": (lambda: shapes, _shapes),
    "breaks": (lambda: breaks, _breaks),
    "raises": (lambda: raises, _raises),
    "module": (Layer, _layer),
    "grad mode": (lambda: graded, _graded),
    "recursion": (lambda: descend, _descend),
}

# ── Running ─────────────────────────────────────────────────────────────────────────


def _observed(call: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What a call returns or raises, what it leaves in its arguments, and gradients."""
    try:
        result = call(*arguments)
    except Exception as error:
        result = repr(error)
    weights = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    needs = isinstance(result, torch.Tensor) and result.requires_grad
    if needs and weights:
        result.backward()
    return [result, needs, *arguments, *(w.grad for w in weights)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.allclose(a, b, atol=1e-5)
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b or (isinstance(a, float) and abs(a - b) < 1e-5)


def run(name: str, calls: int, threads: int = THREADS) -> Outcome:
    """Calls one program `calls` times in each thread."""
    make, arguments = PROGRAMS[name]
    eager = make()
    jitted = JITTED[name] = srcjit.jit(eager)
    if name == "recursion":
        JITTED["descend"] = jitted
    outcome = Outcome()
    barrier = threading.Barrier(threads)

    def observe(event: control.Event, dispatcher: Any, detail: Any) -> None:
        if event == "specialized":
            outcome.compiled[id(dispatcher), detail.text] += 1
        elif event == "stopped" or "limit" in str(detail):
            outcome.wrong.append(str(detail))

    def work(thread: int) -> None:
        barrier.wait()
        with torch.set_grad_enabled(name != "grad mode" or thread % 2 == 0):
            for i in range(calls):
                wanted = _observed(eager, arguments(thread, i))
                found = _observed(jitted, arguments(thread, i))
                if not _same(wanted, found):
                    outcome.wrong.append(
                        f"thread {thread}, call {i}: {found}, {wanted}"
                    )
                if outcome.wrong:
                    return
                outcome.calls += 1  # of all threads: only roughly exact, and only shown

    control.observers.append(observe)
    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        control.observers.remove(observe)
    return outcome


def main() -> None:
    """Runs all programs and prints what came of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000, help="calls of each thread")
    parser.add_argument("--rounds", type=int, default=1, help="with cold caches each")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(60 + options.rounds * 60, exit=True)
    for turn in range(options.rounds):
        srcjit.reset()
        for name in PROGRAMS:
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                outcome = run(name, options.calls)
            seconds = time.perf_counter() - start
            print(
                f"{turn}: {name}: {THREADS} x {options.calls} calls, {seconds:.1f} s, "
                f"{len(outcome.compiled)} specializations, {len(outcome.twice)} compiled "
                f"twice, wrong: {outcome.wrong[:1] or 'none'}"
            )


if __name__ == "__main__":
    main()
