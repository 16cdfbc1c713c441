"""Compiles C++ kernels with the system compiler and calls them in process.

    >>> kernels = cpp_kernels('''
    ... void twice(const float* x, float* y, long n) {
    ...     for (long i = 0; i < n; ++i) y[i] = x[i] * 2.0f;
    ... }
    ... ''')  # compiles in the background
    >>> x, y = torch.ones(3), torch.empty(3)
    >>> kernels.twice(x, y, 3)  # waits for the compiler
    >>> y
    tensor([2., 2., 2.])

A kernel is a function `void name(...)` at the start of a line, whose parameters are pointers (passed as
CPU tensors of that dtype), integers and floating-point numbers. The types of `kernel.h` may
be used. Calls are positional; dtype and device of every tensor are checked at each call.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from srcjit.runtime import cpp_build
from srcjit.runtime.cpp_build import (
    CppFault,
    NoCompiler,
    compiler_available,
    missing_compiler,
)

__all__ = [
    "CppFault",
    "NoCompiler",
    "compiler_available",
    "cpp_kernels",
    "empty",
    "missing_compiler",
]

_C_TYPES: dict[str, tuple[torch.dtype, int, int]] = {
    # C type: PyTorch's dtype, and DLPack's type code and bits.
    "bool": (torch.bool, 6, 8),
    "boolean": (torch.bool, 6, 8),
    "unsigned char": (torch.uint8, 1, 8),
    "signed char": (torch.int8, 0, 8),
    "short": (torch.int16, 0, 16),
    "int": (torch.int32, 0, 32),
    "long": (torch.int64, 0, 64),
    "float16": (torch.float16, 2, 16),
    "bfloat16": (torch.bfloat16, 4, 16),
    "float": (torch.float32, 2, 32),
    "double": (torch.float64, 2, 64),
    "float8_e4m3fn": (torch.float8_e4m3fn, 10, 8),
    "float8_e4m3fnuz": (torch.float8_e4m3fnuz, 11, 8),
    "float8_e5m2": (torch.float8_e5m2, 12, 8),
    "float8_e5m2fnuz": (torch.float8_e5m2fnuz, 13, 8),
    "float8_e8m0fnu": (torch.float8_e8m0fnu, 14, 8),
}

_EXPORTED = re.compile(r'^\s*(?:extern "C" )?void (\w+)\(([^)]*)\)\s*\{', re.MULTILINE)
_PARAMETER = re.compile(
    r"(?P<const>const )?(?P<type>unsigned char|signed char|\w+)\s*(?P<pointer>\*)?\s*"
    r"(?:(?:const|__restrict__|__restrict)\s+)*(?P<name>\w+)"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    `kind` is `p` (a tensor that is read), `w` (one that is
    written), `i` (integer) or `d` (real).
    """

    name: str
    kind: str
    c_type: str

    @property
    def row(self) -> tuple[str, str, int, int, torch.dtype]:
        """What the launcher wants to know."""
        dtype, code, bits = _C_TYPES[self.c_type]
        return (self.name, self.kind, code, bits, dtype)


def signatures(source: str) -> dict[str, tuple[Parameter, ...]]:
    """Finds the kernels of a translation unit and their parameters.

    Raises:
        CppFault: If a parameter has a type that no argument can have.
    """
    found = {}
    for name, text in _EXPORTED.findall(source):
        parameters = []
        for piece in filter(None, (p.strip() for p in text.split(","))):
            match = _PARAMETER.fullmatch(piece)
            if match is None or match["type"] not in _C_TYPES:
                raise CppFault(f"kernel {name}: cannot pass an argument as `{piece}`")
            is_float = _C_TYPES[match["type"]][0].is_floating_point
            kind = "d" if is_float else "i"
            if match["pointer"]:
                kind = "p" if match["const"] else "w"
            parameters.append(Parameter(match["name"], kind, match["type"]))
        found[name] = tuple(parameters)
    return found


def _entries(kernels: dict[str, tuple[Parameter, ...]]) -> str:
    """C++ text: one function of a `Slot` array for each kernel, as the launcher calls it."""
    lines = [
        '#line 1 "entries"',
        "union Slot { void* pointer; long long integer; double real; };",
    ]
    field = {"p": "pointer", "w": "pointer", "i": "integer", "d": "real"}
    for name, parameters in kernels.items():
        arguments = ", ".join(
            f"({p.c_type}{'*' if p.kind in 'pw' else ''})slots[{i}].{field[p.kind]}"
            for i, p in enumerate(parameters)
        )
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) '
            f"void call_{name}(const Slot* slots) {{ {name}({arguments}); }}"
        )
    return "\n".join(lines) + "\n"


