"""Every example in docs/breaks.md breaks with the code that it stands under."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import srcjit
from srcjit.diagnostics import CODES
from srcjit.explain import recording
from srcjit.options import forced

TEXT = (Path(__file__).parents[2] / "docs" / "breaks.md").read_text(encoding="utf-8")
EXAMPLES = {
    section[:5]: re.search(r"```python\n(.*?)```", section, re.DOTALL)
    for section in TEXT.split("\n## ")[1:]
}


RARE = {"SJ011", "SJ900"}
"""Codes that no short program of a user's meets."""


def test_every_code_has_an_example():
    assert {code for code, match in EXAMPLES.items() if match is None} == RARE
    assert EXAMPLES.keys() == CODES.keys()


@pytest.mark.parametrize("code", [code for code in CODES if code not in RARE])
def test_example(code, tmp_path, monkeypatch, caplog):
    match = EXAMPLES[code]
    assert match is not None
    file = tmp_path / f"example_{code.lower()}.py"
    # The block keeps its place in the file, so that spans show the example's own lines.
    file.write_text("import torch\n\nimport srcjit\n\n\n" + match[1], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    srcjit.reset()
    with forced(stage="specialize"), recording() as records:
        spec.loader.exec_module(module)
    found = {d.code for record in records.records for d in record.breaks}
    # What `jit` refuses has no dispatcher, and only a warning tells of it.
    found |= set(re.findall(r"SJ\d{3}", caplog.text))
    assert "SJ900" not in found, caplog.text
    assert code in found
