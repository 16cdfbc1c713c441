"""Guards: the emitted function, PyTorch's checker and the Python reference agree."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.nn import Parameter

from srcjit import facts
from srcjit.facts import GlobalState, TensorFacts
from srcjit.guards import emit_guard
from srcjit.misses import describe_failure, failures, learn
from srcjit.passes.program import Guard, GuardSet, Hints, TensorGuard

from .front_end import tensor_guard


def load(guard_set, parameters, state=None, **names):
    text = emit_guard(guard_set, parameters, state=state)
    module = {**text.classes}
    exec("\n".join(text.imports) + "\n" + text.definitions, module)
    module |= {**text.bindings, **names}
    exec(text.function, module)
    return module["guard"]


class Subclass(torch.Tensor):
    pass


def variety():
    """Tensors that differ from `torch.ones(3, 4)` in one fact each."""
    base = torch.ones(3, 4)
    complex_ = torch.ones(3, 4, dtype=torch.complex64)
    with torch.inference_mode():
        inference = torch.ones(3, 4)
    return {
        "same": base,
        "dtype": base.double(),
        "size": torch.ones(2, 4),
        "rank": torch.ones(3, 4, 1),
        "fewer": torch.ones(12),
        "stride": torch.ones(4, 3).t(),
        "padded": torch.ones(3, 5)[:, :4],
        "requires_grad": torch.ones(3, 4, requires_grad=True),
        "parameter": Parameter(base.clone()),
        "frozen parameter": Parameter(base.clone(), requires_grad=False),
        "subclass": base.clone().as_subclass(Subclass),
        "meta": torch.ones(3, 4, device="meta"),
        "sparse": base.to_sparse(),
        "complex": complex_,
        "conjugate": complex_.conj(),
        "negative": complex_.conj().imag,
        "imaginary": complex_.imag,
        "inference": inference,
        "size one": torch.ones(1, 4),
        "size one, odd stride": torch.ones(1, 4).as_strided((1, 4), (7, 1)),
        "expanded": torch.ones(1, 4).expand(3, 4),
        "empty": torch.ones(0, 4),
        "number": 3,
        "none": None,
        "list": [1.0],
    }


STATES = {
    "usual": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic": None,
}


@contextlib.contextmanager
def in_state(name):
    if name == "deterministic":
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)
    else:
        with STATES[name]():
            yield


def expressible(value):
    """Facts describe dense strided tensors without pending conjugation or negation."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_conj()
        and not value.is_neg()
    )


@pytest.mark.parametrize("state", STATES)
def test_fast_check_agrees_with_the_reference(state):
    values = variety()
    with in_state(state):
        for wanted, example in values.items():
            if not expressible(example):
                continue
            guard = tensor_guard("x", example)
            row = (guard.cls, guard.dtype, str(guard.device), guard.size, guard.stride)
            row += (guard.requires_grad, guard.is_inference)
            checker = TensorFacts(GlobalState.now(), row)
            assert checker.check(example), wanted
            assert checker.check != checker.reference
            for name, value in values.items():
                expected = checker.reference(value)
                assert checker.check(value) == expected, (wanted, name)
                assert expected == (name == wanted)


def test_facts_agree_without_pytorchs_checker(monkeypatch):
    monkeypatch.setattr(facts, "TensorGuards", None)
    monkeypatch.setattr(facts, "GlobalStateGuard", None)
    values = variety()
    guard = load(GuardSet((tensor_guard("x", values["same"]),)), ["x"])
    for _ in range(2):
        assert [name for name, value in values.items() if guard(value)] == ["same"]


def test_symbolic_dimensions_fit_any_size():
    row = (torch.Tensor, torch.float32, "cpu", (None, 4), (4, 1), False)
    checker = TensorFacts(GlobalState.now(), row)
    for _ in range(2):
        assert checker.check(torch.ones(3, 4))
        assert checker.check(torch.ones(30, 4))
        assert not checker.check(torch.ones(3, 5))
        assert not checker.check(torch.ones(4))
    row = (torch.Tensor, torch.float32, "cpu", (None, None), (None, 1), False)
    checker = TensorFacts(GlobalState.now(), row)
    for _ in range(2):
        assert checker.check(torch.ones(3, 4)) and checker.check(torch.ones(5, 6))
        assert not checker.check(torch.ones(4, 3).t())


