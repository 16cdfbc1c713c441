"""When a whole program is replayed from its stub, with a recorder that needs no GPU."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import srcjit
from srcjit import shortcut
from srcjit.control import dispatcher_of
from srcjit.diagnostics import CompilerFault
from srcjit.passes import recording
from srcjit.runtime import cpp_build, graphs, reader, replays
from srcjit.unchanged import Unchanged

pytestmark = pytest.mark.skipif(
    not cpp_build.compiler_available(), reason="there is no C++ compiler"
)


class Recorder:
    """Records by keeping the work, which then goes to the addresses that it knows."""

    replayed = 0

    def __init__(self, device: int) -> None:
        self.questions = (0, lambda: 0, lambda device: 0, lambda: False)

    def place(self) -> int:
        return 0

    def synchronize(self) -> None:
        pass

    def record(self, work: Callable[[], None], place: Hashable) -> Callable[[], None]:
        cells = dict(
            zip(work.__code__.co_freevars, work.__closure__ or (), strict=True)
        )
        used = cells["used"]
        used.cell_contents = tuple(t.detach() for t in used.cell_contents)

        def replay() -> None:
            Recorder.replayed += 1
            work()

        return replay


def why_not(functional: Any, devices: Any) -> str:
    if functional.backward is not None or functional.mutations:
        return "it does more"
    return recording._why_not_calls(functional.forward)


def same_memory(facts: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """An allocator that always gives the same memory, as CUDA's does for dead results."""
    size, stride, dtype, _ = facts
    return torch.empty_strided(size, stride, dtype=dtype).detach, ()


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    assert reader.loaded(wait=True) is not None
    assert replays.entry(len, Recorder(0).questions, wait=True) is not None
    if not hasattr(reader.loaded(), "locate"):
        pytest.skip("dictionaries have no versions in this Python")
    monkeypatch.setattr(recording, "why_not", why_not)
    monkeypatch.setattr(graphs, "CudaRecorder", Recorder)
    monkeypatch.setattr(graphs, "LONG", 10.0)
    monkeypatch.setattr(graphs, "_allocator", same_memory)
    monkeypatch.setattr(graphs.Graphs, "_is_faster", lambda *_: True)
    srcjit.reset()
    with torch.no_grad():
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(torch.relu(self.up(x))) * self.scale + x
        return made


