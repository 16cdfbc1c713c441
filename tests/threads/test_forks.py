"""Forked workers: with what the parent compiled, while it compiles, and after OpenMP has run."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import srcjit
from srcjit import control

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def scale(x, k):
    return (x.sin() * k + 1).cos()


def logged(x, log):
    y = x.sin() * 2
    log.append(y.sum().item())
    return y.cos()


def _in_child(work) -> int:
    """Runs `work` in a forked child; its exit status, 0 if it returned."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


class Rows(Dataset):
    """A data set that compiles in its workers."""

    def __init__(self, jitted) -> None:
        self.jitted = jitted

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index):
        return self.jitted(torch.full((2 + index % 3,), float(index)), 3).sum()


def _collate(rows):
    return COLLATED(torch.stack(rows), 2)


COLLATED = srcjit.jit(scale)


@pytest.mark.filterwarnings("ignore")  # PyTorch on fork beside threads
@pytest.mark.parametrize("warm", [False, True])
def test_data_loader(warm: bool) -> None:
    jitted = srcjit.jit(scale)
    if warm:
        jitted(torch.ones(2), 3)
        COLLATED(torch.ones(4), 2)
    loader = DataLoader(Rows(jitted), batch_size=4, num_workers=2, collate_fn=_collate)
    got = torch.cat(list(loader))
    rows = torch.stack([Rows(scale)[i] for i in range(12)])
    assert torch.allclose(got, scale(rows, 2), atol=1e-5)


def test_fork_while_another_thread_compiles() -> None:
    jitted = [srcjit.jit(logged) for _ in range(6)]
    stop = threading.Event()

    def compiling():
        while not stop.is_set():
            srcjit.reset()
            for one in jitted:
                one(torch.ones(3), [])

    thread = threading.Thread(target=compiling)
    thread.start()

    def work():
        assert not control.is_compiling()
        x = torch.linspace(-1, 1, 7)
        for one in jitted:
            assert torch.allclose(one(x, []), logged(x, []), atol=1e-5)
        srcjit.reset()
        assert torch.allclose(srcjit.jit(scale)(x, 2), scale(x, 2), atol=1e-5)
        assert type(torch.ones(2) + 1) is torch.Tensor

    try:
        for turn in range(5):
            time.sleep(0.011 * turn)
            assert _in_child(work) == 0
    finally:
        stop.set()
        thread.join()


def test_fork_after_openmp() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        jitted = srcjit.jit(scale)
        x = torch.linspace(-1, 1, 1 << 20)
        expected = scale(x, 2)
        assert torch.allclose(jitted(x, 2), expected, atol=1e-5)

        def work():
            torch.set_num_threads(
                1
            )  # as a DataLoader's worker does; eager hangs without
            assert torch.allclose(jitted(x, 2)[:8], expected[:8], atol=1e-5)
            assert srcjit.jit(scale)(x, 5).shape == x.shape

        assert _in_child(work) == 0
    finally:
        torch.set_num_threads(threads)
