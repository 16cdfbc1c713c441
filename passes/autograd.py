"""Autograd: the source text that wires a segment's forward and backward graph to autograd.

Before (a `Functional` with a backward graph that saves the input `x` and the result `tanh`):

    forward(x, w) -> (y, tanh)         backward(x, tanh, grad_y) -> (d_x, d_w)

After (`emit_autograd`):

    class Segment0(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            y, tanh = segment_0_forward(x, w)
            ctx.save_for_backward(x, tanh)
            ctx.set_materialize_grads(False)
            return (y,)

        @staticmethod
        @first_derivative
        def backward(ctx, grad_y):
            saved = [*ctx.saved_tensors]
            ctx.maybe_clear_saved_tensors()
            if grad_y is None:
                return None, None
            if not grad_y.is_contiguous():
                grad_y = grad_y.contiguous()
            d_x, d_w = segment_0_backward(saved, grad_y)
            return d_x, d_w

    def segment_0(x, w):
        (y,) = Segment0.apply(x, w)
        return (y, y.t())

The backward function empties the list, so that each saved tensor is freed where eager would: at
its last use, unless the graph is retained.

Autograd refuses what was written to since it was saved. Eager has a node for each operation, and
asks only those that lead to an output which is used. So where tangents are absent, only what goes
with those that are there is asked, and what only eager has saved is asked, too
(`passes.saved_checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .absent import emit_partial, indented, literal
from .partition import is_view
from .plans import (
    ATenGraph,
    Backward,
    Constant,
    Functional,
    OutputPlan,
    SameAsInput,
    SameAsOutput,
    SavedInput,
    Value,
    ViewOfInput,
    ViewOfOutput,
    ViewOfShown,
)
from .saved_checks import checked_alone, each_there, keep_versions, used_apart

IMPORTS = (
    "import torch",
    "from srcjit.runtime.autograd import first_derivative",
    "from srcjit.runtime.autograd import refuse_written",
    "from srcjit.runtime.autograd import unpacked",
    "from srcjit.runtime.autograd import versions_of",
)
"""Imports that the text of `emit_autograd` may need; `emit_segment` needs the first."""


def needed_imports(text: str) -> list[str]:
    """Those of `IMPORTS` that a text mentions."""
    return [line for line in IMPORTS if line.rpartition(" ")[2] in text]


def emit_segment(functional: Functional, name: str, forward_name: str) -> str:
    """Returns the text of the segment function that calls a forward function.

    Args:
        functional: Without or with a backward graph; the latter is not looked at.
        name: Name of the function, which takes the graph's placeholders.
        forward_name: Name of a function of the same arguments that returns the tuple
            `functional.forward.results`.
    """
    forward = _forward(functional)
    parameters = [n.name for n in forward.placeholders]
    names = result_names(forward, len(forward.results))
    lines = [f"def {name}({', '.join(parameters)}):"]
    call = f"{forward_name}({', '.join(parameters)})"
    lines += indented(_guarded_call(functional, names, call), 1)
    lines += indented(count_writes(zip(names, functional.versions)), 1)
    lines += indented(after_the_call(functional, parameters, names), 1)
    return "\n".join(lines) + "\n"


def emit_autograd(
    functional: Functional,
    name: str,
    *,
    forward_name: str,
    backward_name: str,
    class_name: str,
) -> str:
    """Returns the text of an `autograd.Function` and of the segment function that uses it.

    Args:
        functional: With a backward graph.
        name: Name of the segment function.
        forward_name: Name of a function from the placeholders of `functional.forward` to
            the tuple of its results.
        backward_name: Name of a function with the parameters `backward_parameters` that
            returns the tuple of the backward graph's results.
        class_name: Name of the class.
    """
    forward, backward = _forward(functional), functional.backward
    if backward is None:
        raise ValueError(f"{name} has no backward graph")
    parameters = [n.name for n in forward.placeholders]
    names = result_names(forward, len(forward.results))
    ctx = _unused("ctx", [*parameters, *names])
    tangents = [
        backward.graph.placeholders[len(backward.saved) + i].name
        for i in range(len(backward.tangents))
    ]
    saved = [n.name for n in backward.graph.placeholders[: len(backward.saved)]]
    apart = used_apart(backward)
    text = [f"class {class_name}(torch.autograd.Function):"]
    text += indented(
        [
            "@staticmethod",
            f"def forward({', '.join([ctx, *parameters])}):",
            *indented(
                _forward_lines(
                    backward,
                    functional.versions,
                    forward,
                    forward_name,
                    parameters,
                    names,
                    ctx,
                    apart is not None,
                ),
                1,
            ),
            "",
            "@staticmethod",
            "@first_derivative",
            f"def backward({', '.join([ctx, *_tangent_parameters(backward, tangents)])}):",
            *indented(
                _backward_lines(backward, backward_name, saved, tangents, ctx, apart),
                1,
            ),
        ],
        1,
    )
    if len(tangents) > 1:
        text += [
            "",
            "",
            *emit_partial(backward.graph, f"{backward_name}_partial", tangents),
        ]
    plain = names[: backward.outputs]
    text += ["", "", f"def {name}({', '.join(parameters)}):"]
    call = f"{class_name}.apply({', '.join(parameters)})"
    text += indented(_guarded_call(functional, plain, call), 1)
    text += indented(after_the_call(functional, parameters, plain), 1)
    return "\n".join(text) + "\n"


def result_names(graph: ATenGraph, count: int) -> list[str]:
    """Names for the first `count` results of a graph: the nodes' own, made distinct."""
    taken = {n.name for n in graph.placeholders}
    names: list[str] = []
    for position, result in enumerate(graph.results[:count]):
        name = result.name if isinstance(result, fx.Node) else f"number_{position}"
        name = _unused(name, taken)
        taken.add(name)
        names.append(name)
    return names


