// Elementary functions for loops that the compiler vectorizes.
//
// Every float function, and exp, expm1, log, log1p, sigmoid and tanh of double, is
// straight-line code (selections, no branches, no calls), so that a `#pragma omp simd` loop
// around it becomes vector instructions of any width. Arguments are reduced as W. Cody and
// W. Waite do (Software Manual for the Elementary Functions, 1980); the polynomials are minimax
// ones, computed by tests/cpp/minimax.py with Remez' algorithm. Errors are at most 2 ulp
// (tests/cpp/test_vector_math.py measures them); NaN, infinities, signed zeros, overflow and
// denormals are those of the C library. The other functions of double are the C library's.
#pragma once

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))

// a * b + c rounded once; used only where the text says so (-ffp-contract=off).
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
INLINE float fused(float a, float b, float c) { return a * b + c; }
INLINE double fused(double a, double b, double c) { return a * b + c; }
#endif

INLINE int bits_of(float x) { int n; __builtin_memcpy(&n, &x, 4); return n; }
INLINE float float_of(int n) { float x; __builtin_memcpy(&x, &n, 4); return x; }
INLINE long bits_of(double x) { long n; __builtin_memcpy(&n, &x, 8); return n; }
INLINE double double_of(long n) { double x; __builtin_memcpy(&x, &n, 8); return x; }

#define INFINITY_F __builtin_inff()
#define NAN_F __builtin_nanf("")
#define ROUNDER 12582912.0f             // 1.5 * 2^23: adding it rounds a float to an integer
#define ROUNDER_D 6755399441055744.0    // 1.5 * 2^52

INLINE float fabs(float x) { return __builtin_fabsf(x); }
INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
INLINE float floor(float x) { return __builtin_floorf(x); }
INLINE float ceil(float x) { return __builtin_ceilf(x); }
INLINE float trunc(float x) { return __builtin_truncf(x); }
INLINE float round_even(float x) { return __builtin_nearbyintf(x); }
INLINE float rsqrt(float x) { return 1.0f / sqrt(x); }

INLINE double fabs(double x) { return __builtin_fabs(x); }
INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
INLINE double sqrt(double x) { return __builtin_sqrt(x); }
INLINE double floor(double x) { return __builtin_floor(x); }
INLINE double ceil(double x) { return __builtin_ceil(x); }
INLINE double trunc(double x) { return __builtin_trunc(x); }
INLINE double round_even(double x) { return __builtin_nearbyint(x); }
INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }

// ── exponentials ───────────────────────────────────────────────────────────────────────────

// x = n ln 2 + r, r = high + low, |r| <= ln 2 / 2; `high` is exact. The low bits of `shifted`
// are n + bias: moved to the place of the exponent, they make 2^n (bias 127).
struct ExpReduced { float shifted, high, low, r; };

INLINE ExpReduced reduce_exp(float x, float bias) {
    float shifted = fused(x, 1.44269504f, ROUNDER + bias);
    float n = shifted - (ROUNDER + bias);
    float high = fused(n, -0.693145752f, x), low = n * -1.42860677e-6f;
    return {shifted, high, low, high + low};
}

// 2^n p for bias 254: in two steps, right also where 2^n itself is no normal float.
INLINE float scale(float p, float shifted) {
    int half = bits_of(shifted) >> 1, rest = bits_of(shifted) - half;
    return p * float_of(half << 23) * float_of(rest << 23);
}

INLINE float expm1_of_reduced(ExpReduced e) {
    float s = e.r * e.r;
    float p = fused(fused(0.00138389017f, e.r, 0.00836919248f), e.r, 0.0416681021f);
    p = fused(p, s, fused(0.166665167f, e.r, 0.49999994f));
    return e.high + fused(s, p, e.low);
}

INLINE float exp_of_reduced(ExpReduced e) { return 1.0f + expm1_of_reduced(e); }