class Many(nn.Module):
    """So many parameters that they are read at once; two results, in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x
        for layer in self.layers:
            y = torch.relu(layer(y))
        return y + 1, y


X = torch.randn(3, 4)


def compiled(module: nn.Module) -> Any:
    """A module whose calls are replayed."""
    jitted = srcjit.jit(module, mode="reduce-overhead")
    for _ in range(6):
        same(jitted, module)
    assert "shortcut_0" in stub_text(jitted)
    assert is_short(jitted)
    return jitted


def stub_text(jitted: Any) -> str:
    dispatcher = dispatcher_of(jitted.forward.__func__)
    assert dispatcher is not None
    return dispatcher.stub_text


def same(jitted: Any, module: nn.Module, x: torch.Tensor = X) -> None:
    """The jitted module does what the module does."""
    wanted = module(x)
    torch.testing.assert_close(jitted(x), wanted, rtol=1e-5, atol=1e-6)


def is_short(jitted: Any, x: torch.Tensor = X) -> bool:
    """Whether a call is replayed, and nothing but what is asked at each call is asked."""
    dispatcher = dispatcher_of(jitted.forward.__func__)
    assert dispatcher is not None
    names = [name for name in dispatcher._globals if name.startswith("guard_")]
    kept = {name: dispatcher._globals[name] for name in names}
    before = Recorder.replayed

    def refused(*values: Any) -> bool:
        raise LookupError

    try:
        dispatcher._globals.update(dict.fromkeys(names, refused))
        jitted(x)
    except LookupError:
        return False
    finally:
        dispatcher._globals.update(kept)
    assert Recorder.replayed == before + 1
    return True


@pytest.mark.parametrize("kind", [Net, Many])
def test_a_replay_computes_what_the_program_does(kind: type[nn.Module]) -> None:
    module = kind()
    jitted = compiled(module)
    x = X.clone()
    for _ in range(4):
        same(jitted, module, x)
    assert is_short(jitted, x)
    for _ in range(4):
        x.normal_()
        same(jitted, module, x)
    if kind is Many:
        first, second = jitted(x)
        assert torch.equal(first, second + 1)


def replace_parameter(module: Net) -> None:
    module.up.weight = nn.Parameter(torch.randn(8, 4))


def swap_data(module: Net) -> None:
    module.up.weight.data = torch.randn(8, 4)


def swap_strides(module: Net) -> None:
    module.up.weight.data = torch.randn(4, 8).t()


def move_storage(module: Net) -> None:
    other = torch.randn(40)
    module.up.weight.set_(other.untyped_storage(), 8, (8, 4), (4, 1))


def swap_implementation(module: Net) -> None:
    torch._C._swap_tensor_impl(module.up.bias, nn.Parameter(torch.randn(8)))


def freeze(module: Net) -> None:
    module.up.weight.requires_grad_(False)


def swap_submodule(module: Net) -> None:
    module.up = nn.Linear(4, 8)


def swap_dictionary(module: Net) -> None:
    module.up.__dict__ = nn.Linear(4, 8).__dict__


def swap_class(module: Net) -> None:
    class Negative(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -super().forward(x)

    module.up.__class__ = Negative


def add_hook(module: Net) -> None:
    module.up.register_forward_hook(lambda module, args, made: made + 1)


def add_own_hook(module: Net) -> None:
    module.register_forward_hook(lambda module, args, made: made + 1)


def write_attribute(module: Net) -> None:
    module.scale = 5.0


def widen(module: Net) -> None:
    module.down.bias = nn.Parameter(torch.randn(1, 4))


def hide(module: Net) -> None:
    module.up.__dict__["weight"] = torch.randn(8, 4)


CHANGES = [
    replace_parameter,
    swap_data,
    swap_strides,
    move_storage,
    swap_implementation,
    freeze,
    swap_submodule,
    swap_dictionary,
    swap_class,
    add_hook,
    add_own_hook,
    write_attribute,
    widen,
    hide,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_seen(change: Callable[[Net], None]) -> None:
    module = Net()
    jitted = compiled(module)
    before = jitted(X).clone()
    change(module)
    for _ in range(3):
        same(jitted, module)
    if change is not freeze:
        assert not torch.equal(jitted(X), before)


def test_a_change_of_precision_is_seen() -> None:
    module = Net()
    jitted = compiled(module)
    module.double()
    for _ in range(3):
        same(jitted, module, X.double())


def test_other_inputs_modes_and_threads_go_their_usual_way() -> None:
    module = Net()
    jitted = compiled(module)
    same(jitted, module, torch.randn(3, 4))
    same(jitted, module, torch.randn(5, 4))
    with torch.enable_grad():
        assert jitted(X).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        same(jitted, module)
    failed: list[BaseException] = []

    def elsewhere() -> None:
        try:
            with torch.no_grad():
                assert not is_short(jitted)
                same(jitted, module)
        except BaseException as problem:
            failed.append(problem)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert not failed
    assert is_short(jitted)


def test_a_parameter_that_is_reset_by_another_thread_is_seen() -> None:
    module = Net()
    jitted = compiled(module)
    values = [torch.full((8, 4), float(n)) for n in (0, 1)]
    wanted = []
    for value in values:
        module.up.weight.data = value
        wanted.append(module(X))
    stop = threading.Event()

    def change() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            module.up.weight.data = values[turn % 2].clone()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            found = jitted(X)
            assert any(torch.allclose(found, w, atol=1e-5) for w in wanted)
    finally:
        stop.set()
        thread.join()


def test_a_shortcut_that_never_leads_anywhere_is_given_up() -> None:
    module = Net()
    jitted = compiled(module)
    for _ in range(70):
        same(jitted, module, torch.randn(3, 4))
    kept = [torch.randn(3, 4) for _ in range(70)]
    for x in kept:
        same(jitted, module, x)
    assert "shortcut_0" not in stub_text(jitted)
    same(jitted, module)


def test_two_modules_share_a_shortcut() -> None:
    first, second = Net(), Net()
    stub: Any = srcjit.jit(Net.forward, mode="reduce-overhead")
    for _ in range(8):
        for module in (first, second):
            wanted = module(X)
            torch.testing.assert_close(stub(module, X), wanted)
    before = Recorder.replayed
    for module in (first, second):
        torch.testing.assert_close(stub(module, X), module(X))
    assert Recorder.replayed == before + 2


def test_nothing_is_kept_alive() -> None:
    module = Net()
    jitted = compiled(module)
    kept: list[Any] = [module, module.up.weight, jitted]
    parts = [weakref.ref(part) for part in kept]
    found = dispatcher_of(jitted.forward.__func__)
    assert found is not None
    dispatcher = weakref.ref(found)
    del module, jitted, found, kept
    srcjit.reset()
    gc.collect()
    assert [part() for part in parts] == [None] * 3
    assert dispatcher() is None


def test_reset_forgets_shortcuts() -> None:
    module = Net()
    jitted = compiled(module)
    srcjit.reset()
    assert "shortcut_0" not in stub_text(jitted)
    same(jitted, module)


def test_reset_lets_go_of_recordings() -> None:
    module = Net()
    jitted = compiled(module)
    dispatcher = dispatcher_of(jitted.forward.__func__)
    assert dispatcher is not None
    (specialization,) = dispatcher.specializations
    scope = specialization.guard.__globals__
    (found,) = (v for v in scope.values() if type(v) is graphs.Graphs)
    recordings = weakref.ref(found)
    old = dispatcher._globals["shortcut_0"]
    del specialization, scope, found
    assert old(module, X) is not None
    del old
    srcjit.reset()
    gc.collect()
    assert recordings() is None
    # Another thread may still be in the old stub.
    assert dispatcher._globals["shortcut_0"](module, X) is None
    same(jitted, module)


def test_a_shortcut_that_cannot_be_made_is_a_fault_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("who knows")

    monkeypatch.setattr(shortcut, "questions", broken)
    monkeypatch.setenv("SRCJIT_RAISE", "0")
    module = Net()
    jitted = srcjit.jit(module, mode="reduce-overhead")
    for _ in range(6):
        same(jitted, module)
    assert "shortcut_0" not in stub_text(jitted)
    assert "who knows" in caplog.text

    monkeypatch.setenv("SRCJIT_RAISE", "1")
    jitted = srcjit.jit(Net(), mode="reduce-overhead")
    with pytest.raises(CompilerFault, match="who knows"):
        for _ in range(6):
            jitted(X)


def test_other_results_than_were_there_are_no_place_to_look() -> None:
    front = replays.entry(len, Recorder(0).questions, wait=True)
    unchanged = Unchanged("self", ())
    with pytest.raises(ValueError, match="no result"):
        replays.shortcut(front, unchanged, print, (), (1, (0,), 0, (0,)), None)
    made = (torch.empty, ((3,),))
    front.prepare(threading.get_ident(), (made, made), print, 0)
    short = replays.shortcut(front, unchanged, print, (), (1, (0,), 0, (0,)), (1, 0))
    front.prepare(threading.get_ident(), (made,), print, 0)
    front.add(0, bytes(16), print, 0)
    assert short(X) is None


def test_programs_that_do_more_have_none() -> None:
    class Counting(Net):
        steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return super().forward(x)

    module = Counting()
    jitted = srcjit.jit(module, mode="reduce-overhead")
    for _ in range(6):
        same(jitted, module)
    assert "shortcut_0" not in stub_text(jitted)
    assert module.steps == 12
