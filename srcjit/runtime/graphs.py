"""`mode="reduce-overhead"`: a segment's kernels are recorded once and replayed with one call.

A CUDA graph reads and writes the addresses that it was recorded with. So each call allocates
its results as ever, and where inputs and results lie at the addresses of a recording, that is
replayed into them; otherwise the kernels are launched one by one. PyTorch's allocator gives a
loop the same few addresses again and again, so a handful of recordings serves it:

    segment_0_graphs = Graphs(segment_0_launches, ("y",), device=0)
    segment_0 = segment_0_graphs.segment

    (y,) = segment_0(x, weight)

No result ever lies in memory of the recording's: what a caller holds is never overwritten,
whatever streams, views or storages of it there are, and nothing is copied. Inputs or results
that never come back to an address are copied to and from buffers of the recording instead.
A recording is for one stream and one thread, which do what they are told in order.

What is recorded neither writes to its inputs nor draws random numbers (`passes.recording`), so
it may be run once more to see whether replaying it is faster. Where it is not, or the
addresses change all the time, the launches are all that is left.
"""

from __future__ import annotations

import functools
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch

from srcjit.logs import logger

from . import cuda_driver, reader, replays
from .recorder import CudaRecorder

log = logger("graphs")

Tensors = tuple[torch.Tensor, ...]
Replay = Callable[[], None]

WARM = 2
"""Calls before anything is recorded: kernels are compiled and loaded, libraries started."""

LIMIT = 16
"""Recordings of one segment, for different addresses."""

PATIENCE = 32
"""Calls in a row without a recording, after which what changes its address is copied."""

LONG = 2e-3
"""Seconds of a call that the host's work does not matter to."""

_address = torch.Tensor.data_ptr


@functools.cache
def _addresses() -> Callable[..., Hashable]:
    """What reads the addresses of many tensors at once."""
    module = reader.loaded(wait=True)
    if module is not None:
        read: Callable[..., Hashable] = module.addresses
        return read
    return lambda tensors, *others: tuple(map(_address, (*tensors, *others)))


class Recorder(Protocol):
    """What records; the tests have one without a GPU."""

    questions: replays.Questions
    """What decides about `place`."""

    def place(self) -> int | None:
        """Where a recording could be made or replayed now; None if it could not."""

    def record(self, work: Callable[[], None], place: Hashable) -> Replay:
        """Records the work, which is not done, and returns what does it."""

    def synchronize(self) -> None:
        """Waits for the device."""


class Watcher(Protocol):
    """Who wants to know about recordings."""

    def recorded(self) -> None:
        """There is one."""


