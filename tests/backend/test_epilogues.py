"""Activations on matrix products: which ride, which stay kernels, and what the GPU makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses import FakeTensorMode

from srcjit.passes.epilogues import ride_activations
from srcjit.passes.plans import ATenGraph
from tests.backend.support import compiled

aten = torch.ops.aten


def on_fake_gpu(
    build: Callable[..., Any], *sizes: tuple[int, ...], dtype: torch.dtype
) -> ATenGraph:
    """The graph of `build(call, *placeholders)`, where `call(op, *args)` adds a node."""
    graph = fx.Graph()
    with FakeTensorMode():
        fakes = [torch.empty(s, dtype=dtype, device="cuda") for s in sizes]
        nodes = [graph.placeholder(f"x{n}") for n in range(len(sizes))]
        for node, fake in zip(nodes, fakes, strict=True):
            node.meta["val"] = fake

        def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
            node = graph.call_function(target, args, kwargs)
            given = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
            node.meta["val"] = target(*given[0], **given[1])
            return node

        graph.output((build(call, *nodes),))
    return ATenGraph(fx.GraphModule(torch.nn.Module(), graph), tuple(fakes))


def calls(graph: ATenGraph) -> list[str]:
    return [
        str(n.target).split(".")[1]
        for n in graph.graph_module.graph.nodes
        if n.op == "call_function"
    ]


def linear(call, bias, x, w):
    return call(aten.addmm.default, bias, x, w)


def relu(call, bias, x, w):
    return call(aten.relu.default, linear(call, bias, x, w))


def relu_of_view(call, bias, x, w):
    return call(
        aten.relu.default, call(aten.view.default, linear(call, bias, x, w), [2, 2, 8])
    )


def gelu(call, bias, x, w):
    return call(aten.gelu.default, linear(call, bias, x, w), approximate="tanh")


def exact_gelu(call, bias, x, w):
    return call(aten.gelu.default, linear(call, bias, x, w))


def read_by_a_kernel(call, bias, x, w):
    return call(aten.mul.Tensor, relu(call, bias, x, w), 2)


def used_twice(call, bias, x, w):
    h = linear(call, bias, x, w)
    return call(aten.mm.default, call(aten.relu.default, h), call(aten.t.default, h))


def two_layers(call, bias, x, w):
    return call(aten.mm.default, relu(call, bias, x, w), call(aten.t.default, w))


SIZES = ((8,), (4, 6), (6, 8))
RIDES: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
    "relu": (relu, {}, 1),
    "relu of a view": (relu_of_view, {}, 1),
    "two layers": (two_layers, {}, 1),
    "gelu": (gelu, {}, 0),
    "gelu without rounding": (gelu, {"keep_fp32": True}, 1),
    "another gelu": (exact_gelu, {"keep_fp32": True}, 0),
    "read by a kernel": (read_by_a_kernel, {}, 0),
    "used twice": (used_twice, {}, 0),
}


@pytest.mark.parametrize("name", RIDES)
def test_rides(name: str) -> None:
    build, options, moved = RIDES[name]
    graph = on_fake_gpu(build, *SIZES, dtype=torch.bfloat16)
    assert ride_activations(graph, **options) == moved
    graph.graph_module.graph.lint()
    assert ("_addmm_activation" in calls(graph)) == bool(moved)
    if moved:
        assert not {"relu", "gelu", "addmm"} & set(calls(graph))


def test_float64_and_wide_biases_stay() -> None:
    graph = on_fake_gpu(relu, *SIZES, dtype=torch.float64)
    assert ride_activations(graph) == 0
    graph = on_fake_gpu(relu, (4, 8), *SIZES[1:], dtype=torch.bfloat16)
    assert ride_activations(graph) == 0


def test_a_cpu_has_none() -> None:
    args = [torch.randn(s).bfloat16() for s in ((4, 6), (8, 6), (8,))]
    text = compiled(lambda x, w, b: torch.relu(F.linear(x, w, b)), *args).text
    assert "_addmm_activation" not in text


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_relu_on_a_gpu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, w, b = (
        torch.randn(s, device="cuda").to(dtype) for s in ((256, 64), (96, 64), (96,))
    )
    x[3, 5] = float("nan")
    x[4, 5] = float("inf")

    def layer(x, w, b):
        return torch.relu(F.linear(x, w, b))

    run = compiled(layer, x, w, b)
    assert "_addmm_activation" in run.text
    made, wanted = run(x, w, b)[0], layer(x, w, b)
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
