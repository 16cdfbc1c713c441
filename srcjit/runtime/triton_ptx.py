"""Short functions of float32 for Triton kernels, as instructions of the GPU (PTX).

One function of libdevice in a kernel makes Triton read and link all of it, a quarter of the
time that it takes for a small kernel. Those that are in most kernels (norms, softmax, SiLU,
attention, losses) are a few instructions: here they are, the same bits. `tanh_to_bf16`,
`exp_of_term` and `exp_minus` are faster than libdevice's and less accurate, where nobody can
see it.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exp_f32(x):
    """libdevice's exp of a float32: 2^n * 2^r, where n + r = x / ln 2 and n is whole.

    1 / ln 2 has two parts, so that r is exact enough; n stands in the last bits of a sum
    with 1.5 * 2^23 and comes from x / (252 ln 2) + 0.5 within [0, 1], which makes 0 of
    the least results and inf of the largest; those bits, shifted, are 2^n.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .f32 n, r, scale;
        .reg .b32 bits;
        fma.rn.f32 n, $1, 0f3BBB989D, 0f3F000000;
        cvt.sat.f32.f32 n, n;
        fma.rm.f32 n, n, 0f437C0000, 0f4B400001;
        mov.b32 bits, n;
        shl.b32 bits, bits, 23;
        mov.b32 scale, bits;
        add.rn.f32 n, n, 0fCB40007F;
        neg.f32 n, n;
        fma.rn.f32 r, $1, 0f3FB8AA3B, n;
        fma.rn.f32 r, $1, 0f32A57060, r;
        ex2.approx.ftz.f32 r, r;
        mul.rn.f32 $0, r, scale;
        }
        """,
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def log_f32(x):
    """libdevice's log of a float32: ln(1 + f) + n * ln 2, where x = (1 + f) * 2^n.

    1 + f is between 2/3 and 4/3, found by taking 2/3 from the bits of x and keeping the
    exponent; a polynomial stands for ln(1 + f). What is denormal is raised by 2^23 first;
    inf, NaN and negative numbers make inf or NaN of x * inf + inf.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .pred small, odd, none;
        .reg .f32 a, n, f, p;
        .reg .b32 bits, power;
        setp.lt.f32 small, $1, 0f00800000;
        mul.rn.f32 a, $1, 0f4B000000;
        selp.f32 a, a, $1, small;
        selp.f32 n, 0fC1B80000, 0f00000000, small;
        mov.b32 bits, a;
        add.s32 power, bits, -1059760811;
        and.b32 power, power, -8388608;
        sub.s32 bits, bits, power;
        mov.b32 f, bits;
        cvt.rn.f32.s32 p, power;
        fma.rn.f32 n, p, 0f34000000, n;
        add.rn.f32 f, f, 0fBF800000;
        fma.rn.f32 p, f, 0fBE055027, 0f3E1039F6;
        fma.rn.f32 p, p, f, 0fBDF8CDCC;
        fma.rn.f32 p, p, f, 0f3E0F2955;
        fma.rn.f32 p, p, f, 0fBE2AD8B9;
        fma.rn.f32 p, p, f, 0f3E4CED0B;
        fma.rn.f32 p, p, f, 0fBE7FFF22;
        fma.rn.f32 p, p, f, 0f3EAAAA78;
        fma.rn.f32 p, p, f, 0fBF000000;
        mul.rn.f32 p, f, p;
        fma.rn.f32 p, p, f, f;
        fma.rn.f32 p, n, 0f3F317218, p;
        mov.b32 bits, a;
        setp.ge.u32 odd, bits, 2139095040;
        mov.f32 n, 0f7F800000;
        @odd fma.rn.f32 p, a, n, n;
        setp.eq.f32 none, a, 0f00000000;
        selp.f32 $0, 0fFF800000, p, none;
        }
        """,
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _instruction(x, text: tl.constexpr):
    return tl.inline_asm_elementwise(
        text, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def exp2_f32(x):
    """libdevice's exp2 of a float32, an instruction of the hardware."""
    return _instruction(x, "ex2.approx.f32 $0, $1;")


@triton.jit
def rsqrt_f32(x):
    """libdevice's rsqrt of a float32, an instruction of the hardware."""
    return _instruction(x, "rsqrt.approx.f32 $0, $1;")


@triton.jit
def tanh_to_bf16(x):
    """tanh by the hardware's instruction (relative error 2^-11), to be rounded to bfloat16."""
    return _instruction(x, "tanh.approx.f32 $0, $1;")


@triton.jit
def round_bf16(x):
    """A float32 rounded to what a bfloat16 can hold, two by one instruction.

    One by one, as Triton converts, takes a unit that is as slow as that of exp and tanh.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 both, low, high;
        cvt.rn.bf16x2.f32 both, $3, $2;
        shl.b32 low, both, 16;
        and.b32 high, both, 0xFFFF0000;
        mov.b32 $0, low;
        mov.b32 $1, high;
        }
        """,
        "=f,=f,f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )


@triton.jit
def round_times_bf16(x, factor):
    """round_bf16(round_bf16(x) * factor) of a factor that a bfloat16 holds.

    The product of two bfloat16 numbers, two by one instruction; a sum with -0.0 keeps it.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 both, low, high, factor, none;
        cvt.rn.bf16x2.f32 both, $3, $2;
        cvt.rn.bf16x2.f32 factor, $5, $4;
        mov.b32 none, 0x80008000;
        fma.rn.bf16x2 both, both, factor, none;
        shl.b32 low, both, 16;
        and.b32 high, both, 0xFFFF0000;
        mov.b32 $0, low;
        mov.b32 $1, high;
        }
        """,
        "=f,=f,f,f,f,f",
        [x, factor],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )


@triton.jit
def exp_of_term(x):
    """exp of a number that is not above 0, for a sum of such that has a term of 1.

    The instruction of the hardware: off by |x| units in the last place of what is exp(x) of
    the sum, and 0 where the result would be denormal.
    """
    return _instruction(x * 1.4426950408889634, "ex2.approx.ftz.f32 $0, $1;")


@triton.jit
def exp_minus(x, largest):
    """exp(x - largest), likewise, where both are some tens at most in magnitude.

    One FMA in place of a difference and a product: off by |x| such units once more.
    """
    scale: tl.constexpr = 1.4426950408889634
    return _instruction(
        tl.fma(x, scale, largest * -scale), "ex2.approx.ftz.f32 $0, $1;"
    )
