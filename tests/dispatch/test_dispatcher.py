"""Misses, limits, faults, threads, and what a user can say about them."""

from __future__ import annotations

import functools
import gc
import linecache
import logging
import os
import threading
import time
import types
import weakref

import pytest
import torch

import srcjit
from srcjit import control
from srcjit.diagnostics import CompilerFault, GraphBreak, GraphBreakError
from srcjit.origin import Origin
from srcjit.passes.program import Guard
from srcjit.source import SourceUnavailable

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


FAULTS = [
    RuntimeError("internal detail"),
    CompilerFault("lowering failed", Origin(__file__, 3)),
    GraphBreak("SJ003", "calls `locals`", Origin(__file__, 3)),
    SourceUnavailable("no file"),
    AssertionError(),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: type(f).__name__)
def test_a_fault_leaves_eager_and_one_warning(front_end, warnings, fault):
    front_end.fault = fault

    @srcjit.jit
    def triple(x):
        return x * 3

    for n in range(3):
        x = torch.full((n + 1,), 2.0)
        assert torch.equal(triple(x), x * 3)
    (warning,) = warnings
    assert "test_dispatcher.py:" in warning
    assert (
        "Python runs `test_a_fault_leaves_eager_and_one_warning.<locals>.triple`"
        in (warning)
    )
    assert str(getattr(fault, "diagnostic", fault)).split(": ")[-1] in warning
    # What it costs now is one more Python call.
    assert triple.__srcjit__.stub_text.endswith("return native(x)\n")


def test_a_fault_spares_what_is_compiled(front_end: FrontEnd, warnings):
    @srcjit.jit
    def triple(x):
        return x * 3

    triple(torch.ones(2))
    front_end.fault = RuntimeError("later")
    triple(torch.ones(3))
    front_end.fault = None
    triple(torch.ones(4))
    triple(torch.ones(2))
    assert len(triple.__srcjit__.specializations) == 1
    assert len(front_end.compiled) == len(warnings) == 1


def test_a_kernel_that_does_not_compile_is_a_fault(front_end: FrontEnd, warnings):
    front_end.definitions = """
from srcjit.runtime import cpp_kernels

segment_0_kernels = cpp_kernels('extern "C" void broken(float* y) { y[0] = missing; }')
"""
    add = srcjit.jit(lambda x: x + 1)
    assert (add(1), add(2)) == (2, 3)
    (warning,) = warnings
    assert "the C++ compiler rejected a kernel" in warning and "missing" in warning


def test_raise_setting_shows_the_fault(front_end: FrontEnd, monkeypatch):
    monkeypatch.setenv("SRCJIT_RAISE", "1")
    front_end.fault = RuntimeError("here")
    with pytest.raises(RuntimeError, match="here"):
        srcjit.jit(lambda x: x)(1)


def test_a_guard_that_refuses_its_own_arguments_is_a_fault(front_end, warnings):
    front_end.extra = (Guard("x is None"),)
    assert srcjit.jit(lambda x: x + 1)(1) == 2
    assert "does not fit: x is None" in warnings[0]


def test_fullgraph_raises_the_diagnostic(front_end: FrontEnd):
    front_end.fault = GraphBreak("SJ012", "call to `print` has a side effect")

    @srcjit.jit(fullgraph=True)
    def noisy(x):
        print(x)

    for _ in range(2):
        with pytest.raises(GraphBreakError, match="SJ012"):
            noisy(1)
    front_end.fault = None
    noisy(1)


def test_keyboard_interrupt_leaves_a_usable_state(front_end: FrontEnd, warnings):
    def interrupt():
        raise KeyboardInterrupt

    @srcjit.jit
    def half(x):
        return x / 2

    front_end.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        half(4)
    front_end.before = lambda: None
    assert not srcjit.is_compiling()
    assert half(4) == 2
    assert front_end.compiled == [half.__qualname__]
    assert not warnings


def test_calls_inside_the_compiler_run_natively(front_end: FrontEnd):
    seen = []

    @srcjit.jit
    def inner(x):
        seen.append(srcjit.is_compiling())
        return x + 1

    @srcjit.jit
    def outer(x):
        return inner(x)

    front_end.before = lambda: (inner(0), outer(0))
    outer(1)
    # Twice while compiling `outer`, then at run time: compiling `inner` first.
    assert seen[:2] == [True, True]
    assert seen[-1] is False


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


