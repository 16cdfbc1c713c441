"""Whether what a program prints, logs or warns of reaches objects of its own.

    print(x)       writes to a file, and nothing that is evaluated changes
    with contextlib.redirect_stdout(Recorder()): ...
    with warnings.catch_warnings(record=True) as heard: ...    fills a list of the program's

Where it does not, evaluation goes on behind the call, under the condition that it stays so.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from types import FunctionType
from typing import Any


def prints_are_unheard() -> bool:
    """Returns whether what is printed goes to a file and not through Python code."""
    return _is_file(sys.stdout)


def warnings_are_unheard() -> bool:
    """Returns whether a warning is shown: `catch_warnings(record=True)` fills a list."""
    hooks = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)
    shown = all(getattr(hook, "__module__", "") == "warnings" for hook in hooks)
    return shown and _is_file(sys.stderr)


def logs_are_unheard() -> bool:
    """Returns whether what the root logger is told goes to files."""
    root = logging.getLogger()
    handlers: list[Any] = [*root.handlers] or [logging.lastResort]
    return (
        type(root) is logging.RootLogger
        and not root.filters
        and all(map(_writes_files, handlers))
    )


def _writes_files(handler: Any) -> bool:
    if handler is None:
        return True
    ours = type(handler).__module__ in ("logging", "logging.handlers")
    plain = ours and not handler.filters and type(handler.formatter) in _FORMATTERS
    return plain and _is_file(getattr(handler, "stream", None))


_FORMATTERS = (type(None), logging.Formatter)


def _is_file(stream: Any) -> bool:
    """Whether a stream is the library's, as far as writing to it goes."""
    cls = type(stream)
    if cls in _FILES or stream is None:
        return True
    return issubclass(cls, io.IOBase) and not any(
        isinstance(getattr(cls, name, None), FunctionType)
        for name in ("write", "flush")
    )


_FILES = (io.TextIOWrapper, io.StringIO)
"""Types that nobody can change, which most streams have: guards ask at each call."""
