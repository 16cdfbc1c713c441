"""A jitted module is the module, but for the code that `forward` runs."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import srcjit
from srcjit.runtime import reader

pytestmark = pytest.mark.usefixtures("front_end")


class Block(nn.Module):
    """A block."""

    limit = 3

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        return self.helper(x) * scale

    def helper(self, x):
        return self.up(x)

    @property
    def width(self):
        return self.up.in_features


@pytest.fixture
def pair():
    torch.manual_seed(0)
    block = Block()
    return block, srcjit.jit(block)


X = torch.ones(2, 4)


def test_looks_like_the_module(pair):
    block, jitted = pair
    assert isinstance(jitted, Block) and jitted.__class__ is Block
    assert (
        type(jitted).__name__ == "Block" and type(jitted).__module__ == Block.__module__
    )
    assert repr(jitted) == repr(block)
    assert list(jitted.state_dict()) == list(block.state_dict())
    for (name, ours), (other, theirs) in zip(
        jitted.named_parameters(), block.named_parameters(), strict=True
    ):
        assert name == other and ours is theirs
    assert jitted.width == 4 and jitted.limit == 3 and jitted.__doc__ == "A block."
    assert isinstance(srcjit.jit(nn.Sequential(block)), nn.Sequential)
    assert srcjit.jit(nn.Sequential(block))[0] is block


def test_computes_what_the_module_computes(pair, front_end):
    block, jitted = pair
    for _ in range(3):
        assert torch.equal(jitted(X), block(X))
    assert torch.equal(jitted(X, scale=2.0), 2 * block(X))
    assert torch.equal(jitted.forward(X), block.forward(X))
    assert front_end.compiled == ["Block.forward", "Block.forward"]
    with pytest.raises(TypeError, match=r"Block\.forward\(\) missing 1 required"):
        jitted()


def test_state_is_shared_both_ways(pair):
    block, jitted = pair
    jitted.extra = 1
    block.other = 2
    assert block.extra == 1 and jitted.other == 2
    del jitted.other
    assert not hasattr(block, "other")
    jitted.eval()
    assert not block.training and not block.up.training
    block.train()
    assert jitted.training
    jitted.up = nn.Linear(4, 4)
    assert block.up is jitted.up and torch.equal(jitted(X), block(X))
    jitted.weight = nn.Parameter(torch.ones(3))
    assert "weight" in dict(block.named_parameters())
    jitted(X)
    assert block.calls == jitted.calls >= 1
    jitted.double()
    assert block.up.weight.dtype is torch.float64
    assert torch.equal(jitted(X.double()), block(X.double()))
    jitted.load_state_dict(Block().state_dict(), strict=False)
    assert torch.equal(jitted(X.double()), block(X.double()))


def test_training_through_the_jitted_module(pair):
    block, jitted = pair
    optimizer = torch.optim.SGD(jitted.parameters(), 0.1)
    before = block.up.weight.detach().clone()
    jitted(X).sum().backward()
    optimizer.step()
    assert not torch.equal(block.up.weight, before)


@pytest.mark.parametrize("on", ["module", "jitted"])
def test_hooks_of_every_kind_run(pair, on):
    block, jitted = pair
    jitted(X)
    target = block if on == "module" else jitted
    log = []
    handles = [
        target.register_forward_pre_hook(lambda m, a: log.append("pre")),
        target.register_forward_hook(lambda m, a, out: out + 1),
        target.register_full_backward_hook(lambda m, gi, go: log.append("backward")),
        target.register_full_backward_pre_hook(lambda m, go: log.append("before")),
    ]
    plain = block.up(X)
    out = jitted(X)
    assert torch.allclose(out, plain + 1)
    out.sum().backward()
    assert log == ["pre", "before", "backward"]
    for handle in handles:
        handle.remove()
    assert torch.equal(jitted(X), plain)


def test_global_hooks_run(pair):
    _, jitted = pair
    jitted(X)
    seen = []
    register = nn.modules.module.register_module_forward_hook
    handle = register(lambda m, a, out: seen.append(type(m).__name__))
    try:
        jitted(X)
    finally:
        handle.remove()
    assert seen.count("Block") == 1
    jitted(X)
    assert seen.count("Block") == 1


def count(*_):
    counted.append(1)


counted: list[int] = []

LATE = {
    "forward hook": lambda m: m.register_forward_hook(count),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(count),
    "backward hook": lambda m: m.register_full_backward_hook(count),
    "backward pre-hook": lambda m: m.register_full_backward_pre_hook(count),
    "global forward hook": lambda m: nn.modules.module.register_module_forward_hook(
        count
    ),
    "global forward pre-hook": (
        lambda m: nn.modules.module.register_module_forward_pre_hook(count)
    ),
    "global backward hook": (
        lambda m: nn.modules.module.register_module_full_backward_hook(count)
    ),
    "global backward pre-hook": (
        lambda m: nn.modules.module.register_module_full_backward_pre_hook(count)
    ),
}


class Plain(nn.Module):
    """Nothing in it changes from call to call."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        return self.up(x)


@pytest.mark.parametrize("what", LATE)
def test_hooks_that_come_late_run(what, front_end):
    reader.loaded(wait=True)
    module = Plain()
    jitted = srcjit.jit(module)
    for _ in range(4):
        jitted(X).sum().backward()
    counted.clear()
    handle = LATE[what](module)
    try:
        module(X).sum().backward()
        wanted = len(counted)
        counted.clear()
        jitted(X).sum().backward()
        assert len(counted) == wanted > 0
    finally:
        handle.remove()
    counted.clear()
    jitted(X).sum().backward()
    assert not counted
    module.forward = lambda x: x + 7
    assert torch.equal(jitted(X), X + 7)
    del module.forward
    assert torch.equal(jitted(X), module(X))
    module.compile(backend=lambda graph, inputs: lambda *_: (X,))
    assert torch.equal(jitted(X), module(X))


