// Element types and scalar operations that emitted C++ kernels use.
#pragma once
#include "vector_math.h"
#include "float8.h"

// A bool in memory: gcc vectorizes no loop that loads a `bool`.
typedef unsigned char boolean;

// ── bfloat16 and float16: storage only; arithmetic is done in float ────────────────────────
// They are copied by their bits: gcc does not vectorize the copy of a struct.

// Rounds to nearest even; a NaN becomes the quiet NaN 0x7fc0.
INLINE unsigned short bfloat16_bits(float x) {
    unsigned n = (unsigned)bits_of(x);
    unsigned rounded = (n + 0x7fffu + ((n >> 16) & 1u)) >> 16;
    return (unsigned short)(x != x ? 0x7fc0u : rounded);
}

// The same as a float, whose lower half is 0.
INLINE float rounded_bfloat16(float x) {
    unsigned n = (unsigned)bits_of(x);
    unsigned rounded = (n + 0x7fffu + ((n >> 16) & 1u)) & 0xffff0000u;
    return x != x ? NAN_F : float_of((int)rounded);
}

struct bfloat16 {
    unsigned short bits;
    bfloat16() = default;
    INLINE_MEMBER bfloat16(const bfloat16& other) : bits(other.bits) {}
    INLINE_MEMBER void operator=(const bfloat16& other) { bits = other.bits; }
    INLINE_MEMBER explicit bfloat16(unsigned short n) : bits(n) {}
    INLINE_MEMBER explicit bfloat16(float x) : bits(bfloat16_bits(x)) {}
    INLINE_MEMBER explicit operator float() const { return float_of((int)((unsigned)bits << 16)); }
};

// Of a float whose lower half is 0; a NaN keeps its bits.
INLINE bfloat16 exactly_bfloat16(float x) {
    return bfloat16((unsigned short)((unsigned)bits_of(x) >> 16));
}

// Rounds to nearest even. A result below 2^-14 is a denormal: adding 0.5 rounds it to a
// multiple of 2^-24 and leaves the count of them in the low bits. A NaN keeps its high bits.
INLINE unsigned short float16_bits(float x) {
    unsigned n = (unsigned)bits_of(x), sign = (n >> 16) & 0x8000u;
    n &= 0x7fffffffu;
    unsigned denormal = (unsigned)bits_of(float_of((int)n) + 0.5f) - 0x3f000000u;
    unsigned normal = (n - 0x38000000u + 0xfffu + ((n >> 13) & 1u)) >> 13;
    unsigned y = n < 0x38800000u ? denormal : normal;
    y = n >= 0x477ff000u ? 0x7c00u : y;          // 65520 and more: infinity
    y = n > 0x7f800000u ? 0x7e00u | ((n >> 13) & 0x3ffu) : y;
    return (unsigned short)(y | sign);
}

INLINE float float_of_half(unsigned short h) {
    unsigned magnitude = (unsigned)(h & 0x7fff) << 13, sign = (unsigned)(h & 0x8000) << 16;
    float scaled = float_of((int)magnitude) * 0x1p112f;   // right for denormals too
    unsigned n = (unsigned)bits_of(scaled);
    n = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : n;
    return float_of((int)(n | sign));
}

struct float16 {
    unsigned short bits;
    float16() = default;
    INLINE_MEMBER float16(const float16& other) : bits(other.bits) {}
    INLINE_MEMBER void operator=(const float16& other) { bits = other.bits; }
    INLINE_MEMBER explicit float16(unsigned short n) : bits(n) {}
    INLINE_MEMBER explicit float16(float x) : bits(float16_bits(x)) {}
    INLINE_MEMBER explicit operator float() const { return float_of_half(bits); }
};

// ── comparisons and rounding ───────────────────────────────────────────────────────────────

// NaN if either is NaN, as torch.maximum and torch.minimum. Two choices, not one of `a > b || a != a`:
// of a chain of those that is compared in the end, gcc makes a choice of comparisons, and no vectors.
template <typename T> INLINE T maximum(T a, T b) {
    T larger = a > b ? a : b;
    return a != a ? a : larger;
}
template <typename T> INLINE T minimum(T a, T b) {
    T smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

// (T)(I)x, for which gcc writes trunc(x): that keeps -0.0, NaN and what no I is. Those are the least I.
template <typename I, typename T> INLINE T truncated(T x) {
    const T end = (T)(1ull << (8 * sizeof(I) - 1));
    return fabs(x) < end ? trunc(x) + (T)0 : -end;
}

// The other one if one is NaN.
INLINE float fmax(float a, float b) { return a >= b || b != b ? a : b; }
INLINE float fmin(float a, float b) { return a <= b || b != b ? a : b; }
INLINE double fmax(double a, double b) { return a >= b || b != b ? a : b; }
INLINE double fmin(double a, double b) { return a <= b || b != b ? a : b; }

INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

INLINE bool isnan(float x) { return x != x; }
INLINE bool isnan(double x) { return x != x; }
INLINE bool isinf(float x) { return fabs(x) == INFINITY_F; }
INLINE bool isinf(double x) { return fabs(x) == __builtin_inf(); }
INLINE bool signbit(float x) { return bits_of(x) < 0; }
INLINE bool signbit(double x) { return bits_of(x) < 0; }

// ── integers: they wrap around; a divisor is never 0 ───────────────────────────────────────

template <typename T> INLINE T magnitude(T a) { return (T)(a < 0 ? -a : a); }

// The smallest integer by -1 wraps around instead of trapping.
template <typename T> INLINE T truncdiv(T a, T b) {
    return b == (T)-1 && (T)-1 < 0 ? (T)-a : (T)(a / (b == 0 ? (T)1 : b));
}
template <typename T> INLINE T rem(T a, T b) { return (T)(a - truncdiv(a, b) * b); }
template <typename T> INLINE T floordiv(T a, T b) {
    T q = truncdiv(a, b), r = (T)(a - q * b);
    return (T)(r != 0 && (r < 0) != (b < 0) ? q - 1 : q);
}
template <typename T> INLINE T mod(T a, T b) { return (T)(a - floordiv(a, b) * b); }

// Where an element is, of a condition. Of `x[2 * (a > 0)]` gcc 12 gathers -2 where the condition holds:
// in vectors that is -1. It must not see it.
INLINE long position(long n) {
    asm("" : "+r"(n));
    return n;
}

template <typename T> INLINE T shl(T a, T b) {
    bool fits = b >= 0 && (unsigned long)b < 8 * sizeof(T);
    return fits ? (T)(a << b) : (T)0;
}
template <typename T> INLINE T shr(T a, T b) {
    const T last = (T)(8 * sizeof(T) - 1);
    bool fits = b >= 0 && b <= last;
    if ((T)-1 > 0) return fits ? (T)(a >> b) : (T)0;
    return (T)(a >> (fits ? b : last));
}

INLINE long smaller(long a, long b) { return a < b ? a : b; }

#include "tiles.h"
