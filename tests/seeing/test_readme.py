"""What the README shows is what srcjit does."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from srcjit.cli import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
EMITTED = re.compile(r"(<!-- emitted[^\n]*-->\n```python\n)(.*?)(```)", re.DOTALL)


def behind_guards(module):
    """The module's text from its first kernel on."""
    return module[module.index("# ── segment 0") :].rstrip() + "\n"


def test_emitted_code_is_real(tmp_path, monkeypatch, bless):
    text = README.read_text(encoding="utf-8")
    script = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    assert len([line for line in script.splitlines() if line]) <= 10
    monkeypatch.chdir(tmp_path)
    Path("gate.py").write_text(script, encoding="utf-8")
    result = CliRunner().invoke(main, ["emit", "gate.py"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    _, *modules = result.stdout.split("# srcjit ")
    emitted = [behind_guards(module) for module in modules]
    if bless:
        pieces = iter(emitted)
        text = EMITTED.sub(lambda m: m[1] + next(pieces) + m[3], text)
        README.write_text(text, encoding="utf-8")
    assert [match[1] for match in EMITTED.findall(text)] == emitted


def test_commands_of_ci_are_the_readmes():
    text = README.read_text(encoding="utf-8")
    commands = re.findall(r"^    (python3 -m venv .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in commands:
        last = command.split(" && ")[-1]
        assert last in ci
