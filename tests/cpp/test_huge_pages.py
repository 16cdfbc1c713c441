"""Huge pages under large results: where they are asked for, and given up."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import srcjit
from srcjit.runtime import cpp, cpp_build, empty_large_cpu
from tests.backend.test_overwrites import text_of

HUGE_PAGE = 2 << 20
NEVER_SLOW = 10**12
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

needs_huge_pages = pytest.mark.skipif(
    not SETTING.exists() or "[never]" in SETTING.read_text(),
    reason="the system has no transparent huge pages",
)


def use_huge_pages(memory: torch.Tensor, limit: int) -> int:
    launcher = cpp_build.launcher()
    assert launcher is not None
    mapped: int = launcher.use_huge_pages(memory.data_ptr(), memory.nbytes, limit)
    return mapped


def fresh(bytes_: int = 64 << 20) -> torch.Tensor:
    """Memory that the system has just given: more than the C library ever keeps."""
    return torch.empty(bytes_, dtype=torch.uint8)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def faults(call: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@needs_huge_pages
def test_huge_pages_that_are_fast_are_all_taken() -> None:
    memory = fresh()
    whole = memory.nbytes // HUGE_PAGE - 1  # the memory begins and ends within one
    assert faults(lambda: use_huge_pages(memory, NEVER_SLOW)) < 100
    assert faults(lambda: memory.fill_(1)) < 2 * 512 + 100
    assert use_huge_pages(memory, NEVER_SLOW) == whole


@needs_huge_pages
def test_the_rest_of_slow_huge_pages_is_small_ones() -> None:
    """With less than no time even the first page is too slow, whatever the clock says."""
    memory = fresh()
    assert use_huge_pages(memory, -1) == 0
    assert faults(lambda: memory.fill_(1)) > 10_000
    assert memory.eq(1).all()


@pytest.mark.parametrize("limit", [0, NEVER_SLOW])
def test_what_is_there_stays(limit: int) -> None:
    memory = torch.arange(3_000_000)
    use_huge_pages(memory, limit)
    assert torch.equal(memory, torch.arange(3_000_000))


def test_less_than_a_huge_page_is_left_alone() -> None:
    assert use_huge_pages(torch.empty(1000), NEVER_SLOW) == 0


@needs_huge_pages
def test_a_large_result_has_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "SLOW", NEVER_SLOW)
    x = torch.randn(4 << 20, 4)
    compiled = srcjit.jit(doubled)
    with torch.no_grad():
        compiled(x)
        assert faults(lambda: compiled(x)) < 4000  # 16384 small ones


def test_slow_pages_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "SLOW", 0)
    x = torch.randn(2049, 4097)
    with torch.no_grad():
        assert torch.equal(srcjit.jit(doubled)(x), doubled(x))


def test_only_what_may_be_large_is_asked_about() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(0)

    allocations = re.findall(r"= (\w+)\(", text_of(program, torch.randn(2048, 1024)))
    assert allocations.count("empty_large_cpu") == 1
    assert allocations.count("empty_cpu") == 1


def test_strides_are_kept() -> None:
    made = empty_large_cpu((2048, 4096), (1, 2048), torch.float32)
    assert made.stride() == (1, 2048)
    assert empty_large_cpu((3,), (1,), torch.int64).dtype is torch.int64
