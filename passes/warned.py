"""What operations warn about when they are tried on fake tensors.

    with silence:                       # for the whole of a compile
        with noted() as texts:
            torch.ones(2, 3, 4).T       # nothing is shown
        assert texts                    # so the operation is left to Python

Python then warns, at the user's line, as often as it does without a compiler.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any


class Silence(threading.local):
    """A filter of `warnings` that ignores everything in the threads that compile.

    It stands in the process's list of filters as the pattern of a message. The list is
    changed in place, and its version is not: otherwise every module would forget what it
    has warned about, and warn of it again.

    Attributes:
        depth: How many blocks this thread is in.
        noted: Takes the text of what is ignored, if anybody wants it.
    """

    depth = 0
    noted: list[str] | None = None

    def __enter__(self) -> None:
        self.depth += 1
        if not (warnings.filters and warnings.filters[0] is _FILTER):
            warnings.filters.insert(0, _FILTER)  # type: ignore[attr-defined]

    def __exit__(self, *exception: object) -> None:
        self.depth -= 1
        if not self.depth:
            # Another thread may be in `catch_warnings`, with a list of its own.
            with contextlib.suppress(ValueError):
                warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]

    def match(self, text: str) -> bool:
        """Whether a warning with this text is not to be shown."""
        if self.depth and self.noted is not None:
            self.noted.append(text)
        return self.depth > 0


silence = Silence()
_FILTER: Any = ("ignore", silence, Warning, None, 0)


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """Notes what this thread would warn about inside the block, under `silence`."""
    found: list[str] = []
    outer, silence.noted = silence.noted, found
    try:
        yield found
    finally:
        silence.noted = outer
