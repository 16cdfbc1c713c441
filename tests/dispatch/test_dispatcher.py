"""Misses, limits, faults, threads, and what a user can say about them."""

from __future__ import annotations

import functools
import gc
import linecache
import logging
import threading
import time
import types
import weakref

import pytest
import torch

import srcjit
from srcjit import control
from srcjit.diagnostics import GraphBreakError

from .front_end import FrontEnd


def test_each_new_kind_of_argument_is_compiled_once(front_end: FrontEnd):
    @srcjit.jit
    def double(x, n):
        return x * n

    for _ in range(3):
        for dtype in (torch.float32, torch.float64):
            for n in (2, 3):
                x = torch.ones(4, dtype=dtype)
                assert torch.equal(double(x, n), x * n)
    assert len(front_end.compiled) == 4
    assert len(double.__srcjit__.specializations) == 4


def test_at_the_limit_the_rest_runs_natively_and_says_so_once(front_end, warnings):
    @srcjit.jit(options={"limit": 3})
    def add(x, n):
        return x + n

    x = torch.ones(2)
    for n in range(6):
        assert torch.equal(add(x, n), x + n)
    assert len(front_end.compiled) == 3
    (warning,) = warnings
    assert "limit of 3 specializations" in warning
    assert "n == " in warning
    assert "test_dispatcher.py:" in warning
    assert torch.equal(add(x, 1), x + 1)
    assert len(add.__srcjit__.specializations) == 3


def test_recompiles_are_explained(front_end: FrontEnd, caplog):
    @srcjit.jit
    def wave(x):
        return x.sin()

    with caplog.at_level(logging.INFO, "srcjit.recompiles"):
        wave(torch.ones(10))
        wave(torch.ones(20))
    (record,) = caplog.records
    text = record.getMessage()
    assert "nearest is 0" in text
    assert "x: float32[10] stride (1,) on cpu; got float32[20]" in text


def test_hints_say_what_has_changed(front_end: FrontEnd):
    @srcjit.jit
    def scaled(x, factor, flag):
        return x * factor

    scaled(torch.ones(4, 5), 0.5, True)
    scaled(torch.ones(4, 5), 0.25, True)
    scaled(torch.ones(4, 7), 0.25, True)
    scaled(torch.ones(4, 7).double(), 0.25, True)
    first, factor, size, dtype = front_end.hints
    assert not first.changed and not first.sizes
    assert factor.changed == {"factor"} and not factor.sizes
    assert size.changed == {"factor"} and size.sizes == {"x": {1}}
    assert dtype == size


def test_marked_dimensions_are_hints(front_end: FrontEnd):
    x = torch.ones(3, 4)
    srcjit.mark_dynamic(x, 1)
    srcjit.jit(lambda x: x + 1)(x)
    assert front_end.hints[0].sizes == {"x": {1}}
    with pytest.raises(IndexError, match="no dimension 2"):
        srcjit.mark_dynamic(x, 2)


def test_compiling_moves_no_random_numbers(front_end: FrontEnd):
    import random

    def draw():
        torch.rand(3)
        random.random()

    front_end.before = draw

    @srcjit.jit
    def noise(x):
        return x + torch.rand(4), random.random()

    torch.manual_seed(0)
    random.seed(0)
    expected = torch.ones(4) + torch.rand(4), random.random()
    torch.manual_seed(0)
    random.seed(0)
    ours = noise(torch.ones(4))
    assert torch.equal(ours[0], expected[0]) and ours[1] == expected[1]


def test_reset_forgets_everything(front_end: FrontEnd):
    @srcjit.jit
    def add(x):
        return x + 1

    add(1)
    add(1)
    srcjit.reset()
    assert not add.__srcjit__.specializations
    add(1)
    assert len(front_end.compiled) == 2


def test_stances(front_end: FrontEnd):
    @srcjit.jit
    def add(x):
        return x + 1

    with srcjit.set_stance("force_eager"):
        assert add(1) == 2
    assert not front_end.compiled
    add(1)
    with srcjit.set_stance("eager_on_recompile"):
        assert (add(1), add(2)) == (2, 3)
    with srcjit.set_stance("fail_on_recompile"):
        assert add(1) == 2
        with pytest.raises(RuntimeError, match="x == 1"):
            add(3)
    assert len(front_end.compiled) == 1

    @srcjit.set_stance("force_eager")
    def run(x):
        return add(x)

    assert run(5) == 6
    assert len(front_end.compiled) == 1
    add(6)
    assert len(front_end.compiled) == 2
    with pytest.raises(ValueError, match="stance must be one of"):
        srcjit.set_stance("lazy")


def test_changes_of_stance_leave_nothing_behind(front_end: FrontEnd):
    @srcjit.jit
    def double(x):
        return x * 2

    x = torch.ones(3)
    double(x)
    with srcjit.set_stance("force_eager"):
        double(x)
    before = len(linecache.cache)
    for _ in range(10):
        with srcjit.set_stance("force_eager"):
            double(x)
    assert len(linecache.cache) == before
    assert len(front_end.compiled) == 1


def test_the_stance_may_change_while_others_compile(front_end: FrontEnd):
    @srcjit.jit(options={"limit": 64})
    def scale(x, n):
        return x * n

    stop = threading.Event()
    problems: list[BaseException] = []

    def toggle() -> None:
        try:
            while not stop.is_set():
                with srcjit.set_stance("force_eager"):
                    pass
                time.sleep(0.001)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=toggle)
    thread.start()
    x = torch.ones(3)
    try:
        for n in range(40):
            assert torch.equal(scale(x, n), x * n)
    finally:
        stop.set()
        thread.join()
    assert not problems
    scale(x, -1)
    count = len(scale.__srcjit__.specializations)
    assert scale.__srcjit__.stub_text.count("if guard_") == count > 0


