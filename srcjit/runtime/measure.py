"""Times kernels on the device that they are for, and remembers which was the fastest.

    trial = Trial(candidates, parameters, device)
    fastest(trial)  # the number of a candidate

A candidate is a whole module with a function `run`, which gets memory of its own that is as
large as the program's and holds random numbers: the program's tensors are neither read nor
written. The first candidate is what would be used without measuring; another one must be
faster by more than the noise. What was found is kept in the cache under everything that it
depends on: the texts without comments, the sizes, the device, and the versions of libraries.
"""

from __future__ import annotations

import json
import linecache
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from srcjit import cache
from srcjit.logs import logger

log = logger("autotune")

SECONDS = 1.5
"""Time to measure one choice in; compiling, in parallel threads, comes before."""

ROUNDS = 15
"""Turns that the candidates take."""

CLOSE = 1.15
"""A candidate this much slower than the fastest after three turns takes no more."""

FINALISTS = 3
"""Candidates, the fastest, that are timed once more beside the default."""

SLEEP = 200_000
"""Cycles that a GPU waits for the host before what is timed."""

NOISE = {"cuda": 0.99, "cpu": 0.96}
"""By what the default's time is multiplied before another must be below it."""

Call = Callable[[], object]
Clock = Callable[[str, Call], float]
"""Runs a call, whose label it gets as well, and returns how long it took."""