INLINE float exp(float x) {
    // The ends are chosen behind the function: gcc makes fewer instructions of two choices
    // between constants than of two limits.
    ExpReduced e = reduce_exp(x, 254.0f);
    float y = scale(exp_of_reduced(e), e.shifted);
    y = x > 89.0f ? INFINITY_F : y;
    return x < -104.0f ? 0.0f : y;
}

// As exp, for x <= 0 or NaN: 2^n is one normal float with 2^64 taken out of it.
INLINE float exp_of_negative(float x) {
    ExpReduced e = reduce_exp(x, 254.0f);
    float y = exp_of_reduced(e) * float_of((bits_of(e.shifted) - 63) << 23) * 0x1p-64f;
    return x < -104.0f ? 0.0f : y;
}

INLINE float exp_in_range(float x) {             // -87 < x < 87
    ExpReduced e = reduce_exp(x, 127.0f);
    return exp_of_reduced(e) * float_of(bits_of(e.shifted) << 23);
}

INLINE float exp2(float x) {
    float c = x > 129.0f ? 129.0f : x;
    c = c < -151.0f ? -151.0f : c;
    float shifted = c + (ROUNDER + 254.0f);
    float r = c - (shifted - (ROUNDER + 254.0f));
    float p = 1.46560433e-05f;
    p = fused(p, r, 0.000154274472f);
    p = fused(p, r, 0.0013338147f);
    p = fused(p, r, 0.00961809792f);
    p = fused(p, r, 0.0555040501f);
    p = fused(p, r, 0.240226507f);
    p = fused(p, r, 0.693147182f);
    p = fused(p, r, 1.0f);
    return scale(p, shifted);
}

INLINE float expm1(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -18.0f ? -18.0f : c;
    ExpReduced e = reduce_exp(c, 126.0f);
    float s = e.r * e.r;
    float p = fused(fused(0.000150459528f, e.r, 0.00139305426f), e.r, 0.00834150985f);
    p = fused(fused(p, e.r, 0.0416665114f), s, fused(0.166666359f, e.r, 0.5f));
    p = e.high + fused(s, p, e.low);             // e^r - 1
    float half = float_of(bits_of(e.shifted) << 23);   // 2^n may overflow, 2^(n-1) does not
    float y = 2.0f * fused(half, p, half - 0.5f);
    return copysign(e.shifted == ROUNDER + 126.0f ? p : y, x);
}

INLINE float sigmoid(float x) {
    float a = fabs(x);
    ExpReduced e = reduce_exp(a > 104.0f ? -104.0f : -a, 254.0f);
    float t = expm1_of_reduced(e), p = 1.0f + t, power = scale(p, e.shifted);
    float y = (x < 0.0f ? power : 1.0f) / (1.0f + power);
    // What p lost in being rounded counts where it is the numerator.
    return x < 0.0f ? fused(y, t - (p - 1.0f), y) : y;
}

INLINE float tanh(float x) {
    float a = fabs(x), s = a * a;
    float p = -0.0056922962f;
    p = fused(p, s, 0.0206281673f);
    p = fused(p, s, -0.0537365153f);
    p = fused(p, s, 0.133314058f);
    p = fused(p, s, -0.333332807f);
    float near = fused(a * s, p, a);
    float c = a > 10.0f ? 10.0f : a;             // 1 from here on
    float far = 1.0f - 2.0f / (exp_in_range(c + c) + 1.0f);
    return copysign(a < 0.625f ? near : far, x);
}

// ── logarithms ─────────────────────────────────────────────────────────────────────────────

// (log(1 + f) - f) / f^2 for |f| <= 1/3
INLINE float log_near_one_tail(float f) {
    float p = -0.148263887f;
    p = fused(p, f, 0.141293123f);
    p = fused(p, f, -0.121175058f);
    p = fused(p, f, 0.139859527f);
    p = fused(p, f, -0.166490331f);
    p = fused(p, f, 0.200109422f);
    p = fused(p, f, -0.250015914f);
    p = fused(p, f, 0.333332151f);
    return fused(f, p, -0.5f);
}

