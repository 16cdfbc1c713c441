"""Keeps compiling from showing: what the program would see of it stays as it was.

    with undisturbed():
        ...  # compile: no warnings from this thread, no once-only warning used up,
        # no random numbers drawn, no hooks of the user's called

What warns is noted instead of shown (`srcjit.passes.warned`), and left to Python.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from srcjit.passes import warned


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leaves warnings, logs, random number generators and hooks alone inside the block."""
    # Fake tensors log what they cannot run before they raise; Python will run it and raise
    # what the user is to see.
    fakes = logging.getLogger("torch._subclasses.fake_tensor")
    fakes.addFilter(_unheard)
    generators = _Generators()
    # With this, a warning that C++ gives once in a process is not used up.
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    modes = _Modes()
    try:
        # What autograd saves of fakes is not for the user's hooks (activation
        # checkpointing counts what is saved).
        with _saved_tensors_unhooked(), warned.silence:
            yield
    except BaseException:
        modes.restore()
        raise
    finally:
        torch.set_warn_always(always)
        generators.restore()


# ── Logs ────────────────────────────────────────────────────────────────────────────


class _Unheard(logging.Filter):
    """Drops what is logged by a thread that compiles."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not warned.silence.depth


_unheard = _Unheard()

# ── Random numbers ──────────────────────────────────────────────────────────────────


class _Generators:
    """The state of the process's random number generators.

    srcjit itself draws nothing; a foreign backend may, to try its kernels out.
    """

    def __init__(self) -> None:
        self._alone = not _other_threads()
        self._python = random.getstate()
        self._cpu = torch.get_rng_state()
        self._cuda = self._cuda_states()

    @staticmethod
    def _cuda_states() -> list[torch.Tensor]:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return []
        return torch.cuda.get_rng_state_all()

    def restore(self) -> None:
        """Puts back what has been drawn."""
        if not self._alone or _other_threads():
            return  # the numbers may be theirs, and must not come again
        if random.getstate() != self._python:
            random.setstate(self._python)
        if not torch.equal(torch.get_rng_state(), self._cpu):
            torch.set_rng_state(self._cpu)
        if self._cuda and not all(map(torch.equal, self._cuda_states(), self._cuda)):
            torch.cuda.set_rng_state_all(self._cuda)


def _other_threads() -> bool:
    """Whether threads of the program's run beside this one.

    Those that `threading` has not started are not known to it, until one asks for its own
    name (a finalizer that logs); then it stands there for ever, even when it has ended.
    """
    here = threading.current_thread()
    return any(
        thread is not here
        and not thread.name.startswith("srcjit-")
        and not isinstance(thread, threading._DummyThread)
        for thread in threading.enumerate()
    )


# ── Modes ───────────────────────────────────────────────────────────────────────────


class _Modes:
    """The modes of this thread that compiling switches.

    Each is switched back by the context that switched it. But an exception that comes from
    outside (a signal's handler that raises) may come inside the entry or exit of a context.
    """

    def __init__(self) -> None:
        self._dispatch = _get_current_dispatch_mode_stack()
        self._function = torch._C._len_torch_function_stack()
        self._grad = torch.is_grad_enabled()
        self._lifting = torch._C._only_lift_cpu_tensors()
        self._tracing = dict(vars(torch._guards._TLS))

    def restore(self) -> None:
        """Switches back what was left."""
        for mode in reversed(_get_current_dispatch_mode_stack()):
            if any(mode is before for before in self._dispatch):
                continue
            key = getattr(mode, "_mode_key", None)  # of PyTorch's own modes
            if key is None:
                torch._C._pop_torch_dispatch_stack(None)
            else:
                torch._C._unset_dispatch_mode(key)
        while torch._C._len_torch_function_stack() > self._function:
            torch._C._pop_torch_function_stack()
        torch._C._set_grad_enabled(self._grad)
        torch._C._set_only_lift_cpu_tensors(self._lifting)
        vars(torch._guards._TLS).clear()
        vars(torch._guards._TLS).update(self._tracing)


# ── Hooks ───────────────────────────────────────────────────────────────────────────


def _saved_tensors_unhooked() -> contextlib.AbstractContextManager[Any]:
    """Keeps the user's `saved_tensors_hooks` from being called."""
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        return contextlib.nullcontext()
    # Only the innermost hooks are called.
    return torch.autograd.graph.saved_tensors_hooks(_itself, _itself)


def _itself(value: Any) -> Any:
    return value