def test_what_libraries_may_round():
    before = torch.get_float32_matmul_precision()
    x = torch.ones(3)
    facts_of_x = GuardSet((tensor_guard("x", x),))
    try:
        torch.set_float32_matmul_precision("high")
        state = GlobalState.now().with_numerics()
        guard = load(facts_of_x, ["x"], state=state)
        for precision in ("high", "highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            for _ in range(3):
                assert guard(x) == (precision == "high")
        failed = next(failures(facts_of_x, {"x": x}, {}, state), None)
        said = describe_failure(failed, {"x": x})
        assert "round" in said
    finally:
        torch.set_float32_matmul_precision(before)


def test_no_memory_is_taken_for_a_large_tensor():
    meta = torch.empty(10**6, 10**6, device="meta")
    row = (torch.Tensor, torch.float32, "meta", (10**6, 10**6), (10**6, 1), False)
    checker = TensorFacts(GlobalState.now(), row)
    assert checker.check(meta) and checker.check(meta)


def test_one_tensor_given_twice_does_not_fit():
    x, y = torch.ones(3), torch.ones(3)
    guard = load(GuardSet((tensor_guard("x", x), tensor_guard("y", y))), ["x", "y"])
    for _ in range(2):
        assert guard(x, y)
        assert not guard(x, x)
    same = (tensor_guard("x", x), tensor_guard("y", x), Guard("y is x"))
    guard = load(GuardSet(same), ["x", "y"])
    for _ in range(2):
        assert guard(x, x)
        assert not guard(x, y)


def test_memory_may_be_required_to_be_disjoint():
    whole = torch.ones(8)
    guards = tuple(tensor_guard(name, torch.ones(4)) for name in "xy")
    guard = load(GuardSet(guards, distinct_tensors=(("x", "y"),)), ["x", "y"])
    for _ in range(2):
        assert guard(whole[:4], whole[4:])
        assert not guard(whole[:4], whole[2:6])
        assert not guard(whole[:4], whole[:4])
        assert guard(torch.ones(4), torch.ones(4))
    assert not facts.disjoint(whole[::2], whole[1::2])  # cannot tell, so it may overlap
    assert facts.disjoint(whole[:0], whole)


@contextlib.contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def warn_only():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


CHANGES = {
    "usual": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
    "default dtype": default_dtype,
    "deterministic": lambda: in_state("deterministic"),
    "warn only": warn_only,
    "meta device": lambda: torch.device("meta"),
    "cpu device": lambda: torch.device("cpu"),
    "no torch function": torch._C.DisableTorchFunction,
    "no_grad in inference": lambda: contextlib.nullcontext(),
}


@pytest.mark.parametrize("made_in", CHANGES)
@pytest.mark.parametrize("tensor", [True, False], ids=["tensor", "no tensor"])
def test_global_state_is_part_of_every_guard(made_in, tensor):
    x = torch.ones(3)
    guards = (tensor_guard("x", x),) if tensor else ()
    with CHANGES[made_in]():
        guard = load(GuardSet(guards), ["x"])
    same = {"usual", "no_grad in inference"}
    for _ in range(2):
        for name, change in CHANGES.items():
            with change():
                fits = name == made_in or {name, made_in} <= same
                assert bool(guard(x)) == fits, (name, made_in)


def test_state_text_makes_the_state():
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        state = GlobalState.now()
        assert eval(state.text, {"GlobalState": GlobalState, "torch": torch}).agrees()
    assert state.text == (
        "GlobalState(grad=False, autocast=(('cpu', torch.bfloat16),), "
        "default_device='meta')"
    )
    assert GlobalState().text == "GlobalState()"


def test_a_change_without_meaning_costs_one_refresh():
    state = GlobalState.now()
    assert state.check() and state.check()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        state.refresh()
        assert state.check() and state.check()
    finally:
        torch.set_num_threads(threads)


def test_a_guard_is_readable_and_reads_paths_once():
    guards = (
        Guard("type(self) is Block", "argument self"),
        Guard("self.eps == 1e-05"),
        TensorGuard(
            "self._modules['up']._parameters['weight']",
            Parameter,
            torch.float32,
            torch.device("cpu"),
            (8, 4),
            (4, 1),
            True,
        ),
        Guard("self._modules['up'].training is True"),
        tensor_guard("x", torch.ones(3, 4)),
        Guard("x.shape[0] % 2 == 1"),
    )
    text = emit_guard(GuardSet(guards, {"Block": int}), ["self", "x"], "guard_0")
    assert text.text == (
        "state = GlobalState()\n"
        "argument_tensors = TensorFacts(\n"
        "    state,\n"
        '    (Tensor, torch.float32, "cpu", (3, 4), (4, 1), False),  # x\n'
        ")\n"
        "tensors = TensorFacts(\n"
        "    state,\n"
        '    (Parameter, torch.float32, "cpu", (8, 4), (4, 1), True),'
        "  # self._modules['up']._parameters['weight']\n"
        ")\n"
        "\n"
        "def guard_0(self, x):\n"
        "    try:\n"
        "        if not argument_tensors.check(x):\n"
        "            return False\n"
        "        if (not state.check()\n"
        "            or function_modes()\n"
        "            or dispatch_modes()\n"
        "            or inference_mode()\n"
        "            or forward_ad._current_level >= 0):\n"
        "            return False\n"
        "        if type(self) is not Block:  # argument self\n"
        "            return False\n"
        "        if self.eps != 1e-05:\n"
        "            return False\n"
        "        up = self._modules['up']\n"
        "        if up.training is not True:\n"
        "            return False\n"
        "        if not tensors.check(up._parameters['weight']):\n"
        "            return False\n"
        "        if x.shape[0] % 2 != 1:\n"
        "            return False\n"
        "        return True\n"
        "    except Exception:  # a path that is not there any more\n"
        "        return False\n"
    )


def test_names_of_guards_never_meet_those_of_bindings_or_parameters():
    x = torch.ones(3)
    guards = (
        tensor_guard("state", x),
        Guard("tensors is inference_mode"),
        Guard("function_modes == 3"),
        Guard("state.dim() == torch"),
    )
    bound = {"inference_mode": "a", "torch": 1}
    guard = load(GuardSet(guards, bound), ["state", "tensors", "function_modes"])
    for _ in range(2):
        assert guard(x, "a", 3)
        assert not guard(x, "b", 3)
        assert not guard(x, "a", 4)


def test_a_path_under_a_condition_is_not_read_before_it():
    guards = (
        Guard("'bias' not in self.parts or self.parts['bias'].on"),
        Guard("'bias' not in self.parts or self.parts['bias'].size == 3"),
    )

    class Thing:
        parts: dict = {}  # noqa: RUF012

    assert load(GuardSet(guards), ["self"])(Thing())


def test_a_vanished_path_is_a_failed_guard():
    guards = (Guard("x.a.b is None"), Guard("d['k'][3] == 1"))
    guard = load(GuardSet(guards), ["x", "d"])
    assert not guard(3, {})
    failed = next(failures(GuardSet(guards), {"x": 3, "d": {}}, {}), None)
    assert failed is guards[0]


def test_globals_and_cells_are_read_at_each_call():
    factor = 2

    def scale(x):
        return x * factor

    cells = dict(zip(scale.__code__.co_freevars, scale.__closure__, strict=True))
    guards = (
        Guard("cells['factor'].cell_contents == 2"),
        Guard("user_globals['LIMIT'] == 1"),
    )
    user = {"LIMIT": 1}
    guard = load(GuardSet(guards), ["x"], user_globals=user, cells=cells)
    assert guard(0)
    factor = 3
    assert not guard(0)
    factor = 2
    assert guard(0)
    user["LIMIT"] = 2
    assert not guard(0)


def test_first_failure_names_what_the_guard_refuses():
    x = torch.ones(3, 4)
    guards = GuardSet((tensor_guard("x", x), Guard("n == 3"), Guard("x.shape[1] > n")))
    state = GlobalState.now()
    cases = [
        ({"x": x, "n": 3}, None),
        ({"x": x, "n": 4}, "n == 3"),
        (
            {"x": x.double(), "n": 4},
            "x: float32[3, 4] stride (4, 1) on cpu; "
            "got float64[3, 4] stride (4, 1) on cpu",
        ),
        ({"x": 1, "n": 3}, "x: float32[3, 4] stride (4, 1) on cpu; got int"),
    ]
    for arguments, expected in cases:
        failed = next(failures(guards, arguments, {}, state), None)
        assert (failed and describe_failure(failed, arguments)) == expected
    with torch.no_grad():
        failed = next(failures(guards, cases[0][0], {}, state), None)
        assert describe_failure(failed, {}) == "torch.is_grad_enabled() == True"


def test_learning_finds_what_varies():
    x = torch.ones(3, 4)
    scope = {"x": torch.ones(5, 4), "n": 4, "user_globals": {}, "self": None}
    failed = [
        tensor_guard("x", x),
        Guard("type(n) is int and n == 3"),
        Guard("user_globals['LIMIT'] == 1"),
        Guard("self.eps == 0.1"),
    ]
    hints = learn(Hints(), failed, scope)
    assert hints.sizes == {"x": {0}}
    assert hints.changed == {"n", "user_globals['LIMIT']", "self.eps"}
    assert not learn(Hints(), failed, {**scope, "x": x.double()}).sizes
