"""Contexts and global state of PyTorch."""

from __future__ import annotations

import contextlib
import io
import warnings

import pytest
import torch
import torch.nn.functional as F

from tests.constructs.support import Cases
from tests.constructs.tensors import small

cases = Cases()
others = Cases()


class CM:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *a):
        self.log.append(("out", a[0].__name__ if a[0] else None))
        return True


@contextlib.contextmanager
def gcm(log):
    log.append("in")
    try:
        yield 5
    except ValueError:
        log.append("E")
    finally:
        log.append("out")


@cases.add("context-no-grad")
def context_no_grad():
    def program(x):
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = x * 3
        return (y, z, x * 4)

    return program, (small().requires_grad_(),)


@cases.add("context-no-grad-break")
def context_no_grad_break():
    def program(x):
        with torch.no_grad():
            y = x * 2
            print("a")
            z = y * x
        return (y, z, x * 3)

    return program, (small().requires_grad_(),)


@cases.add("context-grad-mode-left")
def context_grad_mode_left():
    def program(x):
        torch.set_grad_enabled(False)
        return (x * 2, torch.is_grad_enabled())

    return program, (small().requires_grad_(),)


@cases.add("context-as-decorator")
def context_as_decorator():
    def program(x):

        @torch.no_grad()
        def inner(y):
            return y * 2

        @torch.inference_mode()
        def inner2(y):
            return y * 3

        return (inner(x), inner2(x), x * 2)

    return program, (small().requires_grad_(),)


@cases.add("context-generator")
def context_generator():
    def program(x):

        @torch.no_grad()
        def gen(y):
            yield (y * 2)
            yield (y * 3)

        return [v * 1 for v in gen(x)]

    return program, (small().requires_grad_(),)


@cases.add("context-inference")
def context_inference():
    def program(x):
        with torch.inference_mode(False):
            y = x * 2
        with torch.inference_mode(True):
            z = x.view(-1)
        return (y, z)

    return program, (small(),)


@cases.add("context-autocast")
def context_autocast():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
            z = y.float() @ y.float()
            with torch.autocast("cpu", enabled=False):
                w = x @ x.t()
        return (y, z, w, x @ x.t())

    return program, (small(),)


@cases.add("context-autocast-backward", stage="emit", backward=True)
def context_autocast_backward():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, x)
            z = F.softmax(y, -1)
        return (y, z)

    return program, (small().requires_grad_(),)


@cases.add("context-autocast-break")
def context_autocast_break():
    def program(x):
        with torch.autocast("cpu"):
            y = x @ x.t()
            print("q")
            z = y @ y
        return (y, z)

    return program, (small(),)


@cases.add("context-default-dtype")
def context_default_dtype():
    def program(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)
        z = torch.tensor([1.0, 2.0])
        w = torch.arange(3) / 2
        torch.set_default_dtype(torch.float32)
        return (y, z, w, torch.ones(2))

    return program, (small(),)


@cases.add("context-device")
def context_device():
    def program(x):
        with torch.device("meta"):
            y = torch.ones(3)
        with torch.device("cpu"):
            z = torch.ones(3)
        return (y.device, z, torch.ones(2))

    return program, (small(),)


@cases.add("context-default-device")
def context_default_device():
    def program(x):
        torch.set_default_device("meta")
        y = torch.ones(2)
        torch.set_default_device(None)
        return (y.device, torch.ones(2))

    return program, (small(),)


@others.add("context-deterministic", stage="emit")
def context_deterministic():
    def program(x):
        torch.use_deterministic_algorithms(True)
        try:
            y = torch.empty(3)
            z = x.new_empty(2)
            w = torch.empty_like(x)
            y.resize_(5)
        finally:
            torch.use_deterministic_algorithms(False)
        return (y, z, w)

    return program, (small(),)


@cases.add("context-matmul-precision")
def context_matmul_precision():
    def program(x):
        torch.set_float32_matmul_precision("high")
        y = x @ x.t()
        p = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        return (y, p)

    return program, (small(),)


@cases.add("context-record-function")
def context_record_function():
    def program(x):
        with torch.profiler.record_function("a"):
            y = x * 2
        with torch.autograd.profiler.record_function("b"):
            z = y * 2
        return z

    return program, (small(),)


