"""Writes the Python function that launches one compiled kernel, for one kind of arguments.

For two tensors, an int and the constant BLOCK=1024, what the first call looked like gives

    def launch_norm(grid, a0, a1, a2, start=start, function=function, ...):
        p0 = a0.data_ptr()
        p1 = a1.data_ptr()
        if (p0 | p1) & 15 or a2 & 15 or not -2147483648 <= a2 < 2147483648 or ...:
            return any_norm(grid, a0, a1, a2)
        start(grid, 1, 1, stream(0), function, ..., p0, p1, a2, 1024)

and `any_norm` looks up the variant of the kernel that fits, which is compiled if it is new.
Raw addresses are passed, so that the launcher in C need not ask each tensor for its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .triton_compile import ALIGNMENT

LOW = ALIGNMENT - 1
INT32 = (-(2**31), 2**31 - 1)

Compile = Callable[[tuple[Any, ...], bool], Any]
"""Compiles for these arguments, with or without the assumption of aligned pointers."""


def write_launcher(
    kernel: Any, constants: dict[str, Any], args: tuple[Any, ...], compiled: Compile
) -> Callable[..., None]:
    """Returns the launcher of `kernel` for arguments like `args`.

    Raises:
        TypeError: When the arguments are not on a GPU.
    """
    return _LauncherWriter(kernel, constants, args, compiled).write()


class _LauncherWriter:
    """The texts of the two functions, and the names that they use."""

    def __init__(
        self,
        kernel: Any,
        constants: dict[str, Any],
        args: tuple[Any, ...],
        compiled: Compile,
    ) -> None:
        self.args, self.compiled = args, compiled
        self.name = kernel.__name__
        self.tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        places = {args[i].get_device() for i in self.tensors} or {-1}
        self.home = args[self.tensors[0]].get_device() if self.tensors else -1
        # NOTE: raw addresses are passed; nothing below would notice one of the CPU.
        if len(places) > 1 and -1 not in places:
            raise TypeError(
                f"arguments of the Triton kernel {self.name} are on several GPUs"
            )
        if -1 in places:
            raise TypeError(
                f"the Triton kernel {self.name} needs CUDA tensors; to run it on the CPU, "
                "set TRITON_INTERPRET=1 before triton is imported"
            )
        free = [p for p in kernel.params if p.name not in constants]
        # A float parameter may get an int at one call and a float at the next.
        self.integers = [
            i
            for i, (p, a) in enumerate(zip(free, args, strict=False))
            if type(a) is int and p.annotation_type[:2] not in ("fp", "bf")
        ]
        self.namespace: dict[str, Any] = {
            "current_device": torch._C._cuda_getDevice,
            "stream": torch._C._cuda_getCurrentRawStream,
            "on_device": on_device,
        }
        values = {
            p.name: f"p{i}" if i in self.tensors else f"a{i}"
            for i, p in enumerate(free[: len(args)])
        }
        for position, p in enumerate(kernel.params):
            if p.name not in values:
                self.namespace[f"c{position}"] = constants.get(p.name, p.default)
                values[p.name] = f"c{position}"
        passed = "".join(f"{values[p.name]}, " for p in kernel.params)
        self.style = launch_style()
        self.call = self.style.call.format(args=passed)
        self.parameters = ", ".join(f"a{i}" for i in range(len(args)))
        pointers = " | ".join(f"p{i}" for i in self.tensors)
        self.pointers = f"({pointers})" if len(self.tensors) > 1 else pointers
        self.variants: dict[Any, tuple[Any, ...]] = {}

    def write(self) -> Callable[..., None]:
        """Returns the fast function."""
        self.namespace["variant"] = self._variant
        exec("\n".join(self._general()), self.namespace)
        exec("\n".join(self._fast()), self.namespace)
        run: Callable[..., None] = self.namespace[f"launch_{self.name}"]
        return run

    def _variant(self, key: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
        found = self.variants.get(key)
        if found is None:
            found = self.style.facts(self.compiled(args, key[0] == 0))
            self.variants[key] = found
        return found

    def _addresses(self) -> list[str]:
        return [f"    p{i} = a{i}.data_ptr()" for i in self.tensors]

    def _general(self) -> list[str]:
        """For any alignment, any numbers, any device."""
        name, first = f"any_{self.name}", self.tensors[0]
        key = [f"{self.pointers} & {LOW}", f"a{first}.get_device()"]
        for i in self.integers:
            key += [f"a{i} & {LOW} == 0", f"{INT32[0]} <= a{i} <= {INT32[1]}"]
        return [
            f"def {name}(grid, {self.parameters}):",
            *self._addresses(),
            f"    device = a{first}.get_device()",
            "    if device != current_device():",
            f"        return on_device(device, {name}, grid, {self.parameters})",
            f"    key = {', '.join(key)}",
            "    start, function, facts, shape, rest = "
            f"variant(key, ({self.parameters},))",
            "    x, y, z = (grid, 1, 1) if grid.__class__ is int else (*grid, 1, 1)[:3]",
            "    if x and y and z:",
            f"        {self.call.format(x='x', y='y', z='z', device='device')}",
        ]

    def _fast(self) -> list[str]:
        """For what the first call looked like; tests only what the kernel relies on."""
        first, args = self.tensors[0], self.args
        bits = 0
        for i in self.tensors:
            bits |= args[i].data_ptr()
        key: list[Any] = [bits & LOW, self.home]
        differs = [] if bits & LOW else [f"{self.pointers} & {LOW}"]
        for i in self.integers:
            divisible, small = args[i] & LOW == 0, INT32[0] <= args[i] <= INT32[1]
            key += [divisible, small]
            if divisible:
                differs.append(f"a{i} & {LOW}")
            if small:
                differs.append(f"not {INT32[0]} <= a{i} <= {INT32[1]}")
        differs.append("grid.__class__ is not int")
        if torch.cuda.device_count() > 1:
            differs.append(f"a{first}.get_device() != {self.home}")
            differs.append(f"current_device() != {self.home}")
        with torch.cuda.device(self.home):
            start, function, facts, shape, rest = self._variant(tuple(key), args)
        bound = {
            "start": start,
            "function": function,
            "facts": facts,
            "stream": self.namespace["stream"],
            **{f"s{i}": part for i, part in enumerate(shape)},
            **{f"r{i}": part for i, part in enumerate(rest)},
        }
        self.namespace |= bound
        # Defaults are local variables: the cheapest names there are.
        defaults = ", ".join(f"{n}={n}" for n in bound)
        call = self.call.replace(
            "*shape", ", ".join(f"s{i}" for i in range(len(shape)))
        )
        call = call.replace("*rest", ", ".join(f"r{i}" for i in range(len(rest))))
        return [
            f"def launch_{self.name}(grid, {self.parameters}, {defaults}):",
            *self._addresses(),
            f"    if {' or '.join(differs)}:",
            f"        return any_{self.name}(grid, {self.parameters})",
            f"    {call.format(x='grid', y='1', z='1', device=str(self.home))}",
        ]


def on_device(device: int, run: Callable[..., None], *args: Any) -> None:
    """Runs a launcher while `device` is the current one."""
    if device < 0:
        raise TypeError("a Triton kernel needs CUDA tensors, got one on the CPU")
    with torch.cuda.device(device):
        run(*args)


@dataclass(frozen=True)
class LaunchStyle:
    """How this version of Triton starts a compiled kernel.

    Attributes:
        call: Statement of the launcher; `{args}` are the kernel's arguments, each with a
            comma, and `{{x}}`, `{{y}}`, `{{z}}`, `{{device}}` are filled in after them.
        facts: Makes `(start, function, facts, shape, rest)` of a compiled kernel.
    """

    call: str
    facts: Callable[[Any], tuple[Any, ...]]


def launch_style() -> LaunchStyle:
    """Finds the cheapest entry: the C function below `CudaLauncher.__call__` where known.

    `CudaLauncher.__call__` only allocates scratch memory before it calls that function;
    a kernel without scratch memory does not need it. Triton 3.7 has one C function for all
    kernels that takes the arguments as a tuple, 3.6 one per signature that takes them flat.
    """
    version = _triton_version()
    begin = "start({{x}}, {{y}}, {{z}}, stream({{device}}), function, "
    if version >= (3, 8) or version < (3, 5):
        return LaunchStyle(
            begin + "facts, None, None, None, {args})",
            lambda kernel: (
                kernel.run,
                kernel.function,
                kernel.packed_metadata,
                (),
                (),
            ),
        )
    if version >= (3, 7):
        tail = "*shape, facts, None, None, None, None, None, *rest, ({args}))"
    else:
        tail = "*shape, None, None, facts, None, None, None, {args})"
    return LaunchStyle(begin + tail, _direct_facts)


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
