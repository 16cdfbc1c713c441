"""What a backward pass refuses because it was written to since: no more than eager's does."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import srcjit
from srcjit.passes import attention_library, record
from srcjit.runtime import autograd


def a_view_of_what_is_returned(a, b, w):
    # Each is written to behind the views that the products save.
    w = w * 1
    w[:, :4] = w[:, :4].sort(0)[0]
    w[:, 4:] = b[:, 4:].sigmoid()
    c = b.clone()
    b[:4, :4] = w[-4:, :4] @ c[:4, -4:]
    a[:4, :4] = w[-4:, :4] @ w[:4, -4:]
    return b, c, w


def a_view_of_what_is_given(a, b, w):
    c = a[:4, :4] @ b[:4, 4:]
    b[:4].mul_(2)
    return c, w * c.sum()


def saved_for_what_nobody_reads(a, b, w):
    a = a * 0.5
    square = a.square()
    print(end="")
    a[::2].sub_(a[::2] + 1)
    square.exp_()
    return a


def saved_output_for_what_nobody_reads(a, b, w):
    a, c = a * 2, b.exp()
    print(end="")
    c.mul_(2)
    return a


def computed_again_from_what_is_saved_for_others(a, b, w):
    w = w * 0.5
    b = b @ w * 0.1
    a = a * w[0].sigmoid()
    print(end="")
    w[:, 4:].exp_()
    b.add_(a)
    return a


def saved_and_read(a, b, w):
    c, d = a.exp(), b * w
    print(end="")
    c.mul_(2)
    return c + d, d


PROGRAMS = (
    a_view_of_what_is_returned,
    a_view_of_what_is_given,
    saved_for_what_nobody_reads,
    saved_output_for_what_nobody_reads,
    computed_again_from_what_is_saved_for_others,
    saved_and_read,
)
REFUSED = (a_view_of_what_is_given, saved_and_read)


def outcome(function: Callable[..., Any], more: int = 0) -> tuple[str, list[Any]]:
    torch.manual_seed(0)
    leaves = [torch.randn(8 + more, 8 + more).requires_grad_() for _ in range(3)]
    results = function(*(leaf * 1 for leaf in leaves))
    several = results if isinstance(results, tuple) else (results,)
    total = sum((r * r).sum() for r in several)
    try:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    except RuntimeError as error:
        return str(error).partition(":")[0], [*several]
    return "", [*several, *found]


@pytest.mark.parametrize("program", PROGRAMS)
def test_refused_where_eager_refuses(program: Callable[..., Any]) -> None:
    compiled = srcjit.jit(program)
    for more in (0, 0, 2, 4):
        said, found = outcome(compiled, more)
        refused, wanted = outcome(program, more)
        assert said == refused
        assert bool(refused) == (program in REFUSED)
        torch.testing.assert_close(found, wanted)


def products_added(x: Any, w: Any) -> tuple[Any, ...]:
    v, u = w.sin() / w.relu(), x.lerp(w, 0.3)
    other = torch.maximum(w, torch.addmm(x, x, v))
    return x @ u, u, v, other


def products_added_in_batches(x: Any, w: Any) -> tuple[Any, ...]:
    v, u = (w.sin() / w.relu())[None], x.lerp(w, 0.3)
    x = x[None]
    other = torch.maximum(w, torch.baddbmm(x, x, v))
    return x @ u[None], u, v, other


@pytest.mark.parametrize("program", [products_added, products_added_in_batches])
@pytest.mark.parametrize("used", [(0,), (3,), (0, 1), (0, 3)])
@pytest.mark.parametrize("write", [False, True])
def test_a_product_of_what_is_absent_is_not_asked_for(
    program: Callable[..., Any], used: tuple[int, ...], write: bool
) -> None:
    """Neither is it NaN because of infinite factors, nor refused because of written ones."""
    found = []
    for function in (program, srcjit.jit(program)):
        x = torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
        w = torch.tensor([[-1.0, 2.0, 0.5], [1.0, 0.5, -2.0], [1.0, 2.0, 3.0]])
        x.requires_grad_()
        results = function(x, w)
        if write and 3 not in used:
            results[2].zero_()
        total = sum(results[i].sum() for i in used)
        found += torch.autograd.grad(total, x)
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


def test_what_hooks_pack_is_unpacked() -> None:
    seen: list[str] = []

    def run(function: Callable[..., Any]) -> list[Any]:
        leaves = [torch.ones(8, 8).requires_grad_() for _ in range(3)]
        hooks = lambda t: t.detach() * 1, lambda t: (seen.append("unpacked"), t)[1]
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            result = function(*(leaf * 1 for leaf in leaves))
        several = result if isinstance(result, tuple) else (result,)
        return list(torch.autograd.grad(several[0].sum(), leaves, allow_unused=True))

    for program in (computed_again_from_what_is_saved_for_others, saved_and_read):
        torch.testing.assert_close(run(srcjit.jit(program)), run(program))
    assert seen


def test_without_a_look_at_what_is_saved_all_of_it_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autograd, "_SHOWN_UNCHECKED", False)
    more = [p for p in PROGRAMS if p not in REFUSED and outcome(srcjit.jit(p))[0]]
    assert more

    def two(a, b):
        return a.exp(), b.exp()

    def gradient(function: Callable[..., Any]) -> Any:
        leaves = [torch.full((2, 2), 3.0).requires_grad_() for _ in range(2)]
        return torch.autograd.grad(function(*leaves)[0].sum(), leaves[0])

    torch.testing.assert_close(gradient(srcjit.jit(two)), gradient(two))


def imported_by_emitted_text() -> set[str]:
    """Names in the import statements that the passes hold as text."""
    found = {function for _, function in attention_library._FUNCTIONS.values()}
    found |= {"empty_cpu", "empty_large_cpu"}
    for path in Path(record.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            form = r"(?:from [\w.]+ )?import (?:[\w.]+ as )?([\w, ]+)"
            line = re.fullmatch(form, node.value)
            found |= set(line[1].split(", ")) if line else set()
    return found


def test_no_parameter_has_the_name_of_an_import() -> None:
    names = imported_by_emitted_text()
    assert {"torch", "tl", "launch", "unpacked"} <= names
    assert not [name for name in names if record.unshadowing(name) == name]


OURS = (
    "empty_cpu",
    "attend_cpu",
    "checks",
    "laid_out",
    "unpacked",
    "segment_0_forward",
    "segment_0_kernels",
    "Segment0",
)


@pytest.mark.parametrize("train", [False, True])
def test_variables_are_called_what_emitted_text_calls_its_own(train: bool) -> None:
    for name in OURS:
        text = f"""def program(x, i):
    {name} = x @ x
    y = torch.relu({name}).cumsum(0).sort(0)[0]
    return (y[i] + {name}.t()).exp(), {name}
"""
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(text, name, "exec"), scope)
        x = torch.eye(4).requires_grad_(train)
        results = srcjit.jit(scope["program"])(x, torch.tensor([1, 0, 2, 3]))
        wanted = scope["program"](x, torch.tensor([1, 0, 2, 3]))
        torch.testing.assert_close(results, wanted)
        if train:
            (one,) = torch.autograd.grad(results[0].sum(), x)
            (other,) = torch.autograd.grad(wanted[0].sum(), x)
            torch.testing.assert_close(one, other)
