"""The memory of large results: huge pages, what is kept of it, and that nobody notices."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import srcjit
from srcjit.runtime import empty_cpu, empty_large_cpu, large_memory
from tests.backend.test_overwrites import text_of
from tests.backend.test_peak_memory import peak_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's memory")

HUGE_PAGE = 2 << 20
MIB = 1 << 20
NEVER_SLOW = 10**12
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

needs_huge_pages = pytest.mark.skipif(
    not SETTING.exists() or "[never]" in SETTING.read_text(),
    reason="the system has no transparent huge pages",
)


@pytest.fixture(autouse=True, scope="module")
def _what_others_left() -> None:
    """No large result of another test dies in the middle of one here."""
    gc.collect()


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The extension, with nothing in its pool, and with huge pages at any price."""
    module = large_memory.loaded(wait=True)
    assert module is not None
    monkeypatch.setattr(large_memory, "_made", 1)
    monkeypatch.setattr(large_memory, "SLOW", NEVER_SLOW)
    usual = module.keep(0)
    module.keep(usual)
    yield module
    module.keep(usual)
    module.drop()


def large(mib: int = 32) -> torch.Tensor:
    return empty_large_cpu((mib, MIB), (MIB, 1), torch.uint8)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def faults(call: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


# ── pages ─────────────────────────────────────────────────────────────────────────────────


@needs_huge_pages
def test_huge_pages_that_are_fast_are_all_taken() -> None:
    made: list[torch.Tensor] = []
    assert faults(lambda: made.append(large())) < 100
    assert faults(lambda: made[0].fill_(1)) < 100  # 8192 small ones


@needs_huge_pages
def test_the_rest_of_slow_huge_pages_is_small_ones(
    monkeypatch: pytest.MonkeyPatch, memory: ModuleType
) -> None:
    """With less than no time even the first page is too slow, whatever the clock says."""
    monkeypatch.setattr(large_memory, "SLOW", -1)
    made = large()
    assert faults(lambda: made.fill_(1)) > 7000
    monkeypatch.setattr(large_memory, "SLOW", NEVER_SLOW)
    # They are kept, too, but after some uses huge ones are tried again.
    uses = 0
    while uses < 100:
        del made
        if not memory.kept():
            break
        made = large()
        uses += 1
    assert 1 < uses < 100
    made = large()
    assert faults(lambda: made.fill_(1)) < 100


@pytest.mark.parametrize("slow", [0, NEVER_SLOW])
def test_slow_pages_change_no_result(
    slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_memory, "SLOW", slow)
    x = torch.randn(2049, 4097)
    compiled = srcjit.jit(doubled)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(compiled(x), doubled(x))


def test_results_have_such_memory() -> None:
    x = torch.randn(4 << 20, 4)
    compiled = srcjit.jit(doubled)
    with torch.no_grad():
        compiled(x)
        compiled(x)
        assert faults(lambda: compiled(x)) < 200  # 16384 small ones


def test_only_what_may_be_large_is_asked_about() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(0)

    allocations = re.findall(r"= (\w+)\(", text_of(program, torch.randn(2048, 1024)))
    assert allocations.count("empty_large_cpu") == 1
    assert allocations.count("empty_cpu") == 1


# ── what a user can see ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "size, stride, dtype",
    [
        ((2048, 4096), (4096, 1), torch.float32),
        ((2048, 4096), (1, 2048), torch.float32),
        ((9 << 20,), (1,), torch.bool),
        ((3, 1021, 1031, 3), (3157953, 1031, 1, 1052651), torch.bfloat16),
        ((3,), (1,), torch.int64),
        ((0, 4096, 4096), (4096 * 4096, 4096, 1), torch.float64),
        ((1 << 40,), (0,), torch.int8),
    ],
    ids=str,
)
def test_tensors_are_as_the_c_librarys(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> None:
    def facts(x: torch.Tensor) -> object:
        storage = x.untyped_storage()
        return (
            (x.shape, x.stride(), x.storage_offset(), x.dtype, x.device, x.layout),
            (x.requires_grad, x.is_leaf, x.is_inference() or x._version, x.numel()),
            (storage.nbytes(), storage.resizable(), storage.is_shared()),
            (x.is_contiguous(), x.is_pinned(), x.nbytes),
            x.data_ptr() % 64,
        )

    assert facts(empty_large_cpu(size, stride, dtype)) == facts(
        empty_cpu(size, stride, dtype)
    )
    with torch.inference_mode():
        assert facts(empty_large_cpu(size, stride, dtype)) == facts(
            empty_cpu(size, stride, dtype)
        )


def test_no_memory_is_pytorchs_error() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        empty_large_cpu((1 << 46,), (1,), torch.uint8)


def test_results_are_counted_as_pytorchs() -> None:
    x = torch.randn(2048, 4096)
    compiled = srcjit.jit(doubled)
    with torch.no_grad():
        compiled(x)
        assert peak_of(lambda: compiled(x)) == x.nbytes


def test_storages_can_be_changed(memory: ModuleType) -> None:
    x = large().fill_(7)
    x.resize_(40, MIB)
    assert x[:32].eq(7).all() and memory.kept() == 32 * MIB
    y = large().fill_(6)
    assert memory.kept() == 0
    y.untyped_storage().resize_(0)
    assert memory.kept() == 32 * MIB
    z = large()
    z.set_(torch.ones(3, dtype=torch.uint8).untyped_storage())
    assert memory.kept() == 32 * MIB
    shared = large().fill_(5).share_memory_()
    assert shared.is_shared() and shared.eq(5).all() and memory.kept() == 32 * MIB


def test_copies_and_lazy_clones() -> None:
    x = large().fill_(3)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    lazy = torch._lazy_clone(x)
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), torch.load(file)):
        assert torch.equal(other, x)
    x.add_(1)
    assert lazy.eq(3).all() and x.eq(4).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.numpy(),
        lambda x: torch.utils.dlpack.to_dlpack(x),
        lambda x: x[3:4],
        lambda x: x.untyped_storage(),
        lambda x: memoryview(x.numpy()),
    ],
)
def test_views_keep_it(
    view: Callable[[torch.Tensor], object], memory: ModuleType
) -> None:
    kept = view(large())
    assert memory.kept() == 0
    del kept
    assert memory.kept() == 32 * MIB


