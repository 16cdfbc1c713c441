"""`python -m tests.lowerings.out_forms [cpu|cuda]`: do `out=` forms write where they are told?

Every ATen operator that PyTorch's own samples of arguments reach, and that has an `out=` form
(`passes.spelling.out_form`), is called with memory in the middle of a larger block. Reported is
a form that gives other values than the operator, writes beside that memory, moves or reshapes
it, warns or raises.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from srcjit.passes.spelling import out_form

DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)
MOST_SAMPLES = 25
MOST_ELEMENTS = 100_000
MARGIN = 32
"""Elements in front of a result's memory and behind it."""

UNFILLED = {"aten._ctc_loss.default", "aten._ctc_loss.Tensor"}
"""Operators of which a part of the results is left as the memory was."""


class Audit(TorchDispatchMode):
    """Calls the `out=` form of whatever is called, too.

    Attributes:
        seen: The operators that were compared.
        wrong: What their `out=` forms do that they should not.
    """

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.seen: set[str] = set()
        self.wrong: dict[str, set[str]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Returns what the operator does."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        results = [result] if isinstance(result, Tensor) else result
        if (
            out_form(func) is None
            or func.is_view
            or torch.Tag.nondeterministic_seeded in func.tags
            or str(func) in UNFILLED
            or not all(self._is_plain(r) for r in results)
        ):
            return result
        self.seen.add(str(func))
        found = differences(func, args, kwargs, results)
        if found:
            self.wrong.setdefault(str(func), set()).update(found)
        return result

    def _is_plain(self, result: Any) -> bool:
        return (
            isinstance(result, Tensor)
            and result.layout is torch.strided
            and result.device.type == self.device
            and not result.is_quantized
            and not result.is_conj()
            and result.numel() <= MOST_ELEMENTS
        )


def differences(
    func: Any, args: Any, kwargs: Any, results: Sequence[Tensor]
) -> set[str]:
    """What the `out=` form of an operator does otherwise."""
    found: set[str] = set()
    blocks, given = [], []
    for result in results:
        last = sum(
            (n - 1) * s for n, s in zip(result.size(), result.stride(), strict=True)
        )
        extent = last + 1 if result.numel() else 0
        blocks.append(
            torch.ones(extent + 2 * MARGIN, dtype=result.dtype, device=result.device)
        )
        given.append(blocks[-1].as_strided(result.size(), result.stride(), MARGIN))
    places = [
        (g.data_ptr(), b.untyped_storage().nbytes())
        for g, b in zip(given, blocks, strict=True)
    ]
    form = out_form(func)
    names = [a.name for a in form._schema.arguments if a.is_out]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            form(*args, **kwargs, **dict(zip(names, given, strict=True)))
        except Exception as problem:
            return {f"raises {type(problem).__name__}: {str(problem)[:80]}"}
    found |= {f"warns: {str(w.message)[:80]}" for w in said}
    for result, memory, block, place in zip(
        results, given, blocks, places, strict=True
    ):
        if (memory.size(), memory.stride()) != (result.size(), result.stride()):
            found.add(f"{tuple(result.size())} becomes {tuple(memory.size())}")
        elif (memory.data_ptr(), block.untyped_storage().nbytes()) != place:
            found.add("moves its memory")
        elif not torch.allclose(memory, result, rtol=1e-5, atol=1e-6, equal_nan=True):
            found.add("gives other values")
        if not (block[:MARGIN] == 1).all() or not (block[-MARGIN:] == 1).all():
            found.add("writes beside its memory")
    return found


def audited(device: str) -> Audit:
    """Goes through the samples of all operators that PyTorch tests."""
    from torch.testing._internal.common_methods_invocations import op_db

    audit = Audit(device)
    for entry in op_db:
        for dtype in DTYPES:
            if not entry.supports_dtype(dtype, device):
                continue
            samples = entry.sample_inputs(device, dtype, requires_grad=False)
            for number, sample in enumerate(samples):
                if number == MOST_SAMPLES:
                    break
                # What eager refuses is no sample of anything.
                with contextlib.suppress(Exception), audit:
                    entry(sample.input, *sample.args, **sample.kwargs)
    return audit


def main() -> None:
    """Prints a line for each form that does something else."""
    warnings.simplefilter("ignore")
    made = audited(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    for name, found in sorted(made.wrong.items()):
        print(json.dumps({"name": name, "problems": sorted(found)}))
    print(json.dumps({"compared": len(made.seen), "wrong": len(made.wrong)}))
    sys.exit(bool(made.wrong))


if __name__ == "__main__":
    main()
