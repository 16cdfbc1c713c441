"""When a segment is recorded, replayed and given up, with a recorder that needs no GPU."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch

from srcjit.runtime import cpp_build, graphs, replays
from srcjit.runtime.graphs import Graphs


class Segment:
    """`x * w + 1` and `x - w`, the second allocated by itself; how often it was launched."""

    def __init__(self) -> None:
        self.launched = 0
        self.slow = True
        self.pause = 0.0

    def launches(
        self, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        self.launched += 1
        if self.slow:
            time.sleep(self.pause)
        if y is None:
            y = torch.empty(x.shape)
        torch.add(x * w, 1, out=y)
        return y, x - w


class Recorder:
    """Records by keeping the work, which then goes to the addresses that it knows."""

    def __init__(self, segment: Segment, fast: bool = True) -> None:
        self.segment, self.fast = segment, fast
        self.recorded = self.replayed = 0
        self.where: int | None = 0
        self.questions = (
            0,
            lambda: 0 if self.where is not None else 1,
            lambda device: self.where,
            lambda: False,
        )

    def place(self) -> int | None:
        return self.where

    def synchronize(self) -> None:
        pass

    def record(self, work: Callable[[], None], place: Hashable) -> Callable[[], None]:
        assert place == self.where
        self.recorded += 1
        # A graph holds addresses, not tensors.
        cells = dict(
            zip(work.__code__.co_freevars, work.__closure__ or (), strict=True)
        )
        used = cells["used"]
        used.cell_contents = tuple(t.detach() for t in used.cell_contents)

        def replay() -> None:
            self.replayed += 1
            self.segment.slow = not self.fast
            time.sleep(0 if self.fast else 4 * self.segment.pause)
            work()
            self.segment.slow = True

        return replay


def make(fast: bool = True) -> tuple[Segment, Recorder, Graphs]:
    segment = Segment()
    recorder = Recorder(segment, fast)
    made = Graphs(segment.launches, ("y", None), 0, recorder)
    made._is_faster = lambda *_: True  # type: ignore[method-assign]
    return segment, recorder, made


def check(made: Graphs, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    results = made.segment(x, w)
    assert torch.equal(results[0], x * w + 1) and torch.equal(results[1], x - w)
    return results


@pytest.fixture(autouse=True, params=["extension", "late extension", "Python"])
def settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No gradients; and however busy this machine is, no work takes long."""
    monkeypatch.setattr(graphs, "LONG", 10.0)
    real = replays.entry

    def entry(otherwise: Any, questions: Any, wait: bool = False) -> Any:
        late = request.param == "late extension"
        if request.param == "Python" or (late and not wait):
            return None
        return real(otherwise, questions, wait=True)

    monkeypatch.setattr(replays, "entry", entry)
    with torch.no_grad():
        yield


@pytest.fixture
def few_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocator that gives the memory of dead results again, as CUDA's does."""
    blocks: list[tuple[torch.Tensor, weakref.ref[torch.Tensor]]] = []

    def empty(size: Any, stride: Any, dtype: Any, device: Any) -> torch.Tensor:
        for place, (memory, user) in enumerate(blocks):
            if user() is None and memory.numel() == size[0]:
                made = memory.detach()
                blocks[place] = memory, weakref.ref(made)
                return made
        memory = torch.empty_strided(size, stride, dtype=dtype)
        made = memory.detach()
        blocks.append((memory, weakref.ref(made)))
        return made

    monkeypatch.setattr(graphs, "_empty", empty)


def test_replays_what_stays_at_its_address(few_addresses: None) -> None:
    segment, recorder, made = make()
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(20):
        x.normal_()
        check(made, x, w)
    assert 0 < recorder.recorded <= 2
    before = segment.launched, recorder.replayed
    check(made, x, w)
    assert recorder.replayed == before[1] + 1


@pytest.mark.skipif(not cpp_build.compiler_available(), reason="no compiler")
def test_the_extension_answers(
    few_addresses: None, request: pytest.FixtureRequest
) -> None:
    segment, _recorder, made = make()
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(10):
        check(made, x, w)
    if made.front is None:
        assert "Python" in request.node.name
        return
    hits, launched = made.front.hits, segment.launched
    check(made, x, w)
    assert made.front.hits == hits + 1 and segment.launched == launched + 1
    with pytest.raises(TypeError):
        made.segment(x, None)
    x.resize_(2**16).resize_(8).normal_()
    check(made, x, w)
    x.set_(torch.randn(8))
    check(made, x, w)
    assert made.front.hits == hits + 1


