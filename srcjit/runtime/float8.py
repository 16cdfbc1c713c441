"""How PyTorch rounds to floats of 8 bits, which its versions and devices do not agree on.

What is too large for `float8_e4m3fn` becomes its largest number, or NaN in PyTorch before 2.12.
Eager is asked, once for each kind of device.
"""

from __future__ import annotations

import functools

import torch


@functools.cache
def saturates(device: str) -> bool:
    """Returns whether eager makes 448 of what is too large for a `float8_e4m3fn`.

    Args:
        device: Kind of device (`"cpu"`, `"cuda"`). For a GPU that is not there, as on the CPU.
    """
    if device == "cuda" and not torch.cuda.is_available():
        device = "cpu"
    large = torch.full((1,), 1e4, device=device).to(torch.float8_e4m3fn)
    return bool(large.view(torch.uint8).item() == 0x7E)


def converts(device: torch.device) -> bool:
    """Returns whether a GPU has instructions for it; true of one that is not there."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return True
    return torch.cuda.get_device_capability(device) >= (8, 9)
