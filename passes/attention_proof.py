"""The proof that a matrix product ends an attention that may be streamed.

See `passes.attention` for what is proved. Here is

    p[z, i, j] = div(exp(sub(s, peak)), total)

taken apart: `_score` checks the quotient and its reductions, `_product` finds the product that
`s` is a function of, `_wanted_elsewhere` who else wants it, and `_assemble` makes the loop form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import sympy
import torch
from torch import fx

from srcjit.runtime.numerics import tf32_allowed

from .attention_form import PRODUCT, Attention
from .attention_library import Library, library_call
from .attention_reader import Illegal, Reader, SymbolicHead, evenly_spaced
from .attention_values import cheaper, unrounded, widened
from .deep import Deep
from .definitions import EXTERN, MAP, REDUCTION, VIEW, Definition, Lowered
from .indexing import (
    ONE,
    ZERO,
    Index,
    expanded,
    flatten,
    simplify,
    symbol,
    unflatten,
)
from .loops import (
    Axis,
    Buffer,
    Const,
    Expr,
    IndexValue,
    Load,
    Op,
    Value,
    cast,
    op,
    rebuild,
    walk,
)
from .lowerings.builder import broadcast
from .points import memory
from .rounding import LOW_PRECISION, Casts
from .spaces import same

aten = torch.ops.aten

LARGEST_HEAD = 256
"""Elements of a query or value beyond which a block of them does not fit on chip."""

LARGEST_FLOAT32_HEAD = 64
"""Elements of float32 beyond which streaming was slower than eager's three kernels."""

FEWEST_ROWS = 16
"""Rows of the smallest block that tensor cores multiply."""

LONGEST_SCORE = 64
"""Primitives of a score function beyond which the products are not what takes the time."""

LANGUAGES = {"cuda": "triton", "cpu": "cpp"}

PRODUCTS = (aten.bmm.default, aten.mm.default)

_FIRST_PRODUCTS = (*PRODUCTS, aten.baddbmm.default)
"""What gives scores: also a product to which a bias is added before it is rounded."""


@dataclass(frozen=True, eq=False)
class Found:
    """An attention in a graph.

    Attributes:
        attention: What is computed.
        operands: The definitions that it reads from memory.
        product: The first product, which is not computed by itself any more.
        result: The second.
        makers: Values of the score function and the definitions that they came from.
        nodes: The nodes whose work it does.
        batch: The dimensions that the batch was made of.
        tiles: Queries, keys and values: what is read and where, by `batch`, row and element.
        library: The call of a library that does all of it, where there is one.
    """

    attention: Attention
    operands: tuple[Definition, ...]
    product: Definition
    result: Definition
    makers: Mapping[Value, Definition]
    nodes: tuple[fx.Node, ...]
    batch: tuple[Axis, ...] = ()
    tiles: tuple[tuple[Definition, Expr], ...] = ()
    library: Library | None = None