INLINE float log_near_one(float f) { return fused(f * f, log_near_one_tail(f), f); }

// x = 2^n (1 + f) with 2/3 <= 1 + f < 4/3
struct LogReduced { float n, f; };

INLINE LogReduced reduce_log(float x) {
    bool tiny = x < 1.17549435e-38f;
    float a = tiny ? x * 8388608.0f : x;
    int exponent = (bits_of(a) - 0x3f2aaaab) & (int)0xff800000;
    return {(float)(exponent >> 23) - (tiny ? 23.0f : 0.0f),
            float_of(bits_of(a) - exponent) - 1.0f};
}

// The values of a logarithm outside of 0 < x < infinity.
INLINE float log_range(float x, float y) {
    y = x < INFINITY_F ? y : x;
    return x > 0.0f || x != x ? y : x == 0.0f ? -INFINITY_F : NAN_F;
}

INLINE float log(float x) {
    LogReduced l = reduce_log(x);
    return log_range(x, fused(l.n, 0.693147182f, log_near_one(l.f)));
}

// log_b(x) = n log_b(2) + log_b(1 + f), taken in double where the terms cancel.
INLINE float log_to_base(float x, double of_two, double of_e) {
    LogReduced l = reduce_log(x);
    double s = (double)l.f * (double)l.f;
    float q = log_near_one_tail(l.f);
    double y = fused(s, (double)q, (double)l.f);
    return log_range(x, (float)fused((double)l.n, of_two, y * of_e));
}

INLINE float log2(float x) { return log_to_base(x, 1.0, 1.4426950408889634); }
INLINE float log10(float x) {
    return log_to_base(x, 0.3010299956639812, 0.4342944819032518);
}

INLINE float log1p(float x) {
    int exponent = (bits_of(1.0f + x) - 0x3f2aaaab) & (int)0xff800000;
    // f = (1 + x) / 2^n - 1 without the rounding of 1 + x; 4 / 2^n is always normal.
    float quad = float_of(bits_of(4.0f) - exponent);
    float scaled = exponent == 0 ? x : float_of(bits_of(x) - exponent);
    float f = scaled + fused(0.25f, quad, -1.0f);
    float y = fused((float)(exponent >> 23), 0.693147182f, log_near_one(f));
    y = x < INFINITY_F ? y : x;
    y = x > -1.0f || x != x ? y : x == -1.0f ? -INFINITY_F : NAN_F;
    return copysign(y, x);
}

// ── double-precision cores of float functions: far more accurate than a float ──────────────

INLINE double log2_core(double x) {              // x positive, finite, normal
    long exponent = (bits_of(x) - 0x3fe6a09e667f3bcdL) & 0xfff0000000000000L;
    double f = double_of(bits_of(x) - exponent) - 1.0;
    double p = -0.08616653957151575;
    p = fused(p, f, 0.1567148593546167);
    p = fused(p, f, -0.15833004579315132);
    p = fused(p, f, 0.15876398673945685);
    p = fused(p, f, -0.17875588698040093);
    p = fused(p, f, 0.20609561923389863);
    p = fused(p, f, -0.24052659058167905);
    p = fused(p, f, 0.2885415998616777);
    p = fused(p, f, -0.36067209959672075);
    p = fused(p, f, 0.48089829070365286);
    p = fused(p, f, -0.7213475322472799);
    p = fused(p, f, 1.4426950411161714);
    return fused(f, p, (double)(int)(exponent >> 52));
}

INLINE double exp2_core(double x) {              // -1000 < x < 1000
    double shifted = x + ROUNDER_D;
    double r = x - (shifted - ROUNDER_D);
    double p = 0.0001534575784852322;
    p = fused(p, r, 0.0013399983872318915);
    p = fused(p, r, 0.009618489561183904);
    p = fused(p, r, 0.055503286471471416);
    p = fused(p, r, 0.24022646881279588);
    p = fused(p, r, 0.6931472057968865);
    p = fused(p, r, 1.0000000005559928);
    return p * double_of((bits_of(shifted) - bits_of(ROUNDER_D) + 1023) << 52);
}

