"""Tensors that a segment's text names but does not get as inputs.

Small ones are written out, larger ones are bound to the name when the module is loaded:

    segment_0_constant_0 = torch.tensor([1.0, 2.0], dtype=torch.float32)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .spelling import spell


@dataclass
class Constants:
    """Tensors that the program holds: text where they are small, bound objects otherwise."""

    prefix: str
    lines: list[str] = field(default_factory=list)
    bindings: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    largest: int = 1024

    def name(self, value: torch.Tensor) -> str:
        """The module-level name of a constant."""
        found = self.names.get(id(value))
        if found is None:
            found = f"{self.prefix}_constant_{len(self.names)}"
            self.names[id(value)] = found
            text = self._text(value)
            if text is None:
                self.bindings[found] = value
            else:
                self.lines.append(f"{found} = {text}")
        return found

    def _text(self, value: torch.Tensor) -> str | None:
        plain = (
            type(value) is torch.Tensor
            and not value.requires_grad
            and not value.is_complex()
        )
        if not plain or value.numel() > self.largest or not value.is_contiguous():
            return None
        if value.layout is not torch.strided or value.device.type == "meta":
            return None
        data = spell(value.tolist(), lambda n: n.name)
        device = "" if value.device.type == "cpu" else f", device={str(value.device)!r}"
        return f"torch.tensor({data}, dtype={value.dtype}{device})"
