"""Every place of the compiler that raises a break has a program that meets it, and its text.

A file of `reasons/` holds programs, each with a title, and behind `---` the messages that it
gives. A program defines `f`, which is called with a tensor of three ones.
`pytest tests/seeing/test_reasons.py --bless` writes the messages anew.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import logging
import re
import sys
from pathlib import Path

import pytest
import torch

import srcjit
from srcjit.diagnostics import CODES, GraphBreak, GraphBreakError

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "reasons"
TITLE = re.compile(r"^=== (.+)\n", re.MULTILINE)

Site = tuple[str, int]
"""A file below the repository and a line."""


def _cases() -> dict[str, tuple[Path, str, str]]:
    found = {}
    for file in sorted(FOLDER.glob("*.txt")):
        _, *parts = TITLE.split(file.read_text(encoding="utf-8"))
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            program, _, expected = body.partition("---\n")
            name = f"{file.stem}: {title}"
            assert name not in found, name
            found[name] = (file, program.strip("\n"), expected.strip("\n"))
    return found


CASES = _cases()


def _places() -> dict[Site, str]:
    """The lines of each call that makes a break, and its code and reason."""
    found = {}
    for file in sorted((ROOT / "passes").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        name = file.relative_to(ROOT / "passes").as_posix()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            code, reason = node.args[:2]
            if not isinstance(code, ast.Constant) or code.value not in CODES:
                continue
            if isinstance(node.func, ast.Name) and node.func.id.endswith("Break"):
                text = f"{code.value} {_spelled(reason)}"
                for line in range(node.lineno, (node.end_lineno or 0) + 1):
                    found[name, line] = text
    return found


def _spelled(reason: ast.expr) -> str:
    text = ast.unparse(reason)
    return text if not isinstance(reason, ast.Constant) else str(reason.value)


PLACES = _places()


@pytest.fixture(scope="module")
def met() -> set[str]:
    """What the programs have met, as far as they have run."""
    return set()


@contextlib.contextmanager
def _watched(raised: list[tuple[Site, str]]):
    """Notes from where each break is raised, and what it says."""
    real = GraphBreak.__init__

    def noting(self, code, message, *args, **kwargs):
        real(self, code, message, *args, **kwargs)
        caller = sys._getframe(1)
        if caller.f_code.co_name == "__init__":
            caller = caller.f_back
        file = Path(caller.f_code.co_filename)
        if "passes" in file.parts:
            at = len(file.parts) - file.parts[::-1].index("passes")
            raised.append((("/".join(file.parts[at:]), caller.f_lineno), message))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphBreak, "__init__", noting)
        yield


def _run(program: str, directory: Path, **options: object) -> None:
    """Runs a program; the exceptions of its own are no matter here."""
    file = directory / "example.py"
    file.write_text(program + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("example", file)
    module = importlib.util.module_from_spec(spec)
    module.torch, module.srcjit = torch, srcjit
    srcjit.reset()
    before = torch.is_grad_enabled()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "example", module)
            spec.loader.exec_module(module)
            f = srcjit.jit(module.f, options={"stage": "specialize"}, **options)
            f(torch.ones(3))
    finally:
        torch.set_grad_enabled(before)
        if hasattr(module, "library"):
            module.library._destroy()
        if hasattr(module, "cleanup"):
            module.cleanup()


def _messages(caplog: pytest.LogCaptureFixture, directory: Path) -> list[str]:
    texts = [m for m in caplog.messages if m.startswith("graph break[")]
    return [m.replace(str(directory), "/path/to") for m in texts]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_reason(name, tmp_path, monkeypatch, caplog, bless, met, capsys):
    file, program, expected = CASES[name]
    monkeypatch.chdir(tmp_path)
    raised: list[tuple[Site, str]] = []
    with (
        caplog.at_level(logging.INFO, logger="srcjit"),
        _watched(raised),
        contextlib.suppress(Exception),
    ):
        _run(program, tmp_path)
    assert "SJ900" not in caplog.text, caplog.text
    messages = _messages(caplog, tmp_path)
    text = "\n".join(messages)
    met |= {
        PLACES[site] for site, message in raised if site in PLACES and message in text
    }
    assert all(re.search(r"\n +\= help: ", m) for m in messages)
    if bless:
        _write(file, name.partition(": ")[2], program, text)
        return
    assert text == expected
    with pytest.raises(GraphBreakError) as strict:
        _run(program, tmp_path, fullgraph=True)
    found = str(strict.value).replace(str(tmp_path), "/path/to")
    assert found == f"`fullgraph=True` allows no graph break\n{messages[0]}"


def _write(file: Path, title: str, program: str, text: str) -> None:
    whole = file.read_text(encoding="utf-8")
    start = whole.index(f"=== {title}\n")
    end = whole.find("\n=== ", start)
    end = len(whole) if end < 0 else end + 1
    part = f"=== {title}\n{program}\n---\n{text}\n"
    if end < len(whole):
        part += "\n"
    file.write_text(whole[:start] + part + whole[end:], encoding="utf-8")


def test_every_reason_has_a_program(met, request):
    run = {
        i.callspec.params["name"]
        for i in request.session.items
        if "name" in getattr(getattr(i, "callspec", None), "params", {})
    }
    if not run >= set(CASES):
        pytest.skip("not all programs have run")
    assert sorted(set(PLACES.values()) - met) == []
