// `load_transposed` reads a tile of a matrix and transposes it in registers. Of a loop that does
// that number by number the compiler makes a load or a store for each.
#pragma once
#include "vector_math.h"

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

#if __has_builtin(__builtin_shufflevector)

template <int Bytes> struct Unsigned;
template <> struct Unsigned<1> { typedef unsigned char type; };
template <> struct Unsigned<2> { typedef unsigned short type; };
template <> struct Unsigned<4> { typedef unsigned int type; };
template <> struct Unsigned<8> { typedef unsigned long long type; };

template <int... Lane> struct Lanes {};
template <int N, int... Lane> struct CountLanes : CountLanes<N - 1, N - 1, Lane...> {};
template <int... Lane> struct CountLanes<0, Lane...> { typedef Lanes<Lane...> type; };

// Of two lines of a block, K apart, one after the pairs of K x K squares beside the diagonal have
// changed places.
template <int K, bool Second, typename Line, int... Lane>
INLINE Line exchanged(Line a, Line b, Lanes<Lane...>) {
    constexpr int N = sizeof...(Lane);
    return __builtin_shufflevector(
        a, b, (Second ? (Lane & K ? N + Lane : Lane + K) : (Lane & K ? N + Lane - K : Lane))...);
}

template <int K, int N, typename Line> INLINE void exchange(Line* lines) {
    if constexpr (K < N) {
        #pragma GCC unroll 16
        for (int i = 0; i < N; ++i) {
            if (i & K) continue;
            Line a = lines[i], b = lines[i + K];
            lines[i] = exchanged<K, false>(a, b, typename CountLanes<N>::type());
            lines[i + K] = exchanged<K, true>(a, b, typename CountLanes<N>::type());
        }
        exchange<2 * K, N>(lines);
    }
}

template <int N, typename T> INLINE void load_block(const T* from, long stride, T* to, long side) {
    typedef typename Unsigned<sizeof(T)>::type Bits;
    typedef Bits Line __attribute__((vector_size(N * sizeof(T))));
    Line lines[N];
    #pragma GCC unroll 16
    for (int i = 0; i < N; ++i) __builtin_memcpy(&lines[i], from + i * stride, sizeof(Line));
    exchange<1, N>(lines);
    #pragma GCC unroll 16
    for (int i = 0; i < N; ++i) __builtin_memcpy((void*)(to + i * side), &lines[i], sizeof(Line));
}

#if defined(__AVX512F__)
#define LINE 64
#else
#define LINE 32
#endif

// Numbers in a line of a block, which has as many lines.
template <typename T> constexpr int block_side = LINE / sizeof(T) < 16 ? LINE / sizeof(T) : 16;

#else

template <typename T> constexpr int block_side = 1;
template <int N, typename T> INLINE void load_block(const T* from, long, T* to, long) { *to = *from; }

#endif

// tile[c][r] = from[stride * r + c] for the first `rows` and `columns`.
template <typename T, int Side>
INLINE void load_transposed(T (&tile)[Side][Side], const T* from, long stride, long rows, long columns) {
    constexpr int N = block_side<T>;
    for (long r = 0; r < rows; r += N) {
        for (long c = 0; c < columns; c += N) {
            if (r + N <= rows && c + N <= columns) {
                load_block<N>(from + stride * r + c, stride, &tile[c][r], Side);
                continue;
            }
            for (long i = r; i < smaller(r + N, rows); ++i)
                for (long j = c; j < smaller(c + N, columns); ++j)
                    tile[j][i] = from[stride * i + j];
        }
    }
}
