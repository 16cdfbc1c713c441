r"""The extension that looks into tensors and dictionaries without Python (`unchanged.cpp`).

    module = reader.loaded()
    if module is not None:
        module.addresses((x, y), z)  # what `data_ptr` returns for each, as bytes
        check = module.checked(check, b"\1\0")  # of x, y: and x alone requires a gradient
        same = module.answers(((function, 1),), (2,))  # whether function(1) == 2

It is built in the background, once a machine and PyTorch; until then, and where there is no
compiler, Python does what it would.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from . import cpp_build

_SOURCE = "unchanged"


def start() -> cpp_build.Build | None:
    """Starts building it, if that is possible."""
    if not cpp_build.compiler_available():
        return None
    return cpp_build.start_extension(_SOURCE)


def loaded(wait: bool = False) -> ModuleType | None:
    """Returns the extension, or None if it is not built yet, or cannot be.

    Args:
        wait: Wait until it is built.
    """
    build = start()
    if build is None or not (wait or build.is_done()):
        return None
    return _connected()


def is_loaded() -> bool:
    """Whether `loaded` has returned the extension; the answer takes no time."""
    return _is_loaded


_is_loaded = False

implementation = 0
"""Where in a tensor its implementation is, once `loaded` has found out."""


@functools.cache
def _connected() -> ModuleType | None:
    global _is_loaded, implementation
    module = cpp_build.extension(_SOURCE)
    examples = tuple(torch.empty(n, device="meta") for n in range(3))
    if module is not None:
        implementation = module.connect(torch._C.TensorBase, examples)
        _is_loaded = implementation != 0
    return module if _is_loaded else None
