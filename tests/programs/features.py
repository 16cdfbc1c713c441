"""One small program for each construct that real `forward` methods use, common ones first."""

from __future__ import annotations

import functools
from collections import namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F

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
