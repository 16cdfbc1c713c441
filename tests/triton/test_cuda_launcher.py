"""What `cuda_launcher.c` gives the driver, and what it leaves to Python: with a driver that takes
notes in place of CUDA's, and tensors of the CPU that say they are on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import struct
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from srcjit.runtime import cpp_build, cuda_launcher
from srcjit.runtime.triton import load_text
from srcjit.runtime.triton_launcher import write_launcher
from srcjit.runtime.triton_load import Start, _plain

pytestmark = pytest.mark.skipif(
    not cpp_build.compiler_available()
    or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="Python launches here",
)

NOTES = r"""
#include <string.h>
#include "dlpack.h"
#pragma GCC visibility push(default)
extern "C" {

struct Notes {
    uint64_t calls, function, shared, stream;
    uint32_t grid[3], block[3];
    uint64_t slots[16];
};
Notes notes;
int parameters, problem, current;
void *elsewhere;                  /* data of a tensor on the second GPU */
Exchange table;
Exchange *real;

int start(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
               unsigned bz, unsigned shared, void *stream, void **given, void **extra) {
    notes = {notes.calls + 1, (uint64_t)function, shared, (uint64_t)stream,
             {x, y, z}, {bx, by, bz}, {}};
    for (int i = 0; i < parameters; i++) memcpy(&notes.slots[i], given[i], 8);
    return extra ? -1 : problem;
}

int tensor_on_gpu(void *object, Tensor *out) {
    int failed = real->tensor_from_object(object, out);
    out->device.type = 2;
    out->device.index = out->data == elsewhere;
    return failed;
}

int stream_of(int32_t type, int32_t index, void **out) {
    *out = (void *)(uintptr_t)(type * 1000 + index);
    return 0;
}

void imitate(Exchange *given) {
    real = given;
    table = *given;
    table.tensor_from_object = tensor_on_gpu;
    table.current_stream = stream_of;
}
}
"""


class Notes(ctypes.Structure):
    """The latest launch."""

    _fields_ = (
        ("calls", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("shared", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("slots", ctypes.c_uint64 * 16),
    )


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    def get_device(self) -> int:
        """The first GPU."""
        return 0

    def __dlpack_device__(self) -> tuple[Any, int]:
        """As of the first GPU."""
        return (2, 0)


class Driver:
    """The driver that takes notes."""

    def __init__(self, library: ctypes.CDLL, module: Any) -> None:
        self.library, self.module = library, module
        self.notes = Notes.in_dll(library, "notes")
        self.notes.calls = 0
        self.set(parameters=0, problem=0)
        ctypes.c_void_p.in_dll(library, "elsewhere").value = None

    def set(self, **numbers: int) -> None:
        """Sets variables of the library."""
        for name, number in numbers.items():
            ctypes.c_int.in_dll(self.library, name).value = number

    def bind(
        self,
        otherwise: Callable[..., None],
        kinds: str,
        flags: bytes = b"",
        aligned: bool = True,
        current_device: Callable[[], int] | None = None,
    ) -> Any:
        """An object whose parameters are all noted."""
        self.set(parameters=len(kinds))
        flags = flags or bytes(len(kinds))
        shape = (7, 4, 48, kinds, flags, (2, 0), aligned, current_device)
        return self.module.bind(otherwise, *shape)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Connects the extension to a driver that takes notes."""
    library = cpp_build.Build(NOTES).library()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"
    exchange = torch.Tensor.__dlpack_c_exchange_api__  # type: ignore[attr-defined]
    library.imitate(ctypes.c_void_p(pointer(exchange, name)))
    table = ctypes.addressof(ctypes.c_char.in_dll(library, "table"))
    start = ctypes.cast(library.start, ctypes.c_void_p).value
    module: Any = cpp_build.extension("cuda_launcher")
    assert module.connect(torch.Tensor, make(table, name, None), start)
    with monkeypatch.context() as patch:
        patch.setattr(cuda_launcher, "loaded", lambda: module)
        patch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
        patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False)
        patch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        yield Driver(library, module)
    cuda_launcher.loaded.cache_clear()
    cuda_launcher.loaded()


