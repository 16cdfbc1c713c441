"""Compiles and launches the Triton kernels of emitted modules with little host work.

`JITFunction.run` binds arguments, computes a cache key and checks globals at every call, which
costs more than ten microseconds. `launch` does that once: it compiles a kernel for what the
arguments look like (type, 16-byte alignment, divisible sizes), makes what launches that alone
(`triton_launcher`), and calls it from then on. Where a C compiler is, no Python runs then.

Nothing here imports Triton until a kernel is launched, so a machine without it can import this.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from os import cpu_count
from typing import TYPE_CHECKING, Any

import torch

from srcjit import collector

from . import cuda_launcher
from .triton_compile import (
    ALIGNMENT,
    TYPE_NAMES,
    Variant,
    compile_kernel,
    cross_compile,
    is_interpreted,
    load_text,
    triton_available,
)
from .triton_launcher import INT32, write_launcher
from .triton_load import Start, load

__all__ = [
    "beside",
    "cross_compile",
    "empty_cuda",
    "launch",
    "load_text",
    "precompile",
    "prepare",
    "triton_available",
]

Grid = int | tuple[int, ...]

if TYPE_CHECKING:
    launch: Callable[..., None]


def __getattr__(name: str) -> Any:
    """Decides what `launch` is when it is first asked for: its extension may be built till then."""
    if name != "launch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = cuda_launcher.loaded()
    found = launch_with_python
    if module is not None:
        found = module.front(launch_with_python)
    return globals().setdefault("launch", found)


def launch_with_python(kernel: Any, grid: Grid, *args: Any, **constants: Any) -> None:
    """Launches `kernel` on the current stream of the device of its first tensor.

    Args:
        kernel: What `triton.jit` returned.
        grid: Number of programs: an int or a tuple of up to three; nothing runs if one is 0.
        *args: Tensors and numbers, in the order of the kernel's parameters.
        **constants: The kernel's `tl.constexpr` parameters, and compile options
            (`num_warps`, `num_stages`, `maxnreg`).

    Raises:
        triton.CompilationError: When the kernel's text is wrong.

    NOTE: element types of tensors and types of constants must be the same at every call of
    one kernel (as they are in an emitted module, whose guards check them): no call checks.
    """
    try:
        for known, run in kernel.srcjit_bindings:
            if known == constants:
                run(grid, *args)
                return
    except AttributeError:
        if hasattr(kernel, "srcjit_bindings"):
            raise
        kernel.srcjit_bindings = []
    _bind(kernel, constants)(grid, *args)


def _bind(kernel: Any, constants: dict[str, Any]) -> Callable[..., None]:
    """Returns the launcher of `kernel` with these constants, written at the first call."""
    if is_interpreted(kernel):
        launcher = _interpreted_launcher(kernel, constants)
        kernel.srcjit_bindings.append((constants, launcher))
        return launcher

    def first_call(grid: Grid, *args: Any) -> None:
        run = write_launcher(
            kernel,
            constants,
            args,
            lambda a, aligned: _compiled_for(kernel, constants, a, aligned),
        )
        with _lock:
            if all(known != constants for known, _ in kernel.srcjit_bindings):
                kernel.srcjit_bindings.append((constants, run))
        run(grid, *args)

    return first_call


def _interpreted_launcher(
    kernel: Any, constants: dict[str, Any]
) -> Callable[..., None]:
    from . import triton_library  # teaches the interpreter how a GPU rounds
    from .triton_interpreted import float_argument

    assert triton_library.libdevice
    types = kernel.fn.__annotations__

    def run(grid: Grid, *args: Any) -> None:
        grid = grid if isinstance(grid, tuple) else (grid,)
        if all(grid):
            given = [
                float_argument(a, types.get(name))
                if isinstance(a, float)
                else _as_bytes(a)
                for a, name in zip(args, kernel.arg_names, strict=False)
            ]
            kernel[grid](*given, **constants)

    return run


def _as_bytes(argument: Any) -> Any:
    """A tensor of floats of 8 bits as the uint8 that kernels take it for."""
    narrow = isinstance(argument, torch.Tensor) and argument.dtype.itemsize == 1
    if narrow and argument.dtype.is_floating_point:
        return argument.view(torch.uint8)
    return argument


def _compiled_for(
    kernel: Any,
    constants: dict[str, Any],
    args: tuple[Any, ...],
    aligned: bool,
) -> Start:
    variant = _variant(kernel, constants, args, aligned)
    return _compile_once(kernel, variant, constants, _current_target()).result()


def _variant(
    kernel: Any, constants: dict[str, Any], args: tuple[Any, ...], aligned: bool
) -> Variant:
    annotated = [p.annotation_type for p in kernel.params if p.name not in constants]
    types, divisible = [], []
    for value, annotation in zip(args, annotated, strict=False):
        if isinstance(value, torch.Tensor):
            types.append("*" + TYPE_NAMES[value.dtype])
            divisible.append(aligned)
        elif isinstance(value, bool):
            types.append("i1")
            divisible.append(False)
        elif isinstance(value, int):
            types.append(
                annotation or ("i32" if INT32[0] <= value <= INT32[1] else "i64")
            )
            divisible.append(value % ALIGNMENT == 0 and "fp" not in annotation)
        else:
            types.append(annotation or "fp32")
            divisible.append(False)
    return Variant(tuple(types), tuple(divisible))


@dataclass
class _Compilations:
    """Compilations of one kernel in flight or done, by everything that they depend on."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_key: dict[Any, Future[Any]] = field(default_factory=dict)

    def submit(
        self, key: Any, compile_kernel: Callable[[], Any], pool: bool
    ) -> Future[Any]:
        with self.lock:
            future = self.by_key.get(key)
            if future is not None:
                return future
            future = self.by_key[key] = Future()
        if pool:
            _compiler_threads().submit(_settle, future, compile_kernel)
        else:
            _settle(future, compile_kernel)
        return future


