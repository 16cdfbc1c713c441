"""`srcjit bisect`: names the first stage of the pipeline whose program is wrong.

Every stage is a runnable program, so the script is run once with eager PyTorch and once at
each stage, each time in a process of its own, and the calls of jitted functions are
compared: results, arguments afterwards, printed text, exceptions. A process of its own
means that a kernel that crashes is found as well, and that no run sees another's state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from srcjit.diagnostics import UserError
from srcjit.observe import View, difference, layout
from srcjit.options import STAGES, forced
from srcjit.script import ScriptFailed, compile_script

if TYPE_CHECKING:
    from srcjit.cli import Request
    from srcjit.dispatch import Dispatcher

EAGER = "eager"
MAX_CALLS = 500
"""Calls that are compared; a longer run is cut off there."""

SLACK = 20.0
"""Times the usual tolerance: in a training loop, rounding differences add up."""

Call = dict[str, Any]
"""Name, structure, numbers, tensors, layout, printed text and exception of one call."""


def compare_stages(request: Request) -> Iterator[tuple[str, bool]]:
    """Runs the script at each stage until one differs; yields lines, and whether all agrees.

    Raises:
        UserError: Nothing was jitted, or the request is wrong.
        ScriptFailed: The script itself raises, with eager PyTorch.
    """
    compile_script(request.path)
    with _Runner(request) as runner:
        yield from _compare(runner, request)


def _compare(runner: _Runner, request: Request) -> Iterator[tuple[str, bool]]:
    expected = runner.run(EAGER)
    if expected.get("error"):
        raise UserError(expected["error"])
    if expected.get("failed"):
        raise ScriptFailed(expected["failed"])
    if not expected["calls"]:
        raise UserError(
            f"{request.path}: no jitted function was called; "
            "say how to call one with --fn and --args"
        )
    count = len(expected["calls"])
    more = " (and no more than that)" if count == MAX_CALLS else ""
    plural = "s" if count != 1 else ""
    yield f"eager       {count} call{plural} of jitted functions{more}", True
    for stage in STAGES:
        actual = runner.run(stage)
        found = _first_difference(expected, actual)
        faults = "".join(f"\n            {fault}" for fault in actual.get("faults", ()))
        if found:
            yield f"{stage:<11} differs: {found}{faults}", False
            yield f"the first stage that differs is `{stage}`", False
            return
        yield f"{stage:<11} agrees{faults}", True
    yield "every stage agrees with eager PyTorch", True


def _first_difference(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """Says how a run differs from the eager one; empty if it does not."""
    for key in ("crashed", "error", "failed"):
        if actual.get(key):
            return str(actual[key])
    for number, wanted in enumerate(expected["calls"], 1):
        if number > len(actual["calls"]):
            return f"only {len(actual['calls'])} calls instead of {number} or more"
        what = _call_difference(wanted, actual["calls"][number - 1])
        if what:
            return f"call {number}, `{wanted['name']}`: {what}"
    if len(actual["calls"]) > len(expected["calls"]):
        return "more calls than with eager PyTorch"
    return ""


def _call_difference(wanted: Call, got: Call) -> str:
    if wanted["name"] != got["name"]:
        return f"`{got['name']}` was called instead"
    if wanted["exception"] != got["exception"]:
        return f"{_raised(got)} instead of {_raised(wanted)}"
    for key, what in (
        ("printed", "the printed text differs"),
        ("structure", "the structure of results or arguments differs"),
        ("layout", "layout, aliasing or `requires_grad` of a tensor differs"),
    ):
        if wanted[key] != got[key]:
            return what
    pairs = [(torch.tensor(got["numbers"]), torch.tensor(wanted["numbers"]))]
    pairs += list(zip(got["tensors"], wanted["tensors"], strict=True))
    return next(filter(None, (difference(a, b, SLACK) for a, b in pairs)), "")


def _raised(call: Call) -> str:
    return f"raises {call['exception']}" if call["exception"] else "returns"


# ── The runs, seen from outside ─────────────────────────────────────────────────────


class _Runner:
    """Runs the script at any stage in a process of its own.

    A server process imports PyTorch once and forks for each run, before PyTorch has
    started any thread; where there is no fork, each run is a new process.
    """

    def __init__(self, request: Request) -> None:
        self.request = request

    def __enter__(self) -> _Runner:
        self._folder = tempfile.TemporaryDirectory(prefix="srcjit-bisect-")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "srcjit.bisect"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.communicate()
        self._folder.cleanup()

    def run(self, stage: str) -> dict[str, Any]:
        """Returns what the run has recorded, or how it crashed."""
        output = Path(self._folder.name, f"{stage}.pt")
        task = {
            "request": dataclasses.asdict(self.request),
            "stage": stage,
            "output": str(output),
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(task), file=self._server.stdin, flush=True)
        status = int(self._server.stdout.readline() or -signal.SIGABRT)
        if status < 0:
            name = signal.Signals(-status).name
            return {"crashed": f"the process died of {name}", "calls": []}
        if not output.exists():
            error = _error_file(output).read_text(errors="replace").strip()
            return {"crashed": error or "no result", "calls": []}
        recorded: dict[str, Any] = torch.load(output, weights_only=True)
        return recorded


def _error_file(output: Path) -> Path:
    return output.with_suffix(".err")


def _environment() -> dict[str, str]:
    """The child imports this very package, and iterates over sets in one order."""
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}


# ── A run, seen from inside ───────────────────────────────────────────────────────


class _Recorder:
    """A tap on all dispatch stubs that takes down each call from outside.

    Attributes:
        listening: False inside a call, and when enough has been recorded.
        calls: What has been recorded.
    """

    def __init__(self) -> None:
        self.listening = True
        self.calls: list[Call] = []

    def call(self, dispatcher: Dispatcher, /, *args: Any, **kwargs: Any) -> Any:
        """Makes one call and takes down what can be observed of it."""
        result, error, printed = None, "", io.StringIO()
        self.listening = False
        try:
            with contextlib.redirect_stdout(printed):
                result = dispatcher.stub(*args, **kwargs)
            return result
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            raise
        finally:
            view = View()
            structure = view.of([result, args, kwargs])
            self.calls.append(
                {
                    "name": dispatcher.function.__qualname__,
                    "structure": structure,
                    "numbers": view.numbers,
                    "tensors": [t.detach().clone() for t in view.tensors],
                    "layout": layout(view.tensors),
                    # Digits of a printed float may differ where the float may.
                    "printed": re.sub(r"\d[\d.e+-]*", "#", printed.getvalue()),
                    "exception": error,
                }
            )
            self.listening = len(self.calls) < MAX_CALLS
            sys.stdout.write(printed.getvalue())


def _record(task: dict[str, Any]) -> None:
    """Runs the script in this process and saves its calls."""
    import numpy as np

    # What the script prints is not the answer of the server.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    errors = _error_file(Path(task["output"]))
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)

    from srcjit import control
    from srcjit.cli import Request, look_up, perform, qualified_names
    from srcjit.explain import recording

    request, stage = Request(**task["request"]), task["stage"]
    recorder = control.tap = _Recorder()
    if stage == EAGER:
        control.set_stance("force_eager")
    found: dict[str, Any] = {"calls": recorder.calls}
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    options = {} if stage == EAGER else {"stage": stage}
    with forced(**options), recording() as records:
        try:
            namespace = perform(request, lambda: bool(recorder.calls))
            if request.fn is not None and request.args is None:
                names = qualified_names(namespace, request)
                found["calls"] = [c for c in recorder.calls if c["name"] in names]
                if not found["calls"]:
                    look_up(namespace, request)
        except UserError as error:
            found["error"] = str(error)
        except ScriptFailed as error:
            found["failed"] = error.text
    stopped = [r.stopped for r in records.records if r.stopped is not None]
    found["faults"] = [str(d) for d in stopped if d.severity == "compiler fault"]
    torch.save(found, task["output"])


def _isolated(task: dict[str, Any]) -> int:
    """Does a task in a new process; returns its status, negative for a signal."""
    if not hasattr(os, "fork"):
        command = [sys.executable, "-m", "srcjit.bisect", json.dumps(task)]
        return subprocess.run(command, check=False).returncode
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _record(task)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve() -> None:
    """Does the tasks that come in, one a line, and answers each with a status."""
    import srcjit.cli
    import srcjit.explain
    import srcjit.jit
    import srcjit.passes.pipeline
    import srcjit.passes.segment  # noqa: F401

    for line in sys.stdin:
        print(_isolated(json.loads(line)), flush=True)


if __name__ == "__main__":
    # Imported under its own name, so that there is one copy of each class.
    from srcjit import bisect

    if len(sys.argv) > 1:
        bisect._record(json.loads(sys.argv[1]))
    else:
        bisect._serve()
