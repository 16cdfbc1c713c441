"""Facts about tensors and about PyTorch's global state, and how they are checked fast.

`TensorFacts` and `GlobalState` are spelled out in the text of an emitted guard. Each checks
itself in Python, which is the reference, and puts PyTorch's own C++ checker
(`torch._C._dynamo.guards`, private) in its place as soon as both agree: then all tensors
cost one call of 0.1 µs each, and the whole global state costs 0.1 µs. Without that private
module the reference goes on checking.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn import Parameter

from srcjit.runtime import reader
from srcjit.runtime.numerics import library_numerics, numerics_check

Tensor = torch.Tensor

try:
    from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
except ImportError:  # a PyTorch that has renamed its private parts
    GlobalStateGuard = TensorGuards = None  # type: ignore[assignment,misc]


def _fallback(name: str, module: Any, otherwise: Callable[[], Any]) -> Any:
    return getattr(module, name, otherwise)


def _function_mode_stack() -> list[Any]:
    from torch.overrides import _get_current_function_mode_stack

    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]


def _dispatch_mode_stack() -> list[Any]:
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return list(_get_current_dispatch_mode_stack())


function_modes: Callable[[], int] = _fallback(
    "_len_torch_function_stack", torch._C, lambda: len(_function_mode_stack())
)
"""Number of active `TorchFunctionMode`s; the default device counts as one."""

dispatch_modes: Callable[[], int] = _fallback(
    "_len_torch_dispatch_stack", torch._C, lambda: len(_dispatch_mode_stack())
)
"""Number of active `TorchDispatchMode`s."""

inference_mode: Callable[[], bool] = torch.is_inference_mode_enabled


def functorch_level() -> object | None:
    """Returns the innermost active `torch.func` transform, or None."""
    return torch._C._functorch.peek_interpreter_stack()


# ── Tensors ─────────────────────────────────────────────────────────────────────────

Row = tuple[Any, ...]
"""Class, dtype, device, size, stride, requires_grad and, if true, is_inference.

A size or stride of None is symbolic: any value fits.
"""


class TensorFacts:
    """Facts about several tensors, checked by one call: `facts.check(x, y)`.

    True if each argument has the facts of its row, and no two are one object. All rows
    describe dense strided tensors without a pending conjugation or negation.

    NOTE: strides are compared in dimensions of size 1 too, since `Tensor.stride` shows them.
    """

    __slots__ = ("_expected", "_state", "check", "rows")

    def __init__(self, state: GlobalState | None, *rows: Row) -> None:
        self.rows = [(*row, False)[:7] for row in rows]
        self._state = state
        self._expected: list[bool] = [row[5] for row in self.rows]
        self.check: Callable[..., bool] = self._first_checks
        if TensorGuards is None:
            self.check = self.reference

    def reference(self, *tensors: Any) -> bool:
        """The meaning of `check`, in Python."""
        return all(
            type(tensor) is cls
            and tensor.dtype is dtype
            and str(tensor.device) == device
            and tensor.layout is torch.strided
            and len(size) == tensor.dim()
            and _fits(size, tensor.shape)
            and _fits(stride, tensor.stride())
            and tensor.requires_grad is requires_grad
            and tensor.is_inference() is is_inference
            and not tensor.is_conj()
            and not tensor.is_neg()
            and not _has_tangent(tensor)
            for tensor, (
                cls,
                dtype,
                device,
                size,
                stride,
                requires_grad,
                is_inference,
            ) in zip(tensors, self.rows, strict=True)
        ) and len({id(tensor) for tensor in tensors}) == len(tensors)

    def _first_checks(self, *tensors: Any) -> bool:
        """Checks by the reference; hands over to C++ once that is seen to agree."""
        if _foreign_functions():  # a mode would see which attributes are read
            return False
        result = self.reference(*tensors)
        # NOTE: the C++ checker remembers the thread's dispatch keys (autocast, inference
        # mode) from when it is built, so it is only built while the state is the right one.
        if result and (self._state is None or self._state.agrees()):
            fast = self._fast(tensors)
            self.check = fast if fast(*tensors) else self.reference
        return result

    def _fast(self, tensors: tuple[Any, ...]) -> Callable[..., bool]:
        checker = TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(row[3]) for row in self.rows],  # type: ignore[misc]
            dynamic_dims_strides=[list(row[4]) for row in self.rows],  # type: ignore[misc]
        )
        check: Callable[..., bool] = checker.check
        if torch.is_grad_enabled():
            return check
        return self._with_gradients(check)

    def _with_gradients(self, check: Callable[..., bool]) -> Callable[..., bool]:
        """Without grad mode PyTorch's checker takes no notice of `requires_grad`."""
        expected = self._expected
        module = reader.loaded()
        if module is not None:
            both: Callable[..., bool] = module.checked(check, bytes(expected))
            return both

        def check_in_python(*tensors: Any) -> bool:
            if reader.is_loaded():
                self.check = self._with_gradients(check)
            return (
                check(*tensors)
                and not _foreign_functions()
                and [t.requires_grad for t in tensors] == expected
            )

        return check_in_python


