"""What the user lets libraries round: TF32 in float32 products, sums of less than float32.

Libraries ask when they are called, so most programs need not: what does is a recorded graph,
which replays what a library chose then, and a kernel of ours that computes such a product.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_BACKENDS = (("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul"))

_getter: Callable[[str, str], str] | None = getattr(
    torch._C, "_get_fp32_precision_getter", None
)

_REDUCED = tuple(
    getattr(torch._C, name)
    for name in (
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_bf16_reduced_precision_reduction",
        "_get_cublas_allow_fp16_accumulation",
    )
    if hasattr(torch._C, name)
)


def _questions() -> dict[str, Callable[..., object]]:
    """What is asked, as text, and the functions that it names."""
    if _getter is None:
        # Before PyTorch 2.9, one flag for products and one for convolutions.
        made: dict[str, Callable[..., object]] = {
            "products()": torch._C._get_cublas_allow_tf32,
            "convolutions()": torch._C._get_cudnn_allow_tf32,
        }
    else:
        made = {f"precision{backend}": _getter for backend in _BACKENDS}
    return made | {f"reduced_{n}()": read for n, read in enumerate(_REDUCED)}


def _written() -> Callable[[], tuple[object, ...]]:
    """Writes what asks everything: guards call it, so there is no loop."""
    asked = _questions()
    scope = {text.partition("(")[0]: read for text, read in asked.items()}
    made: Callable[[], tuple[object, ...]] = eval(
        f"lambda: ({''.join(f'{text}, ' for text in asked)})", dict(scope)
    )
    return made


library_numerics = _written()
"""Returns everything that libraries ask about how exact products must be."""


def tf32_allowed() -> bool:
    """Returns whether products of float32 on a GPU may round their operands to TF32."""
    if _getter is None:
        return bool(torch._C._get_cublas_allow_tf32())
    return _getter("cuda", "matmul") == "tf32"
