"""Records CUDA graphs of what is launched, and cleans up where that fails.

recorder = CudaRecorder(0)
replay = recorder.record(work, recorder.place())   # None: nothing can be recorded here
replay()
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch

from .replays import Questions

Replay = Callable[[], None]


class CudaRecorder:
    """Records CUDA graphs on one device.

    Args:
        device: Its index.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.questions: Questions = (
            device,
            None if torch.cuda.device_count() == 1 else _current_device,
            _current_stream,
            _is_capturing,
        )

    def place(self) -> int | None:
        """The current stream; None while it is being captured, or on another device."""
        stream: int = _current_stream(self.device)
        # The default stream, which is 0, cannot be captured.
        if _current_device() != self.device or (stream and _is_capturing()):
            return None
        return stream

    def synchronize(self) -> None:
        """Waits for the current stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def record(self, work: Callable[[], None], place: Hashable) -> Replay:
        """Captures a graph of the work for the current stream."""
        ident = torch.cuda.current_stream(self.device).stream_id
        if ident != 0 and ident % 2 == 0:
            # Its handle may come back as that of another stream.
            raise RuntimeError("the stream is not PyTorch's")
        stream, pool = _captures(self.device, place)
        graph = _capture(work, stream, pool, self.device)
        # Without the Python that PyTorch has around it.
        replay: Replay = super(torch.cuda.CUDAGraph, graph).replay
        return replay


def _capture(
    work: Callable[[], Any], stream: Any, pool: Any, device: int
) -> torch.cuda.CUDAGraph:
    """Captures what the work launches."""
    graph = torch.cuda.CUDAGraph()
    collecting = gc.isenabled()
    # A finalizer may do what is not allowed during a capture.
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
    except Exception:
        _tidy_up(stream, pool, device)
        raise
    finally:
        if collecting:
            gc.enable()
    return graph


def _tidy_up(stream: Any, pool: Any, device: int) -> None:
    """Undoes what a failed capture leaves behind.

    PyTorch goes on allocating for it, and takes its random numbers to be captured; both end
    with the next capture that succeeds.
    """
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end is not None:
        with contextlib.suppress(RuntimeError):
            end(device, pool)
    fresh = torch.cuda.graph_pool_handle()
    other = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    with (
        contextlib.suppress(RuntimeError),
        torch.cuda.stream(other),
    ):
        graph.capture_begin(pool=fresh, capture_error_mode="thread_local")
        try:
            torch.zeros(1, device=f"cuda:{device}")
        finally:
            graph.capture_end()


def _without_cuda(*_: Any) -> Any:
    raise RuntimeError("this PyTorch was built without CUDA")


_current_device: Any = getattr(torch._C, "_cuda_getDevice", _without_cuda)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", _without_cuda)
_is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", _without_cuda)

_known: dict[Hashable, tuple[Any, Any, Any]] = {}
_known_lock = threading.Lock()


def _captures(device: int, place: Hashable) -> tuple[Any, Any]:
    """The stream to capture on and the memory of all graphs of one stream of a device.

    Graphs that run one after another may share their temporaries. The stream is no other's:
    cuBLAS keeps a workspace for each stream that it has seen, and one that was allocated
    outside of the graphs' memory could be freed by whoever clears these workspaces.
    """
    with _known_lock:
        found = _known.get((device, place))
        if found is None:
            handle = ctypes.c_void_p()
            with torch.cuda.device(device):
                made = ctypes.CDLL("libcuda.so.1").cuStreamCreate(
                    ctypes.byref(handle), 1
                )
            if made != 0 or handle.value is None:
                raise RuntimeError(f"no stream to capture on (error {made})")
            stream = torch.cuda.ExternalStream(handle.value, device=device)  # type: ignore[no-untyped-call]
            pool = torch.cuda.graph_pool_handle()
            # PyTorch forgets a pool with its last graph.
            keeper = _capture(
                lambda: torch.zeros(1, device=f"cuda:{device}"), stream, pool, device
            )
            found = _known[device, place] = stream, pool, keeper
        return found[:2]
