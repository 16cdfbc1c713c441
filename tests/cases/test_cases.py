"""Golden programs: what the pipeline makes of them, as a reader sees it.

A case is a file `NAME.txt`: flags, the program, and behind `# output` the text of the stage for
every function that was specialized on the way, with a line that counts what is in it. `pytest
tests/cases --bless` takes what comes out now as expected.
"""

from __future__ import annotations

import contextlib
import io
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import srcjit
from srcjit.explain import Record, recording
from srcjit.passes.lowerings import gathers, scatters
from tests.harness import no_faults

DIRECTORY = Path(__file__).parent
CASES = sorted(path.stem for path in DIRECTORY.glob("*.txt"))
OUTPUT = "# output\n"


def _program(path: Path) -> tuple[dict[str, str], str, str]:
    """The flags (`# flag: value` at the top), the program and the expected output."""
    text = path.read_text(encoding="utf-8")
    program, _, expected = text.partition(OUTPUT)
    flags = {}
    for line in program.splitlines():
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(": ")
        flags[key] = value
    return flags, program, expected


def _namespace(path: Path, program: str) -> dict[str, Any]:
    """Runs the program under a name without directories, which linecache knows."""
    name = f"{path.stem}.py"
    linecache.cache[name] = (
        len(program),
        None,
        program.splitlines(keepends=True),
        name,
    )
    space: dict[str, Any] = {"__name__": path.stem, "torch": torch}
    exec(compile(program, name, "exec"), space)
    return space


def _called(call: str, space: dict[str, Any], function: Any) -> tuple[Any, str]:
    stdout = io.StringIO()
    head, _, rest = call.partition("(")
    scope = {**space, head: function}
    with contextlib.redirect_stdout(stdout):
        try:
            result = eval(f"{head}({rest}", scope)
        except Exception as exception:
            result = repr(exception)
    return result, stdout.getvalue()


def _texts(records: list[Record], stage: str) -> Iterator[str]:
    for record in records:
        for specialization in record.specializations:
            text = specialization.stage_text(stage)
            body = text[text.index("# ── segment") if "# ── segment" in text else 0 :]
            if "# ── segment" not in text:
                body = text[text.index("# ── res") :] if "# ── res" in text else text
            made = specialization.specialized
            yield (
                f"{body.rstrip()}\n\n# segments: {len(made.segments)} "
                f"breaks: {len(made.breaks)} kernels: {specialization.kernels} "
                f"guards: {len(made.guards.guards)}\n"
            )


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, bless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DIRECTORY / f"{name}.txt"
    flags, program, expected = _program(path)
    stage, calls = flags["stage"], flags["call"].split("; ")
    eager = _namespace(path, program)
    space = _namespace(path, program)
    head = calls[0].partition("(")[0]
    options = {"stage": stage, "target": flags.get("target", "auto")}
    runs = options["target"] != "triton"
    if not runs:
        # Here is no GPU; `tests.triton` runs such kernels in Triton's interpreter.
        pytest.importorskip("triton")
        monkeypatch.setattr("srcjit.runtime.launch", lambda *_, **__: None)
    if flags.get("like") == "cuda":
        # Kernels check indices and add atomically, as where eager does.
        monkeypatch.setattr(gathers, "CHECKED", {"cpu"})
        monkeypatch.setattr(scatters, "ATOMIC", {"cpu"})
    with no_faults(), recording() as found:
        jitted = srcjit.jit(space[head], options=options)
        for call in calls:
            got, printed = _called(call, space, jitted)
            wanted, shown = _called(call, eager, eager[head])
            if runs:
                torch.testing.assert_close(got, wanted)
            assert printed == shown
    output = "\n".join(_texts(found.records, stage))
    compile(output, name, "exec")
    if bless:
        path.write_text(program + OUTPUT + output, encoding="utf-8")
    else:
        assert output == expected, "run `pytest tests/cases --bless` if this is meant"
