"""One small program for each way that real code uses modules, hooks and autograd."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.programs import case
from tests.programs.features import x35


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.act = nn.GELU()
        self.scale = 0.5
        self.history = []
        self.last = None

    def forward(self, x, *, mask=None, **kwargs):
        h = self.act(self.linear(x))
        if mask is not None:
            h = h.masked_fill(mask, float("-inf"))
        if kwargs.get("residual", False):
            h = h + x * self.scale
        self.last = h
        return h


class Scaled(Block):
    def forward(self, x, *args, **kwargs):
        h = super().forward(x, *args, **kwargs)
        return h * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(5), Scaled(5)])
        self.heads = nn.ModuleDict({"a": nn.Linear(5, 2), "b": nn.Linear(5, 3)})
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, residual=True)
        x = self.norm(x)
        out = OrderedDict()
        for name, head in self.heads.items():
            out[name] = head(x)
        if self.training:
            out["aux"] = x.mean()
        return out


@case
def modules():
    return Net(), (x35(),)


@case
def modules_eval():
    return Net().eval(), (x35(),)


@case
def module_keyword():
    return Block(5), (x35(),), {"mask": x35() > 1}


@case
def hooks():
    module = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
    module[0].register_forward_hook(lambda mod, args, out: out * 2)
    module.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    return module, (x35(),)


@case
def convolution():
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
    return module, (torch.randn(2, 2, 8, 8),)


@case
def attention():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.heads = 2

        def forward(self, x):
            b, n, c = x.shape
            qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            att = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            att = att.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
            return (att.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c)

    return Attention(), (torch.randn(2, 4, 8),)


@case
def sdpa():
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return f, tuple(torch.randn(1, 2, 4, 8) for _ in range(3))


@case
def no_grad_block():
    def f(x, w):
        with torch.no_grad():
            scale = w.abs().mean()
        return x * w / scale, torch.is_grad_enabled()

    return f, (x35(), torch.ones(5, requires_grad=True))


@case
def random_tensors():
    def f(x):
        noise = torch.randn_like(x)
        mask = torch.rand(x.shape) > 0.5
        return x + noise * mask, torch.randperm(4), torch.randint(0, 9, (3,))

    return f, (x35(),)


@case
def dropout():
    def f(x):
        return F.dropout(x, 0.5, training=True) + 1

    return f, (x35(),)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x


@case
def custom_autograd_function():
    def f(x):
        return Square.apply(x).sum() + 1

    return f, (x35().requires_grad_(),)


@case
def checkpointed():
    layer = nn.Linear(5, 5)

    def f(x):
        return checkpoint(lambda v: layer(v).relu(), x, use_reentrant=False) + 1

    return f, (x35(),)


@case
def autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y.float() + 1

    return f, (x35(), torch.ones(5, 2))


@case
def generator():
    def rows(x):
        for row in x:
            yield row * 2

    def f(x):
        return torch.stack(list(rows(x.sin())))

    return f, (x35(),)
