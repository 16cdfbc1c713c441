"""Loads the parts of cuDNN that attention takes, in a thread, before they are called for.

cuDNN is a small library beside which lie the large ones that it loads when it first needs them:
their relocations alone touch 33 MB of memory, a third of the time of a first call of attention.
"""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path

PARTS = ("graph", "heuristic", "engines_precompiled", "engines_runtime_compiled")
"""What the first call of attention loads, in this order."""

RTLD_NOW = 2

_lock = threading.Lock()
_begun = False


def load_ahead() -> None:
    """Starts loading; only the first call does anything. Where it fails, cuDNN loads later."""
    global _begun
    with _lock:
        if _begun:
            return
        _begun = True
    threading.Thread(target=_load, name="srcjit-cudnn", daemon=True).start()


def _load() -> None:
    # A call of a function of C's, unlike `ctypes.CDLL(file)`, lets other threads run.
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for file in parts(Path("/proc/self/maps")):
        load(str(file).encode(), RTLD_NOW)


def parts(maps: Path) -> list[Path]:
    """The files beside the cuDNN that a process has loaded.

    Args:
        maps: What the process has mapped, as Linux lists it.
    """
    if not maps.exists():
        return []
    found = re.search(r"(/.*/libcudnn)(\.so\.\d+)", maps.read_text())
    if found is None:
        return []
    files = (Path(f"{found[1]}_{part}{found[2]}") for part in PARTS)
    return [file for file in files if file.exists()]