def test_threads_compile_each_specialization_once(front_end: FrontEnd):
    @srcjit.jit(options={"limit": 64})
    def scale(x, n):
        return x * n

    wrong: list[object] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        for call in range(1000):
            n = (call + seed) % 5
            size = 1 + (call // 5 + seed) % 4
            if not torch.equal(
                scale(torch.ones(size), n), torch.full((size,), float(n))
            ):
                wrong.append((size, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(front_end.compiled) == 20


def test_threads_hear_of_one_fault_once(front_end: FrontEnd, warnings):
    front_end.before = lambda: time.sleep(0.05)
    front_end.fault = RuntimeError("inside")
    add = srcjit.jit(lambda x: x + 1)
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(add(n))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == list(range(1, 9))
    assert len(warnings) == 1


def test_compiling_prints_nothing(front_end: FrontEnd, caplog):
    def fail():
        logging.getLogger("torch._subclasses.fake_tensor").error("failed while")

    front_end.before = fail
    assert srcjit.jit(lambda x: x + 1)(1) == 2
    assert not caplog.records


def test_no_lock_is_held_while_user_code_runs(front_end: FrontEnd):
    entered, leave = threading.Event(), threading.Event()

    @srcjit.jit
    def wait(x):
        entered.set()
        return leave.wait(30) and x

    thread = threading.Thread(target=wait, args=(1,))
    thread.start()
    assert entered.wait(30)
    assert wait.__srcjit__.lock.acquire(timeout=10)
    wait.__srcjit__.lock.release()
    leave.set()
    thread.join(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_during_a_compile_does_not_deadlock(
    front_end: FrontEnd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("srcjit.control.FORK_WAIT", 0.1)
    inside, leave = threading.Event(), threading.Event()

    @srcjit.jit
    def add(x):
        return x + 1

    def hold():
        inside.set()
        leave.wait(30)

    front_end.before = hold
    thread = threading.Thread(target=add, args=(1,))
    thread.start()
    assert inside.wait(30)
    child = os.fork()
    if child == 0:
        front_end.before = lambda: None
        os._exit(0 if add(2) == 3 else 1)
    leave.set()
    thread.join(30)
    _, status = os.waitpid(child, 0)
    assert status == 0


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


def test_a_jitted_function_can_be_collected(front_end: FrontEnd):
    def make():
        def add(x):
            return x + 1

        return srcjit.jit(add)

    jitted = make()
    jitted(1)
    gone = weakref.ref(jitted.__srcjit__)
    del jitted
    gc.collect()
    assert gone() is None


def test_closures_over_one_code_share_what_was_compiled(front_end: FrontEnd):
    front_end.extra = (Guard("type(cells['k'].cell_contents) is int"),)

    def make(k):
        @srcjit.jit
        def add(x):
            return x + k

        return add

    results = [make(k)(10) for k in range(20)]
    assert results == [10 + k for k in range(20)]
    assert len(front_end.compiled) == 1
    front_end.extra = (Guard("type(cells['k'].cell_contents) is float"),)
    assert make(0.5)(10) == 10.5
    assert len(front_end.compiled) == 2
    assert (make(1)(10), make(1.0)(10)) == (11, 11.0)
    assert len(front_end.compiled) == 2
    srcjit.reset()
    assert make(1.0)(10) == 11
    assert len(front_end.compiled) == 3


def test_sharing_keeps_no_closure_alive(front_end: FrontEnd):
    class Big:
        pass

    def make(big):
        return srcjit.jit(lambda x: (big, x)[1])

    big = Big()
    jitted = make(big)
    assert jitted(1) == 1
    gone = weakref.ref(big)
    del big, jitted
    gc.collect()
    assert gone() is None


def test_instances_of_a_module_share_what_was_compiled(front_end: FrontEnd):
    class Scale(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    x = torch.ones(3)
    for factor in range(20):
        assert torch.equal(srcjit.jit(Scale(factor))(x), x * factor)
    assert front_end.compiled == [
        "test_instances_of_a_module_share_what_was_compiled.<locals>.Scale.forward"
    ]


def test_options_and_globals_are_part_of_what_is_shared(front_end: FrontEnd):
    def add(x):
        return x + 1

    srcjit.jit(add)(1)
    srcjit.jit(add)(1)
    assert len(front_end.compiled) == 1
    srcjit.jit(add, options={"stage": "lower"})(1)
    assert len(front_end.compiled) == 2


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
