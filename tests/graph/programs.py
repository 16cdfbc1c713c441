"""Random torch-level programs: well typed, bounded values, effects and views included."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

UNARY = [
    torch.tanh,
    torch.sigmoid,
    torch.sin,
    torch.cos,
    torch.abs,
    torch.neg,
    torch.relu,
    torch.erf,
    F.gelu,
    F.silu,
    F.softplus,
    F.hardtanh,
    F.leaky_relu,
    F.elu,
    torch.round,
    torch.floor,
    torch.sign,
    torch.isnan,
    lambda x: x * 0.5,
    lambda x: 1 - x,
    lambda x: x + 2,
    lambda x: torch.clamp(x, -1, 1),
    lambda x: torch.exp(torch.clamp(x, max=1.0)),
    lambda x: torch.sqrt(x.abs() + 0.1),
    lambda x: torch.rsqrt(x * x + 1),
    lambda x: torch.log1p(x.abs()),
    lambda x: x > 0,
    lambda x: (x > 0.3).to(x.dtype),
    lambda x: x.to(torch.float32),
    lambda x: x.clone(),
    lambda x: x.detach() + 1,
    lambda x: torch.where(x > 0, x, x * 0.1),
    lambda x: x.masked_fill(x > 1, 0.5),
    lambda x: F.dropout(x, 0.4, True),
    lambda x: x / (x.abs() + 1),
    lambda x: torch.nan_to_num(x),
]

BINARY = [
    lambda x, y: torch.sin(x + y),
    lambda x, y: x * torch.tanh(y),
    lambda x, y: torch.tanh(x - y),
    lambda x, y: torch.maximum(x, y),
    lambda x, y: torch.minimum(x, y),
    lambda x, y: torch.where(x > y, x, y),
    lambda x, y: x / (1 + y.abs()),
    lambda x, y: torch.lerp(x, y.to(x.dtype), 0.25),
    lambda x, y: torch.sigmoid(torch.addcmul(x, x, y.to(x.dtype), value=0.5)),
    lambda x, y: x >= y,
    lambda x, y: torch.atan2(x, y.abs() + 1),
]

REDUCE = [
    lambda x: x.mean(-1),
    lambda x: x.sum(0) * 0.1,
    lambda x: x.amax(-1, keepdim=True),
    lambda x: x.amin(0),
    lambda x: x.softmax(-1),
    lambda x: x.log_softmax(0).tanh(),
    lambda x: F.layer_norm(x, x.shape[-1:]),
    lambda x: F.rms_norm(x, x.shape[-1:]),
    lambda x: x.var(-1).tanh(),
    lambda x: x.std(0).tanh(),
    lambda x: torch.logsumexp(x, -1),
    lambda x: x.mean(),
    lambda x: x.cumsum(-1).tanh(),
    lambda x: x.argmax(-1),
    lambda x: x.max(0)[0],
    lambda x: torch.linalg.vector_norm(x, dim=-1).tanh(),
    lambda x: x.any(-1),
    lambda x: x.norm(),
]

VIEW = [
    lambda x: x.transpose(0, -1),
    lambda x: x.reshape(-1),
    lambda x: x[..., 1:],
    lambda x: x[0],
    lambda x: x.unsqueeze(0),
    lambda x: x.flatten(),
    lambda x: x[..., ::2],
    lambda x: x.unsqueeze(-1).expand(*x.shape, 2),
    lambda x: torch.chunk(x, 2, -1)[0],
    lambda x: x.permute(*range(x.dim() - 1, -1, -1)),
    lambda x: torch.squeeze(x),
    lambda x: x.narrow(0, 0, 1),
    lambda x: x.detach(),
    lambda x: x.contiguous(),
]

SHAPE = [
    lambda x: torch.cat([x, x * 2], -1),
    lambda x: torch.stack([x, -x]),
    lambda x: F.pad(x, (1, 1)),
    lambda x: x.flip(0),
    lambda x: x.roll(1, -1),
    lambda x: x.repeat_interleave(2, 0)[: x.shape[0]],
    lambda x: x.index_select(0, torch.arange(x.shape[0])),
    lambda x: torch.tril(x) if x.dim() > 1 else x * 1,
    lambda x: torch.zeros_like(x) + x,
    lambda x: x.new_ones(x.shape) * x,
    lambda x: x.gather(-1, (x > 0).long()) if x.shape[-1] > 1 else x * 2,
]

WRITE: list[Callable[..., Any]] = [
    lambda x: x.mul_(0.5),
    lambda x: x.add_(1),
    lambda x: x.tanh_(),
    lambda x: x.clamp_(-1, 1),
    lambda x: x.zero_(),
    lambda x: x[0].mul_(0.5),
    lambda x: x[..., -1:].fill_(0.25),
    lambda x: x.masked_fill_(x > 0, 0.1),
    lambda x: F.relu(x, inplace=True),
    lambda x: x.copy_(torch.sin(x)),
    lambda x: x.transpose(0, -1).add_(0.5),
]


def set_first(x: torch.Tensor) -> torch.Tensor:
    x[0] = 0.5
    return x


WRITE.append(set_first)


@dataclass(frozen=True)
class Program:
    """A program over a growing pool of tensors.

    Attributes:
        steps: Function and the positions in the pool that it takes.
        outputs: Positions that are returned.
        inputs: Example inputs.
    """

    steps: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...]
    outputs: tuple[int, ...]
    inputs: tuple[torch.Tensor, ...]

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = list(inputs)
        for function, places in self.steps:
            pool.append(function(*[pool[p] for p in places]))
        return tuple(pool[p] for p in self.outputs)


def random_inputs(choose: random.Random, grad: bool) -> list[torch.Tensor]:
    """Two or three inputs of one base shape, in several dtypes and layouts."""
    shape = choose.choice([(6, 8), (4,), (3, 5, 4), (16, 33), (1, 7), (2, 64)])
    dtype = choose.choice([torch.float32] * 4 + [torch.float64, torch.bfloat16])
    made = []
    for _ in range(choose.randint(2, 3)):
        layout = choose.choice(["dense", "dense", "transposed", "strided", "broadcast"])
        if layout == "transposed":
            x = torch.randn(tuple(reversed(shape))).permute(
                *reversed(range(len(shape)))
            )
        elif layout == "strided":
            x = torch.randn(*shape[:-1], shape[-1] * 2)[..., ::2]
        elif layout == "broadcast":
            x = torch.randn(shape[-1:])
        else:
            x = torch.randn(shape)
        x = x.to(dtype) if dtype is not torch.float32 else x
        made.append(x.requires_grad_(grad and choose.random() < 0.7))
    return made


def random_program(seed: int, length: int = 30, *, grad: bool, writes: bool) -> Program:
    """Draws a program by running it; steps that raise in eager are dropped."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    inputs = random_inputs(choose, grad)
    kinds = [UNARY] * 5 + [BINARY] * 4 + [REDUCE] * 2 + [VIEW] * 3 + [SHAPE] * 2
    if writes:
        kinds += [WRITE] * 2
    steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
    pool = [i.detach().clone().requires_grad_(i.requires_grad) for i in inputs]
    while len(steps) < length:
        function_kind = choose.choice(kinds)
        function = choose.choice(function_kind)
        floats = [i for i, t in enumerate(pool) if t.is_floating_point() and t.numel()]
        recent = floats[-6:] if choose.random() < 0.7 else floats
        places = tuple(
            choose.choice(recent) for _ in range(2 if function_kind is BINARY else 1)
        )
        if any(pool[p].numel() > 4000 for p in places):
            continue
        before = [t._version for t in pool]
        try:
            with torch.set_grad_enabled(grad):
                result = function(*[pool[p] for p in places])
        except (RuntimeError, IndexError, TypeError, ValueError):
            if [t._version for t in pool] != before:
                return random_program(seed + 10_000, length, grad=grad, writes=writes)
            continue
        if not isinstance(result, torch.Tensor) or result.dim() > 4:
            continue
        steps.append((function, places))
        pool.append(result)
    count = choose.randint(1, 5)
    later = range(len(inputs), len(pool))
    outputs = (*tuple(choose.sample(later, count)), len(pool) - 1)
    try:
        for place in outputs:
            _ = pool[place].grad_fn
    except RuntimeError:  # a view that autograd no longer lets anyone use
        return random_program(seed + 10_000, length, grad=grad, writes=writes)
    return Program(tuple(steps), outputs, tuple(inputs))


def variables(program: Program) -> Sequence[str]:
    """Parameter names of a program."""
    return [f"x{i}" for i in range(len(program.inputs))]
