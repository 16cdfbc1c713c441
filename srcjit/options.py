"""What the user asked of the compiler: one immutable value, made by `srcjit.jit`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

STAGES = ("specialize", "lower", "fuse", "emit")
"""Names of the pipeline's stages in order; each is a runnable Python program."""

TARGETS = ("auto", "cpp", "triton", "aten")
"""Kernel languages: `auto` is C++ for CPU tensors and Triton for CUDA tensors."""


@dataclass(frozen=True)
class Options:
    """Options of one jitted function.

    Attributes:
        fullgraph: A graph break is an error instead of a split.
        dynamic: As in `torch.compile`: None generalizes a size that changed, False never does.
        backend: `"srcjit"`, the name of any `torch.compile` backend, or a callable
            `(gm, example_inputs) -> callable`.
        mode: None, `"default"`, `"reduce-overhead"` or `"max-autotune"`.
        stage: The pipeline stage whose program runs (one of `STAGES`).
        target: The kernel language (one of `TARGETS`).
        keep_fp32: Leave bf16/fp16 intermediates of a fused kernel in float32 instead of
            rounding them where eager rounds.
        limit: Specializations per function before it runs natively; what stands behind
            breaks may have eight times as many (see `srcjit/family.py`).
        emitted_lines: Tracebacks show the emitted file's lines instead of the user's.
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | Callable[..., Any] = "srcjit"
    mode: str | None = None
    stage: str = "emit"
    target: str = "auto"
    keep_fp32: bool = False
    limit: int = 8
    emitted_lines: bool = False

    def with_user_options(self, given: dict[str, Any] | None) -> Options:
        """Returns a copy with the entries of `torch.compile`-style `options=` applied.

        Raises:
            ValueError: For a name that is no option, or a value outside its choices.
        """
        given = {**(given or {}), **_forced}
        known = {f.name for f in fields(self)} - {
            "fullgraph",
            "dynamic",
            "backend",
            "mode",
        }
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(
                f"unknown option {unknown[0]!r}; options are {sorted(known)}"
            )
        made = replace(self, **given)
        if made.stage not in STAGES:
            raise ValueError(f"stage must be one of {STAGES}, got {made.stage!r}")
        if made.target not in TARGETS:
            raise ValueError(f"target must be one of {TARGETS}, got {made.target!r}")
        return made


_forced: dict[str, Any] = {}


@contextlib.contextmanager
def forced(**changes: Any) -> Iterator[None]:
    """Makes everything that is jitted inside the block have these options.

    For tools that run a user's program at a stage or for a target of their own choice.
    """
    before = dict(_forced)
    _forced.update(changes)
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)
