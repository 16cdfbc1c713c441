"""Runs a user's script for the command line, as `python script.py` would.

The script is `__main__` with its own `sys.argv` and `sys.path[0]`; or, when only one of its
functions is wanted, a module of its own name, so that the part behind
`if __name__ == "__main__":` does not run. Its exceptions keep their traceback, without the
frames of srcjit around it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from srcjit.diagnostics import UserError

PACKAGE = os.path.dirname(os.path.abspath(__file__))
PASSES = os.path.realpath(os.path.join(PACKAGE, "passes"))


class ScriptFailed(Exception):
    """The script raised an exception of its own, or left with an exit status.

    Attributes:
        text: What to print: the script's traceback, or one line.
        namespace: The script's names, as far as it has got.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.namespace: dict[str, Any] = {}


def compile_script(path: str) -> types.CodeType:
    """Reads and compiles a script.

    Raises:
        UserError: One line that says why this is not possible.
    """
    file = Path(path)
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory, not a script") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise UserError(f"{path}{line}: syntax error: {error.msg}") from None
    except ValueError as error:  # A null byte, or a wrong encoding declaration.
        raise UserError(f"{path}: not a Python script: {error}") from None


@contextlib.contextmanager
def loaded(
    path: str, arguments: Sequence[str] = (), *, as_main: bool = True
) -> Iterator[dict[str, Any]]:
    """Runs a script and gives its namespace, with the process set up for it inside.

    Args:
        path: The script's file.
        arguments: What the script finds in `sys.argv[1:]`.
        as_main: Whether its `__name__` is `"__main__"` or the file's name.

    Raises:
        UserError: The file cannot be read or compiled.
        ScriptFailed: The script raised, or left with a status other than 0.
    """
    code = compile_script(path)
    name = "__main__" if as_main else Path(path).stem
    module = types.ModuleType(name)
    module.__dict__.update(__file__=path, __spec__=None, __package__=None)
    argv, search, modules = sys.argv, list(sys.path), sys.modules.get(name)
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.modules[name] = module
    try:
        with user_code(path):
            exec(code, module.__dict__)
        yield module.__dict__
    except ScriptFailed as failure:
        failure.namespace = module.__dict__
        raise
    finally:
        sys.argv = argv
        sys.path[:] = search
        if modules is None:
            del sys.modules[name]
        else:
            sys.modules[name] = modules


@contextlib.contextmanager
def user_code(path: str) -> Iterator[None]:
    """Turns what the user's code raises into `ScriptFailed`."""
    try:
        yield
    except SystemExit as leave:
        if leave.code not in (None, 0):
            raise ScriptFailed(f"{path}: the script left with {leave.code!r}") from None
    except Exception as error:
        raise ScriptFailed(traceback_text(error)) from None


def traceback_text(error: BaseException) -> str:
    """Returns the traceback of `error` and of its causes without srcjit's own frames."""
    report = traceback.TracebackException.from_exception(error)
    pending, seen = [report], set()
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        frames = [frame for frame in part.stack if not _is_own(frame.filename)]
        part.stack = traceback.StackSummary.from_list(frames)
        causes = (
            part.__cause__,
            part.__context__,
            *(getattr(part, "exceptions", None) or ()),
        )
        pending.extend(cause for cause in causes if cause is not None)
    return "".join(report.format()).rstrip("\n")


def _is_own(filename: str) -> bool:
    """True for files of srcjit, dispatch stubs and emitted modules."""
    from srcjit import cache

    if filename.startswith("<dispatch stub"):
        return True
    folders = (PACKAGE, PASSES, *map(str, cache.directories()))
    file = os.path.abspath(filename)
    return file.startswith(tuple(folder + os.sep for folder in folders))
