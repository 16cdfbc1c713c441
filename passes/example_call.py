"""Arguments like those that a function was compiled for, as `srcjit emit --args` takes them.

    step(x, 3, flag=True)      --args "torch.randn(4, 8, device='cuda'), 3, flag=True"

What cannot be spelled in a line (an object, a module) has no such text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import libcst as cst
import torch

from srcjit.source import FunctionSource

LONGEST = 160
"""Characters; a longer call is left out."""


def arguments_text(source: FunctionSource, arguments: Mapping[str, Any]) -> str | None:
    """Returns what stands between the parentheses of a call, or None.

    Args:
        source: The function; one that the script can name.
        arguments: The value of each parameter, `*args` as a tuple and `**kwargs` as a dict.
    """
    if not source.qualname.isidentifier() or source.scope not in ("", source.qualname):
        return None
    params = source.tree.params
    parts: list[str | None] = []
    for parameter in (*params.posonly_params, *params.params):
        parts.append(_text(arguments[parameter.name.value]))
    if isinstance(params.star_arg, cst.Param):
        parts += map(_text, arguments[params.star_arg.name.value])
    for parameter in params.kwonly_params:
        text = _text(arguments[parameter.name.value])
        parts.append(text and f"{parameter.name.value}={text}")
    if params.star_kwarg is not None:
        for name, value in arguments[params.star_kwarg.name.value].items():
            text = _text(value)
            parts.append(text and f"{name}={text}")
    known = [part for part in parts if part is not None]
    made = ", ".join(known)
    return made if len(known) == len(parts) and len(made) <= LONGEST else None


def _text(value: Any, depth: int = 0) -> str | None:
    """An expression for a value, or None."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _tensor(value)
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if type(value) in (torch.dtype, torch.device):
        return str(value) if type(value) is torch.dtype else f"torch.{value!r}"
    if type(value) in (list, tuple) and depth < 3:
        items = [_text(item, depth + 1) for item in value]
        texts = [item for item in items if item is not None]
        if len(texts) < len(items):
            return None
        if type(value) is list:
            return f"[{', '.join(texts)}]"
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    return None


def _tensor(value: torch.Tensor) -> str | None:
    if value.layout is not torch.strided or value.is_quantized:
        return None
    options = ""
    random = value.is_floating_point() or value.is_complex()
    narrow = value.dtype.itemsize < 2
    if value.dtype is not torch.float32:
        options += f", dtype={value.dtype}"
    if value.device.type != "cpu":
        options += f", device={str(value.device)!r}"
    if value.requires_grad:
        options += ", requires_grad=True"
    size = tuple(value.shape)
    if not value.is_contiguous():
        return f"torch.empty_strided({size}, {value.stride()}{options})"
    maker = "randn" if random and not narrow else "zeros"
    return f"torch.{maker}({', '.join(map(str, size)) or '()'}{options})"
