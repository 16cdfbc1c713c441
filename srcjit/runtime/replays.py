"""The extension that replays the recordings of a segment without Python (`replays.cpp`).

    front = replays.entry(run, recorder)
    front.prepare(thread, ((allocate, arguments),), missed, address_of("cuGraphLaunch"))
    front.add(stream, addresses, replay, executable(replay))
    (y,) = front(x, weight)   # replays, or missed(stream, (x, weight), (y,)), or run(x, weight)

It is built in the background, as `reader` is; until then, and where there is no compiler,
Python compares the addresses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from . import cpp_build, reader

_SOURCE = "replays"

Questions = tuple[
    int, Callable[[], int] | None, Callable[[int], int | None], Callable[[], bool]
]
"""A device; what says the current device (None where there is only one), the current stream of
a device, and whether that is being captured."""


def entry(
    otherwise: Callable[..., Any], questions: Questions, wait: bool = False
) -> Any:
    """Returns what stands in front of `otherwise`; None if it is not built, or cannot be.

    Args:
        otherwise: What is called where nothing can be replayed.
        questions: What says where it is called.
        wait: Wait until it is built.
    """
    if not cpp_build.compiler_available():
        return None
    build = cpp_build.start_extension(_SOURCE)
    if build is None or not (wait or build.is_done()):
        return None
    if reader.loaded(wait) is None:
        return None
    module = _connected()
    return None if module is None else module.entry(otherwise, *questions)


@functools.cache
def _connected() -> ModuleType | None:
    module = cpp_build.extension(_SOURCE)
    if module is not None:
        known = getattr(reader.loaded(), "locate", None)
        module.connect(torch._C.TensorBase, reader.implementation, known)
    return module


def shortcut(
    front: Any,
    unchanged: Any,
    tired: Callable[[], None],
    asked: tuple[tuple[Any, ...], ...],
    places: tuple[int, tuple[int, ...], int, tuple[int, ...]],
    picks: tuple[int, ...] | None,
) -> Any:
    """Returns what replays a whole program, or None where it cannot be.

    It takes the values of a call and returns what the program does, or None if there is
    nothing to replay.

    Args:
        front: What `entry` returned for the program's only segment.
        unchanged: Has the snapshots of the objects that its inputs are reached from.
        asked: What is asked first (`srcjit.questions`).
        tired: Called when there was nothing to replay many times in a row.
        places: The number of values of a call; which of them the snapshots begin at; the
            number of their leaves; which value each input is, or `-1 - leaf`.
        picks: Which results the tuple that the program returns has; None for the only one.
    """
    module = _connected()
    if module is None or getattr(reader.loaded(), "locate", None) is None:
        return None
    return module.shortcut(front, unchanged, tired, asked, *places, picks)


def executable(replay: Callable[[], None]) -> int:
    """Returns the driver's graph behind a CUDA graph's `replay`, or 0.

    Nothing that is recorded draws random numbers, so launching it is all that `replay` does.
    """
    graph = getattr(replay, "__self__", None)
    if not isinstance(graph, torch.cuda.CUDAGraph):
        return 0
    read: Callable[[], int] | None = getattr(graph, "raw_cuda_graph_exec", None)
    return 0 if read is None else read()