# ── the pool ──────────────────────────────────────────────────────────────────────────────


def test_the_next_result_takes_it(memory: ModuleType) -> None:
    x = large().fill_(1)
    address = x.data_ptr()
    del x
    assert memory.kept() == 32 * MIB
    assert faults(lambda: large().fill_(2)) < 100
    x = large(30)  # a little smaller is fine
    assert x.data_ptr() == address and memory.kept() == 0
    assert large(20).data_ptr() != address


def test_two_that_live_alternately_and_sizes_that_alternate() -> None:
    def alternate() -> None:
        kept = None
        for mib in (32, 16, 32, 64, 32, 16) * 3:
            kept = large(mib).fill_(mib)
        del kept

    alternate()
    assert faults(alternate) < 300


def lazily_free() -> int:
    """Bytes that the system may take from this process."""
    found = re.findall(r"LazyFree: +(\d+) kB", Path("/proc/self/smaps").read_text())
    return 1024 * sum(map(int, found))


@needs_huge_pages
def test_what_is_kept_is_the_systems_to_take(memory: ModuleType) -> None:
    before = lazily_free()
    x = large().fill_(1)
    del x
    assert lazily_free() - before == memory.kept() == 32 * MIB
    x = large().fill_(1)
    assert x.eq(1).all()
    assert lazily_free() - before == 0


def test_what_nobody_uses_is_given_back(memory: ModuleType) -> None:
    del (held := [large(64)])[:]
    assert memory.kept() == 64 * MIB
    for _ in range(70):
        held[:] = [large(16)]
        held.clear()
    assert memory.kept() == 16 * MIB