_WHOLE = re.compile(r"void \w+\([^)]*\) \{\n.*?^\}\n\s*", re.MULTILINE | re.DOTALL)

_UNIT = 16384
"""Characters of kernels that the compiler takes about a quarter of a second for."""


def units(source: str) -> list[str]:
    r"""Cuts a long text of kernels, and nothing else, into parts for parallel builds.

    >>> kernel = "void k(float* x) {\n" + "    x[0] = 1.0f;\n" * 700 + "}\n"
    >>> [len(unit) // len(kernel) for unit in units(kernel * 3)]
    [2, 1]
    """
    kernels = _WHOLE.findall(source)
    if len(source) <= _UNIT or "".join(kernels).strip() != source.strip():
        return [source]
    found = [""]
    for kernel in kernels:
        if len(found[-1]) >= _UNIT:
            found.append("")
        found[-1] += kernel
    return found


class CppKernels:
    """The kernels of one translation unit, as attributes.

    The compiler runs in the background from construction on; the first access to a kernel
    waits for it.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._signatures = signatures(source)
        cpp_build.start_launcher()
        self._builds = []
        for unit in units(source):
            kernels = signatures(unit)
            full = f'#line 1 "kernels"\n{unit}\n{_entries(kernels)}'
            self._builds.append((kernels, cpp_build.Build(full)))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or name not in self._signatures:
            raise AttributeError(f"no kernel {name!r} in this translation unit")
        self._load()  # by two threads at once does no harm, and a lock would outlive a fork
        kernel: Callable[..., None] = self.__dict__[name]
        return kernel

    def wait_until_ready(self) -> None:
        """Waits until all kernels can be called.

        Raises:
            CppFault: If they cannot be built or loaded.
        """
        for name in self._signatures:
            getattr(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._signatures]

    def _load(self) -> None:
        launcher = cpp_build.launcher()
        for kernels, build in self._builds:
            library = build.library()
            for name, parameters in kernels.items():
                entry = getattr(library, f"call_{name}")
                if launcher is None:
                    self.__dict__[name] = _PlainKernel(name, entry, parameters)
                    continue
                address = ctypes.cast(entry, ctypes.c_void_p).value
                rows = tuple(p.row for p in parameters)
                self.__dict__[name] = launcher.bind(address, name, rows, library)


class _Slot(ctypes.Union):
    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("integer", ctypes.c_longlong),
        ("real", ctypes.c_double),
    )


class _PlainKernel:
    """Calls a kernel through ctypes: for a machine without Python's headers."""

    def __init__(
        self, name: str, entry: Any, parameters: tuple[Parameter, ...]
    ) -> None:
        self.name = name
        self._entry = entry
        self._rows = tuple(p.row for p in parameters)

    def __call__(self, *args: Any) -> None:
        if len(args) != len(self._rows):
            raise TypeError(
                f"kernel {self.name} takes {len(self._rows)} positional arguments, "
                f"got {len(args)}"
            )
        slots = (_Slot * (len(args) + 1))()
        for slot, arg, (label, kind, _, _, dtype) in zip(
            slots, args, self._rows, strict=False
        ):
            if kind == "i":
                slot.integer = arg
            elif kind == "d":
                slot.real = arg
            else:
                is_tensor = isinstance(arg, torch.Tensor)
                if not is_tensor or arg.dtype is not dtype or not arg.is_cpu:
                    got = (
                        f"a tensor of {arg.dtype}" if is_tensor else type(arg).__name__
                    )
                    raise TypeError(
                        f"kernel {self.name}: {label} must be a CPU tensor of {dtype}, "
                        f"got {got}"
                    )
                slot.pointer = arg.data_ptr()
        self._entry(slots)

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} (ctypes)>"


def cpp_kernels(source: str) -> CppKernels:
    """Compiles a translation unit; returns an object with one callable for each kernel.

    Raises:
        NoCompiler: If the machine has no C++ compiler.
        CppFault: For a kernel whose parameters cannot be passed. An error of the compiler is
            raised at the first call of a kernel.
    """
    return CppKernels(source)


def _plain_empty(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu")


empty_cpu: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
empty_cpu = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", _plain_empty)
"""`empty_cpu(size, stride, dtype)`: an uninitialized CPU tensor, by the fastest way there is."""


def empty(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Allocates an uninitialized tensor with the given sizes and strides (in elements)."""
    if device == "cpu":
        return empty_cpu(size, stride, dtype)
    return torch.empty_strided(size, stride, dtype=dtype, device=device)
