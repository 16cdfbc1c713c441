"""Values that a score function of attention hides, of which a kernel must know if one is odd.

A weight of 0 times inf or NaN is NaN. So a kernel before that of attention writes one flag for
each chunk of `CHUNK` values, and attention of a mask that is known looks at the flags:

    def attention_look(value_ptr, flags_ptr, CHUNK, WIDTH):
        program = tl.program_id(0)
        z = (program // 4).to(tl.int64)
        j = program % 4 * CHUNK + tl.arange(0, CHUNK)
        value = tl.load(…).to(tl.float32)
        odd = value * 0.0 != 0.0
        odd = tl.max(tl.max(odd.to(tl.int32), 1), 0)
        tl.store(flags_ptr + program, odd.to(tl.int8))
"""

from __future__ import annotations

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from .attention_form import Attention
from .loops import Buffer
from .print_triton_positions import Names
from .print_triton_schedule import power_of_two
from .print_triton_tiles import (
    CHUNK,
    TileIndex,
    both,
    chunk_count,
    load_text,
    within,
)
from .print_triton_values import SUM, index_text, paren


class Hidden:
    """Prints what finds out whether a hidden value is inf or NaN.

    Args:
        attention: What hides values.
        names: Names of its kernel.
        value: Where the values are.

    Attributes:
        flags: For each chunk of values, int8: 1 if one of them is inf or NaN.
    """

    def __init__(self, attention: Attention, names: Names, value: TileIndex) -> None:
        self.attention, self.names, self.value = attention, names, value
        self.chunks = chunk_count(attention.columns.size)
        chunks = FloorDiv(attention.columns.size + CHUNK - 1, CHUNK)
        self.flags = Buffer(
            names(f"{attention.output.name}_flags"),
            torch.int8,
            attention.output.device,
            (attention.batch.size * chunks,),
            (sympy.Integer(1),),
        )

    def grid(self, heads: str) -> str:
        """The number of programs that look at the values, for the host."""
        if heads.isdigit() and self.chunks.isdigit():
            return str(int(heads) * int(self.chunks))
        return f"{heads} * {self.chunks}"

    def print(self, name: str) -> str:
        """The text of the kernel that looks at the values."""
        attention, names = self.attention, Names(self.names.taken)
        value = attention.value.buffer
        sizes = [str(p) for p in attention.parameters if isinstance(p, sympy.Symbol)]
        listed = [f"{value.name}_ptr", f"{self.flags.name}_ptr", *sizes]
        listed += ["CHUNK: tl.constexpr", "WIDTH: tl.constexpr"]
        program, j, odd = names("program"), names("j"), names("odd")
        chunks = self._chunk_count()
        lanes = "tl.arange(0, CHUNK)"
        z = f"{program}.to(tl.int64)"
        if chunks != "1":
            z = f"({program} // {chunks}).to(tl.int64)"
            lanes = f"{program} % {chunks} * CHUNK + {lanes}"
        across = "tl.arange(0, WIDTH)[None, :]"
        place = self.value.text(
            value, {attention.batch.symbol: "z"}, f"{j}[:, None]", across
        )
        size = attention.columns.size
        whole = size.is_Integer and size % CHUNK == 0
        masks = [
            None if whole else f"({j}[:, None] < {paren(index_text(size, {}), SUM)})",
            within(attention.width, "tl.arange(0, WIDTH)", "[None, :]"),
        ]
        lanes = f"({lanes}).to(tl.int64)" if self.value.wide_first else lanes
        return "\n    ".join(
            [
                f"@triton.jit\ndef {name}({', '.join(listed)}):",
                f"{program} = tl.program_id(0)",
                f"z = {z}",
                f"{j} = {lanes}",
                f"value = {load_text(place, both(*masks))}.to(tl.float32)",
                f"{odd} = value * 0.0 != 0.0",
                f"{odd} = tl.max(tl.max({odd}.to(tl.int32), 1), 0)",
                f"tl.store({self.flags.name}_ptr + {program}, {odd}.to(tl.int8))",
            ]
        )

    def any_odd(self, odd: str, z: str) -> list[str]:
        """Lines that set `odd` to 1 if a value of the head `z` is inf or NaN."""
        base = f"{self.flags.name}_ptr + {z} * "
        if self.chunks.isdigit():
            count = int(self.chunks)
            if count == 1:
                flag = f"{self.flags.name}_ptr + {z}"
                return [f"{odd} = tl.load({flag}).to(tl.int32)"]
            block = power_of_two(count)
            lanes = f"tl.arange(0, {block})"
            mask = "" if block == count else f", {lanes} < {count}, other=0"
            loaded = f"tl.load({base}{count} + {lanes}{mask})"
            return [f"{odd} = tl.max({loaded}.to(tl.int32), 0)"]
        chunks = self._chunk_count().replace("CHUNK", str(CHUNK))
        chunk = self.names("chunk")
        return [
            f"{odd} = tl.full((), 0, tl.int32)",
            f"for {chunk} in range(0, {chunks}):",
            f"    {odd} |= tl.load({base}{chunks} + {chunk}).to(tl.int32)",
        ]

    def _chunk_count(self) -> str:
        if self.chunks.isdigit():
            return self.chunks
        size = index_text(self.attention.columns.size, {})[0]
        return f"tl.cdiv({size}, CHUNK)"
