"""Compiles Triton kernels: for the GPU that is there, or for one that need not be.

Nothing here imports Triton before a kernel is compiled, so a machine without it can import
this.
"""

from __future__ import annotations

import importlib.util
import linecache
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ALIGNMENT = 16
"""Bytes; what lets a thread load 128 bits at once."""

TYPE_NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint64: "u64",
    torch.uint32: "u32",
    torch.uint16: "u16",
    torch.uint8: "u8",
    torch.bool: "i1",
    # Kernels convert them: see `triton_float8`.
    torch.float8_e4m3fn: "u8",
    torch.float8_e5m2: "u8",
    torch.float8_e4m3fnuz: "u8",
    torch.float8_e5m2fnuz: "u8",
    torch.float8_e8m0fnu: "u8",
}
"""Triton's names of PyTorch's element types."""

EAGER_ROUNDING = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
"""Compile options under which a kernel rounds as PyTorch's own CUDA kernels do.

`enable_fp_fusion` would contract a product and a sum of two user operations into one FMA, where
eager rounds twice; `enable_reflect_ftz` would flush denormal results of libdevice functions.
"""


MAY_CALL_LIBDEVICE = re.compile(r"libdevice|tl\.(floor|ceil|sqrt)|fp64|float64")
"""What stands in every kernel that calls it: functions of float64 are its, whatever they are."""

NOTHING = Path(__file__).with_name("nothing.ll")


def triton_available() -> bool:
    """Returns whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


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


def is_interpreted(kernel: Any) -> bool:
    """Returns whether `triton.jit` made this kernel under `TRITON_INTERPRET=1`."""
    return type(kernel).__name__ == "InterpretedFunction"


def compile_kernel(
    kernel: Any, variant: Variant, constants: dict[str, Any], target: Any
) -> Any:
    """Compiles a kernel as `JITFunction` would, but from types instead of arguments.

    Args:
        kernel: What `triton.jit` returned.
        variant: Types of its arguments.
        constants: Its constants and compile options.
        target: Triton's `GPUTarget`.

    Raises:
        TypeError: When arguments and parameters do not match.
    """
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
    if "device_assert" in kernel.src and target.backend == "cuda":
        # Whatever a kernel calls, Triton reads and links all of libdevice then.
        parts = (kernel.src, *map(str, (variant.types, constexprs.values())))
        if not any(map(MAY_CALL_LIBDEVICE.search, parts)):
            options["extern_libs"] = (("libdevice", str(NOTHING)),)
    return triton.compile(source, target=target, options={**EAGER_ROUNDING, **options})


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
    kernels = (
        [v for k, v in vars(module).items() if k == name]
        if name
        else [
            v
            for v in vars(module).values()
            if type(v).__name__.endswith("Function")
            and getattr(v, "__module__", None) == module.__name__
        ]
    )
    if not kernels:
        raise ValueError(f"no kernel {name or ''} in the text")
    kernel = kernels[-1]
    if is_interpreted(kernel):
        raise RuntimeError("unset TRITON_INTERPRET to compile for a GPU")
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    made = compile_kernel(kernel, Variant.parse(signature), dict(constants), gpu)
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
    target = re.search(r"\.target (sm_\w+)", ptx)
    arch = target.group(1) if target else "sm_90a"
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "kernel.ptx"
        file.write_text(ptx)
        report = subprocess.run(
            [folder / "ptxas", "-v", f"--gpu-name={arch}", file, "-o", f"{file}.cubin"],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.search(r"Used (\d+) registers", report)
    spilled = re.search(r"(\d+) bytes spill stores", report)
    return int(registers.group(1)) if registers else 0, int(
        spilled.group(1)
    ) if spilled else 0
