"""Tensors for the cases."""

from __future__ import annotations

import torch


def ramp() -> torch.Tensor:
    """Twelve numbers, none of which is another times a small integer."""
    return torch.arange(12.0).reshape(3, 4) / 7


def small() -> torch.Tensor:
    """Eight numbers from 0 to 1.4."""
    return torch.arange(8.0).reshape(2, 4) / 5
