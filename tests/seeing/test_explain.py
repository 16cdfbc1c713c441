"""What `srcjit.explain` counts on the programs that define the main job."""

from __future__ import annotations

import pytest
import torch

import srcjit
from srcjit.explain import continuations, recording
from srcjit.options import forced
from tests.programs import breaks, example, specialize

COUNTS = {
    # name: (function, arguments, segments, breaks)
    "greet": (breaks.greet, (torch.ones(4),), 2, 1),
    "gate, yes": (breaks.gate, (torch.ones(4),), 2, 1),
    "gate, no": (breaks.gate, (-torch.ones(4),), 2, 1),
    "gate_traced": (breaks.gate_traced, (torch.ones(4),), 1, 0),
    "sandwich": (breaks.sandwich, (torch.ones(4), []), 2, 1),
    "unrolled_break": (breaks.unrolled_break, (torch.ones(4), 3), 4, 3),
    "power_sum": (specialize.power_sum, (torch.ones(4), 4), 1, 0),
    "wave": (specialize.wave, (torch.ones(4),), 1, 0),
    "scaled": (specialize.scaled, (torch.ones(4), 0.5), 1, 0),
    "poly": (specialize.poly, (torch.ones(4), [1.0, 2.0]), 1, 0),
}


@pytest.fixture(autouse=True)
def torch_operations():
    """Where a program splits does not depend on the stage; this one compiles fast."""
    with forced(stage="specialize"):
        yield


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name, capsys):
    function, args, segments, count = COUNTS[name]
    found = srcjit.explain(function)(*args)
    assert (found.graph_count, found.graph_break_count) == (segments, count), str(found)
    assert len(found.graphs) == len(found.ops_per_graph) == segments
    assert len(found.break_reasons) == count
    assert found.op_count == sum(map(len, found.ops_per_graph)) > 0
    assert found.out_guards


def test_feed_forward():
    module, args = example("ffn_block").make()
    found = srcjit.explain(module)(*args)
    assert (found.graph_count, found.graph_break_count) == (1, 0), str(found)


def test_guarded_open(tmp_path):
    path = tmp_path / "k.txt"
    path.write_text("2.0")
    found = srcjit.explain(breaks.guarded_open)(torch.ones(4), str(path))
    assert found.graph_count >= 2, str(found)
    assert found.graph_break_count >= 1


def test_explain_really_calls_the_function(capsys):
    log = []
    x = torch.ones(4)
    found = srcjit.explain(breaks.sandwich)(x, log)
    assert len(log) == 1
    torch.testing.assert_close(found.result, breaks.sandwich(x, []))


def test_explain_of_jitted_function_and_module():
    jitted = srcjit.jit(specialize.wave)
    jitted(torch.ones(3))
    # A fresh jit: what was compiled before does not count.
    assert srcjit.explain(jitted)(torch.ones(3)).graph_count == 1
    module = srcjit.jit(torch.nn.Linear(3, 3))
    assert srcjit.explain(module)(torch.ones(3)).graph_count == 1


def test_text():
    text = str(srcjit.explain(breaks.greet)(torch.ones(4)))
    assert text.startswith("greet: 1 specialization, 2 segments")
    assert "graph break[SJ012]" in text
    assert 'print("hello")' in text
    assert "= help: " in text
    assert "float32[4]" in text


def test_reason():
    (reason,) = srcjit.explain(breaks.greet)(torch.ones(4)).break_reasons
    assert reason.graph_break and "print" in reason.reason
    (frame,) = reason.user_stack
    assert frame.filename.endswith("breaks.py") and frame.line == 'print("hello")'


def test_not_callable():
    with pytest.raises(TypeError, match="needs a callable, got int"):
        srcjit.explain(3)


def specializations(records):
    return sum(len(record.specializations) for record in records.records)


def test_newton_does_not_compile_for_each_iteration():
    jitted = srcjit.jit(breaks.halve)
    with recording() as records:
        result, steps = jitted(torch.zeros(4), 4.0)
        assert steps == 1
        once = specializations(records)
        result, steps = jitted(torch.zeros(4), 20000.0)
    assert steps == 5000
    torch.testing.assert_close(result, torch.full((4,), 5000.0))
    # Numbers that change become arguments: a constant number of further ones.
    assert specializations(records) <= once + 3


def test_newton_on_the_program_itself():
    jitted = srcjit.jit(breaks.newton)
    x = torch.linspace(1, 2, 5, dtype=torch.float64)
    with recording() as records:
        for tolerance in (1e-1, 1e-3, 1e-9, 1e-12):
            result, steps = jitted(x, tolerance)
            expected, wanted = breaks.newton(x, tolerance)
            torch.testing.assert_close(result, expected)
            assert steps == wanted
    assert not any(record.stopped for record in records.records)


def test_wave_with_five_lengths():
    jitted = srcjit.jit(specialize.wave)
    for length in (10, 20, 30, 40, 50):
        x = torch.linspace(-1, 1, length)
        torch.testing.assert_close(jitted(x), specialize.wave(x))


def test_tower_compiles_once():
    tower = specialize.Tower(8, 3)
    jitted = srcjit.jit(tower)
    with recording() as records:
        for _ in range(100):
            jitted(torch.randn(4, 8))
    assert tower.calls == 100
    assert tower.seen.item() == 100
    assert specializations(records) == 1, [r.recompiles for r in records.records]


def test_path_not_taken_is_not_compiled():
    jitted = srcjit.jit(breaks.gate)
    with recording() as records:
        jitted(torch.ones(4))
    before = specializations(records)
    (root,) = [r for r in records.records if r.dispatcher is jitted.__srcjit__]
    assert len(continuations(root.dispatcher)) == 1
    with recording() as records:
        jitted(-torch.ones(4))
    assert 0 < specializations(records) <= before


def test_recompilation_names_what_failed():
    jitted = srcjit.jit(specialize.power_sum)
    with recording() as records:
        jitted(torch.ones(3), 2)
        jitted(torch.ones(3), 4)
    (record,) = records.records
    assert len(record.specializations) == 2
    (reason,) = record.recompiles
    assert "n" in reason
    assert f"recompiled because of {reason}" in str(records and _text(records))


def _text(records):
    from srcjit.explain import describe

    return describe(records.records)