INLINE double atan_core(double t) {              // 0 <= t <= 1
    double s = t * t;
    double p = 0.0010911260815942468;
    p = fused(p, s, -0.007199460037122528);
    p = fused(p, s, 0.022274515053857497);
    p = fused(p, s, -0.04435768064319542);
    p = fused(p, s, 0.06716120410453966);
    p = fused(p, s, -0.08798777585736735);
    p = fused(p, s, 0.1105450267492133);
    p = fused(p, s, -0.14279159856651802);
    p = fused(p, s, 0.19999604653244932);
    p = fused(p, s, -0.33333323935634585);
    p = fused(p, s, 0.9999999996282112);
    return t * p;
}

INLINE double log_core(double x) { return 0.6931471805599453 * log2_core(x); }
INLINE double exp_core(double x) { return exp2_core(1.4426950408889634 * x); }

// ── powers ─────────────────────────────────────────────────────────────────────────────────

INLINE float pow(float x, float y) {
    float a = fabs(x);
    bool ordinary = a > 0.0f && a < INFINITY_F;
    double l = log2_core(ordinary ? (double)a : 1.0);
    l = a == 0.0f ? -__builtin_inf() : a == INFINITY_F ? __builtin_inf() : l;
    double t = a == 1.0f ? 0.0 : (double)y * l;
    t = t > 200.0 ? 200.0 : t;
    t = t < -200.0 ? -200.0 : t;
    float p = (float)exp2_core(t);
    bool whole = floor(y) == y;
    float half = 0.5f * y;
    bool odd = whole && floor(half) != half;
    p = bits_of(x) < 0 && odd ? -p : p;
    p = x < 0.0f && a < INFINITY_F && !whole ? NAN_F : p;
    p = x != x || y != y ? NAN_F : p;
    return x == 1.0f || y == 0.0f ? 1.0f : p;
}

// ── trigonometric functions ────────────────────────────────────────────────────────────────

// x = (pi / 2) * (4 m + quadrant) + r with |r| <= pi / 4. The quotient is taken in double:
// x / 2^k, an integer below 2^50, times the 106-bit value of (2^k * 2 / pi mod 4). The
// product is exact up to 2^-57, and no float is nearer to a multiple of pi / 2 than 2^-30.
struct Turn { double r; long quadrant; };

INLINE Turn reduce_turn(double x) {
    double a = fabs(x);
    double scaled = a < 0x1p49 ? x : x * 0x1p-26;
    double high = a < 0x1p49 ? 0.6366197723675814 : 1.7235269743613935;
    double low = a < 0x1p49 ? -3.935735335036497e-17 : -3.646819222375367e-17;
    scaled = a < 0x1p75 ? scaled : x * 0x1p-52;
    high = a < 0x1p75 ? high : 1.3227502381170073;
    low = a < 0x1p75 ? low : 4.585413994155514e-17;
    scaled = a < 0x1p101 ? scaled : x * 0x1p-78;
    high = a < 0x1p101 ? high : 1.8357618630902273;
    low = a < 0x1p101 ? low : 9.501113504670287e-17;
    double product = scaled * high;
    double rest = fused(scaled, low, fused(scaled, high, -product));
    double shifted = product + ROUNDER_D;
    double turn = (product - (shifted - ROUNDER_D)) + rest;
    double again = turn + ROUNDER_D;             // a large product is rounded to quarters
    turn -= again - ROUNDER_D;
    return {turn * 1.5707963267948966, bits_of(shifted) + bits_of(again)};
}

INLINE float sin_near_zero(float r) {
    float s = r * r;
    float p = fused(-0.000195182831f, s, 0.00833218917f);
    p = fused(p, s, -0.166666552f);
    return fused(r * s, p, r);
}

