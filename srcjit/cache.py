"""The directory of emitted modules and compiled kernels, named by what is in them.

A file's name holds a hash of what made it, so nothing is ever overwritten with something
else, and two processes that make the same file at once do no harm: each writes a temporary
file and renames it. Code that is about to be run is only read from files that belong to
this user and that nobody else can write; anything else is ignored with one warning.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from srcjit.logs import root as log

VARIABLE = "SRCJIT_CACHE_DIR"

_reported: set[str] = set()


def content_name(*parts: str | bytes) -> str:
    """Returns a short name for content made of `parts` (the split between them counts)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:20]


def directory(kind: str = "") -> Path:
    """Returns the cache directory for one kind of file, made with mode 0700.

    It is `$SRCJIT_CACHE_DIR`, or `srcjit` in the user's cache directory. Where that cannot
    be made or belongs to somebody else, a private temporary directory serves this process.
    """
    base = _base(os.environ.get(VARIABLE))
    path = base / kind if kind else base
    if kind and not path.is_dir():
        path.mkdir(mode=0o700, exist_ok=True)
    return path


_bases: dict[tuple[str | None, int], Path] = {}


def _base(setting: str | None) -> Path:
    # A forked worker that fell back to a temporary directory may go on using it.
    key = (setting, os.getuid() if hasattr(os, "getuid") else 0)
    base = _bases.get(key)
    if base is None or not base.is_dir():
        base = _bases[key] = _make_base(setting)
    return base


def _make_base(setting: str | None) -> Path:
    path = Path(setting).expanduser() if setting else _user_cache() / "srcjit"
    try:
        path = path.absolute()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = _problem(path)
        if not problem and not os.access(path, os.W_OK | os.X_OK):
            problem = "cannot be written"
    except (OSError, RuntimeError) as error:
        problem = f"cannot be made ({error})"
    if not problem:
        return path
    fallback = Path(tempfile.mkdtemp(prefix="srcjit-"))
    atexit.register(_remove, fallback, os.getpid())
    _report(
        path, f"cache directory {path} {problem}; using {fallback} for this process"
    )
    return fallback


def _remove(fallback: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker leaves it to its parent
        shutil.rmtree(fallback, ignore_errors=True)


def _user_cache() -> Path:
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or tempfile.gettempdir())
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    return Path(xdg) if os.path.isabs(xdg) else Path("~/.cache").expanduser()


def _problem(path: Path) -> str:
    """Says why code from `path` must not be trusted, or nothing."""
    if not hasattr(os, "getuid"):
        return ""
    status = path.stat()
    if status.st_uid != os.getuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by other users"
    return ""


def _report(path: Path, message: str) -> None:
    if str(path) not in _reported:
        _reported.add(str(path))
        log.warning("%s", message)


def trusted(path: Path) -> bool:
    """Says whether `path` is a file whose code may run; a bad one is reported once."""
    try:
        problem = _problem(path) if path.is_file() else ""
        if problem:
            _report(path, f"ignoring cached file {path}: it {problem}")
            return False
        return path.is_file()
    except OSError as error:
        _report(path, f"ignoring cached file {path}: {error}")
        return False


def read(path: Path, digest: str | None = None) -> bytes | None:
    """Returns what a trusted cache file holds, or None.

    Args:
        path: The file.
        digest: `content_name` of the content as it was written; a file with another
            content is damaged, is reported once, and counts as absent.
    """
    if not trusted(path):
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        _report(path, f"ignoring cached file {path}: {error}")
        return None
    if digest is not None and content_name(data) != digest:
        _report(path, f"ignoring cached file {path}: it was damaged or edited")
        return None
    return data


def write(path: Path, data: str | bytes) -> Path:
    """Writes `data` to `path` so that no reader ever sees half of it; returns `path`."""
    raw = data.encode() if isinstance(data, str) else data
    with writing(path) as temporary:
        temporary.write_bytes(raw)
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Gives a temporary path for another program to write (a compiler's output).

    It is renamed to `path` when the block ends, and removed when the block raises.
    """
    handle, name = tempfile.mkstemp(
        prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def store_text(kind: str, stem: str, text: str) -> Path:
    """Writes `text` as `<stem>-<hash of the text>.py` in the cache; returns the path.

    A file of that name with this very text is left alone.
    """
    digest = content_name(text)
    readable = re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_")[:60] or "module"
    path = directory(kind) / f"{readable}-{digest}.py"
    if path.exists() and read(path, digest) is not None:
        return path
    try:
        return write(path, text)
    except OSError as error:
        _report(path, f"cannot write cached file {path}: {error}")
        return path
