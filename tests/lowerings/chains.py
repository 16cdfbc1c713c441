"""Rows of what moves elements followed by what reads them, in one segment.

A move alone is one index map. Read by a sum, a softmax or another move it is composed with
theirs, and which loops, masks and tiles there are depends on both. Every reader is tried with
every move, and every move with every other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tests.lowerings.folds import folded
from tests.lowerings.table import Call, Operands

Move = Callable[[Operands, torch.Tensor], torch.Tensor]


def _index(t: Operands, a: torch.Tensor, dim: int, count: int = 4) -> torch.Tensor:
    """Few positions along a dimension, in no order."""
    return t.places.flatten()[:count] % a.size(dim)


def _rotated(a: torch.Tensor) -> torch.Tensor:
    first, second = a.narrow(-1, 0, 1), a.narrow(-1, 1, a.size(-1) - 1)
    return torch.cat([second, first], -1)


MOVES: dict[str, Move] = {
    "nothing": lambda t, a: a,
    "transpose": lambda t, a: a.transpose(0, -1),
    "permute": lambda t, a: a.permute(-1, *range(a.dim() - 1)),
    "slice": lambda t, a: a[..., 1:-1],
    "slice by two": lambda t, a: a[::2, ..., 1::2],
    "slice of none": lambda t, a: a[..., 3:3],
    "select": lambda t, a: a.select(-1, -1).unsqueeze(0),
    "flip": lambda t, a: a.flip(-1),
    "flip rows": lambda t, a: a.flip(0),
    "flip all": lambda t, a: a.flip(list(range(a.dim()))),
    "rot90": lambda t, a: a.rot90(1, [0, -1]),
    "roll": lambda t, a: a.roll(2, -1),
    "roll back": lambda t, a: a.roll(-11, 0),
    "roll two": lambda t, a: a.roll([1, -2], [0, -1]),
    "roll flat": lambda t, a: a.roll(5),
    "pad": lambda t, a: F.pad(a, [1, 2]),
    "pad with ones": lambda t, a: F.pad(a, [0, 1, 2, 0], value=1),
    "crop": lambda t, a: F.pad(a, [-1, 2]),
    "cat": lambda t, a: torch.cat([a, t.y.flatten()[: a.numel()].view(a.shape)], -1)
    if a.numel() <= t.y.numel()
    else torch.cat([a, a * 1], -1),
    "cat rows": lambda t, a: torch.cat([a, a[:1], a[1:], a[:0]]),
    "cat many": lambda t, a: torch.cat([a, a, a, a, a, a[..., :1]], -1),
    "stack": lambda t, a: torch.stack([a, a.flip(0)], 1),
    "stack last": lambda t, a: torch.stack([a, a.flip(-1)], -1),
    "rotate": lambda t, a: _rotated(a),
    "expand": lambda t, a: a[:1].expand(3, *a.shape[1:]),
    "expand columns": lambda t, a: a[..., :1].expand(*a.shape[:-1], 5),
    "repeat": lambda t, a: a.repeat(2, *([1] * (a.dim() - 1))),
    "tile": lambda t, a: torch.tile(a, (3,)),
    "interleave": lambda t, a: a.repeat_interleave(2, -1),
    "merge": lambda t, a: a.reshape(-1, a.size(-1)),
    "flatten": lambda t, a: a.reshape(1, -1),
    "divide": lambda t, a: a.reshape(*a.shape[:-1], -1, 1),
    "windows": lambda t, a: a.unfold(-1, 3, 1),
    "windows apart": lambda t, a: a.unfold(0, 1, 2),
    "diagonal": lambda t, a: a.diagonal(1, 0, -1).unsqueeze(0),
    "diagonal below": lambda t, a: a.diagonal(-1, 0, -1),
    "diag_embed": lambda t, a: torch.diag_embed(a.select(0, 0), 1),
    "tril": lambda t, a: a.tril(),
    "triu": lambda t, a: a.triu(2),
    "squeeze": lambda t, a: a.unsqueeze(1).squeeze(1).unsqueeze(-1),
    "slice_scatter": lambda t, a: torch.slice_scatter(
        a, a.flip(-1)[..., 1::2], -1, 1, None, 2
    ),
    "select_scatter": lambda t, a: torch.select_scatter(a, a.select(0, 0), 0, -1),
    "diagonal_scatter": lambda t, a: torch.diagonal_scatter(
        a, a.diagonal(0, 0, -1) * 1, 0, 0, -1
    ),
    "set": lambda t, a: _set(a),
    "masked_fill": lambda t, a: a.masked_fill(a == 0, 1),
    "where": lambda t, a: torch.where(a.flip(-1) > a, a.flip(-1), a),
    "index_select": lambda t, a: a.index_select(-1, _index(t, a, -1)),
    "index rows": lambda t, a: a[_index(t, a, 0)],
    "index below zero": lambda t, a: a[..., _index(t, a, -1) - a.size(-1)],
    "index two": lambda t, a: a[_index(t, a, 0), ..., _index(t, a, -1)],
    "gather": lambda t, a: a.gather(0, (a != 0).long() % a.size(0)),
    "embedding": lambda t, a: F.embedding(
        t.places[0, :2, :2] % a.shape[0], a.reshape(a.size(0), -1)
    ),
    "narrow type": lambda t, a: a.to(torch.float16).to(a.dtype),
    "computed": lambda t, a: a * 1 + a,
}  # fmt: skip
"""Ways to move elements of a tensor of some dimensions."""


def _set(a: torch.Tensor) -> torch.Tensor:
    made = a.clone()
    made[..., 1:] = a[..., :-1]
    made[0] = 1
    return made


READERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "copy": lambda a: a.clone(),
    "contiguous": lambda a: (a.contiguous(), a.transpose(0, -1).contiguous()),
    "combine": lambda a: a * 2 + a[:1],
    "sum": lambda a: a.sum(-1),
    "sum of rows": lambda a: a.sum(0),
    "sum of all": lambda a: a.sum(),
    "sum of outer": lambda a: a.sum([0, -1], keepdim=True),
    "amax": lambda a: a.amax(-1, keepdim=True),
    "amin of all": lambda a: a.amin(),
    "argmax": lambda a: a.argmax(-1),
    "argmin of all": lambda a: a.argmin(),
    "max": lambda a: a.max(0),
    "any": lambda a: (a.any(-1), a.all(0)),
    "prod": lambda a: a.prod(-1),
    "softmax": lambda a: a.softmax(-1),
    "softmax of rows": lambda a: a.softmax(0),
    "var": lambda a: a.var(-1),
    "layer_norm": lambda a: F.layer_norm(a, a.shape[-1:]),
    "centre": lambda a: a - a.amax(-1, keepdim=True),
    "mean": lambda a: a.mean([0, -1]),
    "cast": lambda a: (a.to(torch.int32), a.to(torch.float32), a.to(torch.bool)),
    "compare": lambda a: (a > 0) & (a == a),
    "several": lambda a: (a + 1, a.amax(-1), a.amin(0)),
}
"""What reads a moved tensor."""


def read(reader: str) -> dict[str, list[Call]]:
    """Rows of one reader, by move."""
    function = READERS[reader]
    return {
        f"{reader} after {name}": [lambda t, m=move: function(m(t, t.x))]
        for name, move in MOVES.items()
    }


def moved_twice(second: str) -> dict[str, list[Call]]:
    """Rows of a move after each of the moves: copied, and folded."""
    last = MOVES[second]
    return {
        f"amax after {second} after {name}": [
            lambda t, m=move: last(t, m(t, t.x)).clone(),
            lambda t, m=move: last(t, m(t, t.x)).amax(-1),
        ]
        for name, move in MOVES.items()
    }


def operands(dtype: torch.dtype, shape: str) -> Operands:
    """As for folds, with positions."""
    made = folded(dtype, shape)
    count = made.x.numel()
    places = (torch.arange(count) * 7 + 3) % 11
    return Operands(made.x, made.y, made.z, made.flag, places.view(made.x.shape))
