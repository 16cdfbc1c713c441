"""Compiles and launches the Triton kernels of emitted modules with little host work.

`JITFunction.run` binds arguments, computes a cache key and checks globals at every call, which
costs more than ten microseconds. `launch` does that once: it compiles a kernel for what the
arguments look like (type, 16-byte alignment, divisible sizes), writes a small Python function
that passes raw pointers to the compiled kernel's own launcher, and calls that from then on.

Nothing here imports Triton until a kernel is launched, so a machine without it can import this.
"""

from __future__ import annotations

import linecache
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from os import cpu_count
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

Grid = int | tuple[int, ...]

ALIGNMENT = 16
"""Bytes; what lets a thread load 128 bits at once."""

TYPE_NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint64: "u64",
    torch.uint32: "u32",
    torch.uint16: "u16",
    torch.uint8: "u8",
    torch.bool: "i1",
}
"""Triton's names of PyTorch's element types."""

EAGER_ROUNDING = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
"""Compile options under which a kernel rounds as PyTorch's own CUDA kernels do.

`enable_fp_fusion` would contract a product and a sum of two user operations into one FMA, where
eager rounds twice; `enable_reflect_ftz` would flush denormal results of libdevice functions.
"""


def launch(kernel: Any, grid: Grid, *args: Any, **constants: Any) -> None:
    """Launches `kernel` on the current stream of the device of its first tensor.

    Args:
        kernel: What `triton.jit` returned.
        grid: Number of programs: an int or a tuple of up to three; nothing runs if one is 0.
        *args: Tensors and numbers, in the order of the kernel's parameters.
        **constants: The kernel's `tl.constexpr` parameters, and compile options
            (`num_warps`, `num_stages`, `maxnreg`).

    Raises:
        triton.CompilationError: When the kernel's text is wrong.

    NOTE: a constant must keep its type between calls of one kernel: 1 and 1.0 are one key.
    """
    try:
        for known, run in kernel.srcjit_bindings:
            if known == constants:
                return run(grid, *args)
    except AttributeError:
        if hasattr(kernel, "srcjit_bindings"):
            raise
        kernel.srcjit_bindings = []
    return _bind(kernel, constants)(grid, *args)


@dataclass(frozen=True)
class Variant:
    """What a kernel is compiled for: one entry for each parameter that is not a constant.

    Attributes:
        types: `"*bf16"`, `"i32"`, `"fp64"`, ...
        divisible: Whether the pointer or number is known to be divisible by 16.
    """

    types: tuple[str, ...]
    divisible: tuple[bool, ...]

    @staticmethod
    def parse(signature: str | Sequence[str]) -> Variant:
        """Reads Triton's ahead-of-time form: `"*bf16:16, i32"` (`:16` says divisible)."""
        items = signature.split(",") if isinstance(signature, str) else signature
        parts = [item.strip().partition(":") for item in items if item.strip()]
        return Variant(tuple(p[0] for p in parts), tuple(p[2] == "16" for p in parts))