def memory(count: int = 64) -> torch.Tensor:
    """Numbers that begin at a multiple of 16 bytes."""
    made = torch.zeros(count + 4)
    return made[-made.data_ptr() % 16 // 4 :][:count].as_subclass(OnGpu)


def refuse(*args: Any) -> None:
    raise AssertionError(f"Python is to launch {args}")


def test_parameters_are_packed(driver: Driver) -> None:
    x, y = memory(), memory()
    run = driver.bind(refuse, "OilfOdbhBHIKiOO", bytes(13))
    numbers = (-5, 2**40, 0.1, y, -0.1, -128, 2**15 - 1, 255, 65535, 2**32 - 1, 2**62)
    assert run(3, x, *numbers, True) is None
    notes = driver.notes
    assert (notes.calls, notes.function, notes.shared, notes.stream) == (1, 7, 48, 2000)
    assert tuple(notes.grid) == (3, 1, 1) and tuple(notes.block) == (128, 1, 1)
    raw = [bytes(ctypes.c_uint64(slot)) for slot in notes.slots]
    formats = "P i q f P d b h B H I Q i P P".split()
    wanted = (x.data_ptr(), *numbers[:3], y.data_ptr(), *numbers[4:], 1, 0, 0)
    for slot, form, value in zip(raw, formats, wanted, strict=False):
        packed = struct.pack(f"<{form.replace('P', 'Q')}", value)
        assert slot[: len(packed)] == packed, (form, value)


@pytest.mark.parametrize(
    ("kind", "value", "launched"),
    [
        *(("i", v, True) for v in (0, -(2**31), 2**31 - 1, True)),
        *(("i", v, False) for v in (2**31, -(2**31) - 1, 2**70, 1.0, None, "1")),
        *(("l", v, True) for v in (-(2**63), 2**63 - 1)),
        *(("l", v, False) for v in (2**63, -(2**63) - 1)),
        *(("b", v, -128 <= v < 128) for v in (-129, -128, 127, 128)),
        *(("h", v, False) for v in (-32769, 32768)),
        *(("B", v, 0 <= v < 256) for v in (-1, 0, 255, 256)),
        *(("H", v, 0 <= v < 65536) for v in (-1, 65535, 65536)),
        *(("I", v, 0 <= v < 2**32) for v in (-1, 2**32 - 1, 2**32)),
        *(("K", v, v == 0) for v in (-1, 0, 2**63)),
        *(("f", v, True) for v in (1, -1.0, 2**100, float("nan"), True)),
        *(("f", v, False) for v in (10**400, "1", None)),
        *(("d", v, False) for v in (10**400, 1j)),
        *(("O", v, False) for v in (0, None, "x")),
    ],
)
def test_unusual_arguments_are_left_to_python(
    driver: Driver, kind: str, value: Any, launched: bool
) -> None:
    left: list[Any] = []
    run = driver.bind(lambda *args: left.append(args), kind)
    run(1, value)
    assert driver.notes.calls == launched
    assert len(left) == (not launched) and all(args == (1, value) for args in left)


@pytest.mark.parametrize(
    ("grid", "sides"),
    [
        (5, (5, 1, 1)),
        ((5,), (5, 1, 1)),
        ((5, 6), (5, 6, 1)),
        ((5, 6, 7), (5, 6, 7)),
        (2**31 - 1, (2**31 - 1, 1, 1)),
        *((nothing, ()) for nothing in (0, (1, 0), (0, 3, 3))),
        *((left, None) for left in (2**31, -1, (2**16, 2**15), (1, 1, 1, 1))),
        *((left, None) for left in ((2**40, 2**40), 2**80, 1.0, [1], True, (1, -1))),
    ],
)
def test_grids(driver: Driver, grid: Any, sides: tuple[int, ...] | None) -> None:
    left: list[Any] = []
    run = driver.bind(lambda *args: left.append(args), "O")
    x = memory()
    assert run(grid, x) is None
    assert driver.notes.calls == bool(sides)
    if sides:
        assert tuple(driver.notes.grid) == sides
    assert len(left) == (sides is None)


def test_flags_of_numbers(driver: Driver) -> None:
    left: list[int] = []
    both = bytes((cuda_launcher.DIVISIBLE | cuda_launcher.SMALL,))
    run = driver.bind(lambda _, n: left.append(n), "l", both)
    for number in (0, -16, 32, 8, 2**31, -(2**31), -(2**31) - 16):
        run(1, number)
    assert left == [8, 2**31, -(2**31) - 16] and driver.notes.calls == 4


def test_tensors_elsewhere_are_left_to_python(driver: Driver) -> None:
    left: list[Any] = []
    here = [0]
    run = driver.bind(
        lambda *args: left.append(args), "OO", current_device=lambda: here[0]
    )
    x, y = memory(), memory()
    run(1, x, y)
    assert not left
    here[0] = 1
    run(1, x, y)
    assert len(left) == 1
    here[0] = 0
    elsewhere = ctypes.c_void_p.in_dll(driver.library, "elsewhere")
    for other in (x, y):
        elsewhere.value = other.data_ptr()
        run(1, x, y)
    assert len(left) == 3 and driver.notes.calls == 1
    run(1, x, torch.empty(4, device="meta"))
    assert len(left) == 4 and driver.notes.calls == 1


def test_what_the_driver_refuses_python_does(driver: Driver) -> None:
    def otherwise(grid: int, x: torch.Tensor) -> None:
        raise RuntimeError(f"no kernel for {grid}")

    run = driver.bind(otherwise, "O")
    driver.set(problem=700)
    with pytest.raises(RuntimeError, match="no kernel for 2"):
        run(2, memory())
    assert driver.notes.calls == 1


def test_wrong_calls_are_pythons(driver: Driver) -> None:
    run = driver.bind(lambda grid, x: None, "O")
    for call in (lambda: run(), lambda: run(1), lambda: run(1, 2, 3)):
        with pytest.raises(TypeError, match="argument"):
            call()
    assert run(grid=1, x=memory()) is None
    assert driver.notes.calls == 0


def test_what_launches_is_collected(driver: Driver) -> None:
    class Kernel:
        pass

    def cycle() -> weakref.ref[Any]:
        kernel: Any = Kernel()
        kernel.run = driver.bind(lambda *args: refuse(kernel, *args), "O")
        return weakref.ref(kernel)

    found = cycle()
    gc.collect()
    assert found() is None


TEXT = """
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, n, s: tl.float32, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) + s, i < n)
"""


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("plain", [True, False])
def test_both_ways_agree(driver: Driver, first: int, plain: bool) -> None:
    """What is launched at once and what has another variant, with and without the extension."""
    driver.set(parameters=6)
    by_python: list[tuple[int, ...]] = []
    variants: list[tuple[bool, bool, bool]] = []

    def compiled(args: tuple[Any, ...], aligned: bool) -> Start:
        found = (aligned, args[2] % 16 == 0, args[2] < 2**31)
        if found not in variants:
            variants.append(found)
        shape = (4, 0, "OOlfOO")
        start = lambda function, *rest: by_python.append((function, *rest[:3]))  # noqa: E731
        function = 100 + variants.index(found)
        return Start(start, function, shape, (None, None), shape if plain else None)

    add = load_text(TEXT, "<add>").add
    whole = memory()
    views = [whole[:16], whole[1:17]]
    run = write_launcher(
        add, {"BLOCK": 16}, (views[first], views[0], 16, 1.0), compiled
    )
    assert (type(run).__name__ == "Launch") is plain
    fast = 0
    for x, n in ((0, 16), (1, 16), (0, 17), (0, 2**31), (1, 2**31 + 1), (first, 32)):
        before = driver.notes.calls, len(by_python)
        run(2, views[x], views[0], n, 1.0)
        direct = driver.notes.calls - before[0]
        assert direct + len(by_python) - before[1] == 1
        function = driver.notes.function if direct else by_python[-1][0]
        assert variants[function - 100] == (x == 0, n % 16 == 0, n < 2**31)
        fast += direct
    assert fast == (2 if plain else 0)


def test_only_plain_kernels_have_objects() -> None:
    def plain(**facts: Any) -> Any:
        usual = {"num_warps": 8, "shared": 96, "global_scratch_size": 0}
        signature = {"x": "*fp32", "n": facts.pop("type", "i32"), "B": "constexpr"}
        return _plain(
            SimpleNamespace(
                metadata=SimpleNamespace(**usual | facts),
                src=SimpleNamespace(signature=signature),
            )
        )

    assert plain() == ((8, 96, "OiO"), (None,))
    assert plain(profile_scratch_size=0)[0] == (8, 96, "OiOO")
    assert plain(num_ctas=1, launch_pdl=False)[0] is not None
    for facts in ({"num_ctas": 2}, {"launch_pdl": True}, {"type": "fp16"}):
        assert plain(**facts)[0] is None
    assert plain(launch_cooperative_grid=True)[0] is None


def test_the_front_finds_what_is_bound(driver: Driver) -> None:
    calls: list[Any] = []
    kernel: Any = SimpleNamespace()
    front = driver.module.front(
        lambda *args, **named: calls.append(("new", args, named))
    )
    front(kernel, 1, 2, BLOCK=3)
    assert calls.pop() == ("new", (kernel, 1, 2), {"BLOCK": 3})
    kernel.srcjit_bindings = [
        ({"BLOCK": 3, "num_warps": 4}, lambda *args: calls.append(("first", *args))),
        ({}, lambda *args: calls.append(("second", *args))),
    ]
    front(kernel, 1, 2, BLOCK=3, num_warps=4)
    front(kernel, 1, num_warps=4, BLOCK=3)
    front(kernel, 5)
    assert calls == [("first", 1, 2), ("first", 1), ("second", 5)]
    for named in ({"BLOCK": 3}, {"BLOCK": 3, "num_warps": 8}, {"BLOCK": 3, "nums": 4}):
        front(kernel, 1, **named)
        assert calls.pop() == ("new", (kernel, 1), named)


def test_the_front_passes_exceptions_on(driver: Driver) -> None:
    class Broken:
        @property
        def srcjit_bindings(self) -> Any:
            raise ValueError("broken")

    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise ValueError("incomparable")

        __hash__ = None  # type: ignore[assignment]

    front = driver.module.front(refuse)
    with pytest.raises(ValueError, match="broken"):
        front(Broken(), 1)
    kernel: Any = SimpleNamespace(srcjit_bindings=[({"BLOCK": Incomparable()}, refuse)])
    with pytest.raises(ValueError, match="incomparable"):
        front(kernel, 1, BLOCK=1)
    kernel.srcjit_bindings = [({}, lambda *args: struct.pack("b", 1000))]
    with pytest.raises(struct.error):
        front(kernel, 1)
