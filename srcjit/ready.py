"""Imports what compiling takes, at the first compilation, all at once.

PyTorch's fake tensors import TorchDynamo, and sympy a third of itself when it first adds three
terms: left to themselves, such imports come in the middle of compiling whatever needs them
first. Here they come together, ahead of all locks, and the cyclic garbage collector does not
look at the hundreds of thousands of objects that they make and that live for ever: it would
several times on the way, and twice behind it, in whatever call comes then.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading

import torch

from srcjit import collector, control
from srcjit.runtime import cpp_build, cuda_launcher, triton_available

MODULES = (
    "srcjit.passes.pipeline",
    "srcjit.passes.segment",
    "srcjit.passes.emit",
    "srcjit.passes.evaluate.instance_attributes",
    # What others import inside functions.
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "sympy.assumptions.wrapper",
    "sympy.tensor.tensor",
)

ON_GPU = ("srcjit.runtime.triton_library", "triton.compiler.code_generator")

_loaded = threading.Event()


def load_compiler() -> None:
    """Imports what compiling takes; only the first call does anything.

    NOTE: to be called without a lock held: finalizers of the program's may run.
    """
    if _loaded.is_set():
        return
    collecting = gc.isenabled()
    if collecting:
        # What is young grows old together with the modules, so garbage goes first; and
        # before the lock is taken, because finalizers may compile.
        gc.collect(1)
    hold = collector.Hold()
    try:
        # A fork waits for it. A child would wait for ever for a module that a thread which
        # it lacks was importing.
        with control.compile_lock:
            if not _loaded.is_set():
                _load(collecting)
    finally:
        hold.release(False)


def _load(collecting: bool) -> None:
    on_gpu = torch.cuda.is_available() and triton_available()
    if on_gpu:
        _start_reading_triton()
    building = threading.Thread(
        target=_build_launcher, args=(on_gpu,), name="srcjit-build", daemon=True
    )
    building.start()
    for name in MODULES:
        importlib.import_module(name)
    if on_gpu:
        for name in ON_GPU:
            importlib.import_module(name)
    importlib.import_module("srcjit.passes.evaluate.tensors").operations()
    # So that nobody asks for the C++ compiler meanwhile, a second time.
    building.join()
    if collecting:
        collector.grow_old()
    _loaded.set()


def _start_reading_triton() -> None:
    """Lets a thread compute what the first kernel would: a hash of all of Triton, 0.3 s.

    It is part of the names under which Triton keeps kernels on disk.
    """
    module = importlib.import_module("triton.runtime.cache")
    compute = getattr(module, "triton_key", None)
    if compute is not None:
        threading.Thread(target=compute, name="srcjit-triton-key", daemon=True).start()


def _build_launcher(on_gpu: bool) -> None:
    """Finds the C++ compiler and has it build what calls the kernels: 0.2 s and more.

    Where that fails, it fails again for whoever needs it, and says so.
    """
    with contextlib.suppress(OSError):
        if on_gpu:
            cuda_launcher.start()
        elif cpp_build.compiler_available():
            cpp_build.start_launcher()