INLINE float cos_near_zero(float r) {
    float s = r * r;
    float p = fused(2.44323273e-05f, s, -0.00138873095f);
    p = fused(p, s, 0.0416666456f);
    return fused(s * s, p, fused(s, -0.5f, 1.0f));
}

INLINE float quadrant_of(Turn turn, int shift) {
    float r = (float)turn.r;
    int quadrant = (int)turn.quadrant + shift;
    float y = quadrant & 1 ? cos_near_zero(r) : sin_near_zero(r);
    return float_of(bits_of(y) ^ ((quadrant & 2) << 30));
}

INLINE float sin(float x) {
    float y = quadrant_of(reduce_turn((double)x), 0);
    return fabs(x) < 0.000244140625f ? x : y;
}

INLINE float cos(float x) { return quadrant_of(reduce_turn((double)x), 1); }

INLINE float tan(float x) {
    Turn turn = reduce_turn((double)x);
    double r = turn.r, s = r * r;
    double sine = fused(-0.000195182831, s, 0.00833218917);
    sine = fused(fused(sine, s, -0.166666552), r * s, r);
    double cosine = fused(2.44323273e-05, s, -0.00138873095);
    cosine = fused(fused(cosine, s, 0.0416666456), s * s, fused(s, -0.5, 1.0));
    bool odd = (int)turn.quadrant & 1;
    float y = (float)((odd ? -cosine : sine) / (odd ? sine : cosine));
    return fabs(x) < 0.000244140625f ? x : y;
}

INLINE float atan(float x) {
    double a = fabs((double)x);
    bool steep = a > 1.0;
    double y = atan_core(steep ? 1.0 / a : a);
    y = steep ? 1.5707963267948966 - y : y;
    return copysign(a < 0.000244140625 ? fabs(x) : (float)y, x);
}

INLINE float atan2(float y, float x) {
    double a = fabs((double)y), b = fabs((double)x);
    bool steep = a > b;
    double small = steep ? b : a, large = steep ? a : b;
    double t = small == large ? 1.0 : small / large;
    t = large == 0.0 ? 0.0 : t;
    double angle = atan_core(t);
    angle = t < 0.000244140625 ? t : angle;
    angle = steep ? 1.5707963267948966 - angle : angle;
    angle = bits_of(x) < 0 ? 3.141592653589793 - angle : angle;
    return x != x || y != y ? NAN_F : copysign((float)angle, y);
}

INLINE float asin(float x) {
    double a = fabs((double)x), b = sqrt((1.0 - a) * (1.0 + a));
    bool steep = a > b;
    double y = atan_core(steep ? b / a : a / b);
    y = steep ? 1.5707963267948966 - y : y;
    y = a < 0.000244140625 ? a : y;
    return copysign(a <= 1.0 ? (float)y : NAN_F, x);
}

INLINE float acos(float x) {
    double a = fabs((double)x), b = sqrt((1.0 - a) * (1.0 + a));
    bool steep = a > b;
    double y = atan_core(steep ? b / a : a / b);
    y = steep ? y : 1.5707963267948966 - y;
    y = x < 0.0f ? 3.141592653589793 - y : y;
    return a <= 1.0 ? (float)y : NAN_F;
}

// ── hyperbolic functions ───────────────────────────────────────────────────────────────────

INLINE float cosh(float x) {
    double a = fabs((double)x);
    double e = exp_core(a > 100.0 ? 100.0 : a);
    return (float)(0.5 * (e + 1.0 / e));
}

INLINE float sinh(float x) {
    double a = fabs((double)x), s = a * a;
    double p = 2.505210838544172e-8;             // Taylor's series up to a^11 / 11!
    p = fused(p, s, 2.7557319223985893e-6);
    p = fused(p, s, 1.984126984126984e-4);
    p = fused(p, s, 8.333333333333333e-3);
    p = fused(p, s, 0.16666666666666666);
    double near = fused(a * s, p, a);
    double e = exp_core(a > 100.0 ? 100.0 : a);
    double far = 0.5 * (e - 1.0 / e);
    return copysign((float)(a < 1.0 ? near : far), x);
}