def test_copies_are_jitted_and_apart(pair, front_end):
    block, jitted = pair
    expected = jitted(X)
    for made in (copy.deepcopy(jitted), pickle.loads(pickle.dumps(jitted))):
        count = len(front_end.compiled)
        assert torch.equal(made(X), expected)
        assert len(front_end.compiled) >= count
        assert type(made) is type(jitted)
        assert made.up.weight is not block.up.weight
        made.calls = 77
        assert block.calls != 77
    shallow = copy.copy(jitted)
    shallow.note = 1
    assert not hasattr(block, "note") and shallow.up is block.up
    holder = copy.deepcopy(nn.ModuleList([block, jitted]))
    assert holder[0].up.weight is holder[1].up.weight


def test_saved_state_has_no_prefixes(pair, tmp_path):
    block, jitted = pair
    torch.save(jitted.state_dict(), tmp_path / "state.pt")
    other = Block()
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(other(X), block(X))


def test_forward_set_on_the_instance(pair, front_end):
    block, jitted = pair
    jitted(X)
    block.forward = lambda x: x - 1
    assert torch.equal(jitted(X), X - 1)
    jitted.forward = lambda x: x - 2
    assert torch.equal(block(X), X - 2) and torch.equal(jitted(X), X - 2)
    del jitted.forward
    assert torch.equal(jitted(X), block(X))
    assert not torch.equal(jitted(X), X - 2)
    with pytest.raises(AttributeError, match="forward"):
        del jitted.forward
    assert len(front_end.compiled) == 3


def test_forward_replaced_on_the_class(front_end):
    class Changing(nn.Module):
        def forward(self, x):
            return x + 1

    jitted = srcjit.jit(Changing())
    assert torch.equal(jitted(X), X + 1)
    Changing.forward = lambda self, x: x + 2
    assert torch.equal(jitted(X), X + 2)


def test_user_classes_with_slots_and_getattr():
    class Odd(nn.Module):
        __slots__ = ("__secret", "slot")

        def __init__(self):
            super().__init__()
            self.slot = 5
            self.__secret = 6
            self.table = {"answer": 42}

        def __getattr__(self, name):
            if name in self.__dict__.get("table", ()):
                return self.table[name]
            return super().__getattr__(name)

        def __setattr__(self, name, value):
            super().__setattr__(name, value * 2 if name == "doubled" else value)

        def __len__(self):
            return 0

        def forward(self, x):
            return x * self.slot + self.answer + self.__secret

        def secret(self):
            return self.__secret

    odd = Odd()
    jitted = srcjit.jit(odd)
    assert (jitted.slot, jitted.answer, jitted.secret(), len(jitted)) == (5, 42, 6, 0)
    jitted.doubled = 4
    assert odd.doubled == 8
    jitted.slot = 7
    assert odd.slot == 7
    assert torch.equal(jitted(X), odd(X))
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        _ = jitted.missing
    del jitted.slot
    assert not hasattr(odd, "slot")


def test_a_class_with_a_call_of_its_own():
    class Caller(nn.Module):
        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return x * 2

    caller = Caller()
    assert torch.equal(srcjit.jit(caller)(X), caller(X))


def test_init_subclass_and_metaclasses_hear_of_nothing_new():
    heard = []

    class Loud(nn.Module):
        def __init_subclass__(cls):
            heard.append(cls)

        def forward(self, x):
            return x

    srcjit.jit(Loud())
    assert not heard


def test_jit_of_a_class_compiles_its_instances(front_end):
    @srcjit.jit
    class Doubler(nn.Module):
        def forward(self, x):
            return 2 * x

    assert isinstance(Doubler, type)
    assert torch.equal(Doubler()(X), 2 * X)

    @srcjit.jit
    class Call:
        def __call__(self, x):
            return x + 3

    assert Call()(1) == 4
    assert len(front_end.compiled) == 2


def test_a_jitted_module_inside_another_and_in_parallel(pair):
    block, jitted = pair
    outer = nn.Sequential(jitted, nn.ReLU())
    assert torch.equal(outer(X), block(X).relu())
    assert list(outer.state_dict()) == ["0.seen", "0.up.weight", "0.up.bias"] or list(
        outer.state_dict()
    ) == ["0.up.weight", "0.up.bias", "0.seen"]
    replica = jitted._replicate_for_data_parallel()
    replica._former_parameters = {}
    assert type(replica) is type(jitted)
    assert torch.equal(replica.forward(X), block(X))


def test_jit_again_shares_the_original(pair):
    block, jitted = pair
    again = srcjit.jit(jitted, fullgraph=True)
    assert again is not jitted and again.up is block.up
    assert again._srcjit_original is block
    assert torch.equal(again(X), block(X))


def test_torchscript_modules_stay_what_they_are(warnings):
    scripted = torch.jit.script(nn.ReLU())
    assert srcjit.jit(scripted) is scripted
    assert "TorchScript" in warnings[0]


def test_modules_can_be_scripted_and_traced(pair):
    block, jitted = pair
    traced = torch.jit.trace(jitted, (X,), check_trace=False)
    assert torch.equal(traced(X), block(X))
