// Where the result goes, in both forms: tensor maps for the copy engine, a pointer for plain stores. An epilogue uses one of them.
#pragma once
#include "tcgen05.cuh"

struct Output {
    const TensorMap *map;
    const TensorMap *map_tail;
    uint16 *d;
    uint64 d_row_stride;    // elements
    uint32 m, n;
};

// Eight accumulators, the bits of floats, rounded to the format of D.
DEVICE Bytes16 rounded(const uint32 *values) {
    Bytes16 packed;
    for (int i = 0; i < 4; ++i) {
        const float low = __uint_as_float(values[2 * i]);
        const float high = __uint_as_float(values[2 * i + 1]);
        packed.words[i] = D_IS_BF16 ? pack_bf16(low, high) : pack_f16(low, high);
    }
    return packed;
}

// One accumulator, rounded to the format of D.
DEVICE uint16 rounded_one(uint32 value) {
    const float exact = __uint_as_float(value);
    return static_cast<uint16>(D_IS_BF16 ? pack_bf16(exact, 0.0f) : pack_f16(exact, 0.0f));
}
