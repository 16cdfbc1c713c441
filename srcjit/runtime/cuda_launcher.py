"""The extension that launches Triton kernels without Python (`cuda_launcher.c`).

    module = cuda_launcher.loaded()
    if module is not None:
        run = module.bind(otherwise, function, 4, 0, "OOi", bytes((0, 0, 1)), (2, 0), True, None)
        run(grid, x, y, 4096)      # starts the kernel, or otherwise(grid, x, y, 4096)
        launch = module.front(launch)

It needs a C compiler, an NVIDIA driver and PyTorch's DLPack exchange table (PyTorch 2.10);
without them, Python launches. It takes 0.3 s to build, once a machine.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from . import cpp_build, cuda_driver

DIVISIBLE, SMALL = 1, 2
"""What a kernel was compiled for: a number that 16 divides, one of 32 bits."""

_SOURCE = "cuda_launcher"


def start() -> cpp_build.Build | None:
    """Starts building it, if it can be used."""
    usable = _exchange() is not None and cuda_driver.address_of("cuLaunchKernel")
    if not usable or not cpp_build.compiler_available():
        return None
    return cpp_build.start_extension(_SOURCE)


def _exchange() -> object | None:
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


@functools.cache
def loaded() -> ModuleType | None:
    """Waits for the extension; None if it cannot be used."""
    module = None if start() is None else cpp_build.extension(_SOURCE)
    if module is None:
        return None
    driver = cuda_driver.address_of("cuLaunchKernel")
    return module if module.connect(torch.Tensor, _exchange(), driver) else None
