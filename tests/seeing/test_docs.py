"""What the documents point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PATH = re.compile(r"`((?:srcjit|passes|tests|docs|examples|bench)/[\w/.]*)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_exist(document):
    text = document.read_text(encoding="utf-8")
    missing = [name for name in PATH.findall(text) if not (ROOT / name).exists()]
    missing += [n for n in LINK.findall(text) if not (document.parent / n).exists()]
    assert not missing