def test_reset_lets_go_of_what_it_forgets(front_end: FrontEnd):
    @srcjit.jit
    def double(x):
        return x * 2

    double(torch.ones(3))
    old = double.__code__
    forgotten = weakref.ref(double.__srcjit__.specializations[0].run)
    srcjit.reset()
    front_end.compiled.clear()
    gc.collect()
    assert forgotten() is None
    assert old.co_filename not in linecache.cache
    # A thread that is still in the old stub gets eager's answer.
    stale = types.FunctionType(old, double.__globals__)
    assert torch.equal(stale(torch.ones(3)), torch.full((3,), 2.0))


def test_disabled_functions_are_left_alone(front_end: FrontEnd, monkeypatch):
    def add(x):
        return x + 1

    assert srcjit.jit(add, disable=True) is add
    assert srcjit.disable(srcjit.jit(add)) is add
    assert srcjit.jit(add) is add
    assert control.is_disabled(add)

    @srcjit.disable(reason="slow to compile")
    def other(x):
        return x

    assert srcjit.jit(other) is other
    by_torch = torch.compiler.disable(lambda x: x)
    assert srcjit.jit(by_torch) is by_torch
    monkeypatch.setenv("SRCJIT_DISABLE", "1")
    assert srcjit.jit(len) is len
    assert not front_end.compiled


def test_what_cannot_be_compiled(front_end: FrontEnd, warnings):
    def generator():
        yield 1

    async def coroutine():
        return 1

    assert srcjit.jit(generator) is generator
    assert srcjit.jit(coroutine) is coroutine
    assert "SJ002" in warnings[0] and "SJ002" in warnings[1]
    assert srcjit.jit(torch.sin) is torch.sin
    assert "written in C" in warnings[2]
    with pytest.raises(GraphBreakError, match="generator"):
        srcjit.jit(generator, fullgraph=True)
    with pytest.raises(TypeError, match="needs a function or a module, got int"):
        srcjit.jit(3)

    class Empty:
        pass

    with pytest.raises(TypeError, match=r"class `.*Empty`, which has no `__call__`"):
        srcjit.jit(Empty)
    with pytest.raises(ValueError, match="no backend is called 'indctor'"):
        srcjit.jit(generator, backend="indctor")
    with pytest.raises(ValueError, match="mode must be one of"):
        srcjit.jit(generator, mode="fast")
    with pytest.raises(ValueError, match="unknown option 'limits'"):
        srcjit.jit(generator, options={"limits": 2})


@pytest.mark.parametrize("state", ["function", "dispatch", "vmap", "jvp"])
def test_inside_modes_and_transforms_python_runs(front_end: FrontEnd, state):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    @srcjit.jit
    def sine(x):
        return x.sin()

    x = torch.ones(3)
    sine(x)
    if state == "vmap":
        assert torch.equal(torch.vmap(sine)(x[None]), x[None].sin())
    elif state == "jvp":
        _, tangent = torch.func.jvp(sine, (x,), (x,))
        assert torch.allclose(tangent, x.cos())
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            out = torch.autograd.forward_ad.unpack_dual(sine(dual))
        assert torch.allclose(out.tangent, x.cos())
    else:
        with Functions() if state == "function" else Dispatches():
            assert torch.equal(sine(x), x.sin())
        assert calls
    assert len(front_end.compiled) == 1
    assert not sine.__srcjit__.disabled


def test_torch_compile_of_a_caller_is_right(front_end: FrontEnd):
    log = []

    @srcjit.jit
    def sine(x, n=2):
        return x.sin() * n

    @functools.wraps(sine)
    def logged(x):
        log.append(x.shape)
        return sine(x)

    compiled = torch.compile(lambda x: logged(x) + 1, backend="eager")
    for size in (3, 3, 4, 4):
        x = torch.ones(size)
        assert torch.equal(compiled(x), x.sin() * 2 + 1)
    assert log == [(3,), (3,), (4,), (4,)]
    torch._dynamo.reset()


def test_a_wrapper_with_copied_attributes_is_no_stub(front_end: FrontEnd):
    @srcjit.jit
    def add(x):
        return x + 1

    @functools.wraps(add)
    def twice(x):
        return add(add(x))

    assert twice.__srcjit__ is add.__srcjit__
    assert srcjit.jit(twice)(1) == 3
    assert srcjit.disable(twice)(1) == 3


def test_reasons_to_be_left_alone_do_not_spread_to_wrappers(front_end: FrontEnd):
    @srcjit.disable
    def add(x):
        return x + 1

    @functools.wraps(add)
    def twice(x):
        return add(add(x))

    assert control.is_disabled(add) and not control.is_disabled(twice)
    assert srcjit.jit(twice)(1) == 3
    assert len(front_end.compiled) == 1


def test_many_sizes_are_nearer_than_another_object():
    """A cache that grows is learned although the first call had none."""

    @srcjit.jit
    def step(x, caches):
        grown = []
        for i in range(3):
            old = x[:, :0] if caches is None else caches[i]
            grown.append(torch.cat([old, x * i], 1))
        return torch.stack([c.sum(1) for c in grown]), tuple(grown)

    def run(function):
        results, caches = [], None
        for n in (5, 1, 1, 1, 1, 1):
            total, caches = function(torch.arange(2.0 * n).view(2, n), caches)
            results += [total, *caches]
        return results

    for got, expected in zip(run(step), run(step.__wrapped__), strict=True):
        assert torch.equal(got, expected)
    assert len(step.__srcjit__.specializations) == 3
