"""Rows of elements chosen, and of places written, by tensors of positions.

Positions are of both integer types, in several shapes, in no order, with repetitions, below
zero where eager allows it, one of them alone, none of them, and computed in the segment.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tests.lowerings.table import Call, Operands


def at(t: Operands, dim: int, *shape: int, first: int = 0) -> torch.Tensor:
    """Positions along a dimension of `x`, in a shape."""
    count = torch.Size(shape).numel()
    return (t.places.flatten()[first : first + count] % t.x.size(dim)).reshape(shape)


def apart(t: Operands, dim: int, count: int) -> torch.Tensor:
    """Different positions, in no order: what is written to each does not depend on the order."""
    size = t.x.size(dim)
    return (torch.arange(min(count, size)) * 3 + 1 + t.places.flatten()[0] * 0) % size


GATHERED: dict[str, list[Call]] = {
    "gather": [
        *(
            lambda t, d=d: t.x.gather(d, at(t, d, *(6 if n == d % 3 else 2 for n in range(3))))
            for d in (-3, -2, -1, 0, 1, 2)
        ),
        lambda t: t.x.gather(1, at(t, 1, 0, 2, 2)),
        lambda t: t.x.transpose(0, 2).gather(1, at(t, 1, 2, 2, 2)),
        lambda t: t.x.flip(1).gather(1, at(t, 1, 2, 1, 1).expand(2, 5, 3)),
        lambda t: (t.x * 2).gather(-1, at(t, -1, 3, 2, 1)).sum(-1),
        lambda t: t.x[:, :1].expand(-1, 4, -1).gather(2, at(t, 2, 2, 3, 1)),
    ],
    "take_along_dim": [
        lambda t: torch.take_along_dim(t.x, t.x.argsort(dim=-1, stable=True), -1),
        lambda t: torch.take_along_dim(t.x, t.x.argmax(1, keepdim=True), 1),
        lambda t: torch.take_along_dim(t.x, at(t, 0, 2, 1, 1), 0),
    ],
    "take": [lambda t: t.x.take(at(t, 0, 2, 3)), lambda t: t.x.take(at(t, 0, 4) - 3)],
    "index_select": [
        *(lambda t, d=d: t.x.index_select(d, at(t, d, 5)) for d in (-1, -2, 0)),
        *(lambda t, d=d: t.x.index_select(d, at(t, d, 5).int()) for d in (0, 2)),
        lambda t: t.x.index_select(1, at(t, 1, 0)),
        lambda t: t.x.transpose(0, 1).index_select(0, at(t, 1, 3)) * 2,
        lambda t: t.x.sum(0).index_select(-1, at(t, -1, 4)),
        lambda t: t.x.select(0, 0).index_select(0, at(t, 1, 1).squeeze(0)),
    ],
    "embedding": [
        lambda t: F.embedding(at(t, 0, 3, 2), t.x[..., 0]),
        lambda t: F.embedding(at(t, 0, 3, 2).int(), t.x[..., 0], padding_idx=1),
        lambda t: F.embedding(at(t, 0, 7), t.x[:, 0]) + 1,
        lambda t: F.embedding(at(t, 0, 1).squeeze(), t.x[:, 0]),
        lambda t: F.embedding(at(t, 0, 0, 2), t.x[:, 0]),
        lambda t: F.embedding(at(t, 0, 3, 2), t.x[..., 0].flip(-1)).amax(-1),
    ],
    "index": [
        lambda t: t.x[at(t, 0, 4)],
        lambda t: t.x[at(t, 0, 4).int()],
        lambda t: t.x[at(t, 0, 2, 3)],
        lambda t: t.x[:, at(t, 1, 4)],
        lambda t: t.x[..., at(t, 2, 4) - t.x.size(2)],
        lambda t: t.x[at(t, 0, 4), at(t, 1, 4, first=3)],
        lambda t: t.x[at(t, 0, 4), :, at(t, 2, 4, first=3)],
        lambda t: t.x[:, at(t, 1, 3, 1), at(t, 2, 4)],
        lambda t: t.x[at(t, 0, 4), at(t, 1, 4), at(t, 2, 4)],
        lambda t: t.x[at(t, 0, 3, 1), :, at(t, 2, 1, 5)],
        lambda t: t.x[None, at(t, 0, 4), 1:, None],
        lambda t: t.x[at(t, 0, 4), 0],
        lambda t: t.x[:, at(t, 1, 0)],
        lambda t: t.x.flip(0)[at(t, 0, 4)].amax(0),
        lambda t: t.x[at(t, 0, 6)][at(t, 0, 4) % 6],
        lambda t: torch.cat([t.x, t.x])[at(t, 0, 4) + t.x.size(0)],
        lambda t: F.pad(t.x, [1, 1])[..., at(t, 2, 4) + 2],
    ],
    "softmax of index": [lambda t: (t.x * 2)[at(t, 0, 4)].softmax(-1)],
    "one_hot": [lambda t: F.one_hot(at(t, 0, 5), 12)],
    "searchsorted": [
        lambda t: torch.searchsorted(t.x[0, 0].sort()[0], t.z[0, 0]),
        lambda t: torch.bucketize(t.x, t.z[0, 0].sort()[0], right=True),
    ],
}  # fmt: skip
"""Elements read at positions."""


def _written(name: str, *rest: Any, **options: Any) -> list[Call]:
    """A function with in-place and functional forms, of positions and a source."""

    def functional(t: Operands, dim: int) -> torch.Tensor:
        places = apart(t, dim, 4)
        source = t.z.index_select(dim, torch.arange(len(places)))
        return getattr(t.x, name)(dim, places, source, *rest, **options)

    def in_place(t: Operands, dim: int) -> torch.Tensor:
        places, made = apart(t, dim, 4), t.x.clone()
        source = t.z.index_select(dim, torch.arange(len(places)))
        getattr(made, f"{name}_")(dim, places, source, *rest, **options)
        return made

    return [
        *(lambda t, d=d: functional(t, d) for d in (0, 1, -1)),
        lambda t: in_place(t, 1),
    ]


def _positions(t: Operands, dim: int) -> torch.Tensor:
    """Different positions along a dimension for each place of the others."""
    size = t.x.size(dim)
    shape = [size if d == dim % 3 else 1 for d in range(3)]
    ramp = torch.arange(size).view(shape) + t.places * 0
    return (ramp * (size - 1) + 2) % size


SCATTERED: dict[str, list[Call]] = {
    "scatter": [
        *(lambda t, d=d: t.x.scatter(d, _positions(t, d), t.z) for d in (0, 1, -1)),
        lambda t: t.x.scatter(1, _positions(t, 1)[:, :2], 1),
        lambda t: t.x.clone().scatter_(2, _positions(t, 2), t.z * 2),
        lambda t: t.x.scatter(1, at(t, 1, 2, 0, 3), t.z) * 2,
    ],
    "scatter_add": [
        *(lambda t, d=d: t.x.scatter_add(d, _positions(t, d), t.z) for d in (0, 1, -1)),
        lambda t: torch.zeros_like(t.x).scatter_add_(0, _positions(t, 0), t.z + 1),
    ],
    "scatter_reduce": [
        lambda t, r=r, i=i: t.x.scatter_reduce(1, _positions(t, 1), t.z, r, include_self=i)
        for r in ("sum", "prod", "amax", "amin", "mean")
        for i in (False, True)
    ],
    "index_add": [*_written("index_add"), *_written("index_add", alpha=2)],
    "index_copy": _written("index_copy"),
    "index_reduce": [
        *_written("index_reduce", "prod"), *_written("index_reduce", "amax"),
    ],
    "index_fill": [
        *(lambda t, d=d: t.x.index_fill(d, apart(t, d, 4), 1) for d in (0, 1, -1)),
        lambda t: (t.x * 2).index_fill_(1, apart(t, 1, 0), 1),
    ],
    "index_put": [
        *(
            lambda t, a=a: torch.index_put(t.x, (apart(t, 0, 3),), t.z[:3], a)
            for a in (False, True)
        ),
        lambda t: torch.index_put(t.x, (apart(t, 0, 3), apart(t, 1, 3)), t.z[0, 0, 0]),
        lambda t: torch.index_put(t.x * 2, (t.flag,), t.z[0, 0, 0]),
    ],
    "setitem": [
        lambda t: _assigned(t, (slice(None), apart(t, 1, 3)), t.z[:, :3]),
        lambda t: _assigned(t, (t.flag,), 1),
        lambda t: _assigned(t, (apart(t, 0, 3),), t.z[0]),
        lambda t: _assigned(t, (apart(t, 0, 3), slice(1, None, 2)), 1),
        lambda t: _assigned(t, (apart(t, 0, 3) - t.x.size(0),), t.z[:3] + 1),
    ],
    "masked_scatter": [lambda t: t.x.masked_scatter(t.flag, t.z)],
    "put": [lambda t: t.x.put(apart(t, 0, 3), t.z.flatten()[:3])],
}  # fmt: skip
"""Elements written at positions; no two at one place, so that their order is nothing."""


def _assigned(t: Operands, place: Any, value: Any) -> torch.Tensor:
    made = t.x.clone()
    made[place] = value
    return made


CHOSEN: dict[str, list[Call]] = {**GATHERED, **SCATTERED}
"""All of them."""