class Proof:
    """The proof for one product; `run` gives None where nothing looks like attention."""

    def __init__(
        self, lowered: Lowered, out: Definition, keep_fp32: bool, target: str
    ) -> None:
        self.lowered, self.out, self.keep_fp32 = lowered, out, keep_fp32
        self.target = target
        self.z, self.i, self.j = (symbol(n) for n in ("z", "i", "j"))
        self.d, self.e = symbol("d"), symbol("e")
        self.exact = Casts(False)
        self.depends = Deep(self._depends)

    def run(self) -> Found | None:
        """Returns what is proved, or None where nothing looks like attention.

        Raises:
            Illegal: If it looks like attention, and something is missing.
        """
        weights, values = (self._operand(self.out, n) for n in (0, 1))
        if weights is None or values is None:
            return None
        batch = self.batch = self.out.size[0] if len(self.out.size) == 3 else ONE
        rows, columns = weights.size[-2:]
        self.numel = expanded(batch * rows * columns)
        self._split_batch(weights)
        self.ranges |= {self.i: rows, self.j: columns}
        self.reader = Reader(self.ranges, self._inline, self.depends)
        value = self._simple(self.reader.read(weights, self._index(weights, self.j)))
        if not self._looks_like_softmax(value):
            return None
        score = self._score(value)
        product, load = self._product(score)
        if self._wanted_elsewhere(product):
            raise Illegal(
                "its scores or weights are used elsewhere: as a result, by another call, "
                "or for a gradient"
            )
        if self.target == "triton":
            self._check_facts(product, values, rows)
        found = self._assemble(score, product, load, values)
        library = library_call(found.attention, found.batch, found.tiles, self.target)
        if isinstance(library, str):
            if self.target != "triton":
                raise Illegal(library)
            return found
        return replace(found, library=library)

    # ── the algebra ───────────────────────────────────────────────────────────────────────

    def _operand(self, d: Definition, position: int) -> Definition | None:
        node = d.node.args[position]
        value = self.lowered.values.get(node) if isinstance(node, fx.Node) else None
        return value if isinstance(value, Definition) else None

    def _factors(
        self, product: Definition
    ) -> tuple[Definition | None, Definition | None]:
        """Queries and keys of the first product."""
        start = 0 if product.node.target in PRODUCTS else 1
        return self._operand(product, start), self._operand(product, start + 1)

    def _rounded(self, product: Definition, marker: Load) -> Value:
        """The first product as eager has it in memory: rounded, a bias added before."""
        value: Value = marker
        if product.node.target not in PRODUCTS:
            bias = self._operand(product, 0)
            alpha, beta = (product.node.kwargs.get(n, 1) for n in ("alpha", "beta"))
            if bias is None or not isinstance(alpha, int | float):
                raise Illegal("its bias is scaled by a number of run time")
            if not isinstance(beta, int | float):
                raise Illegal("its bias is scaled by a number of run time")
            if alpha != 1:
                value = op("mul", value, Const(alpha, value.dtype))
            if beta != 0:
                at = self._index(product, self.j)
                added = cast(broadcast(self.reader.read, bias, at), value.dtype)
                if beta != 1:
                    added = op("mul", added, Const(beta, value.dtype))
                value = op("add", value, added)
        return cast(value, product.dtype)

    def _index(self, d: Definition, last: sympy.Symbol, middle: Expr = None) -> Index:
        """(z, i, last), or (i, last) in a matrix."""
        index = (self.at, self.i if middle is None else middle, last)
        return index[3 - len(d.size) :]

    def _split_batch(self, weights: Definition) -> None:
        """Reads the batch by the dimensions that it was made of, such as (b, h).

        Sizes that are only known at run time do not fold into one index otherwise. Afterwards
        `at` is the position in the batch, and `digits` gives each axis as a part of `z`.
        """
        sizes: tuple[Expr, ...] = (self.batch,)
        d = weights
        while d.kind in (VIEW, MAP) and len(d.operands) == 1 and len(sizes) == 1:
            (d,) = d.operands
            many = len(d.size) > 3 and same(d.size[-1], weights.size[-1])
            if many and same(sympy.Mul(*d.size[:-2]), self.batch):
                sizes = tuple(n for n in d.size[:-2] if n != 1) or (ONE,)
        axes = tuple(symbol(f"z{n}") for n in range(len(sizes)))
        self.ranges = dict(zip(axes, sizes, strict=True))
        self.at = flatten(axes, sizes) if self.batch != 1 else ZERO
        parts = unflatten(self.z, sizes, {self.z: self.batch})
        self.digits = dict(zip(axes, parts, strict=True))

    def _settled(self, index: Expr) -> Expr:
        """An index by `z` instead of the parts of the batch."""
        ranges = {s: n for s, n in self.ranges.items() if s not in self.digits}
        ranges[self.z] = self.batch
        return simplify(expanded(index.xreplace(self.digits)), ranges)

    def _inline(self, d: Definition) -> bool:
        """Computed at each score: what depends on the product, and what costs nothing."""
        return d.dear == 0 or self.depends(d)

    def _depends(self, d: Definition) -> bool:
        if d.kind == EXTERN:
            return d.node.target in _FIRST_PRODUCTS and same(d.numel, self.numel)
        return any(map(self.depends, d.operands))

    def _simple(self, value: Value) -> Value:
        return self.exact.simplify(value)

    def _looks_like_softmax(self, value: Value) -> bool:
        found = list(walk([value]))
        return any(isinstance(v, Op) and v.name == "exp" for v in found) and any(
            self._reduction(v) is not None for v in found
        )

    def _reduction(self, value: Value) -> tuple[Definition, Index] | None:
        source = self.reader.sources.get(value)
        return source if source and source[0].kind == REDUCTION else None

    def _score(self, weights: Value) -> Value:
        """Checks that `weights` is a softmax over j; returns what it is taken of."""
        quotient = unrounded(weights)
        if not (isinstance(quotient, Op) and quotient.name == "div"):
            raise Illegal("its weights are changed behind the softmax")
        raised, total = map(unrounded, quotient.args)
        if not (isinstance(raised, Op) and raised.name == "exp"):
            raise Illegal("its weights are changed behind the softmax")
        shifted = unrounded(raised.args[0])
        if not (isinstance(shifted, Op) and shifted.name == "sub"):
            raise Illegal("its exponentials are not shifted by their maximum")
        score, peak = shifted.args
        if widened(self._folded(peak, "max", "its maximum")) is not widened(score):
            raise Illegal("its maximum is not that of the scores")
        summed = self._folded(total, "sum", "its sum")
        if unrounded(widened(summed)) is not raised:
            raise Illegal("its sum is not that of the exponentials")
        narrow = any(v.dtype is torch.float16 for v in walk([quotient.args[1]]))
        columns = self.ranges[self.j]
        if narrow and not (columns.is_Integer and columns < 65504):
            raise Illegal("its sum may overflow float16")
        return widened(score)

    def _folded(self, value: Value, kind: str, what: str) -> Value:
        """The value that a reduction folds at (z, i, j), if it folds all j and only those."""
        while isinstance(value, Op) and value.name == "cast":
            value = value.args[0]
        source = self._reduction(value)
        if source is None or source[0].folding is None:
            raise Illegal(f"{what} is not a reduction")
        d, index = source
        folding = d.folding
        assert folding is not None
        if folding.kind != kind:
            raise Illegal(f"{what} is a {folding.kind}")
        long = [
            s
            for s, r in zip(folding.full, folding.reduced, strict=True)
            if r and s != 1
        ]
        over_j = len(long) == 1 and same(long[0], self.ranges[self.j])
        if not over_j or any(n.has(self.j) for n in index):
            raise Illegal(
                "the softmax runs over another dimension than the product sums over"
            )
        kept = iter(index)
        full = tuple(
            (sympy.Integer(0) if s == 1 else self.j) if r else next(kept)
            for s, r in zip(folding.full, folding.reduced, strict=True)
        )
        return self._simple(folding.value(self.reader.read, full))

    def _product(self, score: Value) -> tuple[Definition, Value]:
        """The product that the scores are a function of, and its load."""
        mine: list[tuple[Definition, Value]] = []
        astray = False
        for value in walk([score]):
            source = self.reader.sources.get(value)
            if source is None or source[0].kind != EXTERN:
                continue
            d, index = source
            if d.node.target not in _FIRST_PRODUCTS or not same(d.numel, self.numel):
                continue
            if index == self._index(d, self.j) and len(d.size) == len(self.out.size):
                mine.append((d, value))
            else:
                astray = True
        if not mine:
            raise Illegal(
                "its scores come from another place of their product"
                if astray
                else "its scores do not come from a matrix product"
            )
        product, load = mine[0]
        loads = [v for v in walk([score]) if self._definition(v) is product]
        if len(loads) > 1:
            raise Illegal("a score needs the product at another point")
        return product, load

    def _definition(self, value: Value) -> Definition | None:
        source = self.reader.sources.get(value)
        return source[0] if source else None

    # ── who else, and what of ─────────────────────────────────────────────────────────────

    def _wanted_elsewhere(self, product: Definition) -> bool:
        """True if the product is reachable from results and calls other than this one."""
        stack = [r for r in self.lowered.results if isinstance(r, Definition)]
        for d in self.lowered.definitions:
            if d.kind == EXTERN and d is not self.out and d is not product:
                for used in d.node.all_input_nodes:
                    value = self.lowered.values[used]
                    parts = value if isinstance(value, tuple | list) else (value,)
                    stack.extend(p for p in parts if isinstance(p, Definition))
        seen: set[Definition] = set()
        while stack:
            d = stack.pop()
            if d is product:
                return True
            if d not in seen:
                seen.add(d)
                stack.extend(d.operands)
        return False

    def _check_facts(self, product: Definition, values: Definition, rows: Expr) -> None:
        for what, d in (("scores", product), ("result", self.out)):
            rounds = d.dtype is torch.float32 and tf32_allowed()
            if d.dtype not in LOW_PRECISION and not rounds:
                name = str(d.dtype).removeprefix("torch.")
                raise Illegal(f"its {what} are {name}, which tensor cores would round")
        queries = self._factors(product)[0]
        symbolic = []
        for held in filter(None, (queries, self.out)):
            size = held.size[-1]
            if not size.is_Integer:
                symbolic += held.node.meta["val"].size()[-1:]
                continue
            if size > LARGEST_HEAD or size < 1:
                raise Illegal(f"heads of {size} elements are not held on chip")
            if size > LARGEST_FLOAT32_HEAD and self.out.dtype is torch.float32:
                raise Illegal(
                    f"heads of {size} float32 are faster in kernels of their own"
                )
        if any(size == 0 for size in (*self.out.size, *product.size)):
            raise Illegal("there is nothing to compute")
        if rows.is_Integer and rows < FEWEST_ROWS:
            raise Illegal(f"{rows} rows do not fill a block")
        if symbolic or queries is None:
            raise SymbolicHead(symbolic)

    # ── the result ────────────────────────────────────────────────────────────────────────

    def _assemble(
        self, score: Value, product: Definition, load: Value, values: Definition
    ) -> Found:
        queries, keys = self._factors(product)
        assert queries is not None and keys is not None
        depth, width = queries.size[-1], self.out.size[-1]
        ranges = {**self.ranges, self.d: depth, self.e: width}
        axes = {s: Axis(s, n) for s, n in (*ranges.items(), (self.z, self.batch))}
        operands: dict[Definition, None] = {}
        tiles: list[tuple[Definition, Expr]] = []

        def tile(d: Definition, index: Index, two: Index, what: str) -> Load:
            """What is read of `d`: of its memory, or of what it is a copy of."""
            for inline in (lambda _: True, lambda _: False):
                reader = Reader(ranges, inline)
                found = reader.read(d, index)
                if evenly_spaced(found, two, set(ranges)):
                    assert isinstance(found, Load)
                    operands[reader.sources[found][0]] = None
                    tiles.append((reader.sources[found][0], found.index))
                    return Load(found.buffer, self._settled(found.index))
            raise Illegal(f"its {what} are not evenly spaced in memory")

        query = tile(queries, self._index(queries, self.d), (self.i, self.d), "queries")
        at = self._index(keys, self.j, self.d)
        key = tile(keys, at, (self.j, self.d), "keys")
        at = self._index(values, self.e, self.j)
        value = tile(values, at, (self.j, self.e), "values")
        marker = self._marker(product)
        score, makers = self._finish(score, load, marker, product)
        if sum(isinstance(v, Op) for v in walk([score])) > LONGEST_SCORE:
            raise Illegal("its score function is longer than the products")
        for v in walk([score]):
            if isinstance(v, Load) and v is not marker:
                if v.operands:
                    raise Illegal("a score is read at a place that depends on data")
                operands[self.reader.sources[v][0]] = None
        at = self._index(self.out, self.e)
        place = sum(
            (n * s for n, s in zip(at, self.out.stride, strict=True)),
            start=sympy.Integer(0),
        )
        attention = Attention(
            "",
            axes[self.z],
            axes[self.i],
            axes[self.j],
            axes[self.d],
            axes[self.e],
            query,
            key,
            value,
            marker,
            score,
            memory(self.out),
            self._settled(expanded(place)),
        )
        nodes = dict.fromkeys((product.node, *self._nodes(score), self.out.node))
        return Found(
            attention,
            tuple(operands),
            product,
            self.out,
            makers,
            tuple(nodes),
            tuple(axes[s] for s in self.digits),
            tuple(tiles),
        )

    def _marker(self, product: Definition) -> Load:
        """The product in float32: a load that depends on the row and the column."""
        buffer = Buffer(PRODUCT, torch.float32, product.device, (), ())
        return Load(buffer, self.i + self.j)

    def _finish(
        self, score: Value, load: Value, marker: Load, product: Definition
    ) -> tuple[Value, dict[Value, Definition]]:
        """The score function of the product, and the definitions of its values."""
        casts = Casts(self.keep_fp32)
        done: dict[Value, Value] = {marker: marker}

        def finish(root: Value) -> Value:
            for v in walk([root]):
                if v in done:
                    continue
                new = rebuild(v, tuple(done[o] for o in v.operands))
                if isinstance(v, Load) and not v.operands:
                    new = Load(v.buffer, self._settled(v.index))
                    self.reader.sources[new] = self.reader.sources[v]
                if isinstance(v, IndexValue):
                    new = IndexValue(self._settled(v.index), v.dtype)
                done[v] = casts.simplify(cheaper(new, self.ranges))
            return done[root]

        done[load] = finish(self._rounded(product, marker))
        score = finish(score)
        makers = {}
        for v, d in self.reader.makers.items():
            made = done.get(self._simple(v))
            if made is not None and not isinstance(made, Const | Load):
                makers[made] = d
        return score, makers

    def _nodes(self, score: Value) -> Iterator[fx.Node]:
        wanted = {d.node for d in self.reader.makers.values()}
        yield from (n for n in self.lowered.values if n in wanted)
