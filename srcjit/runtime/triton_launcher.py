"""Makes what launches one compiled kernel, for one kind of arguments.

That is an object of `cuda_launcher.c` or, where that cannot be used, a Python function that does
the same. For two tensors, an int and the constant BLOCK=1024, what the first call looked like gives

    def launch_norm(grid, a0, a1, a2, start=start, function=function, ...):
        p0 = a0.data_ptr()
        p1 = a1.data_ptr()
        if (p0 | p1) & 15 or a2 & 15 or not -2147483648 <= a2 < 2147483648 or ...:
            return any_norm(grid, a0, a1, a2)
        start(function, grid, 1, 1, ..., (p0, p1, a2, ...), stream(0))

and `any_norm`, which stands behind the object, too, looks up the variant of the kernel that fits,
which is compiled if it is new. Raw addresses are passed, so that `start` need not ask each tensor
for its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import cuda_launcher
from .triton_compile import ALIGNMENT
from .triton_load import MOST_PROGRAMS, Plain, Start, launch_call

LOW = ALIGNMENT - 1
INT32 = (-(2**31), 2**31 - 1)

Compile = Callable[[tuple[Any, ...], bool], Start]
"""Compiles and loads for these arguments, assuming aligned pointers or not."""


def write_launcher(
    kernel: Any, constants: dict[str, Any], args: tuple[Any, ...], compiled: Compile
) -> Callable[..., None]:
    """Returns the launcher of `kernel` for arguments like `args`.

    Raises:
        TypeError: When the arguments are not on a GPU.
    """
    return _LauncherWriter(kernel, constants, args, compiled).write()


_Alike = dict[int, tuple[bool, bool]]
"""For the place of each integer whether 16 divides it, and whether it is one of 32 bits."""


class _LauncherWriter:
    """The object, or the texts of the functions and the names that they use."""

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
        values = [f"p{i}" if i in self.tensors else f"a{i}" for i in range(len(args))]
        self.passed = "".join(f"{value}, " for value in values)
        self.parameters = ", ".join(f"a{i}" for i in range(len(args)))
        pointers = " | ".join(f"p{i}" for i in self.tensors)
        self.pointers = f"({pointers})" if len(self.tensors) > 1 else pointers
        self.variants: dict[Any, Start] = {}
        self.several = torch.cuda.device_count() > 1

    def write(self) -> Callable[..., None]:
        """Returns what launches the kernel for arguments like those of the first call."""
        self.namespace["variant"] = self._variant
        exec("\n".join(self._general()), self.namespace)
        # NOTE: one kernel may be launched for several places of a program, and the first of
        # them must not make all the others slow.
        bits = 0
        for i in self.tensors:
            bits |= self.args[i].data_ptr()
        aligned = bits & LOW == 0
        alike = {
            i: (self.args[i] & LOW == 0, INT32[0] <= self.args[i] <= INT32[1])
            for i in self.integers
        }
        facts = [fact for pair in alike.values() for fact in pair]
        with torch.cuda.device(self.home):
            how = self._variant((bits & LOW, self.home, *facts), self.args)
        module = cuda_launcher.loaded()
        if module is not None and how.plain is not None:
            return self._object(module, how, how.plain, aligned, alike)
        exec("\n".join(self._fast(how, aligned, alike)), self.namespace)
        run: Callable[..., None] = self.namespace[f"launch_{self.name}"]
        return run

    def _object(
        self, module: Any, how: Start, plain: Plain, aligned: bool, alike: _Alike
    ) -> Callable[..., None]:
        """What tests the same as the fast function does."""
        flags = bytearray(len(self.args))
        for i, (divisible, small) in alike.items():
            flags[i] = cuda_launcher.DIVISIBLE * divisible | cuda_launcher.SMALL * small
        run: Callable[..., None] = module.bind(
            self.namespace[f"any_{self.name}"],
            how.function,
            *plain,
            bytes(flags),
            self.args[self.tensors[0]].__dlpack_device__(),
            aligned,
            self.namespace["current_device"] if self.several else None,
        )
        return run

    def _variant(self, key: tuple[Any, ...], args: tuple[Any, ...]) -> Start:
        found = self.variants.get(key)
        if found is None:
            found = self.compiled(args, key[0] == 0)
            self.variants[key] = found
        return found

    def _call(self, **filled: str) -> str:
        return launch_call().format(args=self.passed, **filled)

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
            "    x, y, z = (grid, 1, 1) if grid.__class__ is int else (*grid, 1, 1)[:3]",
            f"    if x * y * z > {MOST_PROGRAMS}:",
            f"        raise OverflowError(f'too many programs of {self.name}: {{grid}}')",
            f"    key = {', '.join(key)}",
            f"    how = variant(key, ({self.parameters},))",
            "    start, function, shape, rest = how.start, how.function, how.shape, how.rest",
            "    if x and y and z:",
            f"        {self._call(x='x', y='y', z='z', device='device')}",
        ]

    def _fast(self, how: Start, aligned: bool, alike: _Alike) -> list[str]:
        """For what the first call looked like; tests only what the kernel relies on."""
        first = self.tensors[0]
        unlike = "" if aligned else "not "
        differs = [f"{unlike}{self.pointers} & {LOW}"]
        for i, (divisible, small) in alike.items():
            if divisible:
                differs.append(f"a{i} & {LOW}")
            if small:
                differs.append(f"not {INT32[0]} <= a{i} <= {INT32[1]}")
        differs.append("grid.__class__ is not int")
        if self.several:
            differs.append(f"a{first}.get_device() != {self.home}")
            differs.append(f"current_device() != {self.home}")
        bound = {
            "start": how.start,
            "function": how.function,
            "stream": self.namespace["stream"],
            **{f"s{i}": part for i, part in enumerate(how.shape)},
            **{f"r{i}": part for i, part in enumerate(how.rest)},
        }
        self.namespace |= bound
        # Defaults are local variables: the cheapest names there are.
        defaults = ", ".join(f"{n}={n}" for n in bound)
        call = self._call(x="grid", y="1", z="1", device=str(self.home))
        shape = "".join(f"s{i}, " for i in range(len(how.shape)))
        call = call.replace("*shape, ", shape)
        call = call.replace("*rest", ", ".join(f"r{i}" for i in range(len(how.rest))))
        return [
            f"def launch_{self.name}(grid, {self.parameters}, {defaults}):",
            *self._addresses(),
            f"    if {' or '.join(differs)}:",
            f"        return any_{self.name}(grid, {self.parameters})",
            f"    {call}",
        ]


def on_device(device: int, run: Callable[..., None], *args: Any) -> None:
    """Runs a launcher while `device` is the current one."""
    if device < 0:
        raise TypeError("a Triton kernel needs CUDA tensors, got one on the CPU")
    with torch.cuda.device(device):
        run(*args)
