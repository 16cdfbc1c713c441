"""Where the CUDA driver has the functions that extensions call themselves."""

from __future__ import annotations

import ctypes
import functools

import torch


@functools.cache
def address_of(name: str) -> int:
    """Returns the address of a function of the driver, or 0."""
    if torch.version.cuda is None:
        return 0
    try:
        function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