def _settle(future: Future[Any], compute: Callable[[], Any]) -> None:
    try:
        future.set_result(compute())
    except BaseException as error:  # handed to whoever asks for the result
        future.set_exception(error)


_pool: ThreadPoolExecutor | None = None
_lock = threading.RLock()


def _compiler_threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(min(8, cpu_count() or 1), "srcjit-triton")
        return _pool


def _current_target() -> Any:
    if torch.version.hip is None:
        # As Triton's driver says, which a C compiler must build before it says anything.
        from triton.backends.compiler import GPUTarget

        major, minor = torch.cuda.get_device_capability()
        return GPUTarget("cuda", major * 10 + minor, 32)
    from triton.runtime import driver

    return driver.active.get_current_target()


def _compile_once(
    kernel: Any,
    variant: Variant,
    constants: dict[str, Any],
    target: Any,
    *,
    pool: bool = False,
) -> Future[Start]:
    with _lock:
        compilations = kernel.__dict__.setdefault(
            "srcjit_compilations", _Compilations()
        )
    # A loaded kernel belongs to one device.
    device = torch.cuda.current_device()
    key = (variant, repr(sorted(constants.items())), repr(target), device)

    def work() -> Start:
        collector.grow_old()
        return load(compile_kernel(kernel, variant, constants, target), device)

    future: Future[Start] = compilations.submit(key, work, pool)
    return future


def precompile(
    jobs: Iterable[tuple[Any, str | Sequence[str], Mapping[str, Any]]],
) -> None:
    """Starts compiling kernels in parallel threads; `launch` waits for the one that it needs.

    Args:
        jobs: `(kernel, signature, constants)` each: the kernel, its parameters as
            `Variant.parse` reads them, and the constants as `launch` gets them.

    Without a GPU, and in Triton's interpreter, it does nothing.
    """
    for kernel, signature, constants in jobs:
        if is_interpreted(kernel) or not torch.cuda.is_available():
            continue
        variant, target = Variant.parse(signature), _current_target()
        _compile_once(kernel, variant, dict(constants), target, pool=True)


def prepare(kernel: Any, *args: Any, **constants: Any) -> bool:
    """Starts compiling in a thread what a `launch` with arguments like these will need.

    Returns:
        Whether anything is to be compiled: not in Triton's interpreter.
    """
    if is_interpreted(kernel):
        return False
    variant = _variant(kernel, constants, args, aligned=True)
    _compile_once(kernel, variant, constants, _current_target(), pool=True)
    return True


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Does in a thread, while the block runs, what comes after it, so that it is quick then.

    When the block ends, it has been done, or will not be. Where it fails, it fails again.
    """
    started = _compiler_threads().submit(work)
    try:
        yield
    finally:
        if not started.cancel():
            wait((started,))


def empty_cuda(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: int = 0
) -> torch.Tensor:
    """Allocates an uninitialized CUDA tensor by the fastest way there is.

    Args:
        size: Sizes.
        stride: Strides in elements.
        dtype: Element type.
        device: Index of the GPU.
    """
    if _empty_on_current is not None and _current_device() == device:
        made: torch.Tensor = _empty_on_current(size, stride, dtype)
        return made
    return torch.empty_strided(size, stride, dtype=dtype, device=f"cuda:{device}")


_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
_empty_on_current: Callable[..., torch.Tensor] | None = getattr(
    getattr(getattr(torch._C, "_dynamo", None), "guards", None),
    "_empty_strided_cuda",
    None,
)
