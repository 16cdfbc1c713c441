"""A jitted function binds its arguments as CPython does, errors included."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback

import pytest

import srcjit

from .front_end import FrontEnd

pytestmark = pytest.mark.usefixtures("front_end")


def none():
    return "none"


def plain(x, y):
    return x, y


def defaults(x, y=2, z="z"):
    return x, y, z


def positional_only(a, b=1, /, c=2):
    return a, b, c


def keyword_only(*, k, d=4):
    return k, d


def variadic(x, *args, k=1, **kwargs):
    return x, args, k, kwargs


def everything(a, b=1, /, c=2, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


def awkward_names(specialize, native, guard_0, default_native=3, **miss):
    return specialize, native, guard_0, default_native, miss


FUNCTIONS = [
    none,
    plain,
    defaults,
    positional_only,
    keyword_only,
    variadic,
    everything,
    awkward_names,
    lambda x, *y, z=3: (x, y, z),
]

CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4, 5, 6), {}),
    ((), {"k": 1}),
    ((1,), {"k": 2, "d": 7}),
    ((), {"x": 1, "y": 2}),
    ((1,), {"x": 1}),
    ((1,), {"y": 5, "q": 6}),
    ((1, 2), {"c": 3, "d": 4, "z": 9, "self": 0}),
    ((1, 2, 3), {"miss": 4, "native": 5}),
]


def outcome(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_binding_and_its_errors_are_cpythons(function):
    jitted = srcjit.jit(function)
    for args, kwargs in CALLS:
        expected = outcome(function, args, kwargs)
        assert outcome(jitted, args, kwargs) == expected
        assert outcome(jitted, args, kwargs) == expected  # now from the specialization


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_looks_like_the_function(function):
    jitted = srcjit.jit(function)
    assert inspect.isfunction(jitted)
    assert inspect.signature(jitted) == inspect.signature(function)
    for name in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__annotations__",
    ):
        assert getattr(jitted, name) == getattr(function, name)
    assert jitted.__wrapped__ is function
    code, own = jitted.__code__, function.__code__
    assert code.co_argcount == own.co_argcount
    assert code.co_posonlyargcount == own.co_posonlyargcount
    assert code.co_kwonlyargcount == own.co_kwonlyargcount


def test_annotations_and_attributes_are_kept():
    def typed(x: int, *, y: str = "y") -> bool:
        """Says."""
        return True

    typed.mark = [1]
    jitted = srcjit.jit(typed)
    assert jitted.__annotations__ == typed.__annotations__
    assert jitted.__doc__ == "Says."
    assert jitted.mark is typed.mark


def test_a_changed_default_takes_effect():
    def scale(x, n=2, *, k=3):
        return x, n, k

    jitted = srcjit.jit(scale)
    assert jitted(1) == (1, 2, 3)
    scale.__defaults__ = (7,)
    scale.__kwdefaults__ = {"k": 8}
    assert jitted(1) == scale(1) == (1, 7, 8)
    scale.__kwdefaults__["k"] = 9
    assert jitted(1, 0) == scale(1, 0) == (1, 0, 9)
    jitted.__defaults__ = (5,)
    assert jitted(1) == (1, 5, 9)


def test_a_default_is_the_same_object_each_time():
    def collect(x, seen=[]):
        seen.append(x)
        return seen

    jitted = srcjit.jit(collect)
    first = jitted(1)
    assert jitted(2) is first
    assert first == [1, 2]


def test_methods_bind_as_functions_do(front_end: FrontEnd):
    class Counter:
        step = 2

        @srcjit.jit
        def add(self, n=1):
            return self.step + n

        @classmethod
        @srcjit.jit
        def name(cls):
            return cls.__name__

        @srcjit.jit
        @staticmethod
        def double(n):
            return 2 * n

        @property
        @srcjit.jit
        def twice(self):
            return 2 * self.step

        @srcjit.jit
        def __hidden(self, __n=1):
            return __n

        def hidden(self):
            return self.__hidden()

    counter = Counter()
    assert counter.add() == 3
    assert Counter.add(counter, 4) == 6
    assert counter.add.__self__ is counter
    assert Counter.name() == "Counter"
    assert Counter.double(4) == 8
    assert counter.twice == 4
    assert counter.hidden() == 1
    with pytest.raises(
        TypeError, match=r"Counter\.add\(\) missing 1 required positional"
    ):
        Counter.add()


def test_bound_methods_partials_and_callable_objects():
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x):
            return self.factor * x

        def scale(self, x):
            return self.factor * x

    scaler = Scaler(3)
    assert srcjit.jit(scaler.scale)(2) == 6
    assert srcjit.jit(scaler.scale).__self__ is scaler
    assert srcjit.jit(scaler)(4) == 12
    partial = srcjit.jit(functools.partial(plain, 1, y=5))
    assert isinstance(partial, functools.partial)
    assert partial() == (1, 5)
    assert partial.func.__wrapped__ is plain


def test_jit_of_a_jitted_function_starts_anew(front_end: FrontEnd):
    once = srcjit.jit(plain)
    twice = srcjit.jit(once, fullgraph=True)
    assert twice.__wrapped__ is plain
    assert twice(1, 2) == (1, 2)
    assert front_end.compiled == ["plain"]


def test_exceptions_show_the_users_lines_and_columns():
    def divide(x, by):
        y = x + 1

        return y / by

    def frames(function):
        try:
            function(1, 0)
        except ZeroDivisionError as error:
            return list(traceback.extract_tb(error.__traceback__))[1:]

    jitted = srcjit.jit(divide)
    (eager,) = frames(divide)
    for _ in range(2):
        *ours, last = frames(jitted)
        assert not ours or sys.version_info < (3, 11)  # which shows the stub
        assert (last.filename, last.lineno, last.name, last.line) == (
            eager.filename,
            eager.lineno,
            eager.name,
            eager.line,
        )
        assert getattr(last, "colno", None) == getattr(eager, "colno", None)


def test_the_stub_is_readable(front_end: FrontEnd):
    def power(x, n=2):
        return x**n

    jitted = srcjit.jit(power)
    jitted(3)
    jitted(3, 4)
    assert jitted.__srcjit__.stub_text == (
        "def power(x, n=DEFAULT):\n"
        "    try:\n"
        "        if n is default_n:\n"
        "            n = native.__defaults__[-1]\n"
        "        if guard_0(x, n):\n"
        "            return power_0(x, n)\n"
        "        if guard_1(x, n):\n"
        "            return power_1(x, n)\n"
        "        return specialize(x, n)(x, n)\n"
        "    except BaseException as error:\n"
        "        error.__traceback__ = error.__traceback__.tb_next\n"
        "        raise\n"
    )
