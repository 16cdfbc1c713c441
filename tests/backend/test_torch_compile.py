"""`torch.compile(f, backend="srcjit")`: Dynamo's front end, srcjit's back end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import srcjit.backend  # noqa: F401


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_inference() -> None:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 8)
    compiled = torch.compile(block, backend="srcjit", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), block(x))
        torch.testing.assert_close(compiled(x + 1), block(x + 1))


def test_training() -> None:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 8)
    compiled = torch.compile(block, backend="srcjit", fullgraph=True)
    compiled(x).square().sum().backward()
    got = [p.grad.clone() for p in block.parameters()]
    block.zero_grad()
    block(x).square().sum().backward()
    for g, p in zip(got, block.parameters(), strict=True):
        torch.testing.assert_close(g, p.grad, rtol=1e-4, atol=1e-5)


def test_sizes_that_change() -> None:
    @torch.compile(backend="srcjit", dynamic=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).sum(0) * x.shape[0]

    for n in (3, 5, 9):
        x = torch.randn(n, 6)
        torch.testing.assert_close(f(x), torch.softmax(x, -1).sum(0) * n)


def test_mutation_and_options() -> None:
    @torch.compile(backend="srcjit", options={"stage": "fuse"})
    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    x = torch.ones(3)
    torch.testing.assert_close(f(x), torch.full((3,), 3.0))
    torch.testing.assert_close(x, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("imports", "installed"),
    [
        ("torch", True),
        ("torch, srcjit", True),
        ("torch, srcjit.backend", True),
        ("torch, srcjit.backend", False),
    ],
)
def test_found_by_name(imports: str, installed: bool, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "srcjit").symlink_to(root / "srcjit")
    (tmp_path / "passes").symlink_to(root / "passes")
    if installed:
        info = tmp_path / "srcjit-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: srcjit\nVersion: 0\n"
        )
        (info / "entry_points.txt").write_text(
            "[torch_dynamo_backends]\nsrcjit = srcjit.backend:srcjit_backend\n"
        )
    program = (
        f"import {imports}\ntorch.compile(torch.sin, backend='srcjit')(torch.ones(2))"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
    )
