"""Whatever changes after the first call is noticed: the result is always eager's.

Each case makes a function, its arguments, and steps that change something. The function is
jitted once; after every step the jitted and the plain function are called on equal terms.
"""

from __future__ import annotations

import collections
import enum
import functools
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import srcjit
from tests.harness import no_faults, run

Step = Callable[[], Any]
CASES: dict[
    str, Callable[[], tuple[Any, Callable[[], tuple[Any, ...]], list[Step]]]
] = {}


def case(make: Any) -> Any:
    CASES[make.__name__] = make
    return make


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


SCALE = 2
TABLE = {"a": 1, "b": 2}
ITEMS = [1, 2, 3]
OTHER = types.ModuleType("other_module")
OTHER.factor = 3  # type: ignore[attr-defined]


def helper(t: torch.Tensor, k: int = 2, *, bias: float = 1.0) -> torch.Tensor:
    return t * k + bias


def helper_code(t: torch.Tensor, k: int = 2, *, bias: float = 1.0) -> torch.Tensor:
    return t - k - bias


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    kind = 1

    def __init__(self) -> None:
        self.value = 2
        self.items = [1, 2]

    def scale(self, t: torch.Tensor) -> torch.Tensor:
        return t * self.value * self.kind


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("shift", torch.ones(3))
        self.drop = nn.Dropout(0.5)
        self.flag = True
        self.layers = nn.ModuleList([nn.Tanh(), nn.Linear(3, 3)])

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        t = self.first(t) + self.shift
        for layer in self.layers:
            t = layer(t)
        return t * 2 if self.flag else t


def _set(holder: Any, name: str, value: Any) -> Step:
    return lambda: setattr(holder, name, value)


def _global(name: str, value: Any) -> Step:
    return lambda: globals().__setitem__(name, value)


@case
def global_number():
    def f(t):
        return t * SCALE, SCALE > 2

    return f, lambda: (x(),), [_global("SCALE", v) for v in (3, 3.0, True, 2**70, 2)]


@case
def global_of_another_module():
    def f(t):
        return t * OTHER.factor

    return f, lambda: (x(),), [_set(OTHER, "factor", v) for v in (4, 4.5, 3)]


@case
def global_dict_and_list():
    def f(t):
        return t * TABLE["a"] + sum(ITEMS) + len(TABLE) + ITEMS[-1], list(TABLE)

    steps = [
        lambda: TABLE.__setitem__("a", 5),
        lambda: TABLE.__setitem__("c", 5),
        lambda: TABLE.pop("b"),
        lambda: TABLE.update(b=TABLE.pop("a"), a=7),
        lambda: ITEMS.append(9),
        lambda: ITEMS.__setitem__(0, 2.5),
        lambda: ITEMS.reverse(),
        lambda: (
            TABLE.clear(),
            TABLE.update(a=1, b=2),
            ITEMS.clear(),
            ITEMS.extend([1, 2, 3]),
        ),
    ]
    return f, lambda: (x(),), steps


@case
def removed_key():
    table = {"a": 1, "b": 2}

    def f(t):
        return t * 2 if "b" in table else t, table.get("b", 7)

    return (
        f,
        lambda: (x(),),
        [lambda: table.pop("b"), lambda: table.__setitem__("b", None)],
    )


@case
def closure_variable():
    k = 2

    def f(t):
        return t * k

    def change(v):
        nonlocal k
        k = v

    return f, lambda: (x(),), [lambda v=v: change(v) for v in (3, 2.0, False, x())]


@case
def default_and_keyword_default():
    def g(t, k=2, *, b=1):
        return t * k + b

    def f(t):
        return g(t)

    return (
        f,
        lambda: (x(),),
        [_set(g, "__defaults__", (5,)), _set(g, "__kwdefaults__", {"b": 2.5})],
    )


@case
def own_default():
    def f(t, k=2):
        return t * k

    return f, lambda: (x(),), [_set(f, "__defaults__", (5,))]


@case
def inlined_code_and_rebinding():
    original = helper.__code__

    def f(t):
        return helper(t, 3)

    return (
        f,
        lambda: (x(),),
        [
            _set(helper, "__code__", helper_code.__code__),
            _set(helper, "__code__", original),
            _global("helper", helper_code),
            _global("helper", helper),
        ],
    )


@case
def attribute_and_class_attribute():
    o = Plain()

    def f(t):
        return o.scale(t), o.kind

    return (
        f,
        lambda: (x(),),
        [
            _set(o, "value", 3),
            _set(o, "value", 3.0),
            _set(Plain, "kind", 5),
            _set(o, "kind", 6),
            lambda: delattr(o, "kind"),
            _set(Plain, "kind", 1),
        ],
    )


@case
def method_replaced():
    o = Plain()
    original = Plain.scale

    def f(t):
        return o.scale(t)

    return (
        f,
        lambda: (x(),),
        [
            _set(Plain, "scale", lambda self, t: t + 1),
            _set(Plain, "scale", original),
            _set(o, "scale", lambda t: t - 1),
            lambda: delattr(o, "scale"),
        ],
    )


