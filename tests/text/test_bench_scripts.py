"""Each program of `bench/` runs as a script and with `-m`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize(
    "path",
    [p for p in BENCH.glob("*.py") if "test_" not in p.name],
    ids=lambda p: p.stem,
)
def test_a_script_finds_the_package_that_it_is_in(path: Path) -> None:
    tree = ast.parse(path.read_text())
    own = [
        node.lineno
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench")
    ]
    mains = [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.If)
        and "__main__" in ast.unparse(node.test)
        and (not own or node.lineno < min(own))
    ]
    runs = "argparse" in path.read_text()
    if own and runs:
        assert any("sys.path[0] = " in text for text in mains)