@dataclass
class _Compilations:
    """Compilations of one kernel in flight or done, by everything that they depend on."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_key: dict[Any, Future[Any]] = field(default_factory=dict)

    def submit(self, key: Any, compile_kernel: Callable[[], Any], pool: bool) -> Future[Any]:
        with self.lock:
            future = self.by_key.get(key)
            if future is not None:
                return future
            future = self.by_key[key] = Future()
        work = lambda: _settle(future, compile_kernel)  # noqa: E731
        if pool:
            _compiler_threads().submit(work)
        else:
            work()
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
    if _empty_on_current is not None and torch._C._cuda_getDevice() == device:
        made: torch.Tensor = _empty_on_current(size, stride, dtype)
        return made
    return torch.empty_strided(size, stride, dtype=dtype, device=f"cuda:{device}")


_empty_on_current: Callable[..., torch.Tensor] | None = getattr(
    getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None
)


def is_interpreted(kernel: Any) -> bool:
    """Returns whether `triton.jit` made this kernel under `TRITON_INTERPRET=1`."""
    return type(kernel).__name__ == "InterpretedFunction"


def _current_target() -> Any:
    from triton.runtime import driver

    return driver.active.get_current_target()


def _compile_once(
    kernel: Any, variant: Variant, constants: dict[str, Any], target: Any, *, pool: bool = False
) -> Future[Any]:
    with _lock:
        compilations = kernel.__dict__.setdefault("srcjit_compilations", _Compilations())
    key = (variant, repr(sorted(constants.items())), repr(target))
    def work() -> Any:
        made = _compile(kernel, variant, constants, target)
        if pool:
            # Also what the first launch would do: build the launcher, load the machine code.
            with torch.cuda.device(device):
                _ = made.run
        return made

    device = torch.cuda.current_device() if pool else -1
    return compilations.submit(key, work, pool)


def _compile(kernel: Any, variant: Variant, constants: dict[str, Any], target: Any) -> Any:
    import triton
    from triton.compiler import ASTSource

    names = [parameter.name for parameter in kernel.params]
    constexprs = {name: constants[name] for name in names if name in constants}
    options = {k: v for k, v in constants.items() if k not in constexprs}
    for parameter in kernel.params:
        if parameter.is_constexpr and parameter.name not in constexprs:
            if not parameter.has_default:
                raise TypeError(f"kernel {kernel.__name__} needs {parameter.name}=")
            constexprs[parameter.name] = parameter.default
    values = [name for name in names if name not in constexprs]
    if len(values) != len(variant.types):
        raise TypeError(
            f"kernel {kernel.__name__} takes {len(values)} arguments "
            f"({', '.join(values)}), got {len(variant.types)}"
        )
    types = dict(zip(values, variant.types, strict=True))
    signature = {name: types.get(name, "constexpr") for name in names}
    divisible = dict(zip(values, variant.divisible, strict=True))
    attributes = {
        (position,): [["tt.divisibility", ALIGNMENT]]
        for position, name in enumerate(names)
        if divisible.get(name)
    }
    source = ASTSource(kernel, signature, constexprs, attributes)
    return triton.compile(source, target=target, options={**EAGER_ROUNDING, **options})


# --- launching ---------------------------------------------------------------------------


def _bind(kernel: Any, constants: dict[str, Any]) -> Callable[..., None]:
    """Returns the launcher of `kernel` with these constants, written at the first call."""
    if is_interpreted(kernel):
        launcher = _interpreted_launcher(kernel, constants)
        kernel.srcjit_bindings.append((constants, launcher))
        return launcher

    def first_call(grid: Grid, *args: Any) -> None:
        run = _write_launcher(kernel, constants, args)
        with _lock:
            if all(known != constants for known, _ in kernel.srcjit_bindings):
                kernel.srcjit_bindings.append((constants, run))
        run(grid, *args)

    return first_call


def _interpreted_launcher(kernel: Any, constants: dict[str, Any]) -> Callable[..., None]:
    from . import triton_library  # teaches the interpreter how a GPU rounds

    assert triton_library.libdevice

    def run(grid: Grid, *args: Any) -> None:
        grid = grid if isinstance(grid, tuple) else (grid,)
        if all(grid):
            kernel[grid](*args, **constants)

    return run


def _write_launcher(
    kernel: Any, constants: dict[str, Any], args: tuple[Any, ...]
) -> Callable[..., None]:
    """Writes two functions for the kinds of `args` (tensor, int, float, bool).

    The fast one is for what the first call looked like, here two tensors and an int:

        def launch_norm(grid, a0, a1, a2):
            p0 = a0.data_ptr()
            p1 = a1.data_ptr()
            if (p0 | p1) & 15 or a2 & 15 or not -2147483648 <= a2 < 2147483648 or ...:
                return any_norm(grid, a0, a1, a2)
            start(grid, 1, 1, stream(0), function, ..., p0, p1, a2, 1024)

    The other looks the variant up that fits, and compiles it if it is new.
    """
    tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    if not tensors:
        raise TypeError(f"kernel {kernel.__name__} was launched without a tensor")
    names = [parameter.name for parameter in kernel.params]
    free = [name for name in names if name not in constants]
    # A float parameter may get an int at one call and a float at the next.
    annotated = {p.name: p.annotation_type for p in kernel.params}
    integers = [
        i
        for i, (name, a) in enumerate(zip(free, args, strict=False))
        if type(a) is int and annotated[name][:2] not in ("fp", "bf")
    ]
    namespace: dict[str, Any] = {
        "current_device": torch._C._cuda_getDevice,
        "stream": torch._C._cuda_getCurrentRawStream,
        "on_device": _on_device,
    }
    values = {n: f"p{i}" if i in tensors else f"a{i}" for i, n in enumerate(free[: len(args)])}
    for position, parameter in enumerate(kernel.params):
        if parameter.name not in values:
            namespace[f"c{position}"] = constants.get(parameter.name, parameter.default)
            values[parameter.name] = f"c{position}"
    passed = "".join(values[name] + ", " for name in names)

    parameters = ", ".join(f"a{i}" for i in range(len(args)))
    pointers = " | ".join(f"p{i}" for i in tensors)
    if len(tensors) > 1:
        pointers = f"({pointers})"
    low = ALIGNMENT - 1
    key = [f"{pointers} & {low}", f"a{tensors[0]}.get_device()"]
    for i in integers:
        key += [f"a{i} & {low} == 0", f"{-(2**31)} <= a{i} < {2**31}"]
    name, other = f"launch_{kernel.__name__}", f"any_{kernel.__name__}"
    style = _launch_style()
    call = style.call.format(args=passed)
    general = [
        f"def {other}(grid, {parameters}):",
        *(f"    p{i} = a{i}.data_ptr()" for i in tensors),
        f"    device = a{tensors[0]}.get_device()",
        "    if device != current_device():",
        f"        return on_device(device, {other}, grid, {parameters})",
        f"    key = {', '.join(key)}",
        f"    start, function, facts, shape, rest = variant(key, ({parameters},))",
        "    x, y, z = (grid, 1, 1) if grid.__class__ is int else (*grid, 1, 1)[:3]",
        "    if x and y and z:",
        f"        {call.format(x='x', y='y', z='z', device='device')}",
    ]
    variants: dict[Any, Any] = {}

    def variant(key: Any, args: tuple[Any, ...]) -> Any:
        found = variants.get(key)
        if found is None:
            compiled = _compiled_for(kernel, constants, args, key[0] == 0)
            found = variants[key] = style.facts(compiled)
        return found

    namespace["variant"] = variant
    exec("\n".join(general), namespace)

    pointer_bits = 0
    for i in tensors:
        pointer_bits |= args[i].data_ptr()
    home = args[tensors[0]].get_device()
    if home < 0:
        raise TypeError(f"kernel {kernel.__name__} was launched on a CPU tensor")
    differs = []
    if pointer_bits & low == 0:
        differs.append(f"{pointers} & {low}")
    for i in integers:
        if args[i] & low == 0:
            differs.append(f"a{i} & {low}")
        if -(2**31) <= args[i] < 2**31:
            differs.append(f"not {-(2**31)} <= a{i} < {2**31}")
    differs.append("grid.__class__ is not int")
    if torch.cuda.device_count() > 1:
        differs += [f"a{tensors[0]}.get_device() != {home}", f"current_device() != {home}"]
    first = [pointer_bits & low, home]
    for i in integers:
        first += [args[i] & low == 0, -(2**31) <= args[i] < 2**31]
    with torch.cuda.device(home):
        start, function, facts, shape, rest = variant(tuple(first), args)
    bound = {"start": start, "function": function, "facts": facts, "stream": namespace["stream"]}
    bound |= {f"s{i}": part for i, part in enumerate(shape)}
    bound |= {f"r{i}": part for i, part in enumerate(rest)}
    call = call.replace("*shape", ", ".join(f"s{i}" for i in range(len(shape))))
    call = call.replace("*rest", ", ".join(f"r{i}" for i in range(len(rest))))
    # Defaults are local variables: the cheapest names there are.
    defaults = "".join(f", {n}={n}" for n in bound)
    fast = [
        f"def {name}(grid, {parameters}{defaults}):",
        *(f"    p{i} = a{i}.data_ptr()" for i in tensors),
        f"    if {' or '.join(differs)}:",
        f"        return {other}(grid, {parameters})",
        f"    {call.format(x='grid', y='1', z='1', device=str(home))}",
    ]
    namespace |= bound
    exec("\n".join(fast), namespace)
    run: Callable[..., None] = namespace[name]
    return run


def _on_device(device: int, run: Callable[..., None], *args: Any) -> None:
    if device < 0:
        raise TypeError("a Triton kernel was launched on a CPU tensor")
    with torch.cuda.device(device):
        run(*args)


def _compiled_for(
    kernel: Any, constants: dict[str, Any], args: tuple[Any, ...], aligned: bool
) -> Any:
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
            types.append(annotation or ("i32" if -(2**31) <= value < 2**31 else "i64"))
            divisible.append(value % ALIGNMENT == 0 and "fp" not in annotation)
        else:
            types.append(annotation or "fp32")
            divisible.append(False)
    variant = Variant(tuple(types), tuple(divisible))
    return _compile_once(kernel, variant, constants, _current_target()).result()


@dataclass(frozen=True)
class _LaunchStyle:
    """How this version of Triton starts a compiled kernel.

    Attributes:
        call: Statement of the launcher; `{args}` are the kernel's arguments, each with a
            comma, and `{{x}}`, `{{y}}`, `{{z}}`, `{{device}}` are filled in after them.
        facts: Makes `(start, function, facts, shape, rest)` of a compiled kernel.
    """

    call: str
    facts: Callable[[Any], tuple[Any, ...]]


def _launch_style() -> _LaunchStyle:
    """Finds the cheapest entry: the C function below `CudaLauncher.__call__` where known.

    `CudaLauncher.__call__` only allocates scratch memory before it calls that function;
    a kernel without scratch memory does not need it. Triton 3.7 has one C function for all
    kernels that takes the arguments as a tuple, 3.6 one per signature that takes them flat.
    """
    version = _triton_version()
    begin = "start({{x}}, {{y}}, {{z}}, stream({{device}}), function, "
    if version >= (3, 8) or version < (3, 5):
        return _LaunchStyle(
            begin + "facts, None, None, None, {args})",
            lambda kernel: (kernel.run, kernel.function, kernel.packed_metadata, (), ()),
        )
    if version >= (3, 7):
        tail = "*shape, facts, None, None, None, None, None, *rest, ({args}))"
    else:
        tail = "*shape, None, None, facts, None, None, None, {args})"
    return _LaunchStyle(begin + tail, _direct_facts)


def _direct_facts(kernel: Any) -> tuple[Any, ...]:
    runner = kernel.run
    if runner.global_scratch_size or runner.profile_scratch_size:
        raise RuntimeError(
            f"kernel {kernel.name} needs scratch memory, which launch() does not allocate"
        )
    shape = (runner.launch_cooperative_grid, runner.launch_pdl)
    rest = (
        (runner.arg_annotations, runner.kernel_signature)
        if hasattr(runner, "arg_annotations")
        else ()
    )
    return runner.launch, kernel.function, kernel.packed_metadata, shape, rest


def _triton_version() -> tuple[int, int]:
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


# --- compiling for another machine -------------------------------------------------------


@dataclass(frozen=True)
class CrossCompiled:
    """What the compiler made of a kernel for a GPU that need not be there.

    Attributes:
        name: The kernel's name.
        ptx: The assembly text.
        cubin: The machine code.
        registers: Registers per thread.
        spills: Bytes per thread spilled to local memory.
        shared: Bytes of shared memory per block.
        num_warps: Warps per block.
    """

    name: str
    ptx: str
    cubin: bytes
    registers: int
    spills: int
    shared: int
    num_warps: int

    @property
    def widest_access(self) -> int:
        """Bytes of the widest load or store of global memory of one thread."""
        found = [
            int(lanes or 1) * int(bits) // 8
            for lanes, bits in re.findall(
                r"(?:ld|st)\.global[\w:.]*?(?:\.v(\d))?\.[bfus](\d+)", self.ptx
            )
        ]
        return max(found, default=0)


def load_text(text: str, name: str = "<emitted>") -> ModuleType:
    """Runs module text so that Triton can read the kernels' source (through `linecache`)."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType("emitted")
    module.__file__ = name
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def cross_compile(
    text: str,
    signature: str | Sequence[str],
    constants: Mapping[str, Any],
    *,
    name: str | None = None,
    target: str = "sm_90",
) -> CrossCompiled:
    """Compiles a kernel for an NVIDIA GPU on any machine with Triton.

    Giving `triton.compile` both the source and the target keeps it from asking a driver.

    Args:
        text: A module that defines the kernel (imports included).
        signature: The kernel's arguments, as `Variant.parse` reads them.
        constants: Its constants and compile options.
        name: The kernel; by default the last one in the text.
        target: Compute capability.

    Raises:
        RuntimeError: In Triton's interpreter, which cannot compile.
    """
    from triton.backends.compiler import GPUTarget

    module = load_text(text, f"<{name or 'kernel'} for {target}>")
    kernels = [v for k, v in vars(module).items() if k == name] if name else [
        v for v in vars(module).values() if type(v).__name__.endswith("Function")
        and getattr(v, "__module__", None) == module.__name__
    ]
    if not kernels:
        raise ValueError(f"no kernel {name or ''} in the text")
    kernel = kernels[-1]
    if is_interpreted(kernel):
        raise RuntimeError("unset TRITON_INTERPRET to compile for a GPU")
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    made = _compile(kernel, Variant.parse(signature), dict(constants), gpu)
    registers, spills = _resource_usage(made.asm["ptx"])
    return CrossCompiled(
        name=made.metadata.name,
        ptx=made.asm["ptx"],
        cubin=made.asm["cubin"],
        registers=registers,
        spills=spills,
        shared=made.metadata.shared,
        num_warps=made.metadata.num_warps,
    )


def _resource_usage(ptx: str) -> tuple[int, int]:
    """Asks Triton's ptxas for (registers, bytes spilled)."""
    import triton

    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    arch = re.search(r"\.target (sm_\w+)", ptx)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "kernel.ptx"
        file.write_text(ptx)
        report = subprocess.run(
            [folder / "ptxas", "-v", f"--gpu-name={arch.group(1) if arch else 'sm_90a'}"]
            + [str(file), "-o", str(Path(scratch) / "kernel.cubin")],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.search(r"Used (\d+) registers", report)
    spilled = re.search(r"(\d+) bytes spill stores", report)
    return int(registers.group(1)) if registers else 0, int(spilled.group(1)) if spilled else 0