@case
def list_attribute():
    o = Plain()

    def f(t):
        for i in o.items:
            t = t + i
        return t, len(o.items), bool(o.items)

    return (
        f,
        lambda: (x(),),
        [lambda: o.items.append(5), lambda: o.items.clear(), _set(o, "items", (1,))],
    )


ARGUMENTS = [
    1,
    True,
    1.0,
    -0.0,
    0.0,
    math.nan,
    math.inf,
    2**70,
    None,
    "s",
    (1, 2),
    [1, 2],
    {"a": 1},
    Color.RED,
    Color.BLUE,
    torch.float32,
    torch.float64,
    torch.device("cpu"),
    range(3),
    int,
    1j,
    b"s",
    frozenset([1]),
    slice(0, 1),
]


@pytest.mark.parametrize("first", range(0, len(ARGUMENTS), 5))
def test_argument_of_another_kind(first: int) -> None:
    def f(t, k):
        if k is None:
            return t
        if isinstance(k, bool):
            return t + 1, k
        if isinstance(k, (int, float)):
            return t * k, str(k), k == 0
        if isinstance(k, (tuple, list)):
            return t + sum(k), len(k)
        if isinstance(k, dict):
            return t + k["a"]
        if isinstance(k, Color):
            return t * k.value, k is Color.RED
        if isinstance(k, torch.dtype):
            return t.to(k)
        if isinstance(k, torch.device):
            return t.to(k), k
        if isinstance(k, slice):
            return t[k]
        return k, t

    jitted = srcjit.jit(f, options={"stage": "specialize"})
    with no_faults():
        for k in [ARGUMENTS[first], *ARGUMENTS, ARGUMENTS[first]]:
            _compare(f, jitted, (x(), k))


def _compare(plain: Any, jitted: Any, args: tuple[Any, ...]) -> None:
    expected = run(plain, (plain, args, {}))
    actual = run(jitted, (plain, args, {}))
    assert actual.failure == expected.failure
    assert actual.structure == expected.structure
    assert [repr(n) for n in actual.numbers] == [repr(n) for n in expected.numbers]
    assert actual.layout == expected.layout
    for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
        assert torch.equal(got.nan_to_num(7.5), wanted.nan_to_num(7.5))


@case
def tensor_facts():
    given = [x()]

    def f(t):
        return (
            t.sum(0) if t.shape[0] == 2 else t * 2,
            t.dtype,
            t.requires_grad,
            t.stride(),
        )

    tensors = [
        torch.ones(3, 2),
        torch.ones(2, 3, dtype=torch.float64),
        torch.ones(3, 2).t(),
        torch.ones(2, 3, requires_grad=True),
        torch.ones(2, 3)[:, ::2],
        torch.ones(0, 3),
        nn.Parameter(torch.ones(2, 3)),
    ]
    return (
        f,
        lambda: (given[0],),
        [lambda t=t: given.__setitem__(0, t) for t in tensors],
    )


@case
def aliased_arguments():
    a, b = x(), x()
    given = [(a, b)]

    def f(s, t):
        s.add_(1)
        return t * 2, s is t

    return (
        f,
        lambda: given[0],
        [
            lambda: given.__setitem__(0, (a, a)),
            lambda: given.__setitem__(0, (a, a.t().t())),
        ],
    )


@case
def aliased_lists():
    one, two = [1], [1]
    given = [(one, two)]

    def f(t, p, q):
        p.append(5)
        return t * len(q), q[-1]

    return f, lambda: (x(), *given[0]), [lambda: given.__setitem__(0, (one, one))]


@case
def aliased_objects():
    one, two = Plain(), Plain()
    given = [(one, two)]

    def f(t, p, q):
        p.value = 7
        return t * q.value

    return f, lambda: (x(), *given[0]), [lambda: given.__setitem__(0, (one, one))]


def _net_case(*changes: Callable[[Net], Any]) -> Any:
    torch.manual_seed(0)
    net = Net()

    def f(t):
        return net(t)

    return f, lambda: (x(),), [functools.partial(change, net) for change in changes]


@case
def submodule_replaced():
    return _net_case(
        lambda n: setattr(n, "first", nn.Linear(3, 3, bias=False)),
        lambda n: setattr(n, "first", nn.Identity()),
        lambda n: n.layers.append(nn.ReLU()),
        lambda n: n.layers.__setitem__(0, nn.Sigmoid()),
        lambda n: n.layers.pop(1),
    )


@case
def parameter_replaced():
    return _net_case(
        lambda n: setattr(n.first, "weight", nn.Parameter(torch.ones(3, 3))),
        lambda n: setattr(n.first, "bias", None),
        lambda n: n.first.weight.requires_grad_(False),
        lambda n: n.double() and n.float(),
        lambda n: n.first.weight.data.zero_(),
        lambda n: setattr(n.first.weight, "data", torch.ones(3, 3)),
    )


