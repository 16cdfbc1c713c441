"""Settings for every test: a cache directory of its own and few threads."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from srcjit import collector, control
from srcjit.facts import GlobalState

pytest.register_assert_rewrite("tests.harness")

# Else TorchInductor keeps a pool of threads, which might draw random numbers for all that
# a compilation in a later test knows: it would leave the generators moved.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--bless` takes what comes out now as what is expected from now on."""
    parser.addoption("--bless", action="store_true", help="rewrite expected output")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether expected output is to be rewritten instead of compared."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps what tests compile out of the user's cache, and the user's cache out of them."""
    directory = tmp_path_factory.mktemp("srcjit-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SRCJIT_CACHE_DIR", str(directory))
        yield directory


@pytest.fixture(scope="session", autouse=True)
def two_threads() -> None:
    """More threads than cores make the timing of small kernels meaningless."""
    torch.set_num_threads(min(2, torch.get_num_threads()))


@pytest.fixture(autouse=True)
def no_mode_is_left_on() -> Iterator[None]:
    """A mode that one test leaves on would change what the next ones mean."""
    before = GlobalState.now().text
    yield
    left = GlobalState.now().text
    torch.set_grad_enabled(True)
    assert left == before


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_frozen() -> Iterator[None]:
    """What a module keeps from the collector is no garbage in the next ones, ever."""
    yield
    left = gc.get_freeze_count()
    gc.unfreeze()
    assert left <= collector.FROZEN


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """A compilation that is not over keeps the collector off, a thread random numbers moved."""
    before = threading.enumerate()
    yield
    left = [t for t in threading.enumerate() if t not in before and not _stays(t)]
    for thread in left:
        thread.join(5)
    assert not [t for t in left if t.is_alive()]
    assert not collector._holders and gc.isenabled() and not control.is_compiling()


def _stays(thread: threading.Thread) -> bool:
    """Whether it is srcjit's own, or one that `threading` has only heard of."""
    dummy = isinstance(thread, threading._DummyThread)
    return dummy or thread.name.startswith("srcjit-")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `cuda` where there is no GPU."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "cuda" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _told_anew() -> None:
    """A test sees the warnings that an earlier one has seen."""
    from srcjit import logs

    logs.forget_told()
