"""What a guard has learned about its arguments holds exactly until they change."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import srcjit
from srcjit.diagnostics import CompilerFault
from srcjit.runtime import cpp_build, reader
from srcjit.unchanged import Paths, Unchanged

needs_versions = pytest.mark.skipif(
    sys.version_info >= (3, 13) or not cpp_build.compiler_available(),
    reason="dictionaries have no versions here",
)


class Part(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight * self.scale


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Part(n + 1.0) for n in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def gathered(self, n: int) -> Tensor:
        made: Tensor = sum(part(part.weight * n) for part in self.parts)
        return made


def ready() -> None:
    assert reader.loaded(wait=True) is not None


def hook(module: nn.Module, args: Any, output: Any) -> Tensor:
    return torch.as_tensor(output) + 100


class Louder(Part):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 7


def louder(whole: Whole) -> None:
    whole.parts[1].__class__ = Louder


def hidden(whole: Whole) -> None:
    whole.parts[0].forward = lambda x: x - 5


def in_dictionary(whole: Whole) -> None:
    vars(whole.parts[2])["scale"] = 9.0


def new_dictionary(whole: Whole) -> None:
    part = whole.parts[2]
    part.__dict__ = {**part.__dict__, "scale": 8.0}


def other_data(whole: Whole) -> None:
    whole.parts[0].weight.data = torch.full((4,), 3.0, dtype=torch.float64)


def weight_of(whole: Whole) -> nn.Parameter:
    return whole.parts[1].weight


def resized(whole: Whole) -> None:
    weight_of(whole).requires_grad_(False).resize_(1)


def set_to(whole: Whole) -> None:
    with torch.no_grad():
        weight_of(whole).set_(torch.full((1, 4), 2.0))


def swapped(whole: Whole) -> None:
    torch.utils.swap_tensors(
        weight_of(whole), nn.Parameter(torch.full((4,), 2.0).double())
    )


def gradient(whole: Whole) -> None:
    parameter = weight_of(whole)
    parameter.requires_grad_(not parameter.requires_grad)


CHANGES: dict[str, Callable[[Whole], Any]] = {
    "gradient": gradient,
    "resized": resized,
    "set to another": set_to,
    "swapped": swapped,
    "plain tensor": lambda w: setattr(weight_of(w), "__class__", nn.Buffer),
    "data of another size": lambda w: setattr(weight_of(w), "data", torch.ones(3, 4)),
    "data of other strides": lambda w: setattr(
        weight_of(w), "data", torch.ones(8)[::2]
    ),
    "attribute": lambda w: setattr(w.parts[1], "scale", 5.0),
    "in dictionary": in_dictionary,
    "new dictionary": new_dictionary,
    "hook": lambda w: w.parts[2].register_forward_hook(hook),
    "class": louder,
    "hidden method": hidden,
    "parameter": lambda w: setattr(w.parts[0], "weight", nn.Parameter(torch.zeros(4))),
    "data of another dtype": other_data,
    "fewer parts": lambda w: w.parts.__delitem__(0),
    "more parts": lambda w: w.parts.append(Part(4.0)),
    "order of parts": lambda w: w.parts._modules.update(
        {"0": w.parts[1], "1": w.parts[0]}
    ),
    "no parts": lambda w: setattr(w, "parts", nn.ModuleList()),
}


@needs_versions
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("grad", [False, True])
def test_each_change_is_seen(name: str, grad: bool) -> None:
    ready()
    whole = Whole()
    compiled = srcjit.jit(whole)
    x = torch.arange(4.0)
    with torch.set_grad_enabled(grad):
        for _ in range(4):
            assert compiled(x).equal(whole(x))
        CHANGES[name](whole)
        for _ in range(4):
            assert compiled(x).equal(whole(x))


@needs_versions
def test_a_method_of_a_class_that_is_replaced_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready()
    whole = Whole()
    compiled = srcjit.jit(whole)
    x = torch.arange(4.0)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
        monkeypatch.setattr(Part, "forward", lambda self, x: x + 1)
        assert compiled(x).equal(x + 3)


class Node:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@needs_versions
def test_hits_until_something_changes() -> None:
    ready()
    root = Node(table={"w": torch.ones(1)}, n=3)
    unchanged = Unchanged("root", ("root.n == 3",), ("root.table['w']",))
    assert unchanged.now(root) is None
    unchanged.learn(root)
    assert unchanged.now(root) == ()
    assert unchanged.now(Node(table=root.table, n=3)) is None
    root.table["other"] = 1
    assert unchanged.now(root) is None
    with pytest.raises(TypeError):
        unchanged.now(root, root)


@needs_versions
def test_nothing_is_kept_alive() -> None:
    ready()
    root = Node(child=Node(n=3))
    unchanged = Unchanged("root", ("root.child.n == 3",))
    unchanged.learn(root)
    assert unchanged.now(root) == ()
    gone = weakref.ref(root), weakref.ref(root.child)
    del root
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    others = [Node(child=Node(n=4)) for _ in range(100)]  # may lie where those lay
    assert all(unchanged.now(other) is None for other in others)


FACTS: dict[str, Callable[[Tensor], Any]] = {
    "size": lambda t: t.resize_(2, 2),
    "number of dimensions": lambda t: t.squeeze_(0),
    "strides": lambda t: t.t_(),
    "dtype": lambda t: setattr(t, "data", torch.ones(2, 3, dtype=torch.int32)),
    "gradient": lambda t: t.requires_grad_(),
    "negation": lambda t: torch._C._set_neg(t, True),
    "class": lambda t: setattr(t, "__class__", nn.Parameter),
    "set": lambda t: t.set_(torch.ones(3, 2)),
    "swapped": lambda t: torch.utils.swap_tensors(t, torch.ones(1)),
}


@needs_versions
@pytest.mark.parametrize("name", FACTS)
def test_each_fact_of_a_tensor_is_seen(name: str) -> None:
    ready()
    shape = (1, 3) if name == "number of dimensions" else (2, 3)
    root = Node(t=torch.ones(shape))
    unchanged, paths = Unchanged("root", (), ("root.t",)), Paths("root", "root.t")
    unchanged.learn(root)
    assert paths.read(root) == (root.t,)
    assert unchanged.now(root) == ()
    root.t.add_(1)
    root.t.data = torch.zeros(shape)  # its address is no fact
    assert unchanged.now(root) == ()
    FACTS[name](root.t)
    assert unchanged.now(root) is None
    found = paths.now(root)
    assert found is not None and found[0] is root.t


@needs_versions
def test_facts_come_back() -> None:
    ready()
    root = Node(t=torch.ones(2, 3))
    unchanged = Unchanged("root", (), ("root.t",))
    unchanged.learn(root)
    root.t.requires_grad_()
    assert unchanged.now(root) is None
    root.t.requires_grad_(False)
    assert unchanged.now(root) == ()


@needs_versions
@pytest.mark.parametrize(
    "leaf", [3, torch.ones(2).to_sparse(), torch.nested.nested_tensor([torch.ones(2)])]
)
def test_leaves_without_facts_are_not_learned(leaf: Any) -> None:
    ready()
    root = Node(t=leaf)
    unchanged = Unchanged("root", (), ("root.t",))
    unchanged.learn(root)
    assert unchanged.now(root) is None


@needs_versions
def test_a_transform_is_seen_without_tensor_arguments() -> None:
    ready()
    whole = Whole()
    compiled = srcjit.jit(whole.gathered)
    with torch.no_grad():
        for _ in range(4):
            wanted = compiled(2)
        seen = torch.func.vmap(lambda x: x + compiled(2))(torch.zeros(2, 4))
    assert seen.equal(wanted.expand(2, 4))


class Faulty(Whole):
    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x) + 1
        return x


@needs_versions
def test_a_failure_to_learn_is_a_fault_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ready()

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Unchanged, "_objects", broken)
    monkeypatch.setenv("SRCJIT_RAISE", "1")
    with torch.no_grad(), pytest.raises(CompilerFault, match="ZeroDivisionError"):
        srcjit.jit(Faulty())(torch.ones(4))
    monkeypatch.setenv("SRCJIT_RAISE", "0")
    root = Node(n=3)
    unchanged = Unchanged("root", ("root.n == 3",))
    for _ in range(3):
        unchanged.learn(root)
    assert caplog.text.count("ZeroDivisionError()") == 1
    monkeypatch.undo()
    unchanged.learn(root)
    assert unchanged.now(root) is None


@needs_versions
def test_addresses() -> None:
    ready()
    module = reader.loaded()
    assert module is not None
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = [whole, whole[1], whole[2:, 1], torch.empty(0), whole[3:], whole.t()]
    tensors += [torch.ones(2, device="meta"), nn.Parameter(torch.ones(2))]
    for first in (0, 3, len(tensors)):
        made = module.addresses(tuple(tensors[:first]), *tensors[first:])
        assert list(memoryview(made).cast("N")) == [t.data_ptr() for t in tensors]
    for wrong in [(), (whole,), ((whole, 3),), ((), whole, 3)]:
        with pytest.raises(TypeError):
            module.addresses(*wrong)
    with pytest.raises(RuntimeError):
        module.addresses((torch.ones(2).to_sparse(),))


@needs_versions
def test_checks_and_answers() -> None:
    ready()
    module = reader.loaded()
    assert module is not None
    tensors = [torch.ones(2), nn.Parameter(torch.ones(2))]
    same = module.checked(lambda *given: len(given) == 2, b"\0\1")
    assert same(*tensors) is True and same(*reversed(tensors)) is False
    assert same(tensors[0]) is False and same(3, tensors[1]) is False
    assert module.checked(lambda *given: True, b"\0")() is False
    with pytest.raises(ZeroDivisionError):
        module.checked(lambda t: 1 / 0, b"\0")(tensors[0])

    seen = {"n": 1}
    alike = module.answers(
        ((seen.get, "n"), (seen.get, "m", "no"), (len, ())), (1, "no", 0)
    )
    assert alike() is True
    seen["n"] = 2
    assert alike() is False
    with pytest.raises(ZeroDivisionError):
        module.answers(((lambda: 1 / 0,),), (1,))()
    for wrong in [((), (1,)), ((3,), (1,)), (((),), (1,))]:
        with pytest.raises(TypeError):
            module.answers(*wrong)