@case
def buffer_and_flag():
    return _net_case(
        lambda n: setattr(n, "shift", torch.zeros(3)),
        lambda n: setattr(n, "shift", torch.zeros(2, 3)),
        lambda n: setattr(n, "flag", False),
        lambda n: setattr(n, "flag", 1),
        lambda n: n.eval(),
        lambda n: setattr(n, "forward", lambda t: t + 100),
        lambda n: delattr(n, "forward"),
    )


@case
def hooks_come_and_go():
    handles: list[Any] = []

    def add(net: Net) -> None:
        handles.append(net.first.register_forward_hook(lambda m, a, o: o * 2))

    def add_before(net: Net) -> None:
        handles.append(net.first.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))

    def add_global(net: Net) -> None:
        handles.append(
            nn.modules.module.register_module_forward_hook(lambda m, a, o: o + 1)
        )

    def remove(net: Net) -> None:
        handles.pop().remove()

    return _net_case(add, add_before, remove, add, remove, remove, add_global, remove)


@case
def training_mode():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def f(t):
        return net(t), net[1].num_batches_tracked

    def check_eval() -> None:
        net.eval()

    # BatchNorm changes its own buffers, so both calls see different ones: compare in eval.
    net.eval()
    return (
        f,
        lambda: (x(),),
        [lambda: net[0].train(), check_eval, lambda: net[1].reset_parameters()],
    )


@case
def grad_mode_and_default_dtype():
    weight = nn.Parameter(torch.ones(3))

    def f(t):
        return t * weight, torch.ones(2), torch.is_grad_enabled()

    return (
        f,
        lambda: (x(),),
        [
            lambda: torch.set_grad_enabled(False),
            lambda: torch.set_grad_enabled(True),
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
        ],
    )


@case
def named_tuple_and_enum_globals():
    Pair = collections.namedtuple("Pair", "a b")
    given = [Pair(1, 2)]

    def f(t, p):
        return t * p.a + p[1], type(p).__name__

    return (
        f,
        lambda: (x(), given[0]),
        [lambda: given.__setitem__(0, v) for v in (Pair(1, 3), Pair(2.0, 3))],
    )


@case
def shared_parameter():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def f(t):
        return (
            net(t),
            len(list(net.parameters())),
            [n for n, _ in net.named_parameters()],
        )

    return (
        f,
        lambda: (x(),),
        [
            lambda: setattr(net[1], "weight", net[0].weight),
            lambda: net[0].register_parameter("extra", nn.Parameter(torch.ones(1))),
            lambda: net.append(nn.Tanh()),
        ],
    )


@case
def property_of_a_class():
    class Holder:
        def __init__(self) -> None:
            self.n = 1

        @property
        def double(self) -> int:
            return self.n * 2

    o = Holder()

    def f(t):
        return t * o.double

    return (
        f,
        lambda: (x(),),
        [_set(o, "n", 5), lambda: setattr(Holder, "double", property(lambda self: 9))],
    )


@case
def unused_arguments_cost_nothing():
    def f(t, unused, used):
        return t + used

    values: Iterator[Any] = iter(range(100))
    return f, lambda: (x(), next(values), 2), [lambda: None] * 4


@pytest.mark.parametrize("name", CASES)
def test_change_is_noticed(name: str) -> None:
    function, arguments, steps = CASES[name]()
    jitted = srcjit.jit(function, options={"stage": "specialize"})
    try:
        with no_faults():
            for step in [lambda: None, lambda: None, *steps]:
                step()
                args = arguments()
                snapshot = _snapshot(args)
                expected = run(function, (function, args, {}))
                _restore(args, snapshot)
                actual = run(jitted, (function, args, {}))
                _restore(args, snapshot)
                assert actual.failure == expected.failure
                assert actual.structure == expected.structure
                assert [repr(n) for n in actual.numbers] == [
                    repr(n) for n in expected.numbers
                ]
                # Restoring has written to the arguments: versions, which are last, differ.
                assert [facts[:-1] for facts in actual.layout] == [
                    facts[:-1] for facts in expected.layout
                ]
                for got, wanted in zip(actual.tensors, expected.tensors, strict=True):
                    assert torch.equal(got, wanted)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    if name.startswith("unused"):
        assert len(jitted.__srcjit__.specializations) == 1


def _snapshot(args: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg.detach().clone())
        elif isinstance(arg, list):
            found.append(list(arg))
        elif isinstance(arg, Plain):
            found.append(dict(vars(arg)))
        else:
            found.append(None)
    return found


def _restore(args: tuple[Any, ...], snapshot: list[Any]) -> None:
    for arg, saved in zip(args, snapshot):
        if isinstance(arg, torch.Tensor):
            with torch.no_grad():
                arg.copy_(saved)
        elif isinstance(arg, list):
            arg[:] = saved
        elif isinstance(arg, Plain):
            vars(arg).clear()
            vars(arg).update(saved)