def test_what_is_kept_has_a_limit(memory: ModuleType) -> None:
    limit = memory.keep(100 * MIB)
    held = [large() for _ in range(8)]
    held.clear()
    assert memory.kept() == 96 * MIB
    x = large(101)
    del x
    assert memory.kept() == 96 * MIB
    assert memory.keep(0) == 100 * MIB
    assert memory.kept() == 0
    assert 0 < limit <= 256 * MIB


def test_reset_gives_all_back(memory: ModuleType) -> None:
    x = large()
    del x
    srcjit.reset()
    assert memory.kept() == 0


def test_threads_that_give_back_at_once_leave_the_limit(memory: ModuleType) -> None:
    interval = sys.getswitchinterval()

    def work() -> None:
        for _ in range(3000):
            large_memory.give_back()

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    large()
    assert memory.kept() == 32 * MIB


def test_measurements_can_do_without(memory: ModuleType) -> None:
    with large_memory.c_librarys():
        large()
    assert memory.kept() == 0
    large()
    assert memory.kept() == 32 * MIB


def test_what_has_no_size_is_left_to_the_c_library(memory: ModuleType) -> None:
    x = empty_cpu((0,), (1,), torch.float32)
    assert not memory.place(x._cdata, (4, -1), (1, 1), NEVER_SLOW)
    assert not memory.place(x._cdata, (1 << 62, 1 << 62), (1 << 62, 1), NEVER_SLOW)
    assert not memory.place(x._cdata, (4, 4), (1,), NEVER_SLOW)
    assert x.shape == (0,)
    with pytest.raises(OverflowError):
        memory.place(x._cdata, (1 << 70,), (1,), NEVER_SLOW)


def test_what_is_kept_is_given_back_for_lack_of_addresses() -> None:
    text = run(
        """
import resource
held = [large(40) for _ in range(4)]
held.clear()
print(memory.kept() >> 20)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
x = large(128)
print(x.numel() >> 20, memory.kept())
"""
    )
    assert text == "160\n128 0\n"


def test_threads(memory: ModuleType) -> None:
    """Results that several threads make and let die, some of them one another's."""
    wrong: list[int] = []
    passed: list[torch.Tensor] = []

    def work(number: int) -> None:
        for _ in range(20):
            x = large(8).fill_(number)
            passed.append(x)
            if len(passed) > 3:
                passed.pop(0)
            if not x.eq(number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed.clear()
    assert not wrong
    assert 8 * MIB <= memory.kept() <= 9 * 8 * MIB


def run(program: str) -> str:
    """Runs a program in a process of its own."""
    head = (
        "import os, threading, torch\n"
        "from srcjit.runtime import large_memory\n"
        "memory = large_memory.loaded(wait=True)\n"
        "large_memory._made = 1\n"
        "def large(mib=32):\n"
        "    return large_memory.empty_large_cpu((mib << 20,), (1,), torch.uint8)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_shares_no_memory_that_is_written_later() -> None:
    """What was there at the fork is unmapped when it dies, in the child and in the parent."""
    text = run(
        """
x, other = large().fill_(1), large()
del other
assert memory.kept() == 32 << 20
child = os.fork()
assert memory.kept() == 0
own = 2 if child else 3
x.fill_(own)
y = large().fill_(5)
assert x.eq(own).all()
del x
assert memory.kept() == 0
del y
assert memory.kept() == 32 << 20
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("done")
else:
    os._exit(0)
"""
    )
    assert text == "done\n"


def test_forks_while_threads_make_results() -> None:
    text = run(
        """
done = threading.Event()
def work():
    while not done.is_set():
        large(8)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    if not (child := os.fork()):
        for _ in range(3):
            large(8).fill_(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
for thread in threads:
    thread.join()
print("done")
"""
    )
    assert text == "done\n"


def test_results_that_outlive_the_interpreter() -> None:
    """A tensor in a cycle, and one that a module holds."""
    text = run(
        """
import sys
sys.kept = large().fill_(1)
cycle = [large()]
cycle.append(cycle)
print("done")
"""
    )
    assert text == "done\n"
