// Floats of 8 bits: storage only, as PyTorch converts them to float and back.
#pragma once

// The parts of a format: how many bits the fraction has and what the exponent is biased by.
template <int Fraction, int Bias> struct Float8 {
    static constexpr int shift = 23 - Fraction;
    static constexpr int least = (128 - Bias) << 23;              // the smallest normal number
    static constexpr int carrier = (151 - Bias - Fraction) << 23; // whose last digit is one of ours

    // Of a magnitude that is a number. A denormal is made without a denormal float, which
    // takes processors a hundred cycles: (1 + m) 2^e - 2^e.
    INLINE_MEMBER static int widened(int m) {
        int normal = (m << shift) + least - (1 << 23);
        int denormal = bits_of(float_of((m << shift) + least) - float_of(least));
        return m >> Fraction ? normal : denormal;
    }

    // Of the bits of a float without its sign, to nearest even. What is too large gets a number
    // above the largest magnitude.
    INLINE_MEMBER static unsigned narrowed(int n) {
        unsigned denormal = (unsigned)(bits_of(float_of(n) + float_of(carrier)) - carrier);
        int odd = (n >> shift) & 1;
        unsigned normal =
            (unsigned)(n - (least - (1 << 23)) + (1 << (shift - 1)) - 1 + odd) >> shift;
        return n < least ? denormal : normal;
    }
};

typedef Float8<3, 7> E4M3;
typedef Float8<2, 15> E5M2;
typedef Float8<3, 8> E4M3Z;
typedef Float8<2, 16> E5M2Z;

// No infinity; NaN has all bits. What is too large becomes the largest number, or NaN in
// PyTorch before 2.12.
INLINE unsigned e4m3fn_bits(float x, unsigned largest) {
    int n = bits_of(x) & 0x7fffffff;
    unsigned sign = ((unsigned)bits_of(x) >> 24) & 0x80u;
    unsigned y = E4M3::narrowed(n);
    y = y > largest ? largest : y;
    return (n > 0x7f800000 ? 0x7fu : y) | sign;
}

INLINE float float_of_e4m3fn(unsigned char b) {
    int m = b & 0x7f, y = E4M3::widened(m);
    y = m == 0x7f ? 0x7ff00000 : y;
    return float_of((int)((unsigned)y | (unsigned)(b & 0x80) << 24));
}

INLINE unsigned e5m2_bits(float x) {
    int n = bits_of(x) & 0x7fffffff;
    unsigned sign = ((unsigned)bits_of(x) >> 24) & 0x80u;
    unsigned y = E5M2::narrowed(n);
    y = y > 0x7cu ? 0x7cu : y;
    return (n > 0x7f800000 ? 0x7fu : y) | sign;
}

INLINE float float_of_e5m2(unsigned char b) {
    int m = b & 0x7f, y = E5M2::widened(m);
    y = m >= 0x7c ? (m << 21) | (m > 0x7c ? 0x7fc00000 : 0x7f800000) : y;
    return float_of((int)((unsigned)y | (unsigned)(b & 0x80) << 24));
}

// No infinity and no -0.0: its bits are NaN, which what is too large becomes, too.
template <typename Format> INLINE unsigned fnuz_bits(float x) {
    unsigned sign = ((unsigned)bits_of(x) >> 24) & 0x80u;
    unsigned y = Format::narrowed(bits_of(x) & 0x7fffffff);
    return y > 0x7fu ? 0x80u : y == 0 ? 0u : y | sign;
}

template <typename Format> INLINE float float_of_fnuz(unsigned char b) {
    int y = Format::widened(b & 0x7f) | (int)((unsigned)(b & 0x80) << 24);
    return float_of(b == 0x80 ? 0x7f800001 : y);
}

// The exponent of a float alone: no sign, no zero.
INLINE unsigned e8m0fnu_bits(float x) {
    int n = bits_of(x) & 0x7fffffff, exponent = n >> 23;
    bool up = (n & 0x400000) && (exponent > 0 || (n & 0x3fffff));
    return exponent == 0xff ? 0xffu : (unsigned)(exponent + up);
}

INLINE float float_of_e8m0fnu(unsigned char b) {
    return float_of(b == 0 ? 0x400000 : b == 0xff ? 0x7f800001 : b << 23);
}

#define FLOAT8(NAME, NARROW, WIDEN)                                                     \
    struct NAME {                                                                       \
        unsigned char bits;                                                             \
        NAME() = default;                                                               \
        INLINE_MEMBER NAME(const NAME& other) : bits(other.bits) {}                     \
        INLINE_MEMBER void operator=(const NAME& other) { bits = other.bits; }          \
        INLINE_MEMBER explicit NAME(unsigned char n) : bits(n) {}                       \
        INLINE_MEMBER explicit NAME(float x) : bits((unsigned char)(NARROW)) {}         \
        INLINE_MEMBER explicit operator float() const { return WIDEN(bits); }           \
    };

FLOAT8(float8_e4m3fn, e4m3fn_bits(x, 0x7eu), float_of_e4m3fn)
FLOAT8(float8_e5m2, e5m2_bits(x), float_of_e5m2)
FLOAT8(float8_e4m3fnuz, fnuz_bits<E4M3Z>(x), float_of_fnuz<E4M3Z>)
FLOAT8(float8_e5m2fnuz, fnuz_bits<E5M2Z>(x), float_of_fnuz<E5M2Z>)
FLOAT8(float8_e8m0fnu, e8m0fnu_bits(x), float_of_e8m0fnu)

INLINE float8_e4m3fn overflowing_e4m3fn(float x) {
    return float8_e4m3fn((unsigned char)e4m3fn_bits(x, 0x7fu));
}
