"""Symbolic sizes: dimensions whose size has changed between calls.

    def f(x):                         # called with 10, then with 20 elements
        n = x.size(0)
        return x.view(n // 2, -1) / n

The first specialization is for 10 elements. In the second the size of `x` is a symbol of
PyTorch's `ShapeEnv`: what is computed from it is text in the residual program
(`x_size_0 // 2`), and every decision on it becomes a condition of the specialization
(`x.size(0) % 2 == 0`). Where a plain number is needed, the symbol is pinned to the value that
it has in this call, which is a condition too; so nothing here can make a program wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..program import Guard, GuardSet, TensorGuard
from .breaks import Break
from .size_bounds import fits
from .size_text import IN_CONDITIONS, CannotSpell, spelled
from .sources import Argument, Item, Source
from .values import ListValue, Scalar, TupleValue, Value, constant

if TYPE_CHECKING:
    from .evaluator import Evaluator

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_KINDS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float}


@dataclass(frozen=True)
class _Place:
    """Where a symbol's value is found when the program starts."""

    guard: str
    residual: str
    variable: str


@dataclass(frozen=True)
class _Symbolic:
    """A tensor with symbolic sizes: its path in guards and its fake."""

    text: str
    fake: torch.Tensor


class Sizes:
    """The symbols of one evaluation, and how its texts name them.

    Args:
        evaluator: Whose sizes they are.
        wanted: Path of a tensor, as a guard spells it -> dimensions to make symbolic;
            None to make nothing symbolic.
    """

    def __init__(
        self, evaluator: Evaluator, wanted: Mapping[str, frozenset[int]] | None
    ) -> None:
        self.ev = evaluator
        self.wanted = wanted
        self.places: dict[Any, _Place] = {}
        self.tensors: list[_Symbolic] = []
        self.numbers: list[str] = []

    # ── tensors ───────────────────────────────────────────────────────────────────

    def dims(self, tensor: torch.Tensor, source: Source) -> frozenset[int]:
        """Returns the dimensions of the tensor at `source` that are symbolic."""
        if self.wanted is None or self.ev.options.dynamic is False:
            return frozenset()
        found = self.wanted.get(source.guard, frozenset())
        if self.ev.options.dynamic and _is_data(tensor, source):
            found = frozenset(range(tensor.dim()))
        # NOTE: what has size 0 or 1 behaves differently (broadcasting, strides).
        return frozenset(d for d in found if d < tensor.dim() and tensor.size(d) > 1)

    def fake(
        self, tensor: torch.Tensor, source: Source, dims: frozenset[int]
    ) -> torch.Tensor:
        """Returns a fake of `tensor` in which `dims` are symbolic."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import (
            DimDynamic,
            StatelessSymbolicContext,
        )

        def context(rank: int, symbolic: frozenset[int], base: Any) -> Any:
            return StatelessSymbolicContext(
                dynamic_sizes=[
                    DimDynamic.DYNAMIC if d in symbolic else DimDynamic.STATIC
                    for d in range(rank)
                ],
                view_base_context=base,
            )

        base = (
            context(tensor._base.dim(), frozenset(), None)
            if tensor._base is not None
            else None
        )
        shape_env = self.ev.shape_env()
        fake = self.ev.fake_mode.from_tensor(
            tensor,
            static_shapes=False,
            source=ConstantSource(source.guard),
            symbolic_context=context(tensor.dim(), dims, base),
        )
        for symbol, sources in shape_env.var_to_sources.items():
            if symbol not in self.places and sources:
                self._place(symbol, sources[0].name, source)
        self.tensors.append(_Symbolic(source.guard, fake))
        return fake

    def _place(self, symbol: Any, name: str, source: Source) -> None:
        path = re.sub(r"\.(size|stride)\(\)\[(\d+)\]$", r".\1(\2)", name)
        rest = path.removeprefix(source.guard)
        if rest == path:
            return
        words = "_".join(re.findall(r"\w+", rest))
        self.places[symbol] = _Place(
            path,
            f"{source.residual}{rest}",
            self.ev.residual.fresh(f"{source.hint}_{words}"),
        )

    # ── ints ──────────────────────────────────────────────────────────────────────

    def takes(self, value: int | float) -> bool:
        """Whether a number that has changed between calls is to be treated like a size."""
        return self.wanted is not None and type(value) is int and value >= 2

    def number(self, value: int, source: Source, text: str) -> Scalar:
        """Returns the int at `source`, which the residual program has as `text`."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        shape_env, path = self.ev.shape_env(), ConstantSource(source.guard)
        symbol = shape_env.create_symbol(value, path, dynamic_dim=DimDynamic.DYNAMIC)
        made = shape_env.create_symintnode(symbol, hint=value, source=path)
        # NOTE: the program may bind an argument's variable again.
        variable = text
        if isinstance(source, Argument):
            variable = self.ev.residual.fresh(f"{source.hint}_given")
        self.places[symbol] = _Place(source.guard, text, variable)
        self.numbers.append(source.guard)
        return Scalar(text, int, made, name=source.hint, hint=value, sizes=(made,))

    # ── numbers ───────────────────────────────────────────────────────────────────

    def value(self, result: Any) -> Value:
        """Returns the value for metadata of a fake: numbers, sizes, tuples of them.

        Raises:
            Break: When it depends on a number whose value is not at hand.
        """
        if isinstance(result, torch.SymBool):
            return constant(self._decide(result))
        if isinstance(result, _SYMBOLIC):
            return self._number(result)
        if is_symbolic(result):
            items = [self.value(item) for item in result]
            if isinstance(result, list):
                return ListValue(items)
            return TupleValue(items, type(result))
        return constant(result)

    def fitting(self, result: Any) -> Value | None:
        """Returns the value for a number if it has 64 bits, else None."""
        ints = {s for s, place in self.places.items() if place.guard in self.numbers}
        return self.value(result) if fits(result, ints) else None

    def _number(self, symbol: Any) -> Value:
        expression = symbol.node.expr
        if expression.is_number:
            kind = _KINDS[type(symbol)]
            return constant(kind(expression))
        if not self.is_backed(symbol):
            raise _unbacked()
        if isinstance(symbol, torch.SymFloat):
            return constant(float(symbol))
        try:
            text = self.text(expression)
        except CannotSpell:
            return constant(int(symbol))
        name = text if text.isidentifier() else "size"
        return Scalar(text, int, symbol, name=name, hint=_hint(symbol), sizes=(symbol,))

    def is_backed(self, symbol: Any) -> bool:
        """Whether the value of a symbolic number in this call is at hand."""
        return all(s in self.places for s in symbol.node.expr.free_symbols)

    def text(self, expression: Any) -> str:
        """Returns the residual program's text of an integer expression over sizes."""
        text = spelled(expression, {s: p.variable for s, p in self.places.items()})
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def placeholders(self, values: Iterable[Any], known: Iterable[Any]) -> list[Scalar]:
        """Returns numbers for the symbols in `values` that no value in `known` is.

        Args:
            values: Tensors and numbers of a segment.
            known: Its inputs, from whose sizes it reads symbols.
        """
        plain: set[Any] = set()
        for value in known:
            plain |= {e for e in _expressions(value) if e.is_Symbol}
        wanted: dict[Any, None] = {}
        for value in values:
            for expression in _expressions(value):
                for symbol in sorted(expression.free_symbols, key=str):
                    if symbol in self.places and symbol not in plain:
                        wanted[symbol] = None
        made = []
        for symbol in wanted:
            hint = int(self.ev.shape_env().backed_var_to_val[symbol])
            number = self.ev.shape_env().create_symintnode(symbol, hint=hint)
            made.append(self._number(number))
        return [scalar for scalar in made if isinstance(scalar, Scalar)]

    def prologue(self, text: str) -> list[str]:
        """Returns the lines that read the sizes that a program's text names."""
        used = set(re.findall(r"\w+", text))
        return [
            f"{place.variable} = {place.residual}"
            for place in self.places.values()
            if place.variable in used and place.variable != place.residual
        ]

    # ── conditions ────────────────────────────────────────────────────────────────

    def _decide(self, condition: Any) -> bool:
        if not self.is_backed(condition):
            raise _unbacked()
        return bool(condition)

    def settle(self, guards: GuardSet) -> GuardSet:
        """Returns `guards` with the conditions on sizes that have come up until now.

        Raises:
            CannotSpell: One of them has no text.
        """
        if not self.places:
            return guards
        shape_env = self.ev.shape_env()
        names = {s: p.guard for s, p in self.places.items()}
        facts: dict[str, TensorGuard] = {}
        texts = {f"2 <= {number}": None for number in self.numbers}
        decided = [guard.expr for guard in shape_env.guards]
        in_decisions = set().union(*(e.free_symbols for e in decided))
        for tensor in self.tensors:
            sizes = [_expression(n) for n in tensor.fake.size()]
            strides = [_expression(n) for n in tensor.fake.stride()]
            for guard in guards.guards:
                if isinstance(guard, TensorGuard) and guard.text == tensor.text:
                    facts[tensor.text] = replace(
                        guard, size=_plain(sizes), stride=_plain(strides)
                    )
            for position, expression in enumerate(sizes):
                if not expression.is_number:
                    path = f"{tensor.text}.size({position})"
                    texts[f"2 <= {path}"] = None
                    if (text := spelled(expression, names)) != path:
                        texts[f"{path} == {text}"] = None
            for position, expression in enumerate(strides):
                if not expression.is_number:
                    path = f"{tensor.text}.stride({position})"
                    if (text := spelled(expression, names)) != path:
                        texts[f"{path} == {text}"] = None
                    else:
                        texts[f"2 <= {path}"] = None
        for symbol, place in self.places.items():
            if symbol in in_decisions and not re.search(r"\.size\(\d+\)$", place.guard):
                texts[f"2 <= {place.guard}"] = None
        for expression in decided:
            text = spelled(expression, names, IN_CONDITIONS)
            if text != "True":
                texts[text] = None
        new = [
            facts.get(g.text, g) if isinstance(g, TensorGuard) else g
            for g in guards.guards
        ]
        new += [Guard(text, "sizes") for text in texts]
        return replace(guards, guards=tuple(new))


# ── expressions ─────────────────────────────────────────────────────────────────────


def is_symbolic(result: Any) -> bool:
    """Whether metadata holds a symbolic number."""
    if isinstance(result, (tuple, list)):
        return any(is_symbolic(item) for item in result)
    return isinstance(result, _SYMBOLIC)


def _hint(symbol: Any) -> int:
    hint = symbol.node.hint
    return int(hint)


def _expression(number: Any) -> Any:
    import sympy

    return (
        number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)
    )


def _expressions(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        numbers = [*value.size(), *value.stride()]
    else:
        numbers = [value]
    return [n.node.expr for n in numbers if isinstance(n, torch.SymInt)]


def _plain(expressions: list[Any]) -> tuple[int | None, ...]:
    return tuple(int(e) if e.is_number else None for e in expressions)


def _is_data(tensor: torch.Tensor, source: Source) -> bool:
    """Whether a tensor is an argument, alone or in a container, and no parameter."""
    while isinstance(source, Item):
        source = source.base
    return isinstance(source, Argument) and type(tensor) is torch.Tensor


def _unbacked() -> Break:
    return Break(
        "SJ020",
        "a result depends on a run-time number",
        hint="keep the value in a tensor as long as possible",
    )