@dataclass(frozen=True)
class Memory:
    """A tensor that a kernel reads or writes.

    Attributes:
        size: Sizes.
        stride: Strides in elements.
        dtype: Element type.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def extent(self) -> int:
        """Elements from the first to the last."""
        if 0 in self.size:
            return 0
        steps = ((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        return 1 + sum(steps)


@dataclass(frozen=True)
class Candidate:
    """One way to compute what all candidates of a trial compute.

    Attributes:
        label: What differs: `BLOCK=1024 num_warps=8`.
        text: A module with a function `run`.
    """

    label: str
    text: str


@dataclass(frozen=True)
class Trial:
    """What to measure.

    Attributes:
        candidates: The default first.
        parameters: What `run` takes.
        device: Where.
    """

    candidates: tuple[Candidate, ...]
    parameters: tuple[Memory | float, ...]
    device: torch.device

    @property
    def key(self) -> str:
        """A name for everything that the answer depends on."""
        import srcjit

        parts = [srcjit.__version__, torch.__version__, _machine(self.device)]
        parts += [f"{c.label}\n{_without_comments(c.text)}" for c in self.candidates]
        return cache.content_name(*parts, repr(self.parameters))

    @property
    def bytes(self) -> int:
        """Memory that the parameters take."""
        tensors = [p for p in self.parameters if isinstance(p, Memory)]
        return sum(t.extent * t.dtype.itemsize for t in tensors)


def fastest(trial: Trial) -> int:
    """The number of the fastest candidate; 0, the default, where nothing can be measured."""
    clock = _clock(trial.device) if len(trial.candidates) > 1 else None
    if clock is None:
        return 0
    labels = [c.label for c in trial.candidates]
    file = cache.directory("autotune") / f"{trial.key}.json"
    times = _read(file, labels)
    if times is None:
        reason = why_not(trial)
        if reason:
            log.info("%s: not measured: %s", labels[0], reason)
            return 0
        try:
            times = _measure(trial, clock)
        except torch.OutOfMemoryError as problem:
            log.info("%s: not measured: %s", labels[0], problem)
            return 0
        _keep(file, times)
    chosen = _choose(times, labels[0], trial.device)
    listed = ", ".join(f"{n} {1e3 * t:.4f}" for n, t in times.items())
    log.info("%s of %d in ms: %s", chosen, len(labels), listed)
    return labels.index(chosen)


def why_not(trial: Trial) -> str:
    """Why nothing may be measured now, or nothing."""
    if trial.device.type != "cuda":
        return ""
    if torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    free, _ = torch.cuda.mem_get_info(trial.device)
    # What PyTorch holds without using it counts as free.
    free += torch.cuda.memory_reserved(trial.device)
    free -= torch.cuda.memory_allocated(trial.device)
    if trial.bytes > 0.8 * free:
        return f"{trial.bytes / 1e9:.1f} GB are not free"
    return ""


@contextmanager
def measured_by(clock: Clock) -> Iterator[None]:
    """Lets another clock decide in the block, on any device: for tests."""
    _clocks.append(clock)
    try:
        yield
    finally:
        _clocks.remove(clock)


_clocks: list[Clock] = []


# ── the answer ────────────────────────────────────────────────────────────────────────────


def _choose(times: Mapping[str, float], default: str, device: torch.device) -> str:
    best = min(times, key=lambda label: times[label])
    if default not in times:
        return best
    noise = NOISE.get(device.type, 1.0)
    return best if times[best] < times[default] * noise else default


def _read(file: Any, labels: Sequence[str]) -> dict[str, float] | None:
    data = cache.read(file)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        log.warning("ignoring cached file %s: it was damaged or edited", file)
        return None
    entries = found.items() if isinstance(found, dict) else ()
    return {n: t for n, t in entries if n in labels and type(t) is float} or None


def _keep(file: Any, times: Mapping[str, float]) -> None:
    try:
        cache.write(file, json.dumps(times, indent=1))
    except OSError as problem:
        log.warning("cannot write cached file %s: %s", file, problem)


def _without_comments(text: str) -> str:
    """The text without what differs when the user's lines move."""
    lines = (line.partition("  # ")[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if not line.lstrip().startswith("# "))


def _machine(device: torch.device) -> str:
    """Names what the times are of."""
    if device.type == "cuda" and torch.cuda.is_available():
        import triton

        return f"{torch.cuda.get_device_name(device)} triton {triton.__version__}"
    from srcjit.runtime import cpp_build

    tools = cpp_build.toolchain()
    features = cpp_build.cpu_features()
    return f"{tools} {features} {torch.get_num_threads()} threads"


# ── measuring ─────────────────────────────────────────────────────────────────────────────


def _measure(trial: Trial, clock: Clock) -> dict[str, float]:
    """Median seconds of each candidate that could run and had its turn in time."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.no_grad():
        return _tournament(trial, clock)


def _tournament(trial: Trial, clock: Clock) -> dict[str, float]:
    failures = _failures(trial.device)
    # All begin to compile when they are loaded.
    modules = [_load(c, number) for number, c in enumerate(trial.candidates)]
    try:
        arguments = [_argument(p, trial.device) for p in trial.parameters]
        calls: dict[str, Call] = {}
        for candidate, module in zip(trial.candidates, modules, strict=True):
            call = _bind(module, arguments)
            try:
                call()
            except failures as problem:
                log.info("%s cannot run: %s", candidate.label, str(problem)[:200])
                continue
            calls[candidate.label] = call
        times = _rounds(calls, clock)
        if len(times) <= 2:
            return times
        # The fastest of many is fast by luck, too: it must be so again, beside the default.
        usual = trial.candidates[0].label
        ahead = sorted((n for n in times if n != usual), key=lambda n: times[n])
        listed = ", ".join(f"{n} {1e3 * t:.4f}" for n, t in times.items())
        log.info("%s of %d at first, in ms: %s", ahead[0], len(times), listed)
        finalists = [n for n in (usual, *ahead[:FINALISTS]) if n in times]
        return _rounds({n: calls[n] for n in finalists}, clock)
    finally:
        for module in modules:
            linecache.cache.pop(str(module.__file__), None)


def _rounds(calls: dict[str, Call], clock: Clock) -> dict[str, float]:
    """Times calls, which take turns, and drops those that are far behind."""
    end = time.perf_counter() + SECONDS
    times: dict[str, list[float]] = {}
    for label, call in calls.items():
        if not times or time.perf_counter() < end:
            times[label] = [clock(label, call)]
    ahead = list(times)
    for turn in range(1, ROUNDS):
        if time.perf_counter() >= end:
            break
        if turn == 3:
            best = min(min(found) for found in times.values())
            ahead = [n for n in ahead if min(times[n]) <= CLOSE * best]
        for label in ahead:
            times[label].append(clock(label, calls[label]))
    return {label: statistics.median(found) for label, found in times.items()}


def _bind(module: ModuleType, arguments: list[Any]) -> Call:
    return lambda: module.run(*arguments)


def _load(candidate: Candidate, number: int) -> ModuleType:
    from .triton_compile import load_text

    return load_text(candidate.text, f"<candidate {number}: {candidate.label}>")


def _argument(parameter: Memory | float, device: torch.device) -> Any:
    """Memory of the trial's own: random numbers, and 0 where they may be positions."""
    if not isinstance(parameter, Memory):
        return parameter
    flat = torch.zeros(parameter.extent, dtype=parameter.dtype, device=device)
    if parameter.dtype.is_floating_point and parameter.dtype.itemsize > 1:
        # NOTE: a generator of its own, so that the program draws the numbers that it would.
        flat.normal_(generator=torch.Generator(device).manual_seed(0))
    return flat.as_strided(parameter.size, parameter.stride)


def _failures(device: torch.device) -> tuple[type[BaseException], ...]:
    """What a schedule that asks for too much raises."""
    if device.type != "cuda":
        return ()
    from triton.runtime.errors import OutOfResources, PTXASError

    return (OutOfResources, PTXASError)


def _clock(device: torch.device) -> Clock | None:
    """How to time a call on a device; None where it is not there."""
    if _clocks:
        return _clocks[-1]
    if device.type == "cpu":
        return _cpu_clock
    if device.type == "cuda" and torch.cuda.is_available():
        return _CudaClock(device)
    return None


def _cpu_clock(_: str, call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class _CudaClock:
    """Times by events, the L2 cache cold."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.other: torch.Tensor | None = None

    def __call__(self, _: str, call: Call) -> float:
        with torch.cuda.device(self.device):
            if self.other is None:
                size = 3 * torch.cuda.get_device_properties(self.device).L2_cache_size
                self.other = torch.empty(size, dtype=torch.int8, device=self.device)
            new_event: Any = torch.cuda.Event
            start, end = (new_event(enable_timing=True) for _ in range(2))
            # Until the device is through with this, the host has launched the rest.
            torch._C._cuda_sleep(SLEEP)
            self.other.zero_()
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3