def _fits(wanted: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    if None not in wanted:
        return wanted == tuple(found)
    return len(wanted) == len(found) and all(
        w is None or w == f for w, f in zip(wanted, found, strict=True)
    )


def _has_tangent(tensor: Tensor) -> bool:
    if forward_ad._current_level < 0:
        return False
    dual = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    return dual.tangent is not None


def disjoint(*tensors: Tensor) -> bool:
    """True if the tensors are different objects that surely share no memory."""
    spans = sorted(_span(tensor) for tensor in tensors)
    return all(
        a_end <= b_start for (_, a_end), (b_start, _) in itertools.pairwise(spans)
    ) and len({id(tensor) for tensor in tensors}) == len(tensors)


def _span(tensor: Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


# ── Global state ────────────────────────────────────────────────────────────────────


_FAST_CHECKS = 4
"""Fast checkers of one state that are kept, for different numbers of threads and the like."""


class GlobalState:
    """The state of PyTorch (of this thread) that changes what operations mean.

    Args:
        grad: Grad mode.
        inference: Inference mode.
        autocast: `(device type, dtype)` of each device type with autocast on.
        default_dtype: `torch.get_default_dtype()`.
        default_device: Device set by `torch.set_default_device` or a `torch.device` block.
        deterministic: False, True, or `"warn"`.
        torch_function: False inside `torch._C.DisableTorchFunction` and the like.
        numerics: What libraries may round (`srcjit.runtime.numerics`); None where nothing
            was compiled that depends on it.
    """

    __slots__ = (
        "_fast",
        "autocast",
        "check",
        "default_device",
        "default_dtype",
        "deterministic",
        "grad",
        "inference",
        "numerics",
        "numerics_agree",
        "torch_function",
    )

    def __init__(
        self,
        *,
        grad: bool = True,
        inference: bool = False,
        autocast: tuple[tuple[str, torch.dtype], ...] = (),
        default_dtype: torch.dtype = torch.float32,
        default_device: str | None = None,
        deterministic: bool | str = False,
        torch_function: bool = True,
        numerics: tuple[object, ...] | None = None,
    ) -> None:
        self.grad = grad
        self.inference = inference
        self.autocast = autocast
        self.default_dtype = default_dtype
        self.default_device = default_device
        self.deterministic = deterministic
        self.torch_function = torch_function
        self.numerics = numerics
        self.numerics_agree: Callable[[], bool] = self._numerics_agree
        self._fast: tuple[Callable[[], bool], ...] = ()
        self.check: Callable[[], bool] = self._first_checks

    @classmethod
    def now(cls) -> GlobalState:
        """Returns the state of this thread as it is."""
        return cls(**dict(_state_now()))

    def with_numerics(self) -> GlobalState:
        """Returns this state, which also needs that libraries may round what they may now."""
        facts = {name: getattr(self, name) for name, _ in _STATE_READERS}
        return GlobalState(**facts, numerics=library_numerics())

    @property
    def text(self) -> str:
        """A call that makes this state; what has its usual value is left out."""
        usual = GlobalState()
        given = [
            f"{name}={getattr(self, name)!r}"
            for name in (*_STATE_MEANING, "numerics")
            if getattr(self, name) != getattr(usual, name)
        ]
        return f"GlobalState({', '.join(given)})"

    def conditions(self, any_tensor: bool) -> Iterator[str]:
        """Yields the conditions of an emitted guard, cheapest form of each.

        Args:
            any_tensor: A `TensorFacts` check stands beside them; it fails inside a
                `torch.func` transform, because tensors have other dispatch keys there.
        """
        yield "state.check()"
        if self.default_device is None:
            yield "not function_modes()"
        else:
            yield "state.default_device_agrees()"
        if self.numerics is not None:
            yield "state.numerics_agree()"
        yield "not dispatch_modes()"
        yield "not inference_mode()" if not self.inference else "inference_mode()"
        yield "not forward_ad._current_level >= 0"
        if not any_tensor:
            yield "functorch_level() is None"

    def agrees(self) -> bool:
        """The meaning of the conditions, in Python."""
        return self.first_difference() is None

    def first_difference(self) -> str | None:
        """Returns what differs now, as a condition that does not hold, or None."""
        for name, value in _state_now():
            wanted = getattr(self, name)
            if value != wanted:
                return f"{_STATE_MEANING[name]} == {wanted!r}"
        if not self.numerics_agree():
            return f"what libraries may round == {self.numerics!r}"
        return foreign_state()

    def _numerics_agree(self) -> bool:
        """True if libraries may round now what they might, or it does not matter."""
        if self.numerics is None:
            return True
        if reader.is_loaded():
            self.numerics_agree = numerics_check(self.numerics)
        return library_numerics() == self.numerics

    def default_device_agrees(self) -> bool:
        """True if nothing but the default device is on the function mode stack."""
        return _default_device() == self.default_device and not _foreign_functions()

    def _first_checks(self) -> bool:
        result = self.agrees()
        if result and GlobalStateGuard is not None:
            # A program that goes to and fro between two numbers of threads needs both.
            self._fast = (GlobalStateGuard().check, *self._fast)[:_FAST_CHECKS]
            self.check = self._fast[0] if len(self._fast) == 1 else self._any_fast
        return result

    def _any_fast(self) -> bool:
        return any(check() for check in self._fast)

    def refresh(self) -> None:
        """Makes the next check a thorough one, unless a fast one accepts the state.

        PyTorch's checker also fails for things that change no meaning (the number of
        threads, the autocast dtype while autocast is off). It is kept beside new ones.
        """
        if not self.check():
            self.check = self._first_checks


def foreign_state() -> str | None:
    """Returns a condition that fails if PyTorch is inside something not to be traced.

    That is a user's torch function or dispatch mode, a `torch.func` transform, forward
    mode differentiation, or another tracer. Functions run natively there.
    """
    if _foreign_functions():
        return "no torch function mode is active"
    if dispatch_modes():
        return "no torch dispatch mode is active"
    if functorch_level() is not None:
        return "no torch.func transform is active"
    if forward_ad._current_level >= 0:
        return "no forward mode differentiation is active"
    if torch.compiler.is_compiling():
        return "no other compiler is tracing"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is not active"
    return None


def _foreign_functions() -> bool:
    return bool(function_modes()) and any(
        not _is_device_context(mode) for mode in _function_mode_stack()
    )


def _is_device_context(mode: object) -> bool:
    from torch.utils._device import DeviceContext

    return isinstance(mode, DeviceContext)


def _default_device() -> str | None:
    if not function_modes():
        return None
    contexts = [mode for mode in _function_mode_stack() if _is_device_context(mode)]
    return str(contexts[-1].device) if contexts else None


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    if not torch._C._is_any_autocast_enabled():
        return ()
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "privateuseone")
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    )


def _deterministic() -> bool | str:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return "warn" if warns else True


_STATE_READERS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("grad", torch.is_grad_enabled),
    ("inference", torch.is_inference_mode_enabled),
    ("autocast", _autocast),
    ("default_dtype", torch.get_default_dtype),
    ("default_device", _default_device),
    ("deterministic", _deterministic),
    ("torch_function", torch._C._is_torch_function_enabled),
)

_STATE_MEANING = {
    "grad": "torch.is_grad_enabled()",
    "inference": "torch.is_inference_mode_enabled()",
    "autocast": "active autocast",
    "default_dtype": "torch.get_default_dtype()",
    "default_device": "default device",
    "deterministic": "deterministic algorithms",
    "torch_function": "__torch_function__ is enabled",
}


def _state_now() -> Iterator[tuple[str, Any]]:
    for name, read in _STATE_READERS:
        yield name, read()


__all__ = [
    "GlobalState",
    "Parameter",
    "Tensor",
    "TensorFacts",
    "disjoint",
    "dispatch_modes",
    "foreign_state",
    "function_modes",
    "functorch_level",
    "inference_mode",
]