@cases.add("context-anomaly", backward=True)
def context_anomaly():
    def program(x):
        with torch.autograd.detect_anomaly(check_nan=False):
            y = x * 2
        return y

    return program, (small().requires_grad_(),)


@others.add("context-user")
def context_user():
    def program(x):
        log = []
        with CM(log), gcm(log) as v:
            x = x * v
            print("in")
            x = x + 1
        return (x, log)

    return program, (small(),)


@others.add("context-user-suppresses")
def context_user_suppresses():
    def program(x):
        log = []
        with gcm(log):
            raise ValueError
        with CM(log):
            raise KeyError
        return (x * 2, log)

    return program, (small(),)


@others.add("context-alive")
def context_alive():
    def program(x):
        log = []
        c = gcm(log)
        v = c.__enter__()
        x = x * v
        print("q")
        c.__exit__(None, None, None)
        return (x, log)

    return program, (small(),)


@others.add("context-entered-by-hand")
def context_entered_by_hand():
    def program(x):
        c = torch.no_grad()
        c.__enter__()
        y = x * 2
        print("a")
        z = x * 2
        c.__exit__(None, None, None)
        return (y, z, x * 2)

    return program, (small().requires_grad_(),)


@others.add("context-exit-stack")
def context_exit_stack():
    def program(x):
        with contextlib.ExitStack() as s:
            s.enter_context(torch.no_grad())
            y = x * 2
            s.callback(print, "cb")
        return (y, x * 2)

    return program, (small().requires_grad_(),)


@others.add("context-suppress")
def context_suppress():
    def program(x):
        with contextlib.suppress(ZeroDivisionError):
            1 / 0
        with contextlib.suppress(ValueError):
            x = x + 1
            raise ValueError
        return x

    return program, (small(),)


@others.add("context-warnings")
def context_warnings():
    def program(x):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            warnings.warn("hey")
            y = x * 2
        return (y, [str(i.message) for i in w])

    return program, (small(),)


@others.add("context-redirect")
def context_redirect():
    def program(x):

        b = io.StringIO()
        with contextlib.redirect_stdout(b):
            print("zz")
            y = x * 2
        return (y, b.getvalue())

    return program, (small(),)


@cases.add("context-saved-tensor-hooks")
def context_saved_tensor_hooks():
    def program(x):
        log = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: (log.append(1), t)[1], lambda t: (log.append(2), t)[1]
        ):
            y = x.exp() * 2
        y.sum().backward()
        return (y, log, x.grad.clone())

    return program, (small().requires_grad_(),)


@cases.add("context-attention-kernel")
def context_attention_kernel():
    def program(x):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(x[None], x[None], x[None])

    return program, (small(),)


@cases.add("context-backend-flags")
def context_backend_flags():
    def program(x):
        with torch.backends.mkldnn.flags(enabled=False):
            y = x @ x.t()
        with torch.backends.cudnn.flags(enabled=False):
            z = x @ x.t()
        return (y, z)

    return program, (small(),)


@others.add("state-changed-between-calls")
def state_changed_between_calls():
    import srcjit

    def h(a):
        z = torch.ones(2)
        return (
            z.dtype,
            z.device.type,
            (a @ a.t()).dtype,
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_anomaly_enabled(),
            torch.get_float32_matmul_precision(),
            torch.get_num_threads() > 0,
        )

    j = srcjit.jit(h, options={"stage": "specialize"})

    def f(x):
        out = [j(x) == h(x)]
        torch.set_default_dtype(torch.float64)
        out.append(j(x) == h(x))
        torch.set_default_dtype(torch.float32)
        with torch.device("meta"):
            out.append(j(x) == h(x))
        with torch.autocast("cpu"):
            out.append(j(x) == h(x))
        with torch.no_grad():
            out.append(j(x) == h(x))
        torch.use_deterministic_algorithms(True)
        out.append(j(x) == h(x))
        torch.use_deterministic_algorithms(False)
        with torch.autograd.set_detect_anomaly(True):
            out.append(j(x) == h(x))
        torch.set_float32_matmul_precision("high")
        out.append(j(x) == h(x))
        torch.set_float32_matmul_precision("highest")
        out.append(j(x) == h(x))
        assert all(out), out
        return out

    return (f, (small(),))


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)


@pytest.mark.parametrize("name", others)
def test_like_eager(name):
    others.check_like_eager(name)