INLINE float asinh(float x) {
    double a = fabs((double)x);
    double y = log_core(a < __builtin_inf() ? a + sqrt(fused(a, a, 1.0)) : 1.0);
    y = a < 0.000244140625 ? a - a * a * a * 0.16666666666666666 : y;
    return copysign(a < __builtin_inf() ? (float)y : fabs(x), x);
}

INLINE float acosh(float x) {
    double a = (double)x;
    bool ordinary = a >= 1.0 && a < __builtin_inf();
    double y = log_core(ordinary ? a + sqrt((a - 1.0) * (a + 1.0)) : 1.0);
    return ordinary ? (float)y : x < 1.0f ? NAN_F : x;
}

INLINE float atanh(float x) {
    double a = fabs((double)x);
    double y = 0.5 * log_core(a < 1.0 ? (1.0 + a) / (1.0 - a) : 1.0);
    y = a < 0.000244140625 ? a + a * a * a * 0.3333333333333333 : y;
    return copysign(a < 1.0 ? (float)y : a == 1.0 ? INFINITY_F : NAN_F, x);
}

// ── error function ─────────────────────────────────────────────────────────────────────────

INLINE float erf(float x) {
    float a = fabs(x), s = a * a;
    float p = 7.99504778e-05f;
    p = fused(p, s, -0.000804951473f);
    p = fused(p, s, 0.00519239251f);
    p = fused(p, s, -0.0268557295f);
    p = fused(p, s, 0.112836257f);
    p = fused(p, s, -0.376126289f);
    p = fused(p, s, 0.128379166f);
    float near = fused(a, p, a);
    float c = a > 3.93f ? 3.93f : a;             // 1 from here on
    float q = -5.227663e-07f;                    // log(1 - erf(c))
    q = fused(q, c, -1.43058196e-05f);
    q = fused(q, c, 0.000396691699f);
    q = fused(q, c, -0.0040534744f);
    q = fused(q, c, 0.0248952787f);
    q = fused(q, c, -0.108012035f);
    q = fused(q, c, -0.633543432f);
    q = fused(q, c, -1.12943411f);
    q = fused(q, c, 0.000160398704f);
    float far = 1.0f - exp_in_range(q);
    return copysign(a < 0.921875f ? near : far, x);
}

INLINE float erfc(float x) {
    double a = fabs((double)x);
    a = a > 11.0 ? 11.0 : a;                     // 0 from here on
    double t = 2.0 / (2.0 + a);
    double p = -0.02894989421330169;
    p = fused(p, t, 0.2182184302774304);
    p = fused(p, t, -0.6998595045121545);
    p = fused(p, t, 1.2085484350946223);
    p = fused(p, t, -1.158446853712838);
    p = fused(p, t, 0.5958776577811272);
    p = fused(p, t, -0.267362566352224);
    p = fused(p, t, 0.15689312216931647);
    p = fused(p, t, 0.16248202132043232);
    p = fused(p, t, 0.2485267649587362);
    p = fused(p, t, 0.2819737768901157);
    p = fused(p, t, 0.2820986106035403);
    double y = t * p * exp_core(-a * a);
    return (float)(x < 0.0f ? 2.0 - y : y);
}

