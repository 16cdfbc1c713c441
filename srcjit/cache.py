"""The directory of emitted modules and compiled kernels, named by what is in them.

A file's name holds a hash of what made it, so nothing is ever overwritten with something
else, and two processes that make the same file at once do no harm: each writes a temporary
file and renames it. Code that is about to be run is only read from files that belong to
this user and that nobody else can write; anything else is ignored with one warning. Any file may
vanish at any time (`srcjit.eviction` keeps the directory small), so whoever reads one can
make it again.
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

from srcjit import eviction
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
    One that can only be read is read; what it lacks is written to a temporary one.
    """
    base = _base(os.environ.get(VARIABLE))
    if not kind:
        return base
    path = base / kind
    try:
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)
        problem = _problem(path.stat())
    except OSError:
        return _overflow(kind)  # whoever writes to it says so
    if problem:
        _report(base, f"ignoring cache directory {path}: it {problem}")
        return _overflow(kind)
    return path


def locate(kind: str, name: str) -> Path:
    """Returns where the file of that kind and name is, or else where to write it."""
    path = directory(kind) / name
    # What this process had to write elsewhere is missing or damaged in the directory.
    for overflow in _overflows.values():
        if (overflow / kind / name).exists():
            return overflow / kind / name
    return path


def directories() -> tuple[Path, ...]:
    """Returns all directories that files of this process may be in."""
    return directory(), *_overflows.values()


_bases: dict[tuple[str | None, int], Path] = {}
_overflows: dict[int, Path] = {}
"""The private temporary directory of this process, by user."""


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _base(setting: str | None) -> Path:
    # A forked worker that fell back to a temporary directory may go on using it.
    key = (setting, _user())
    base = _bases.get(key)
    if base is None or not base.is_dir():
        base = _bases[key] = _make_base(setting)
    return base


def _make_base(setting: str | None) -> Path:
    path = Path(setting).expanduser() if setting else _user_cache() / "srcjit"
    try:
        path = path.absolute()
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = _problem(path.stat())
        if not problem and not os.access(path, os.R_OK | os.X_OK):
            problem = "cannot be read"
    except (OSError, RuntimeError) as error:
        problem = f"cannot be made ({error})"
    if not problem:
        return path
    fallback = _overflow()
    _report(
        path, f"cache directory {path} {problem}; using {fallback} for this process"
    )
    return fallback


def _overflow(kind: str = "") -> Path:
    """Returns a private temporary directory, which goes with this process."""
    user = _user()
    made = _overflows.get(user)
    if made is None or not made.is_dir():
        made = _overflows[user] = Path(tempfile.mkdtemp(prefix="srcjit-"))
        atexit.register(_remove, made, os.getpid())
    (made / kind).mkdir(mode=0o700, exist_ok=True)
    return made / kind


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


def _problem(status: os.stat_result) -> str:
    """Says why code from a file of this status must not be trusted, or nothing."""
    if not hasattr(os, "getuid"):
        return ""
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
    return _checked(path, path) is not None


def _checked(path: Path, opened: Path | int) -> os.stat_result | None:
    """Returns the status of a trusted file, given by its path or as an open file."""
    try:
        status = os.stat(opened)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _report(path, f"ignoring cached file {path}: {error}")
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if problem := _problem(status):
        _report(path, f"ignoring cached file {path}: it {problem}")
        return None
    return status


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
        with path.open("rb") as file:
            # What was opened need not be what stood there before.
            if _checked(path, file.fileno()) is None:
                return None
            data = file.read()
    except FileNotFoundError:
        return None  # another process has just made room
    except OSError as error:
        _report(path, f"ignoring cached file {path}: {error}")
        return None
    if digest is not None and content_name(data) != digest:
        _report(path, f"ignoring cached file {path}: it was damaged or edited")
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # what was used last is removed last
    return data


def write(path: Path, data: str | bytes) -> Path:
    """Writes `data` so that no reader ever sees half of it.

    Returns:
        `path`, or a path in a private temporary directory if nothing can be written there;
        the user is told so once.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        _write(path, raw)
    except OSError as error:
        base = path.parent.parent
        if base in _overflows.values():
            raise
        overflow = _overflow()
        _report(
            base,
            f"cannot write to cache directory {base}: {error}; "
            f"using {overflow} for this process",
        )
        return write_private(path.parent.name, path.name, raw)
    eviction.wrote(path.parent.parent, len(raw))
    return path


def write_private(kind: str, name: str, data: bytes) -> Path:
    """Writes a file that no other process can remove; returns its path."""
    path = _overflow(kind) / name
    _write(path, data)
    return path


def _write(path: Path, raw: bytes) -> None:
    with writing(path) as temporary:
        temporary.write_bytes(raw)


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
    path = locate(kind, f"{readable}-{digest}.py")
    if path.exists() and read(path, digest) is not None:
        return path
    try:
        return write(path, text)
    except OSError as error:
        _report(path, f"cannot write cached file {path}: {error}")
        return path
