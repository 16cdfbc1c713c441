"""Which tensor operations may raise when the program runs, and which eager refuses.

Fake tensors check shapes and most types; an index out of range shows only in the data, and some
refusals of eager's kernels are not in PyTorch's meta functions.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..decompositions import LOOK_AT_DATA
from ..indirect import CHECKED
from .frozen import is_frozen

_QUIET = frozenset(
    """
    add sub mul neg abs sin cos tan tanh exp log sqrt rsqrt sigmoid relu gelu silu square
    sign floor ceil round clamp clamp_min clamp_max where maximum minimum lt le gt ge eq ne
    truediv to float double half bfloat16 long int bool type_as clone contiguous detach
    view reshape flatten unflatten squeeze unsqueeze transpose permute t expand expand_as
    cat stack chunk split narrow flip roll repeat sum mean amax amin zeros ones full empty
    zeros_like ones_like full_like empty_like arange layer_norm zero_ fill_ copy_ logical_and
    add_ sub_ mul_ iadd isub imul itruediv sin_ cos_ logical_or logical_not isnan isinf
    masked_fill tril triu erf softplus leaky_relu elu hardtanh
    """.split()
)
"""Functions and methods that cannot raise once fakes have run them on floating-point numbers."""

_QUIET_POINTWISE = _QUIET | frozenset(
    """
    div rsub pow reciprocal exp2 expm1 log1p log2 log10 erfc asin acos atan sinh cosh asinh
    acosh atanh atan2 hypot addcmul addcdiv lerp trunc frac sgn signbit fmax fmin logaddexp
    mish hardsigmoid threshold_backward sigmoid_backward tanh_backward gelu_backward
    silu_backward logical_xor isfinite copysign
    """.split()
)
"""Pointwise operators of which PyTorch has kernels for all floating-point numbers."""

_QUIET_OF_WHOLE = frozenset(
    """
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not where sum any all
    _to_copy clone copy copy_ cat stack flip roll zero_ zeros_like ones_like
    full_like empty_like new_zeros new_ones new_empty new_full
    """.split()
)
"""Operators of which PyTorch has kernels for integers and truth values, too."""

_WHOLE = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
"""The types of those; of unsigned integers with more bits there are few kernels."""

_QUIET_OPERATORS = frozenset(
    """
    _to_copy _unsafe_view alias any all argmax argmin avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool3d addmm addmv baddbmm addbmm bmm mm mv dot vdot outer arange argsort
    sort topk cat stack clone contiguous constant_pad_nd reflection_pad1d reflection_pad2d
    replication_pad1d replication_pad2d convolution copy copy_ cumsum cumprod logcumsumexp
    cummax cummin diag diagonal_copy empty empty_like empty_strided new_empty eye fill fill_
    flip full full_like glu group_norm native_group_norm native_layer_norm layer_norm
    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional batch_norm
    _batch_norm_with_update native_dropout dropout hardtanh isin linspace log_softmax
    _log_softmax logspace _safe_softmax _fft_r2c _fft_c2c _fft_c2r softmax _softmax softplus
    lerp masked_fill masked_fill_ mean max min sum prod amax amin var std var_mean std_mean norm linalg_vector_norm logsumexp
    new_full new_ones new_zeros ones ones_like zeros zeros_like zero zero_
    max_pool2d_with_indices max_pool1d_with_indices max_pool3d_with_indices mse_loss l1_loss
    huber_loss smooth_l1_loss binary_cross_entropy_with_logits soft_margin_loss rand
    rand_like randn randn_like repeat roll rot90 scalar_tensor lift_fresh lift_fresh_copy lift detach_
    select_scatter slice_scatter diagonal_scatter as_strided_scatter tril triu tril_indices
    triu_indices trace upsample_bilinear2d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bicubic2d upsample_trilinear3d pixel_shuffle
    pixel_unshuffle _scaled_dot_product_flash_attention _scaled_dot_product_attention_math
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
    scaled_dot_product_attention _fused_rms_norm rms_norm squeeze_ unsqueeze_ transpose_ t_
    split_with_sizes_copy unbind_copy slice_copy view_copy _conj _neg_view resolve_conj
    complex polar view_as_real view_as_complex hypot count_nonzero aminmax
    """.split()
)
"""Operators that raise on no values of their operands, if those are floating-point numbers
or of types for which fakes compute the same (PyTorch's kernels refuse some integer types)."""

_CHOOSE = frozenset(
    """
    index index_put index_copy index_add index_fill index_select index_reduce gather scatter
    scatter_add scatter_reduce embedding
    """.split()
)
"""Operators that raise on an index out of range, and on nothing else."""

_DIVIDES = frozenset("floor_divide remainder fmod div divide true_divide".split())
"""Pointwise operators that raise on an integer divided by zero."""


@dataclass(frozen=True)
class Facts:
    """What an operation may do besides computing its result.

    Attributes:
        risky: It may raise at run time although fakes can run it.
        draws: It draws random numbers.
        writes: It writes to one of its operands, and not only to what it returns.
        foreign: It is none of PyTorch's own, and may do anything.
    """

    risky: bool = False
    draws: bool = False
    writes: bool = False
    foreign: bool = False


class Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which operators one call comes down to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[tuple[Any, bool]] = []
        """Each operator, and whether it may raise when it runs."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        risky = operator_may_raise(func, args, kwargs or {})
        risky = risky or any(map(_shares_elements, _written(func, args, kwargs or {})))
        refused = _number_is_refused(func, args, kwargs or {})
        if refused:
            raise RuntimeError(refused)
        self.operators.append((func, risky))
        return func(*args, **(kwargs or {}))

    def facts(self, target: Any) -> Facts:
        """What is known of the call of `target` that it has seen."""
        foreign = any(o.namespace not in OWN_NAMESPACES for o, _ in self.operators) or (
            isinstance(target, FunctionType) and not is_frozen(target.__module__)
        )
        return Facts(
            foreign
            # It looks at what tensors hold before it calls an operator; not so on fakes.
            or any(target is function for function in LOOK_AT_DATA)
            or any(risky for _, risky in self.operators),
            any(_TAG.nondeterministic_seeded in o.tags for o, _ in self.operators),
            any(_writes_aside(o) for o, _ in self.operators),
            foreign,
        )


_TAG = torch.Tag
OWN_NAMESPACES = ("aten", "prims", "prim", "quantized", "mkldnn", "mkldnn_prepacked")


def operator_may_raise(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether an ATen operator may raise although its rule for fakes accepts its operands.

    Args:
        operator: The overload.
        args: What it is given; tensors among it are looked at.
        kwargs: What it is given by name.
    """
    operands = pytree.tree_leaves((args, kwargs))
    tensors = [v for v in operands if isinstance(v, torch.Tensor)]
    whole = any(not (_is_common(t.dtype) or t.is_complex()) for t in tensors)
    if operator.namespace not in OWN_NAMESPACES:
        return True
    if operator.namespace == "prim":
        return False  # reads metadata
    name = operator.overloadpacket.__name__
    packet = name.rstrip("_") if not name.endswith("__") else name
    numbers = [v for v in operands if type(v) in (int, float)]
    if packet in _CHOOSE and _is_checked_by_device(tensors):
        return False
    if packet in _DIVIDES:
        return whole and not (len(tensors) == 1 and all(numbers))
    if packet == "bernoulli":
        return not (numbers and len(tensors) == 1 and 0 <= numbers[0] <= 1)
    if _is_pointwise(operator):
        if _is_known_to_have_kernels(packet, operands):
            return False
        return _has_no_kernel(operator, args, kwargs)
    if operator.is_view or _TAG.view_copy in operator.tags:
        return False
    if packet not in _QUIET_OPERATORS and name not in _QUIET_OPERATORS:
        return True
    if not whole or _is_known_to_have_kernels(packet, operands):
        return False
    return packet in _FLOATING or _has_no_kernel(operator, args, kwargs)


def _is_pointwise(operator: Any) -> bool:
    """Whether an operator is tagged as pointwise, or is the `out=` form of one that is."""
    name = operator._overloadname
    packet = operator.overloadpacket
    plain = name.removesuffix("out").removesuffix("_") or "default"
    if name.endswith("out") and plain in packet.overloads():
        operator = getattr(packet, plain)
    return _TAG.pointwise in operator.tags


def _is_known_to_have_kernels(packet: str, operands: Sequence[Any]) -> bool:
    """Whether eager takes these types of operands, so that they need not be tried out.

    On a GPU the first call of each kernel of PyTorch's loads it, 2 to 10 ms.
    """
    if any(type(v) is str for v in operands):
        return False  # a way of rounding, for example, that there is not
    given = (
        v if isinstance(v, torch.dtype) else getattr(v, "dtype", None) for v in operands
    )
    dtypes = {d for d in given if d is not None}
    if packet in _QUIET_OF_WHOLE:
        return all(_is_common(d) or d in _WHOLE for d in dtypes)
    if packet == "masked_fill":
        dtypes.discard(torch.bool)
    return packet in _QUIET_POINTWISE and all(map(_is_common, dtypes))


def _is_checked_by_device(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an index out of range is the device's to report, some time later.

    A mask as an index is read by the host; where only deterministic algorithms are allowed,
    some of these operators are refused.
    """
    return (
        all(t.device.type in CHECKED for t in tensors)
        and not any(t.dtype in (torch.bool, torch.uint8) for t in tensors)
        and not torch.are_deterministic_algorithms_enabled()
    )


_kernels: dict[Any, bool] = {}
"""Operators with what they were given on trial, and whether that was refused."""


def _has_no_kernel(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether eager refuses the types of the operands, which it only says when it runs.

    Tried out on tensors of one element. An operator that draws random numbers is not tried:
    the numbers would be missing from the program's.
    """
    if _TAG.nondeterministic_seeded in operator.tags:
        return True
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    key = operator, str(structure), tuple(map(_type_of, leaves))
    known = _kernels.get(key)
    if known is None:
        known = _kernels[key] = _is_refused(operator, leaves, structure)
    return known


def _type_of(operand: Any) -> Any:
    if isinstance(operand, torch.Tensor):
        return operand.dtype, operand.device, operand.dim()
    return type(operand), _example(operand) if type(operand) is not float else 1.0


def _example(operand: Any) -> Any:
    """A tensor of one element in place of a tensor, a number in place of a symbol."""
    if isinstance(operand, torch.Tensor):
        shape = (1,) * operand.dim()
        return torch.ones(shape, dtype=operand.dtype, device=operand.device)
    symbols: dict[type, Any] = {
        torch.SymInt: 1,
        torch.SymFloat: 1.0,
        torch.SymBool: True,
    }
    return symbols.get(type(operand), operand)


def _is_refused(operator: Any, leaves: list[Any], structure: Any) -> bool:
    if not _are_here(leaves):
        return False
    with _disable_current_modes(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args, kwargs = pytree.tree_unflatten(list(map(_example, leaves)), structure)
        try:
            operator(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError) as error:
            # One element may be too few for it; of pointwise operators that is not so.
            return _TAG.pointwise in operator.tags or bool(_TYPES.search(str(error)))
    return False


_TYPES = re.compile("not implemented for|support|not for|Boolean|dtype")
"""What PyTorch says of types that it refuses."""


def _written(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """Yields the tensors that an operator writes to."""
    for place, argument in enumerate(operator._schema.arguments):
        if argument.alias_info and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from (v for v in pytree.tree_leaves(given) if torch.is_tensor(v))


def _shares_elements(tensor: torch.Tensor) -> bool:
    """Whether elements share one place in memory, which eager refuses to write to."""
    return any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride()))


def _writes_aside(operator: Any) -> bool:
    """Whether an operator writes to an operand that it does not return."""
    if "batch_norm" in operator.overloadpacket.__name__:
        return True  # its schema does not tell of the running statistics
    schema = operator._schema
    written = [a for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    returned = [r for r in schema.returns if r.alias_info and r.alias_info.is_write]
    return len(written) > len(returned)


_FLOATING = frozenset(
    """
    addmm addmv baddbmm addbmm bmm mm mv dot vdot convolution avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool2d _adaptive_avg_pool2d native_layer_norm layer_norm native_group_norm
    native_batch_norm upsample_bilinear2d upsample_linear1d upsample_bicubic2d mse_loss
    huber_loss smooth_l1_loss logsumexp _fft_r2c _fft_c2c _fft_c2r lerp softplus
    reflection_pad1d reflection_pad2d
    """.split()
)
"""Operators of which PyTorch has no kernel for some types of integers."""


def _is_common(dtype: torch.dtype) -> bool:
    """Whether eager's operators have kernels for a type: floating-point, of 16 bits and more."""
    return dtype.is_floating_point and dtype.itemsize > 1


def is_quiet(target: Any, operands: Sequence[Any]) -> bool:
    """Whether a call of a tensor function can neither raise at run time nor draw numbers.

    For all others a `Witness` has to see what the call comes down to.
    """
    narrowest = torch.float16
    for operand in operands:
        if isinstance(operand, torch.Tensor) and not _is_common(operand.dtype):
            return False  # eager has no kernel for some types
        dtype = getattr(operand, "dtype", operand)
        if isinstance(dtype, torch.dtype) and dtype.itemsize == 1:
            narrowest = dtype
    if any(_is_large(operand, narrowest) for operand in operands):
        return False  # a dtype may not hold it
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name in _QUIET and not isinstance(target, torch._ops.OpOverloadPacket)


def _number_is_refused(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Why eager refuses a number that a dtype does not hold, or ""; fakes take any.

    `half.masked_fill(mask, -1e9)` raises, `half * 1e9` does not, and neither does `fill_` of
    a single element: what the operator says is found out on tensors as small as that.
    """
    if operator.namespace not in OWN_NAMESPACES or operator in _MADE_TO_SIZE:
        return ""
    given = {
        a.name: (a, args[place] if place < len(args) else kwargs.get(a.name))
        for place, a in enumerate(operator._schema.arguments)
    }
    if not any(
        str(a.type) in _NUMBERS and _is_large(value, torch.int8)
        for a, value in given.values()
    ):
        return ""
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if _TAG.nondeterministic_seeded in operator.tags or not _are_here(leaves):
        return ""
    numbers = {id(v) for a, v in given.values() if str(a.type) in _NUMBERS}
    with _disable_current_modes(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = [v if id(v) in numbers else _in_small(v) for v in leaves]
        positional, named = pytree.tree_unflatten(small, structure)
        try:
            operator(*positional, **named)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            message = str(error).partition("\n")[0]
            return message if "without overflow" in message else ""
    return ""


_NUMBERS = ("number", "Optional[number]")
"""Types of arguments that become elements, or are computed with."""

_MADE_TO_SIZE = (
    torch.ops.aten.arange.default,
    torch.ops.aten.arange.start,
    torch.ops.aten.arange.start_step,
)
"""Operators whose numbers decide how much memory they take."""


def _is_large(number: Any, dtype: torch.dtype) -> bool:
    """Whether some dtype as wide as this one does not hold a number that is finite."""
    most = 127 if dtype.itemsize == 1 else torch.finfo(torch.float16).max
    return type(number) in (int, float) and most < abs(number) < math.inf


def _in_small(operand: Any) -> Any:
    """A tensor of at most two elements along each dimension; other sizes as small."""
    if isinstance(operand, torch.Tensor):
        shape = [n if type(n) is int and n < 2 else 2 for n in operand.shape]
        make = torch.ones if operand.is_floating_point() else torch.zeros
        return make(shape, dtype=operand.dtype, device=operand.device)
    return min(operand, 2) if type(operand) is int else _example(operand)


def _are_here(operands: Sequence[Any]) -> bool:
    """Whether operators can run on such operands on this machine."""
    here = {"cpu", "cuda"} if torch.cuda.is_available() else {"cpu"}
    devices = {v.type for v in operands if isinstance(v, torch.device)}
    tensors = [v for v in operands if isinstance(v, torch.Tensor)]
    devices |= {t.device.type for t in tensors}
    return devices <= here and all(t.layout is torch.strided for t in tensors)


_SUBTRACTIONS = frozenset("sub rsub __rsub__ subtract".split())
_IN_PLACE = frozenset("add_ sub_ mul_ iadd isub imul".split())
_IN_PLACE_FLOAT = frozenset(
    "div_ itruediv sin_ cos_ tan_ tanh_ exp_ log_ sqrt_ rsqrt_ sigmoid_".split()
)
_PRODUCTS = frozenset(
    "mm matmul bmm mv dot addmm addmv baddbmm linear bilinear conv1d conv2d conv3d".split()
)
_CHOICES = frozenset("max min median nanmedian mode kthvalue".split())
"""Reductions whose result is one of the elements."""


def eager_raises(name: str, args: list[Any], out: Any = None) -> str | None:
    """Why eager raises where fake tensors, which do not compare all dtypes, would not."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if not tensors:
        return None
    first = args[0]
    written = [t for t in pytree.tree_leaves(out) if torch.is_tensor(t)]
    if name == "copy_" and torch.is_tensor(first):
        written.append(first)
    if any(map(_shares_elements, written)):
        return "elements of what is written share one place in memory"
    if name in _PRODUCTS:
        if len({t.dtype for t in tensors}) > 1 and not any(
            torch.is_autocast_enabled(kind) for kind in {t.device.type for t in tensors}
        ):
            return "operands of a product have different dtypes"
    elif name in _SUBTRACTIONS:
        if any(t.dtype is torch.bool for t in tensors):
            return "a bool tensor is subtracted"
    elif name in _IN_PLACE or name in _IN_PLACE_FLOAT:
        if not isinstance(first, torch.Tensor):
            return None
        result = first.dtype
        if len(args) > 1:
            other = args[1]
            if isinstance(other, torch.SymInt | torch.SymFloat):
                other = 1 if isinstance(other, torch.SymInt) else 1.0
            result = torch.result_type(first, other)
        if name in _IN_PLACE_FLOAT and not (
            result.is_floating_point or result.is_complex
        ):
            result = torch.get_default_dtype()
        if _shares_elements(first):
            return "elements of what is written share one place in memory"
        if not torch.can_cast(result, first.dtype):
            return f"{result} cannot be cast to {first.dtype}"
    elif name in _CHOICES and isinstance(first, torch.Tensor):
        if any(isinstance(size, int) and size == 0 for size in first.shape):
            return "there is nothing to choose from"
    return None
