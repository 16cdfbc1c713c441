"""Tensors under several names, and what their versions, methods, dtypes and texts are."""

from __future__ import annotations

import contextlib
import copy
import warnings

import torch

from .flow import opaque


def parameter_list_rebound(y):
    z = y[0]
    print("x")
    y = opaque(5)
    return z + 1, y


def two_paths_to_one_tensor(y, lst):
    y = y.sin()
    print("a")
    return y + lst[0]


def alias_of_a_loop_variable(x, y):
    x = y
    for y in opaque([y, y + 1]):
        y = y * 2
    return x + 1, y


def list_of_one_tensor(a):
    b = [a, a]
    a = a + 1
    print("hey")
    a.add_(1)
    b[0].add_(1)
    c = opaque(b)
    c.append(a)
    return a, b, c, b is c


def tables_by_dtype_device_and_infinity(x, table):
    kept = [x * value for value in table.values()]
    return kept, x + table[x.dtype], table[x.device], table[float("inf")]


def methods_of_the_tensor_itself(x):
    y = x + 1
    text = y.__format__(""), y.__repr__(), torch.Tensor.__str__(y)
    numbers = torch.Tensor.item(y[0]), torch.Tensor.tolist(y)
    return y, text, numbers, y.__hash__() == hash(y), hasattr(y, "names")


class Loud:
    count = 0

    def __str__(self):
        self.count += 1
        return f"loud {self.count}"


def formatted_objects(x, loud):
    return x + 1, "%s" % loud, "%s-%s" % (loud, 1), "%s" % (x.shape,)  # noqa: UP031


def copies_of_what_is_made_anew(x, sizes, keys):
    made = copy.deepcopy(sizes), copy.deepcopy(keys)
    return x + 1, made, made[0] is sizes, made[1] is keys, iter(sizes)


def numbers_that_a_dtype_does_not_hold(x, i):
    half = x.half()
    calls = (
        lambda: half.masked_fill(half > 0, -1e9),
        lambda: torch.full((2,), 1e39),
        lambda: torch.full_like(half, 70000),
        lambda: x.clamp(max=1e39),
        lambda: x.fill_(1e300),
        lambda: (half * 1e6, x * 1e39, x.double() * 1e39, x > 1e39, 1e39 - x),
    )
    try:
        return calls[i]()
    except RuntimeError as error:
        return str(error), x + 1


def versions_of_what_is_made_in_steps(x):
    like = torch.isclose(x, x)
    padded = torch.nn.functional.pad(x[None], (1, 1), mode="circular").add_(1)
    h = torch.gru_cell(x[None], x[None], torch.ones(6, 2), torch.ones(6, 2))
    made = x * 2
    made.add_(1)
    shown = made.detach()
    shown.add_(1)
    return like, padded, h, h.detach(), shown, made.data


def writes_to_what_is_detached(x):
    y = x * 2
    y.add_(1)
    first, second, third = y.detach(), y[:1].detach(), y.data
    y.mul_(2)
    return first, second, third


class Listening:
    """Stands in for a stream, and counts what is written to it."""

    def __init__(self):
        self.heard = []

    def write(self, text):
        self.heard.append(text)

    def flush(self):
        pass


def warnings_and_prints_that_are_heard(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = len(caught)
        warnings.warn("once", stacklevel=1)
        first = [before, len(caught), [str(w.message) for w in caught]]
        warnings.warn("twice", stacklevel=1)
        y = x * len(caught)
    stream = Listening()
    with contextlib.redirect_stdout(stream):
        print("a", "b")
        y = y + len(stream.heard)
    return y, first, stream.heard


def _one():
    return (torch.ones(2),)


def _aliased():
    y = torch.randn(3)
    return y, [y, torch.ones(3)]


def _wanted():
    return (torch.ones(2, requires_grad=True),)


ATTACKS = {
    numbers_that_a_dtype_does_not_hold: [
        lambda i=i: (torch.ones(2), i) for i in range(6)
    ],
    versions_of_what_is_made_in_steps: [_one],
    warnings_and_prints_that_are_heard: [_one],
    writes_to_what_is_detached: [_one, _wanted],
    parameter_list_rebound: [lambda: ([torch.ones(2), 3],)],
    two_paths_to_one_tensor: [_aliased],
    alias_of_a_loop_variable: [lambda: (torch.ones(2), torch.zeros(2))],
    list_of_one_tensor: [_one],
    tables_by_dtype_device_and_infinity: [
        lambda: (
            torch.ones(2),
            {
                torch.float32: torch.ones(2),
                torch.device("cpu"): torch.zeros(2),
                (1, torch.strided): torch.ones(1),
                float("inf"): 3.0,
            },
        )
    ],
    methods_of_the_tensor_itself: [_one],
    formatted_objects: [lambda: (torch.ones(2), Loud())],
    copies_of_what_is_made_anew: [
        lambda: (torch.ones(2), torch.Size([1, 2]), frozenset([1]))
    ],
}
"""Each program, and what makes its arguments."""