class Graphs:
    """The recordings of one segment.

    Args:
        launches: Takes the inputs, and by name the memory of results; returns the results,
            which neither share memory with each other nor with the inputs.
        names: What `launches` calls each result, or None for one that it allocates itself.
        device: Index of the GPU.
        recorder: What records, if not CUDA.

    Attributes:
        run: From the inputs to the results. It changes as calls are seen.
        segment: The same, for good.
        watchers: Are told when there is the first recording.
    """

    def __init__(
        self,
        launches: Callable[..., Tensors],
        names: Sequence[str | None],
        device: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        self.launches, self.names = launches, tuple(names)
        self.recorder: Recorder = recorder or CudaRecorder(device)
        self.thread = threading.get_ident()
        self.calls = self.misses = self.made = 0
        self.facts: list[tuple[Any, ...]] = []
        self.recorded: dict[Hashable, Replay] = {}
        self.copied: tuple[int, ...] = ()
        self.seen: dict[Hashable, None] = {}
        self.places: list[set[int]] = []
        self.buffers: dict[Hashable, Tensors] = {}
        self.run: Callable[..., Tensors] = self._warm_up
        self.front = replays.entry(self._warm_up, self.recorder.questions)
        self.hits = 0
        self.segment: Callable[..., Tensors] = self.front or self._call
        self.watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    # ── calls ─────────────────────────────────────────────────────────────────────────────

    def _call(self, *inputs: torch.Tensor) -> Tensors:
        return self.run(*inputs)

    def _become(self, run: Callable[..., Tensors]) -> None:
        self.run = run
        if self.front is not None:
            self.front.become(run)

    def _warm_up(self, *inputs: torch.Tensor) -> Tensors:
        start = time.perf_counter()
        results = self.launches(*inputs)
        self.calls += 1
        if self.calls == WARM:
            self.recorder.synchronize()
            self.thread = threading.get_ident()
            reason = _unfit(inputs, results)
            if reason or time.perf_counter() - start > LONG:
                self._give_up(reason or "the host's work does not matter to it")
            else:
                self.facts = [_facts(result) for result in results]
                self.places = [set() for _ in (*inputs, *results)]
                self._become(self._by_address())
                self._answer_in_front()
        return results

    def _answer_in_front(self) -> None:
        """Lets an extension replay what `_by_address` would."""
        if self.front is None:
            questions = self.recorder.questions
            self.front = replays.entry(self.run, questions, wait=True)
        if self.front is not None:
            made = tuple(map(_allocator, self.facts))
            launch = cuda_driver.address_of("cuGraphLaunch")
            self.front.prepare(self.thread, made, self._missed, launch)
            self.run = self.front

    def _missed(self, place: int, inputs: Tensors, results: Tensors) -> Tensors:
        return self._miss((place, _addresses()(inputs, *results)), inputs, results)

    def _by_address(self) -> Callable[..., Tensors]:
        """Writes what replays recordings by address.

        For one result:

            def run(*inputs):
                where = place()
                if where is None or thread() != owner:
                    return launches(*inputs)
                r0 = empty(*f0)
                key = (where, addresses(inputs, r0))
                replay = find(key)
                if replay is None:
                    return miss(key, inputs, (r0,))
                graphs.misses = 0
                replay()
                return (r0,)
        """
        made = [f"r{n}" for n in range(len(self.facts))]
        results = f"({''.join(f'{t}, ' for t in made)})"
        scope: dict[str, Any] = {
            "place": self.recorder.place,
            "thread": threading.get_ident,
            "owner": self.thread,
            "launches": self.launches,
            "find": self.recorded.get,
            "addresses": _addresses(),
            "miss": self._miss,
            "graphs": self,
        }
        allocations = []
        for name, facts in zip(made, self.facts, strict=True):
            allocate, arguments_of_it = _allocator(facts)
            scope |= {f"empty_{name}": allocate}
            parts = {f"{name}_{n}": v for n, v in enumerate(arguments_of_it)}
            scope |= parts
            allocations.append(f"    {name} = empty_{name}({', '.join(parts)})")
        lines = [
            "def run(*inputs):",
            "    where = place()",
            "    if where is None or thread() != owner:",
            "        return launches(*inputs)",
            *allocations,
            f"    key = (where, addresses(inputs, {', '.join(made)}))",
            "    replay = find(key)",
            "    if replay is None:",
            f"        return miss(key, inputs, {results})",
            "    graphs.misses = 0",
            "    replay()",
            f"    return {results}",
        ]
        exec("\n".join(lines), scope)
        run: Callable[..., Tensors] = scope["run"]
        return run

    def _with_copies(self, *inputs: torch.Tensor) -> Tensors:
        place = self.recorder.place()
        if place is None or threading.get_ident() != self.thread:
            return self.launches(*inputs)
        results = tuple([_empty(*facts) for facts in self.facts])
        tensors = (*inputs, *results)
        copied = self.copied
        fixed = tuple([t for i, t in enumerate(tensors) if i not in copied])
        key = (place, _addresses()(fixed))
        replay = self.recorded.get(key)
        if replay is None:
            return self._miss(key, inputs, results)
        self.misses = 0
        self._between_copies(replay, self.buffers[key], tensors, len(inputs))
        return results

    def _between_copies(
        self, replay: Replay, buffers: Tensors, tensors: Tensors, inputs: int
    ) -> None:
        pairs = list(zip(self.copied, buffers, strict=True))
        before = [(b, tensors[i]) for i, b in pairs if i < inputs]
        after = [(tensors[i], b) for i, b in pairs if i >= inputs]
        for phase in (before, after):
            if phase:
                # NOTE: nothing that requires a gradient comes here in grad mode.
                torch._foreach_copy_([to for to, _ in phase], [of for _, of in phase])
            if phase is before:
                replay()

    # ── recording ─────────────────────────────────────────────────────────────────────────

    def _miss(self, key: Any, inputs: Tensors, results: Tensors) -> Tensors:
        if self.front is not None and self.front.hits != self.hits:
            self.hits, self.misses = self.front.hits, 0
        self.misses += 1
        for seen, tensor in zip(self.places, (*inputs, *results), strict=True):
            if len(seen) <= LIMIT:
                seen.add(_address(tensor))
        if key in self.seen and self.made < LIMIT:
            return self._record(key, inputs, results)
        if self.misses > PATIENCE:
            self._change_plan(inputs)
        if len(self.seen) > 2 * PATIENCE:
            self.seen.clear()
        self.seen[key] = None
        return self.launches(*inputs, **self._given(results))

    def _change_plan(self, inputs: Tensors) -> None:
        """Copies what changes its address all the time; without effect, nothing is tried."""
        self.misses = 0
        most = max(map(len, self.places))
        least = LIMIT if most > LIMIT else 1
        changing = tuple(i for i, s in enumerate(self.places) if len(s) > least)
        if self.copied or not changing:
            self._give_up("addresses change all the time")
        elif any(not _dense(inputs[i]) for i in changing if i < len(inputs)):
            self._give_up("an input that changes its address cannot be copied as it is")
        else:
            self.copied, self.made = changing, 0
            self.recorded.clear()
            self.seen.clear()
            self._become(self._with_copies)

    def _record(self, key: Any, inputs: Tensors, results: Tensors) -> Tensors:
        """Makes a recording for these addresses; returns the results, which are computed."""
        first = self.made == 0
        self.made += 1
        tensors = (*inputs, *results)
        buffers = tuple(_empty(*_facts(tensors[i])) for i in self.copied)
        own = dict(zip(self.copied, buffers, strict=True))
        used = tuple(own.get(i, t) for i, t in enumerate(tensors))
        count = len(inputs)

        def work() -> None:
            self._fill(used[:count], used[count:])

        try:
            # All that is launched has been launched before it is recorded.
            self._between_copies(work, buffers, tensors, count)
            replay = self.recorder.record(work, self.recorder.place())
        except Exception as problem:
            self._give_up(f"it cannot be recorded: {problem}")
            return self.launches(*inputs)
        self.recorded[key] = replay
        if self.copied:
            self.buffers[key] = buffers
        elif self.front is not None:
            where, addresses = key
            self.front.add(where, addresses, replay, replays.executable(replay))
        if first and not self._is_faster(replay, buffers, inputs, results):
            self._give_up("replaying it is not faster")
        elif first:
            for watcher in tuple(self.watchers):
                watcher.recorded()
        return results

    def _fill(self, inputs: Tensors, results: Tensors) -> None:
        """Computes into memory that is there."""
        found = self.launches(*inputs, **self._given(results))
        for made, result in zip(found, results, strict=True):
            if made is not result:
                result.copy_(made)

    def _given(self, results: Tensors) -> dict[str, torch.Tensor]:
        return {n: r for n, r in zip(self.names, results, strict=True) if n}

    def _is_faster(
        self, replay: Replay, buffers: Tensors, inputs: Tensors, results: Tensors
    ) -> bool:
        """Times what a call does with and without the recording."""

        def replayed() -> None:
            if self.front is not None and not buffers:
                self.front.again(*inputs)
                return
            _ = self.recorder.place()
            made = tuple([_empty(*facts) for facts in self.facts])
            _ = _addresses()(inputs, *made)
            if buffers:
                tensors = (*inputs, *made)
                self._between_copies(replay, buffers, tensors, len(inputs))
            else:
                replay()

        plain: list[tuple[float, float]] = []
        fast: list[tuple[float, float]] = []
        for _ in range(5):
            for work, times in (
                (lambda: self.launches(*inputs), plain),
                (replayed, fast),
            ):
                self.recorder.synchronize()
                start = time.perf_counter()
                for _ in range(10):
                    work()
                host = time.perf_counter() - start
                self.recorder.synchronize()
                times.append((host, time.perf_counter() - start))
        medians = [
            statistics.median(column) for t in (plain, fast) for column in zip(*t)
        ]
        log.debug("µs of host and of all: %s", [round(m * 1e5, 1) for m in medians])
        host, whole, host_fast, whole_fast = medians
        return bool(host_fast < 0.95 * host and whole_fast < 1.02 * whole)

    def _give_up(self, reason: str) -> None:
        log.info("%s is launched kernel by kernel: %s", self.launches.__name__, reason)
        self.recorded.clear()
        self.buffers.clear()
        self.seen.clear()
        self._become(self.launches)


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def _empty(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    if device.type == "cuda":
        from .triton import empty_cuda

        return empty_cuda(size, stride, dtype, device.index)
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def _allocator(facts: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The cheapest way to allocate on the current device, and its arguments."""
    from .triton import _empty_on_current

    if facts[3].type == "cuda" and _empty_on_current is not None:
        return _empty_on_current, facts[:3]
    return _empty, facts


def _dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the same strides can be copied to."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _unfit(inputs: Tensors, results: Tensors) -> str:
    """Says why results cannot be made by allocating such tensors, or nothing."""
    storages = [r.untyped_storage().data_ptr() for r in results if r.numel()]
    taken = {t.untyped_storage().data_ptr() for t in inputs}
    if len(set(storages)) != len(storages) or not taken.isdisjoint(storages):
        return "its results share memory"
    for r in results:
        whole = r.untyped_storage().nbytes() == r.numel() * r.element_size()
        if type(r) is not torch.Tensor or r.requires_grad or r._is_view() or not whole:
            return "a result is a part of something else"
    return ""
