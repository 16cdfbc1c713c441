"""Programs whose rows read the same: two repetitions in a tile."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from srcjit.passes.print_triton import arranged, print_kernel
from srcjit.passes.print_triton_axes import merge_axes
from tests.triton.cases import CASES


@pytest.mark.parametrize(
    ("name", "cut"), [("even", True), ("short", True), ("odd", False)]
)
def test_two_repetitions_are_in_a_tile(name: str, cut: bool) -> None:
    kernel = CASES[f"repeated {name}"]().kernel
    ((made,), _) = arranged(kernel)
    assert [str(a.symbol) for a in made.outer] == (
        ["h_tile", "j_tile", "h", "j", "m"] if cut else ["h", "j", "m"]
    )
    if cut:
        assert [int(a.size) for a in made.outer[2:4]] == [
            2,
            1024 // int(made.outer[4].size) // 2,
        ]


@pytest.mark.parametrize("name", ["even", "short", "odd"])
def test_a_schedule_fits_what_is_arranged_again(name: str) -> None:
    """Candidates are made for an arranged kernel, and print it anew."""
    kernel = CASES[f"repeated {name}"]().kernel
    ((made,), _) = arranged(kernel)
    ((again,), _) = arranged(made)
    assert str(again) == str(made) and again.outer == made.outer
    assert print_kernel(made).text == print_kernel(kernel).text
    assert merge_axes(made).outer == merge_axes(kernel).outer


def test_what_is_small_is_not_repeated() -> None:
    kernel = CASES["shape permuted"]().kernel
    ((made,), _) = arranged(kernel)
    assert made.outer == merge_axes(kernel).outer
