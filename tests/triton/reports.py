"""What programs say that run in Triton's interpreter, which needs a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def reports_of(
    module: str, *arguments: str, statuses: Container[int] = (0,)
) -> dict[str, dict[str, Any]]:
    """Runs a module, which prints a JSON line with a `name` for each of its cases.

    Args:
        module: Its dotted name.
        *arguments: Its command line.
        statuses: Exit statuses of a run that went through.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode in statuses, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {line["name"]: line for line in lines}
