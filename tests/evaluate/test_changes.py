"""What an object, a global or a closure is after the first call: the result is always eager's."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tests.evaluate.changes import Cases, Plain, Step, check_changes, setting, x

case = Cases()


SCALE = 2
TABLE = {"a": 1, "b": 2}
ITEMS = [1, 2, 3]
OTHER = types.ModuleType("other_module")
OTHER.factor = 3  # type: ignore[attr-defined]


def helper(t: torch.Tensor, k: int = 2, *, bias: float = 1.0) -> torch.Tensor:
    return t * k + bias


def helper_code(t: torch.Tensor, k: int = 2, *, bias: float = 1.0) -> torch.Tensor:
    return t - k - bias


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

    return f, lambda: (x(),), [setting(OTHER, "factor", v) for v in (4, 4.5, 3)]


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
        [setting(g, "__defaults__", (5,)), setting(g, "__kwdefaults__", {"b": 2.5})],
    )


@case
def own_default():
    def f(t, k=2):
        return t * k

    return f, lambda: (x(),), [setting(f, "__defaults__", (5,))]


@case
def inlined_code_and_rebinding():
    original = helper.__code__

    def f(t):
        return helper(t, 3)

    return (
        f,
        lambda: (x(),),
        [
            setting(helper, "__code__", helper_code.__code__),
            setting(helper, "__code__", original),
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
            setting(o, "value", 3),
            setting(o, "value", 3.0),
            setting(Plain, "kind", 5),
            setting(o, "kind", 6),
            lambda: delattr(o, "kind"),
            setting(Plain, "kind", 1),
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
            setting(Plain, "scale", lambda self, t: t + 1),
            setting(Plain, "scale", original),
            setting(o, "scale", lambda t: t - 1),
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
        [lambda: o.items.append(5), lambda: o.items.clear(), setting(o, "items", (1,))],
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
        [
            setting(o, "n", 5),
            lambda: setattr(Holder, "double", property(lambda self: 9)),
        ],
    )


@pytest.mark.parametrize("name", case)
def test_change_is_noticed(name: str) -> None:
    check_changes(case[name])
