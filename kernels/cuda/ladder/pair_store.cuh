// Two neighbouring results to D by plain stores, wherever its edge lies.
#pragma once
#include "ptx.cuh"

struct PairStore {
    bf16 *d;
    uint64 row_stride;    // elements
    uint32 m, n;
    bool in_words;        // whether two neighbours of a row are always one aligned word of 4 bytes inside D

    DEVICE PairStore(bf16 *d, uint64 row_stride, uint32 m, uint32 n)
        : d(d), row_stride(row_stride), m(m), n(n), in_words(n % 2 == 0 && row_stride % 2 == 0 && reinterpret_cast<uint64>(d) % 4 == 0) {}

    // D(row, column) and its right neighbour; `column` is even.
    DEVICE void pair(uint32 row, uint32 column, float left, float right) const {
        if (row >= m || column >= n) return;
        bf16 *const place = d + row * row_stride + column;
        const uint32 packed = pack_bf16(left, right);
        if (in_words) {
            *reinterpret_cast<uint32 *>(place) = packed;
        } else {
            place[0] = static_cast<bf16>(packed);
            if (column + 1 < n) place[1] = static_cast<bf16>(packed >> 16);
        }
    }
};
