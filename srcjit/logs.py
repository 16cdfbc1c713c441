"""What srcjit says while it works: children of the standard logger `srcjit`.

    SRCJIT_LOGS=breaks,recompiles python train.py

turns on `srcjit.breaks` and `srcjit.recompiles` and prints them to standard error. A
program that sets up `logging` itself can leave the variable alone and treat them as any
other logger.

Warnings that a user must see once (a compiler fault, a function without source) go to the
logger `srcjit` itself, which is always on.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping

VARIABLE = "SRCJIT_LOGS"

LOGS: Mapping[str, str] = {
    "breaks": "each graph break: code, source line, reason and hint",
    "recompiles": "why no specialization fitted: the nearest one and its first failed guard",
    "guards": "the guards of each specialization",
    "graphs": "which segments are not recorded under `reduce-overhead`, and why",
    "autotune": "what `max-autotune` measured: the times of all candidates",
    "code": "the emitted module of each specialization",
}
"""What `SRCJIT_LOGS` can name."""

root = logging.getLogger("srcjit")


def logger(name: str) -> logging.Logger:
    """Returns the logger for one entry of `LOGS`.

    Raises:
        KeyError: For a name that is no entry.
    """
    if name not in LOGS:
        raise KeyError(name)
    return root.getChild(name)


_told: set[object] = set()
"""What the user has been told, by what it is about."""


def warn_once(key: object, message: str, *args: object) -> None:
    """Warns, unless there has been a warning with this key since the last `reset`.

    Args:
        key: What it is about. A function that is made many times stands in one place, and
            a place that several specializations or threads come to is one.
        message: A format.
        *args: What goes into it.
    """
    with _telling:
        new = key not in _told
        _told.add(key)
    if new:
        root.warning(message, *args)


def forget_told() -> None:
    """Lets everything be told once more."""
    with _telling:
        _told.clear()


_telling = threading.Lock()


def _after_fork_in_child() -> None:
    global _telling
    _telling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Held(threading.local, logging.Filter):
    """Keeps what a thread logs while it holds locks; a handler may be anybody's code."""

    records: list[logging.LogRecord] | None = None

    def __init__(self) -> None:
        logging.Filter.__init__(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if self.records is None:
            return True
        self.records.append(record)
        return False


_held = _Held()
for _name in ("", *LOGS):
    (root.getChild(_name) if _name else root).addFilter(_held)


class held:
    """Hands what this thread logs in the block to the handlers when the block ends."""

    def __enter__(self) -> None:
        self._outer, _held.records = _held.records, []

    def __exit__(self, *exception: object) -> None:
        records, _held.records = _held.records, self._outer
        for record in records or ():
            logging.getLogger(record.name).handle(record)


class _StandardError(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what `sys.stderr` is now, not to what it was when srcjit was imported."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[no-untyped-def]
        return sys.stderr

    @stream.setter
    def stream(self, value: object) -> None:
        raise AttributeError("this handler always writes to sys.stderr")


def configure(setting: str | None = None) -> None:
    """Turns on the logs that `setting` names and no others.

    Args:
        setting: Names from `LOGS`, separated by commas; `SRCJIT_LOGS` if None.
    """
    if setting is None:
        setting = os.environ.get(VARIABLE, "")
    wanted = [name.strip() for name in setting.split(",") if name.strip()]
    for name in LOGS:
        child = root.getChild(name)
        ours = [h for h in child.handlers if isinstance(h, _StandardError)]
        if not ours and name not in wanted:
            continue  # the program may have set it up itself, before this import
        for handler in ours:
            child.removeHandler(handler)
        child.setLevel(logging.INFO if name in wanted else logging.NOTSET)
        if name in wanted:
            handler = _StandardError()
            handler.setFormatter(logging.Formatter("%(message)s"))
            child.addHandler(handler)
        # What this handler has printed is not printed again by the program's own set-up.
        child.propagate = name not in wanted
    unknown = [name for name in wanted if name not in LOGS]
    if unknown:
        root.warning(
            "%s: no log is called %s; there are %s",
            VARIABLE,
            " or ".join(repr(name) for name in unknown),
            ", ".join(LOGS),
        )


configure()