INLINE float erfinv(float x) {
    double a = fabs((double)x);
    double w = -log_core(a < 1.0 ? (1.0 - a) * (1.0 + a) : 1.0), s = sqrt(w);
    double near = 3.3552256983066364e-10;
    near = fused(near, w, -1.716088582191418e-08);
    near = fused(near, w, 3.097916810263957e-07);
    near = fused(near, w, -2.497847105051131e-06);
    near = fused(near, w, 5.835495897151449e-06);
    near = fused(near, w, 4.048709558146442e-05);
    near = fused(near, w, -0.00012200304103023745);
    near = fused(near, w, -0.0023385402898052953);
    near = fused(near, w, 0.011550335419071559);
    near = fused(near, w, 0.2320135560211302);
    near = fused(near, w, 0.8862269274518011);
    double far = -9.067274302701167e-06;
    far = fused(far, s, 0.00028250500619444);
    far = fused(far, s, -0.003813173512685388);
    far = fused(far, s, 0.028637637579107766);
    far = fused(far, s, -0.12491024352534773);
    far = fused(far, s, 0.2687314866161926);
    far = fused(far, s, 0.13880825725598578);
    far = fused(far, s, -2.643416878290691);
    far = fused(far, s, 7.703974992461889);
    far = fused(far, s, -11.076788968089762);
    far = fused(far, s, 8.737291733641344);
    far = fused(far, s, -1.9475565872303804);
    float y = (float)(a * (w < 5.0 ? near : far));
    return copysign(a < 1.0 ? y : a == 1.0 ? INFINITY_F : NAN_F, x);
}

// ── functions of double ────────────────────────────────────────────────────────────────────

struct LongExpReduced { double shifted, high, low, r; };

// As the reduction for float: n ln 2 is exact in the first product, which has 11 bits of n.
INLINE LongExpReduced reduce_exp(double x, double bias) {
    double shifted = fused(x, 1.4426950408889634, ROUNDER_D + bias);
    double n = shifted - (ROUNDER_D + bias);
    double high = fused(n, -0.6931471803691238, x), low = n * -1.9082149292705877e-10;
    return {shifted, high, low, high + low};
}

// 2^n p for bias 2046: in two steps, as for float.
INLINE double scale(double p, double shifted) {
    unsigned long n = (unsigned long)bits_of(shifted), half = n >> 1, rest = n - half;
    return p * double_of((long)(half << 52)) * double_of((long)(rest << 52));
}

INLINE double expm1_of_reduced(LongExpReduced e) {
    double r = e.r, s = r * r;
    double p = fused(2.0951968248927045e-09, r, 2.5109308139009375e-08);
    p = fused(p, r, 2.755724256925186e-07);
    p = fused(p, r, 2.7557242586829917e-06);
    p = fused(p, r, 2.4801587319786865e-05);
    p = fused(p, r, 0.00019841269887378528);
    p = fused(p, r, 0.001388888888889363);
    p = fused(p, r, 0.008333333333321258);
    p = fused(p, r, 0.041666666666666644);
    p = fused(p, r, 0.16666666666666677);
    return e.high + fused(s, fused(p, r, 0.5), e.low);
}

INLINE double exp(double x) {
    LongExpReduced e = reduce_exp(x, 2046.0);
    double y = scale(1.0 + expm1_of_reduced(e), e.shifted);
    y = x > 710.0 ? __builtin_inf() : y;
    return x < -746.0 ? 0.0 : y;
}

INLINE double expm1(double x) {
    double c = x > 710.0 ? 710.0 : x;
    c = c < -40.0 ? -40.0 : c;
    LongExpReduced e = reduce_exp(c, 1022.0);
    double p = expm1_of_reduced(e);
    double half = double_of(bits_of(e.shifted) << 52);  // 2^n may overflow, 2^(n-1) does not
    double y = 2.0 * fused(half, p, half - 0.5);
    return copysign(e.shifted == ROUNDER_D + 1022.0 ? p : y, x);
}

INLINE double tanh(double x) {
    double a = fabs(x), e = expm1(a > 22.0 ? 44.0 : a + a);  // 1 from here on
    double d = e + 2.0, inverse = 1.0 / d, y = e * inverse;
    double off = fused(-y, d, e) - y * (e - (d - 2.0));  // e - y (e + 2), nearly exactly
    return copysign(fused(off, inverse, y), x);
}

