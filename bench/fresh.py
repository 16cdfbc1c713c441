"""New processes in which first calls are timed: what they get, and what they say.

NOTE: it imports nothing of a compiler's, whose imports are part of its first call.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping


def with_bytecode() -> dict[str, str]:
    """The environment, but with bytecode written and kept, as that of PyTorch's modules is.

    Where it is not, every process compiles all of a checkout's modules anew; installed ones
    were compiled by pip.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def with_caches(folder: str) -> dict[str, str]:
    """The environment `with_bytecode`, and with the caches of all compilers in one folder."""
    return {
        **with_bytecode(),
        "SRCJIT_CACHE_DIR": f"{folder}/srcjit",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }


def last_line(
    *arguments: str, environment: Mapping[str, str] | None = None, quiet: bool = True
) -> str:
    """Runs Python with these arguments; returns the last line that it prints.

    Args:
        arguments: Of Python.
        environment: Its environment variables, if not those of this process.
        quiet: Its errors are not shown.

    Raises:
        subprocess.CalledProcessError: If it fails.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
    )
    return done.stdout.splitlines()[-1]
