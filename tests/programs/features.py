"""One small program for each construct that real `forward` methods use, common ones first."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.programs import case

SCALE = 1.5
TABLE = {"relu": F.relu, "gelu": F.gelu}


def x35():
    return torch.linspace(-2, 2, 15).reshape(3, 5)


@case
def tuple_unpacking():
    def f(x):
        a, (b, *c) = x[0], (x[1], x[2], x.sum())
        a, b = b, a
        return a * 2 + b, len(c), c[-1]

    return f, (x35(),)


@case
def list_display_and_cat():
    def f(x):
        parts = [x, x + 1]
        parts.append(x.sin())
        parts += [x * 2]
        parts.insert(0, -x)
        parts.pop(1)
        return torch.cat(parts, dim=1), len(parts)

    return f, (x35(),)


@case
def default_arguments():
    def f(x, scale=2.0, *, shift=1, extra=None):
        if extra is None:
            extra = x
        return x * scale + shift + extra

    return f, (x35(),), {"shift": 3}


@case
def slicing():
    def f(x):
        y = x[1:, ::2]
        z = x[..., None, -1]
        return y, z, x[:, 1] + x[0, 0], x[[0, 2]]

    return f, (x35(),)


@case
def shape_and_size():
    def f(x):
        b, n = x.shape
        if x.dim() == 2 and n > 4:
            x = x.view(b, 1, n)
        return x.expand(b, x.size(0), -1).reshape(-1, n), x.shape, x.numel()

    return f, (x35(),)


@case
def several_returns():
    def f(x, mode):
        if mode == "none":
            return None
        if mode == "pair":
            return x, x.t()
        return {"out": x.exp(), "mode": mode}

    return f, (x35(), "dict")


@case
def returns_input_and_view():
    def f(x):
        return x, x.t(), x + 1

    return f, (x35(),)


@case
def returns_none():
    def f(x, mode):
        if mode == "none":
            return None
        return x

    return f, (x35(), "none")


@case
def augmented_assignment():
    def f(x):
        y = x
        y += 1
        z = y * 2
        z -= y
        return z

    return f, (x35(),)


@case
def augmented_integer():
    def f(x, n):
        n += 1
        n **= 2
        return x * n, n

    return f, (x35(), 2)


@case
def range_and_enumerate():
    def f(x):
        out = 0
        for i, row in enumerate(x):
            for j in range(4, 0, -2):
                out = out + row * (i + j)
        for a, b in zip(x, x.flip(0)):
            out = out + a * b
        return out

    return f, (x35(),)


@case
def store_to_slice():
    def f(x):
        y = torch.zeros_like(x)
        y[0] = x[1]
        y[:, 2] += 3
        x[1, 1] = 7.0
        return y

    return f, (x35(),)


@case
def masked_store():
    def f(x):
        y = x.clone()
        y[y < 0] = 0.5
        return y

    return f, (x35(),)


@case
def asserts():
    def f(x):
        assert x.dim() == 2, f"two dimensions, not {x.dim()}"
        return x.sum(1)

    return f, (x35(),)


@case
def assert_fails():
    def f(x):
        assert x.dim() == 3, f"three dimensions, not {x.dim()}"
        return x.sum(1)

    return f, (x35(),)


@case
def conditional_expression():
    def f(x, y=None):
        z = x if y is None else x + y
        return z * 2 if z.shape[0] > 2 else z

    return f, (x35(),)


@case
def comprehensions():
    def f(x):
        rows = [row * i for i, row in enumerate(x) if i != 1]
        table = {str(i): row.sum() for i, row in enumerate(rows)}
        kinds = {type(row).__name__ for row in rows}
        return sum(table.values()), sorted(table), len(kinds)

    return f, (x35(),)


@case
def generator_expression():
    def f(x):
        return torch.stack(tuple(r.exp() for r in x)).sum() + sum(r.max() for r in x)

    return f, (x35(),)


@case
def raise_on_known():
    def f(x, kind):
        if kind not in ("a", "b"):
            raise ValueError("unknown kind: " + kind)
        return x

    return f, (x35(), "c")


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
def in_place_methods():
    def f(x):
        y = x * 2
        y.add_(1).clamp_(min=0)
        x.mul_(0.5)
        return y

    return f, (x35(),)


@case
def star_arguments():
    def g(*args, scale=1.0, **kwargs):
        return sum(args) * scale + kwargs.pop("shift", 0)

    def f(*xs, **kwargs):
        return g(*xs, xs[0], **{**kwargs, "scale": 0.5})

    return f, (x35(), x35() + 1), {"shift": 2}


@case
def dictionaries():
    def f(batch):
        out = {key: value * 2 for key, value in batch.items()}
        out["sum"] = out["a"] + out.get("b", 0)
        out.update(n=len(out))
        out.setdefault("z", 1)
        if "a" in out:
            del out["a"]
        return out

    return f, ({"a": x35(), "b": x35() + 1},)


@case
def isinstance_and_type():
    def f(x, y):
        if isinstance(x, (list, tuple)):
            x = torch.stack(list(x))
        if isinstance(y, torch.Tensor) and y.is_floating_point():
            x = x + y
        return x, type(y) is float, callable(f)

    return f, ((x35(), x35()), x35())


@case
def decorated():
    def twice(fn):
        @functools.wraps(fn)
        def wrapper(x):
            return fn(fn(x))

        return wrapper

    @twice
    def f(x):
        return x.sin() + 1

    return f, (x35(),)


@case
def int_and_float():
    def f(x, ratio):
        n = int(x.shape[1] * ratio)
        return x[:, :n] * float(n), round(ratio, 1), abs(-n), min(n, 2), divmod(n, 2)

    return f, (x35(), 0.61)


@case
def f_string():
    def f(x, name):
        key = f"{name}_{x.shape[0]:03d}"
        return {key: x.tanh()}, key.upper().replace("_", "-")

    return f, (x35(), "layer")


@case
def detach_and_clone():
    def f(x):
        y = x.clone()
        z = y.detach()
        z.add_(1)
        return y, z, x.data * 2

    return f, (x35(),)


@case
def numpy_constant():
    def f(x):
        w = np.linspace(0, 1, x.shape[1]).astype(np.float32)
        return x * torch.from_numpy(w) + np.pi

    return f, (x35(),)


@case
def to_numpy_and_back():
    def f(x):
        y = x.sin()
        z = np.asarray(y.numpy()).cumsum(axis=1)
        return torch.as_tensor(z) * 2

    return f, (x35(),)


@case
def math_functions():
    def f(x):
        d = x.size(-1)
        return x * math.sqrt(d) / math.log(d + 1) + math.pi, math.ceil(d / 2)

    return f, (x35(),)


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


@case
def item_in_arithmetic():
    def f(x):
        top = x.max().item()
        return x / top, top

    return f, (x35(),)


@case
def getattr_and_hasattr():
    def f(x, op):
        if hasattr(torch, op):
            x = getattr(torch, op)(x)
        return getattr(x, "no_such", None), x

    return f, (x35(), "sigmoid")


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
def branch_on_tensor():
    def f(x):
        if x.min() < -1:
            x = x + 3
        elif x.max() > 1:
            x = x - 3
        return x.sqrt()

    return f, (x35(),)


@case
def any_and_all():
    def f(x):
        if torch.isnan(x).any() or not torch.isfinite(x).all():
            return torch.zeros_like(x)
        return x * 2

    return f, (x35(),)


@case
def nested_functions():
    def f(x, k):
        total = x

        def add(v, times=2):
            nonlocal total
            total = total + v * times * k
            return total

        add(x.sin())
        square = lambda v: v * v
        return square(add(x.cos(), times=3))

    return f, (x35(), 0.5)


@case
def returns_closure():
    def f(x):
        y = x.sin()
        return [lambda v=i: v for i in range(2)], y

    return f, (x35(),)


@case
def break_and_continue():
    def f(x, n):
        for i in range(n):
            if i == 1:
                continue
            if i > 3:
                break
            x = x + i
        else:
            x = -x
        while n > 0:
            n -= 2
            x = x * 2
        return x, n

    return f, (x35(), 6)


@case
def checkpointed():
    layer = nn.Linear(5, 5)

    def f(x):
        return checkpoint(lambda v: layer(v).relu(), x, use_reentrant=False) + 1

    return f, (x35(),)


@case
def nonzero_and_tolist():
    def f(x):
        index = (x > 0).nonzero()
        picked = x[x > 0]
        return index.tolist(), picked * 2, picked.unique().shape

    return f, (x35(),)


@case
def map_and_filter():
    def f(x):
        rows = list(map(torch.exp, x))
        rows = [*filter(lambda r: r.shape[0] > 2, rows)]
        return functools.reduce(torch.add, rows)

    return f, (x35(),)


@case
def try_around_tensors():
    def f(x, w):
        try:
            y = x @ w
        except RuntimeError as error:
            y = x.t() @ w
            return y, type(error).__name__
        else:
            y = y + 1
        return y

    return f, (x35(), torch.ones(3, 2))


@case
def partial_and_table():
    def f(x, name):
        scale = functools.partial(torch.mul, other=SCALE)
        return scale(TABLE[name](x))

    return f, (x35(), "relu")


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


COUNT = 0


@case
def global_counter():
    global COUNT
    COUNT = 0

    def f(x):
        global COUNT
        COUNT += 1
        return x + COUNT

    return f, (x35(),)


Pair = namedtuple("Pair", "left right")


@dataclass
class Output:
    hidden: torch.Tensor
    steps: int = 0


@case
def named_tuples_and_dataclasses():
    def f(x):
        pair = Pair(x + 1, right=x - 1)
        out = Output(pair.left * pair.right)
        out.steps += 1
        return out, pair._replace(left=None)

    return f, (x35(),)


@case
def match_statement():
    def f(x, config):
        match config:
            case {"kind": "scale", "by": by}:
                return x * by
            case [first, *_]:
                return x + first
            case _:
                return x

    return f, (x35(), {"kind": "scale", "by": 3})


@case
def boolean_operators():
    def f(x, a, b):
        c = a or b
        if not a and b and x.shape[0] == 3:
            x = x * c
        return x, 1 < c <= 3 < 5

    return f, (x35(), 0, 3)


@case
def integer_arithmetic():
    def f(x):
        return (
            x // 2,
            x % 3,
            -x // 4,
            x / 2,
            x >> 1,
            ~x,
            x**2,
            torch.div(x, 2, rounding_mode="trunc"),
        )

    return f, (torch.arange(-7, 8),)


@case
def special_values():
    def f(x):
        return (
            x.relu(),
            torch.sign(x),
            x.clamp(-1, 1),
            x.round(),
            torch.maximum(x, -x),
            x == x,
        )

    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 0.5, 1.5, 2.5]
    return f, (torch.tensor(values),)


@case
def type_promotion():
    def f(i, h, b):
        return i + 1.5, h * 2, i * h, b + b, b * h, i.to(torch.float64) + h

    return f, (
        torch.arange(4),
        torch.ones(4).half(),
        torch.tensor([True, False, True, True]),
    )


@case
def reductions():
    def f(x):
        return (
            x.sum(0), x.mean(1, keepdim=True), x.var(), x.std(1), x.amax(1), x.argmax(1),
            x.max(dim=1), x.logsumexp(1), x.softmax(0), x.log_softmax(1), x.norm(), x.prod(),
            x.cumsum(1), x.any(), x.all(1),
        )  # fmt: skip

    return f, (x35(),)


@case
def losses():
    def f(x, target):
        return F.cross_entropy(x, target), F.mse_loss(x, x * 2), F.nll_loss(x, target)

    return f, (x35(), torch.tensor([0, 4, 2]))


@case
def embedding_and_gather():
    table = torch.randn(10, 4)

    def f(index):
        e = F.embedding(index, table)
        return (
            e.sum(1),
            torch.gather(e, 1, index[..., None].clamp(max=1)),
            F.one_hot(index, 10),
        )

    return f, (torch.tensor([[1, 9], [3, 0]]),)


@case
def class_instance():
    class Schedule:
        def __init__(self, base):
            self.base = base
            self.step = 0

        def __call__(self, x):
            self.step += 1
            return x * self.base

        @property
        def rate(self):
            return self.base / 2

    schedule = Schedule(0.5)

    def f(x):
        return schedule(x) + schedule.rate, schedule.step

    return f, (x35(),)


@case
def einsum_and_matmul():
    def f(a, b):
        return torch.einsum("ij,kj->ik", a, b), a @ b.T, torch.bmm(a[None], b.T[None])

    return f, (x35(), x35() + 1)


@case
def expanded_input():
    def f(x):
        return x + 1, x.contiguous(), x.sum(0)

    return f, (torch.arange(4.0).expand(3, 4),)


@case
def same_tensor_twice():
    def f(x, y):
        x.add_(1)
        return x * y

    x = x35()
    return f, (x, x)


@case
def overlapping_views():
    def f(x, y):
        x.mul_(2)
        return x.sum() + y.sum()

    x = torch.arange(6.0)
    return f, (x[:4], x[2:])
