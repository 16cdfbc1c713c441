"""Every example in docs/breaks.md gives the message that stands under it.

`pytest tests/seeing/test_break_docs.py --bless` writes the messages anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
from pathlib import Path

import pytest
import torch

import srcjit
from srcjit.diagnostics import CODES, GraphBreakError
from srcjit.options import forced

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "breaks.md"
SECTION = re.compile(
    r"\n## (SJ\d{3})\n.*?```python\n(.*?)```\n(?:\n```text\n(.*?)\n```\n)?", re.DOTALL
)
FAULT = "SJ900"
"""The code of what no program should meet."""


def _examples() -> dict[str, tuple[str, str]]:
    found = {}
    for section in FILE.read_text(encoding="utf-8").split("\n## ")[1:]:
        match = SECTION.match(f"\n## {section}")
        if match:
            found[match[1]] = (match[2], match[3] or "")
    return found


EXAMPLES = _examples()


def test_every_code_has_an_example_and_its_message():
    assert [*EXAMPLES, FAULT] == list(CODES)


def test_every_code_is_raised_somewhere():
    sources = [*(ROOT / "passes").rglob("*.py"), *(ROOT / "srcjit").glob("*.py")]
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in sources
        if path.name != "diagnostics.py" or "passes" in path.parts
    )
    raised = set(re.findall(r"SJ\d{3}", text))
    assert raised == set(CODES)


def _run(code: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    file = directory / "example.py"
    file.write_text(EXAMPLES[code][0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"example_{code.lower()}", file)
    module = importlib.util.module_from_spec(spec)
    module.torch, module.srcjit = torch, srcjit
    srcjit.reset()
    try:
        with forced(stage="specialize"):
            spec.loader.exec_module(module)
    finally:
        if hasattr(module, "library"):  # its operators can be defined once
            module.library._destroy()


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if m.startswith("graph break[")]


@pytest.mark.filterwarnings("ignore")  # of PyTorch, in the example that is about them
@pytest.mark.parametrize("code", EXAMPLES)
def test_example(code, tmp_path, monkeypatch, caplog, bless):
    with caplog.at_level(logging.INFO, logger="srcjit.breaks"):
        _run(code, tmp_path, monkeypatch)
    assert FAULT not in caplog.text
    message = next(m for m in _messages(caplog) if m.startswith(f"graph break[{code}]"))
    message = message.replace(str(tmp_path), "/path/to")
    if bless:
        _write(code, message)
    else:
        assert message == EXAMPLES[code][1]


def _write(code: str, message: str) -> None:
    text = FILE.read_text(encoding="utf-8")
    start = text.index(f"\n## {code}\n")
    match = SECTION.match(text, start)
    assert match is not None
    program = text[start : match.end(2) + len("```\n")]
    text = f"{text[:start]}{program}\n```text\n{message}\n```\n{text[match.end() :]}"
    FILE.write_text(text, encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", EXAMPLES)
def test_fullgraph_raises_with_the_same_text(code, tmp_path, monkeypatch, caplog):
    with caplog.at_level(logging.INFO, logger="srcjit.breaks"):
        _run(code, tmp_path, monkeypatch)
    first = _messages(caplog)[0]
    real, raised = srcjit.jit, []

    def strict(fn):
        with _noted(raised):
            stub = real(fn, fullgraph=True, options={"stage": "specialize"})

        def call(*args):
            with _noted(raised):
                return stub(*args)

        return call

    monkeypatch.setattr(srcjit, "jit", strict)
    with contextlib.suppress(GraphBreakError):
        _run(code, tmp_path, monkeypatch)
    text = str(raised[0])
    assert text == f"`fullgraph=True` allows no graph break\n{first}"


@contextlib.contextmanager
def _noted(raised: list[GraphBreakError]):
    """Notes the error also where the example catches it."""
    try:
        yield
    except GraphBreakError as error:
        raised.append(error)
        raise
