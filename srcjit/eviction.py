"""Keeps the cache directory small: what was not used for longest is removed first.

    SRCJIT_CACHE_SIZE=200MiB python train.py

`srcjit.cache` reports what it writes and sets the time of a file that it reads, so the oldest
times are the least recently used. A process looks at the directory when it has written a
part of the limit, and when it ends; one that only reads never does. Removing is safe at any
time: a file that is open or mapped lives on, and whoever misses one makes it again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from srcjit.logs import root as log

VARIABLE = "SRCJIT_CACHE_SIZE"
DEFAULT = 1 << 30
"""Bytes that the directory may hold, if the variable does not say otherwise."""

KINDS = ("cpp", "modules", "index")
"""Subdirectories that are looked at."""

_PART = 16
"""Having written one part in so many of the limit, a process looks again."""

_KEPT = 0.9
"""How much of the limit is left after removing, so that the next file fits, too."""

_ABANDONED = 3600.0
"""Seconds after which nobody writes a temporary file any more."""

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
# NOTE: nothing else is ever removed; the directory may be one that holds other files.
_OURS = re.compile(r"(?:.*[-.])?[0-9a-f]{20}(?:[-.].*)?")

_written: dict[Path, int] = {}
"""Bytes that this process has written since it looked, by directory."""
_refused: set[str] = set()


class _File(NamedTuple):
    used: int  # nanoseconds
    size: int
    path: str


def limit() -> int | None:
    """Returns how many bytes the cache may hold (`SRCJIT_CACHE_SIZE`); None: any number."""
    setting = os.environ.get(VARIABLE, "").strip()
    if not setting:
        return DEFAULT
    match = _SIZE.fullmatch(setting)
    if match is None:
        if setting not in _refused:
            _refused.add(setting)
            log.warning(
                "%s=%s is no size like `500MiB` or `2G`; 1 GiB it is", VARIABLE, setting
            )
        return DEFAULT
    return int(float(match[1]) * (1 << _UNITS[match[2].lower()])) or None


def wrote(base: Path, size: int) -> None:
    """Notes that `size` bytes were written below `base`; makes room now and then."""
    if not _written:
        atexit.register(_at_exit, os.getpid())
    pending = _written.get(base, 0) + size
    most = limit()
    if most is not None and pending > most / _PART:
        pending = 0
        evict(base, most)
    _written[base] = pending


def _at_exit(process: int) -> None:
    most = limit()
    if most is None or os.getpid() != process:
        return
    for base, pending in _written.items():
        if pending:
            evict(base, most)


def evict(base: Path, most: int) -> int:
    """Removes files below `base` until they fit into `most` bytes with something to spare.

    Returns:
        The number of bytes removed; 0 while another process is removing.
    """
    with _alone(base) as alone:
        if not alone:
            return 0
        files = list(_files(base))
        total = sum(file.size for file in files)
        if total <= most:
            return 0
        excess, removed = total - int(most * _KEPT), 0
        recent = time.time_ns() - int(_ABANDONED * 1e9)
        for file in sorted(files):
            if removed >= excess:
                break
            if Path(file.path).name.startswith(".") and file.used > recent:
                continue  # being written
            with contextlib.suppress(OSError):
                if os.stat(file.path).st_mtime_ns == file.used:  # not used meanwhile
                    os.unlink(file.path)
                    removed += file.size
        log.debug("removed %d of %d bytes from %s", removed, total, base)
        return removed


def _files(base: Path) -> Iterator[_File]:
    for kind in KINDS:
        try:
            entries = list(os.scandir(base / kind))
        except OSError:
            continue
        for entry in entries:
            with contextlib.suppress(OSError):
                if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield _File(status.st_mtime_ns, status.st_size, entry.path)


@contextlib.contextmanager
def _alone(base: Path) -> Iterator[bool]:
    """True inside the block unless another process is removing files below `base`."""
    try:
        import fcntl
    except (
        ImportError
    ):  # no such locks on Windows; two at once remove too much at worst
        yield True
        return
    try:
        handle = os.open(base / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = True
    except OSError:
        held = False
    try:
        yield held
    finally:
        os.close(handle)