def test_what_cannot_be_replayed_says_why(few_addresses: None) -> None:
    _, recorder, made = make()
    record = recorder.record

    def fail() -> None:
        raise RuntimeError("the device is gone")

    failing = False
    recorder.record = lambda work, place: (  # type: ignore[method-assign]
        lambda replay: lambda: fail() if failing else replay()
    )(record(work, place))
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(10):
        check(made, x, w)
    failing = True
    with pytest.raises(RuntimeError, match="gone"):
        made.segment(x, w)
    failing = False
    check(made, x, w)


def test_nothing_is_kept_alive(few_addresses: None) -> None:
    _, _, made = make()
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(10):
        check(made, x, w)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


def test_held_results_are_not_overwritten(few_addresses: None) -> None:
    _, recorder, made = make()
    x, w = torch.randn(8), torch.randn(8)
    held = []
    for n in range(200):
        x.fill_(n)
        held.append((n, check(made, x, w)[0]))
        if n % 3 == 0:
            held.pop(0)
    assert recorder.replayed
    assert all(torch.equal(y, n * w + 1) for n, y in held)
    assert len({y.data_ptr() for _, y in held}) == len(held)


def test_inputs_that_move_are_copied(few_addresses: None) -> None:
    _, recorder, made = make()
    w = torch.randn(8)
    inputs = [torch.randn(8) for _ in range(100)]
    for x in inputs * 3:
        check(made, x, w)
    assert made.copied == (0,) and recorder.replayed > 100
    w += 1
    check(made, inputs[0], w)


def test_results_that_are_kept_are_copied_to() -> None:
    _, recorder, made = make()
    x, w = torch.randn(8), torch.randn(8)
    kept = []
    for n in range(200):
        x.fill_(n)
        kept.append(check(made, x, w)[0])
    assert 2 in made.copied and recorder.replayed > 100
    assert all(torch.equal(y, n * w + 1) for n, y in enumerate(kept))


def test_number_of_recordings_is_limited() -> None:
    _, recorder, made = make()
    w = [torch.randn(8) for _ in range(50)]
    x = [torch.randn(8) for _ in range(50)]
    for _ in range(3):
        for a in x:
            for b in w:
                check(made, a, b)
    assert recorder.recorded <= 2 * graphs.LIMIT


def test_other_places_and_threads_are_launched(few_addresses: None) -> None:
    _, recorder, made = make()
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(10):
        check(made, x, w)
    count = recorder.replayed
    thread = threading.Thread(target=check, args=(made, x, w))
    thread.start()
    thread.join()
    recorder.where = None
    check(made, x, w)
    assert recorder.replayed == count
    recorder.where = 1
    for _ in range(5):
        check(made, x, w)
    assert recorder.recorded >= 2 and recorder.replayed > count


def test_gives_up_what_is_not_faster(few_addresses: None) -> None:
    for fast in (True, False):
        segment, recorder, _ = make(fast)
        segment.pause = 5e-4
        made = Graphs(segment.launches, ("y", None), 0, recorder)
        x, w = torch.randn(8), torch.randn(8)
        for _ in range(10):
            check(made, x, w)
        assert (made.run == segment.launches) is not fast


def test_gives_up_what_cannot_be_recorded(few_addresses: None) -> None:
    segment, recorder, made = make()

    def refuse(work: Any, place: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    recorder.record = refuse  # type: ignore[method-assign]
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(10):
        check(made, x, w)
    assert made.run == segment.launches


@pytest.mark.parametrize(
    "results",
    [
        lambda x: (x + 1, x),
        lambda x: (y := x + 1, y),
        lambda x: ((x + 1)[1:],),
        lambda x: ((x + 1).view(2, 4).t(),),
    ],
)
def test_shared_results_are_not_recorded(results: Any) -> None:
    made = Graphs(results, (None, None), 0, Recorder(Segment()))
    x = torch.randn(8)
    for _ in range(5):
        made.run(x)
    assert made.run is results


def test_long_work_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LONG", 1e-3)

    def launches(x: torch.Tensor) -> tuple[torch.Tensor]:
        time.sleep(2 * graphs.LONG)
        return (x + 1,)

    made = Graphs(launches, (None,), 0, Recorder(Segment()))
    for _ in range(3):
        made.run(torch.ones(2))
    assert made.run is launches
