"""What the text looks like: schedules, index widths, names, the same bytes every time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from srcjit.passes.loops import (
    Axis,
    Buffer,
    Const,
    Kernel,
    Label,
    Load,
    Reduce,
    ScalarArg,
    Store,
    Value,
    cast,
    check,
    op,
    symbol,
)
from srcjit.passes.print_triton import TritonText, print_kernel
from srcjit.passes.print_triton_axes import merge_axes
from srcjit.passes.print_triton_schedule import schedule
from tests.backend.examples import axis
from tests.triton.cases import CASES, shapes

CUDA = torch.device("cuda:0")


def buffer(name: str, *size: int, dtype: torch.dtype = torch.float32) -> Buffer:
    """A contiguous tensor; no memory is made."""
    strides, step = [], 1
    for s in reversed(size):
        strides.append(step)
        step *= s
    whole = tuple(map(sympy.Integer, size))
    return Buffer(
        name, dtype, CUDA, whole, tuple(map(sympy.Integer, reversed(strides)))
    )


def row_sum(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Kernel:
    i = Axis(symbol("i"), sympy.Integer(rows))
    k = Axis(symbol("k"), sympy.Integer(columns))
    at = columns * i.symbol + k.symbol
    total = Reduce(
        "total", "sum", Load(buffer("x", rows, columns, dtype=dtype), at), dtype
    )
    store = Store(buffer("y", rows, dtype=dtype), i.symbol, total.ref, "outer")
    return check(Kernel("row_sum", (i,), (k,), (total, store)))


def double(size: int) -> Kernel:
    i = Axis(symbol("i"), sympy.Integer(size))
    value = op("mul", Load(buffer("x", size), i.symbol), Const(2.0, torch.float32))
    return check(
        Kernel("double", (i,), (), (Store(buffer("y", size), i.symbol, value),))
    )


def test_row_is_held_whole_where_it_fits() -> None:
    plan = schedule(merge_axes(row_sum(16384, 8192)))
    assert not plan.looped
    assert [g.block for g in plan.groups] == [1, 8192]


def test_short_rows_share_a_program() -> None:
    plan = schedule(merge_axes(row_sum(100_000, 32)))
    assert not plan.looped
    assert plan.groups[0].block > 1 and plan.groups[1].block == 32


def test_long_row_is_walked_over() -> None:
    assert schedule(merge_axes(row_sum(4096, 100_000))).looped


def test_few_long_rows_are_split() -> None:
    printed = print_kernel(row_sum(2, 2**20))
    assert len(printed.launches) == 2 and len(printed.temporaries) == 1
    assert int(printed.launches[0].grid) >= 264
    assert printed.host_lines()[0].startswith("total_parts = torch.empty(")


def column_sum(
    rows: int, columns: int, dtype: torch.dtype = torch.float32, streams: int = 1
) -> Kernel:
    i = Axis(symbol("i"), sympy.Integer(columns))
    k = Axis(symbol("k"), sympy.Integer(rows))
    at = columns * k.symbol + i.symbol
    value: Value = Load(buffer("x", rows, columns, dtype=dtype), at)
    for n in range(1, streams):
        other = Load(buffer(f"x{n}", rows, columns, dtype=dtype), at)
        value = op("mul", value, other)
    total = Reduce("total", "sum", value, dtype)
    store = Store(buffer("y", columns, dtype=dtype), i.symbol, total.ref, "outer")
    return check(Kernel("column_sum", (i,), (k,), (total, store)))


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "programs"),
    [
        (16384, 8192, torch.float32, [256]),
        (16384, 8192, torch.bfloat16, [128]),
        (4096, 32768, torch.float32, [512]),
        (1000, 1000, torch.float32, [32]),
        (131072, 128, torch.float32, [256, 2]),
        # Rows that do not begin at multiples of 16 bytes are loaded into registers.
        (16384, 8191, torch.bfloat16, [512, 128]),
    ],
)
def test_columns_are_read_by_about_as_many_programs_as_there_is_room_for(
    rows: int, columns: int, dtype: torch.dtype, programs: list[int]
) -> None:
    printed = print_kernel(column_sum(rows, columns, dtype))
    assert [int(launch.grid) for launch in printed.launches] == programs
    ahead = columns % 8 == 0
    assert ("num_stages=" in printed.text) is ahead


def test_few_programs_read_further_ahead() -> None:
    stages = {
        columns: schedule(merge_axes(column_sum(16384, columns))).stages
        for columns in (4096, 8192, 32768, 131072)
    }
    assert stages == {4096: 8, 8192: 6, 32768: 3, 131072: 0}


def test_several_tensors_share_what_is_read_ahead() -> None:
    stages = [
        schedule(merge_axes(column_sum(16384, 8192, streams=n))).stages
        for n in (1, 2, 5, 6)
    ]
    assert stages == [6, 4, 2, 0]


def test_variance_of_columns_is_one_sweep() -> None:
    case = CASES["spread 40x1000 columns, not stored"]()
    printed = print_kernel(case.kernel)
    assert printed.text.count("tl.load(") == 1
    assert len(printed.launches) == 1


def test_what_a_loop_stores_is_not_read_ahead() -> None:
    case = CASES["spread 40x400 columns"]()
    loops = [
        line for line in print_kernel(case.kernel).text.splitlines() if "for " in line
    ]
    assert len(loops) == 2 and "num_stages" not in loops[1]


def test_contiguous_tensors_are_flat() -> None:
    plan = schedule(merge_axes(shapes("contiguous").kernel))
    assert len(plan.groups) == 1


def flat(count: int, dtype: torch.dtype, *, in_place: bool = False) -> Kernel:
    """A copy, one element after the other."""
    i = symbol("i")
    n = sympy.Integer(count)

    def memory(name: str) -> Buffer:
        return Buffer(name, dtype, torch.device("cuda"), (n,), (sympy.Integer(1),))

    target = memory("x" if in_place else "y")
    body = (Store(target, i, Load(memory("x"), i)),)
    return Kernel("copy", (Axis(i, n),), (), body)


def test_results_that_no_cache_holds_are_streamed() -> None:
    large = print_kernel(flat(2**27, torch.bfloat16))
    assert 'cache_modifier=".cg"' in large.text and '".cs"' in large.text
    assert large.launches[0].constants == {"BLOCK": 2048, "num_warps": 8}
    wide = print_kernel(flat(2**27, torch.float32))
    assert '".cs"' in wide.text
    assert wide.launches[0].constants == {"BLOCK": 512, "num_warps": 4}
    for other in (
        flat(2**20, torch.bfloat16),
        flat(2**27, torch.float32, in_place=True),
    ):
        assert "cache_modifier" not in print_kernel(other).text


@pytest.mark.parametrize(
    ("dtype", "loads", "name", "points"),
    [
        (torch.float32, 1, "neg", 4),
        (torch.float32, 1, "erf", 8),
        (torch.bfloat16, 1, "neg", 8),
        (torch.bfloat16, 2, "neg", 8),
        (torch.bfloat16, 3, "neg", 4),
        (torch.bfloat16, 1, "erf", 16),
    ],
)
def test_a_thread_has_one_vector_of_each_tensor(
    dtype: torch.dtype, loads: int, name: str, points: int
) -> None:
    i = Axis(symbol("i"), sympy.Integer(2**20))

    def tensor(name: str) -> Buffer:
        return Buffer(name, dtype, CUDA, (i.size,), (sympy.Integer(1),))

    value = cast(Load(tensor("x0"), i.symbol), torch.float32)
    for n in range(1, loads):
        more = cast(Load(tensor(f"x{n}"), i.symbol), torch.float32)
        value = op("add", value, more)
    made = cast(op(name, value), dtype)
    kernel = check(Kernel("k", (i,), (), (Store(tensor("y"), i.symbol, made),)))
    plan = schedule(kernel)
    assert plan.groups[0].block == 32 * plan.num_warps * points


def test_loads_come_before_stores() -> None:
    i = Axis(symbol("i"), sympy.Integer(2**20))

    def tensor(name: str) -> Buffer:
        return Buffer(name, torch.float32, CUDA, (i.size,), (sympy.Integer(1),))

    def stores(count: int) -> str:
        body = tuple(
            Store(tensor(f"y{n}"), i.symbol, op("neg", Load(tensor(f"x{n}"), i.symbol)))
            for n in range(count)
        )
        text = print_kernel(check(Kernel("k", (i,), (), body))).text
        return "".join(
            "ls"[s == "store"] for s in re.findall(r"tl\.(load|store)", text)
        )

    assert stores(3) == "lllsss"
    # What waits is in registers: four at most.
    assert stores(6) == "llllssssllss"


def test_transposed_tensors_are_tiled() -> None:
    plan = schedule(merge_axes(shapes("batched_transpose").kernel))
    assert [g.block for g in plan.groups] == [1, 64, 64]


def test_lines_of_which_a_tile_reads_a_part_are_kept() -> None:
    loads = re.findall(
        r"tl.load.*", print_kernel(shapes("batched_transpose").kernel).text
    )
    assert len([line for line in loads if "evict_last" in line]) == 1
    assert "evict_last" not in print_kernel(flat(2**20, torch.float32)).text


@pytest.mark.parametrize(("size", "wide"), [(2**20, False), (2**31, True)])
def test_offsets_are_64_bits_wide_only_where_needed(size: int, wide: bool) -> None:
    assert ("int64" in print_kernel(double(size)).text) is wide


def test_rows_beyond_32_bits_move_the_row_only() -> None:
    text = print_kernel(row_sum(2**20, 8192)).text
    assert "i = tl.program_id(0).to(tl.int64)" in text
    assert "k = tl.arange(0, BLOCK)\n" in text


def test_sizes_are_spelled_as_the_host_asks() -> None:
    s0 = symbol("s0")
    i = Axis(symbol("i"), s0)
    one = (sympy.Integer(1),)
    x = Buffer("x", torch.float32, CUDA, (s0,), one)
    y = Buffer("y", torch.float32, CUDA, (s0,), one)
    factor = ScalarArg("factor", torch.float32)
    store = Store(y, i.symbol, op("mul", Load(x, i.symbol), factor))
    printed = print_kernel(check(Kernel("scale", (i,), (), (store,))))
    assert (
        "def scale(x_ptr, y_ptr, factor: tl.float32, s0, BLOCK: tl.constexpr):"
        in printed.text
    )
    (line,) = printed.host_lines({s0: "2*n"})
    assert line == (
        "launch(scale, (((2*n) + 511) // 512), x, y, factor, (2*n), BLOCK=512, num_warps=4)"
    )


def test_comment_stands_at_the_end_of_a_users_line() -> None:
    i = Axis(symbol("i"), sympy.Integer(1024))
    x = Load(buffer("x", 1024), i.symbol)
    sine = op("sin", x)
    y = op("mul", sine, Const(2.0, torch.float32))
    line = "20: y = torch.sin(x) * 2"
    kernel = Kernel(
        "sine",
        (i,),
        (),
        (Store(buffer("y", 1024), i.symbol, y),),
        {sine: Label("sin", line), y: Label("y", line)},
    )
    text = print_kernel(check(kernel)).text
    assert f"    y = libdevice.sin(x) * 2.0  # {line}\n" in text
    assert text.count(line) == 1


def test_names_do_not_clash() -> None:
    i = Axis(symbol("live"), sympy.Integer(100))
    x = Load(buffer("tl", 100), i.symbol)
    value = op("exp", op("add", x, Load(buffer("BLOCK", 100), i.symbol)))
    kernel = Kernel("triton", (i,), (), (Store(buffer("for", 100), i.symbol, value),))
    compile(print_kernel(check(kernel)).text, "<text>", "exec")


@pytest.mark.parametrize("name", CASES)
def test_text_is_python_of_bearable_width(name: str) -> None:
    torch.manual_seed(0)
    printed = print_kernel(CASES[name]().kernel)
    compile(printed.text, name, "exec")
    for line in printed.text.splitlines():
        assert len(line) <= 120, line


def test_bytes_do_not_depend_on_hash_seeds() -> None:
    code = (
        "import torch\n"
        "from tests.triton.cases import CASES\n"
        "from srcjit.passes.print_triton import print_kernel\n"
        "for name in ('shape batched_transpose', 'primitives torch.float32', "
        "'symbolic tiles', 'full argmax 100003', 'batch_norm_sums'):\n"
        "    torch.manual_seed(0)\n"
        "    print(print_kernel(CASES[name]().kernel).text)\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1 and isinstance(print_kernel(double(8)), TritonText)


def test_an_index_of_run_time_is_checked_where_memory_is_touched() -> None:
    printed = print_kernel(CASES["embedding"]().kernel)
    (line,) = [t for t in printed.text.splitlines() if "device_assert" in t]
    assert "(ids >= 0) & (ids < 10)" in line and "ids != 3" in line.rpartition(",")[2]
    (call,) = printed.launches
    assert call.constants["debug"] is True
    assert call.constants["sanitize_overflow"] is False


def test_what_is_read_twice_along_a_row_is_kept() -> None:
    """The caches keep neighbours of a row and what rows share with them, nothing else."""
    i, j = axis("i", 512), axis("j", 1024)
    x, w, y = buffer("x", 512, 1056), buffer("w", 1024), buffer("y", 512, 1024)
    at, out = 1056 * i.symbol + j.symbol, 1024 * i.symbol + j.symbol

    def kept(*indices: sympy.Expr) -> list[str]:
        value = Load(w, j.symbol)
        for index in indices:
            value = op("add", value, Load(x, index))
        kernel = check(Kernel("sums", (i, j), (), (Store(y, out, value),)))
        lines = print_kernel(kernel).text.splitlines()
        kept = (re.findall(r"(\w)_ptr.*evict_last", line) for line in lines)
        return [name for names in kept for name in names]

    assert sorted(kept(at, at + 16)) == ["w", "x", "x"]
    assert kept(at) == []
    # Another row's, and what does not lie side by side.
    assert kept(at, at + 1056) == []
    assert kept(at, 1056 * i.symbol + FloorDiv(j.symbol, 2)) == []