// n ln 2 + log(1 + f) for |f| < 0.42, where log(1 + f) = 2 atanh(s) at s = f / (2 + f), taken as
// f - (f^2 / 2 - s (f^2 / 2 + tail)): what is large in it is exact or nearly so.
INLINE double log_of_reduced(double n, double f) {
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double p = 0.14798620245373256;
    p = fused(p, z, 0.15313801440447725);
    p = fused(p, z, 0.1818357333520268);
    p = fused(p, z, 0.22222198414559194);
    p = fused(p, z, 0.28571428743781724);
    p = fused(p, z, 0.39999999999409136);
    p = fused(p, z, 0.6666666666666735);
    double rest = fused(s, fused(p, z, half), n * 1.9082149292705877e-10);
    return fused(n, 0.6931471803691238, f - (half - rest));
}

INLINE double log(double x) {
    bool tiny = x < 2.2250738585072014e-308;
    double a = tiny ? x * 0x1p54 : x;
    long exponent = (bits_of(a) - 0x3fe6a09e667f3bcdL) & 0xfff0000000000000L;
    double n = (double)(int)(exponent >> 52) - (tiny ? 54.0 : 0.0);
    double y = log_of_reduced(n, double_of(bits_of(a) - exponent) - 1.0);
    y = x < __builtin_inf() ? y : x;
    return x > 0.0 || x != x ? y : x == 0.0 ? -__builtin_inf() : __builtin_nan("");
}

INLINE double log1p(double x) {                  // as for float
    long exponent = (bits_of(1.0 + x) - 0x3fe6a09e667f3bcdL) & 0xfff0000000000000L;
    double quad = double_of(bits_of(4.0) - exponent);
    double scaled = exponent == 0 ? x : double_of(bits_of(x) - exponent);
    double f = scaled + fused(0.25, quad, -1.0);
    double y = log_of_reduced((double)(int)(exponent >> 52), f);
    y = x < __builtin_inf() ? y : x;
    y = x > -1.0 || x != x ? y : x == -1.0 ? -__builtin_inf() : __builtin_nan("");
    return copysign(y, x);
}

// ── the C library ──────────────────────────────────────────────────────────────────────────

extern "C" {
double exp2(double), log2(double), log10(double), sin(double), cos(double), tan(double);
double asin(double), acos(double), atan(double), sinh(double), cosh(double);
double asinh(double), acosh(double), atanh(double), erf(double), erfc(double);
double pow(double, double), atan2(double, double);
double fmod(double, double), hypot(double, double), nextafter(double, double);
double lgamma_r(double, int*);
float fmodf(float, float), hypotf(float, float), nextafterf(float, float);
float lgammaf_r(float, int*);
}

INLINE double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
INLINE double lgamma(double x) { int sign; return lgamma_r(x, &sign); }
INLINE float lgamma(float x) { int sign; return lgammaf_r(x, &sign); }
INLINE float fmod(float x, float y) { return fmodf(x, y); }
INLINE float hypot(float x, float y) { return hypotf(x, y); }
INLINE float nextafter(float x, float y) { return nextafterf(x, y); }

// A rational start (S. Winitzki, 2008) and Newton-Halley steps, which triple the digits.
static inline double erfinv(double x) {
    double a = fabs(x);
    if (!(a < 1.0)) return a == 1.0 ? copysign(__builtin_inf(), x) : __builtin_nan("");
    double l = log1p(-x * x), b = 4.3307467508 + 0.5 * l;
    double y = sqrt(sqrt(b * b - l * 6.802721088435374) - b);
    for (int step = 0; step < 3 && y > 0.0; ++step) {
        // Far from 0 the difference of the complements is the accurate one.
        double off = a < 0.5 ? erf(y) - a : (1.0 - a) - erfc(y);
        double u = off * 0.8862269254527580 * exp(y * y);
        y -= u / (1.0 + u * y);
    }
    return copysign(a < 1e-10 ? a * 0.8862269254527580 : y, x);
}
