"""What new processes get in which first calls are timed.

NOTE: it imports nothing of a compiler's, whose imports are part of its first call.
"""

from __future__ import annotations

import os


def with_bytecode() -> dict[str, str]:
    """The environment, but with bytecode written and kept, as that of PyTorch's modules is.

    Where it is not, every process compiles all of a checkout's modules anew; installed ones
    were compiled by pip.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
