"""Thousands of operations, each on what the one before it gave."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

import srcjit
from srcjit.passes.deep import Deep
from srcjit.passes.loops import Buffer, Const, Load, Value, cast, op, text_of
from srcjit.passes.online import _factors

PROGRAMS: dict[str, tuple[int, Sequence[str]]] = {
    "adds": (5000, ["x = x + 1.5"]),
    "mixed": (
        600,
        ["x = torch.sin(x)", "x = x * 1.5", "x = relu(x)", "x = x - 0.25"],
    ),
    "views": (1000, ["x = x.t()", "x = x + 1"]),
    "nothing_but_views": (1000, ["x = x.t()", "x = x[:]"]),
    "signs": (1000, ["x = -x"]),
    "squares": (200, ["x = x * x"]),
    "sums": (40, ["x = x - x.mean(1, keepdim=True)", "x = x * 1.25"]),
    "layers": (100, ["x = x @ w", "x = torch.relu(x)", "x = x + 1", "x = x / 16"]),
    "rolled": (60, ["x = torch.cat([x[:, 1:], x[:, :1]], 1)", "x = x * 1.5"]),
    "chosen": (200, ["x = torch.where(x > 0, x, x * 0.5)", "x = x - 0.1"]),
}
"""How many statements in a row, taken in turns from which."""


def written(folder: Path, name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The program of a name, from a file."""
    count, statements = PROGRAMS[name]
    body = "".join(f"    {s}\n" for s in islice(cycle(statements), count))
    file = folder / f"{name}.py"
    file.write_text(
        f"import torch\nfrom torch import relu\n\n\ndef {name}(x, w):\n{body}    return x\n"
    )
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Tensor, Tensor], Tensor] = getattr(module, name)
    return function


@pytest.fixture(autouse=True)
def _faults_raise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SRCJIT_RAISE", "1")
    yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_in_a_row(name: str, tmp_path: Path) -> None:
    function = written(tmp_path, name)
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    compiled = srcjit.jit(function)
    torch.testing.assert_close(
        compiled(x, w), function(x, w), rtol=1e-4, atol=1e-4, equal_nan=True
    )


@pytest.mark.parametrize("name", ["signs", "sums"])
def test_gradients_of_operations_in_a_row(name: str, tmp_path: Path) -> None:
    function = written(tmp_path, name)
    x, w = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16)
    compiled = srcjit.jit(function)
    found = torch.autograd.grad(compiled(x, w).sum(), x)
    wanted = torch.autograd.grad(function(x, w).sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_asked_for_may_be_deep() -> None:
    def longest(n: int) -> int:
        return 0 if n == 0 else 1 + max(value(n - 1), value(n // 2))

    value: Deep[int, int] = Deep(longest)
    assert value(20_000) == 20_000


def test_who_asks_may_catch_what_fails_deep_down() -> None:
    def compute(n: int) -> int:
        if n == 0:
            raise KeyError(n)
        if n == 70:
            try:
                return value(n - 1)
            except KeyError:
                return 70
        return value(n - 1) + 1

    value: Deep[int, int] = Deep(compute)
    assert value(100) == 100
    with pytest.raises(KeyError):
        value(60)


def doubled(times: int) -> Value:
    """A product of `2**times` factors that is made of as many values as `times`."""
    size = (Const(1, torch.int64).value,)
    buffer = Buffer("x", torch.float32, torch.device("cpu"), size, size)
    value: Value = Load(buffer, 0)
    for _ in range(times):
        value = op("mul", value, value)
    return value


def test_shared_values_are_not_walked_again_for_each_use() -> None:
    value = cast(doubled(60), torch.float64)
    assert len(text_of(value)) < 5000
    assert _factors(doubled(60)) == [doubled(60)]
    assert len(_factors(doubled(4))) == 16
