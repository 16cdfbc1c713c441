"""Keeps what the compiler has put between the user's frames out of tracebacks.

    File "model.py", line 30, in main            File "model.py", line 30, in main
    File "<dispatch stub 1 of f>", in f          File "model.py", line 14, in f
    File "model.py", line 12, in f          ->
    File "<dispatch stub 2 of body_14>", ...
    File "model.py", line 14, in f

Each stub takes out its own entry, and where it may be needed those that show a function
twice. Nothing is done as long as no exception comes by.
"""

from __future__ import annotations

from types import FrameType, TracebackType

CONTINUES = "continues"
"""Global of a stub: whether its function is a part of the activation that calls it."""


def unseen(lines: list[str], error: str, merges: str | None = None) -> list[str]:
    """Puts lines of a function into a `try` that keeps its frame out of tracebacks.

    Args:
        lines: The lines.
        error: A name for the exception.
        merges: What `merged` is called, if frames below may be parts of one activation.
    """
    # NOTE: a bare `raise` adds no entry (before Python 3.11 it brings the old ones back).
    below = f"{error}.__traceback__.tb_next"
    return [
        "try:",
        *(f"    {line}" for line in lines),
        f"except BaseException as {error}:",
        f"    {error}.__traceback__ = {f'{merges}({below})' if merges else below}",
        "    raise",
    ]


def merged(trace: TracebackType | None) -> TracebackType | None:
    """Leaves frames out of a traceback whose function goes on in the next one.

    The body of a `with` that Python runs is a function of its own, and so is the rest of a
    program; an entry of each would show the user's function twice.
    """
    while trace is not None and trace.tb_next is not None:
        if not _same_activation(trace.tb_frame, trace.tb_next.tb_frame):
            break
        trace = trace.tb_next
    above = trace
    while above is not None and above.tb_next is not None:
        entry, below = above.tb_next, above.tb_next.tb_next
        if below is not None and _same_activation(entry.tb_frame, below.tb_frame):
            above.tb_next = below
        else:
            above = entry
    return trace


def _same_activation(above: FrameType, below: FrameType) -> bool:
    """Whether all that is between two frames are stubs of parts of what the first runs."""
    frame: FrameType | None = below
    while frame is not None:
        stub = frame = frame.f_back
        while frame is not None and frame.f_globals.get(CONTINUES) is True:
            frame = frame.f_back
        if frame is stub:
            return False
        if frame is above:
            return True
    return False