def after_the_call(
    functional: Functional, parameters: Sequence[str], results: Sequence[str]
) -> list[str]:
    """Returns the lines behind the call of the graph: mutations, views, the `return`.

    Args:
        functional: The plans.
        parameters: Expressions for the inputs.
        results: Expressions for the forward results.
    """
    lines = [
        f"{parameters[m.input]}{'' if m.versions else '.data'}.copy_({results[m.output]})"
        for m in functional.mutations
    ]
    lines += count_writes(
        (parameters[m.input], m.versions - 1) for m in functional.mutations
    )
    taken = {*parameters, *results}
    named: dict[int, str] = {}
    plans = functional.outputs
    shared = {p.output for p in plans if isinstance(p, SameAsOutput)}
    detached = {p.output for p in plans if isinstance(p, ViewOfShown)}
    spelled: dict[int, str] = {}
    # What is detached stands before what is a view of it.
    for position in sorted(range(len(plans)), key=lambda p: (p not in detached, p)):
        plan = plans[position]
        text = spelled[position] = _output(plan, parameters, results, spelled)
        if not isinstance(plan, ViewOfInput | ViewOfOutput | ViewOfShown):
            continue
        variable = _unused(f"view_{position}", taken)
        if plan.view.unrecorded:
            lines += ["with torch.no_grad():", f"    {variable} = {text}"]
        elif position in detached:
            lines.append(f"{variable} = {text}")
        elif position in shared:
            # The callers run what stands before the `return` without recording gradients.
            named[position] = f"({variable} := {text})"
        else:
            continue
        taken.add(variable)
        spelled[position] = variable
    returned = [named.get(p, spelled[p]) for p in range(len(plans))]
    lines.append(f"return ({''.join(f'{r}, ' for r in returned).strip()})")
    return lines


def count_writes(written: Iterable[tuple[str, int]]) -> list[str]:
    """Returns the lines that count writes of which PyTorch does not know.

    Args:
        written: Expressions of tensors, and how many writes to count for each.
    """
    lines = []
    for tensor, times in written:
        if times > 0:
            text = tensor if times == 1 else f"({tensor},) * {times}"
            lines.append(f"torch.autograd.graph.increment_version({text})")
    return lines


def _output(
    plan: OutputPlan,
    parameters: Sequence[str],
    results: Sequence[str],
    spelled: Mapping[int, str],
) -> str:
    """Returns the expression of one output; `spelled` has those of others."""
    match plan:
        case Value(index):
            return results[index]
        case SameAsInput(position):
            return parameters[position]
        case SameAsOutput(position):
            return spelled[position]
        case ViewOfInput(position, view):
            return view.text(parameters[position])
        case ViewOfOutput(index, view):
            return view.text(results[index])
        case ViewOfShown(position, view):
            return view.text(spelled[position])
        case Constant(value):
            return literal(value)
    raise TypeError(plan)


def _guarded_call(functional: Functional, names: Sequence[str], call: str) -> list[str]:
    line = f"{_targets(names)} = {call}" if names else call
    # What autocast would cast is written out in the graph.
    guards = ["torch._C._DisableAutocast()"] if functional.autocast else []
    guards += ["torch.no_grad()"] if functional.no_grad else []
    return [f"with {', '.join(guards)}:", f"    {line}"] if guards else [line]


def _forward_lines(
    backward: Backward,
    versions: Sequence[int],
    forward: ATenGraph,
    forward_name: str,
    parameters: Sequence[str],
    names: Sequence[str],
    ctx: str,
    apart: bool,
) -> list[str]:
    lines = [f"{_targets(names)} = {forward_name}({', '.join(parameters)})"]
    # A result that is a view here, where nothing is recorded, would not let the program
    # write to it later, nor be read back once what it is a view of has a history.
    lines += [
        f"{name} = {name}.detach()"
        for name, result in zip(names, forward.results, strict=True)
        if _is_tensor(result) and is_view(result)
    ]
    # NOTE: before they are saved; autograd refuses what is written to later.
    lines += count_writes(zip(names, versions))
    tensors: list[str] = []
    numbers: list[str] = []
    for save, value in zip(backward.saved, backward.graph.inputs, strict=False):
        into = tensors if isinstance(value, torch.Tensor) else numbers
        if isinstance(save, SavedInput):
            into.append(parameters[save.index])
        elif apart and into is tensors and save.index < backward.outputs:
            # Unpacked by itself, an output would ask for the node that it is of.
            into.append(f"{names[save.index]}.detach()")
        else:
            into.append(names[save.index])
    lines.append(f"{ctx}.save_for_backward({', '.join(tensors)})")
    lines += keep_versions(backward, parameters, names, ctx)
    if numbers:
        lines.append(f"{ctx}.numbers = ({', '.join(numbers)},)")
    fixed = [
        names[i] for i in backward.not_differentiable if _is_tensor(forward.results[i])
    ]
    if fixed:
        lines.append(f"{ctx}.mark_non_differentiable({', '.join(fixed)})")
    lines.append(f"{ctx}.set_materialize_grads(False)")
    lines.append(f"return {_targets(names[: backward.outputs])}")
    return lines


def _backward_lines(
    backward: Backward,
    backward_name: str,
    saved: Sequence[str],
    tangents: Sequence[str],
    ctx: str,
    apart: list[list[int]] | None,
) -> list[str]:
    kinds = [isinstance(v, torch.Tensor) for v in backward.graph.inputs[: len(saved)]]
    tensors = [n for n, k in zip(saved, kinds, strict=True) if k]
    numbers = [n for n, k in zip(saved, kinds, strict=True) if not k]
    held = _unused("saved", [*saved, *tangents, ctx])
    take_numbers = [f"{_targets(numbers)} = {ctx}.numbers"] if numbers else []
    unpack = [f"{held} = [*{ctx}.saved_tensors]"] if tensors else []
    unsaved = checked_alone(backward)
    if unsaved:
        unpack.insert(0, f"refuse_written({ctx}.versions)")
    clear = [f"{ctx}.maybe_clear_saved_tensors()"] if tensors else []
    results = [f"d_{i}" for i in range(len(backward.graph.results))]
    returned = _gradients(backward, results)
    arguments = ", ".join([*([held] if tensors else ()), *numbers, *tangents])
    if len(tangents) == 1:
        lines = [*unpack, *clear, *take_numbers, f"if {tangents[0]} is None:"]
        lines.append(f"    return {', '.join('None' for _ in backward.gradients)}")
    else:
        partial = list(unpack)
        if any(len(c.tangents) < len(tangents) for c in unsaved):
            wanted = each_there(tangents, [c.tangents for c in unsaved])
            partial[0] = f"refuse_written({ctx}.versions, {wanted})"
        if apart is not None:
            partial[-1] = f"{held} = unpacked({ctx}, {each_there(tangents, apart)})"
        partial += clear
        if tensors:
            partial.append(f"{_targets(tensors)} = {held}")
        call = f"{backward_name}_partial({', '.join([*saved, *tangents])})"
        partial.append(f"{_targets(results)} = {call}" if results else "pass")
        partial.append(f"return {returned}")
        absent = " or ".join(f"{t} is None" for t in tangents)
        lines = [*take_numbers, f"if {absent}:", *indented(partial, 1)]
        lines += [*unpack, *clear]
    for name, value in zip(tangents, backward.graph.inputs[len(saved) :], strict=True):
        lines += _laid_out(name, value)
    if results:
        lines.append(f"{_targets(results)} = {backward_name}({arguments})")
    lines.append(f"return {returned}")
    return lines


def backward_parameters(backward: Backward) -> tuple[list[str], list[str], str]:
    """The parameters of a backward function, and what the first of them is a list of.

    Returns:
        The parameters; the names of the saved tensors, which the function takes out of the
        list that is its first parameter; the name of that list (there is none if nothing is
        saved).
    """
    names = [n.name for n in backward.graph.placeholders]
    count = len(backward.saved)
    kinds = [isinstance(v, torch.Tensor) for v in backward.graph.inputs[:count]]
    tensors = [n for n, k in zip(names, kinds, strict=False) if k]
    if not tensors:
        return names, [], ""
    held = _unused("saved", names)
    return [held, *(n for n in names if n not in tensors)], tensors, held


def _gradients(backward: Backward, results: Sequence[str]) -> str:
    return ", ".join("None" if g is None else results[g] for g in backward.gradients)


def _laid_out(name: str, like: torch.Tensor) -> list[str]:
    """Lines that give the tangent `name` the strides that the graph was made for."""
    if like.is_contiguous():
        return [f"if not {name}.is_contiguous():", f"    {name} = {name}.contiguous()"]
    order = sorted(range(like.dim()), key=lambda d: (-like.stride()[d], d))
    back = tuple(order.index(d) for d in range(like.dim()))
    dense = f"{name}.permute({tuple(order)})"
    return [
        f"if not {dense}.is_contiguous():",
        f"    {name} = {dense}.contiguous().permute({back})",
    ]


def _tangent_parameters(backward: Backward, tangents: Sequence[str]) -> list[str]:
    names = dict(zip(backward.tangents, tangents, strict=True))
    return [names.get(i, f"_{i}") for i in range(backward.outputs)]


def _forward(functional: Functional) -> ATenGraph:
    if functional.forward is None:
        raise ValueError(f"not functional: {functional.reason}")
    return functional.forward


def _is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta["val"], torch.Tensor)


def _targets(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names) or "()"


def _unused(name: str, taken: Iterable[str]) -> str:
    taken, candidate, number = set(taken), name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
