// Where the result goes, in both forms: tensor maps for the copy engine, a pointer for plain stores. An epilogue uses one of them.
#pragma once
#include "../formats.cuh"
#include "tcgen05.cuh"

struct Output {
    const TensorMap *map;
    const TensorMap *map_tail;
    Out *d;
    uint64 d_row_stride;    // elements
    uint32 m, n;
    uint64 d_batch_stride = 0;
};

// A sum from the 32 bits that tensor memory holds of it.
DEVICE Accumulator sum_of(uint32 bits) {
    if constexpr (INTEGER) return static_cast<int32>(bits);
    else return __uint_as_float(bits);
}

// Two results as elements of 8 bits: `low` in bits 0-7.
template <typename Result> DEVICE uint32 pack_pair(Result low, Result high) {
    if constexpr (D_FORMAT == FORMAT_E4M3) return pack_e4m3(static_cast<float>(low), static_cast<float>(high));
    else if constexpr (D_FORMAT == FORMAT_E5M2) return pack_e5m2(static_cast<float>(low), static_cast<float>(high));
    else return static_cast<uint32>(converted<D_FORMAT>(low)) | static_cast<uint32>(converted<D_FORMAT>(high)) << 8;
}

// Results that lie side by side in D, rounded to its format, as the 16 bytes that they are there.
template <typename Result> DEVICE Bytes16 packed(const Result (&results)[CHUNK]) {
    Bytes16 bytes;
    #pragma unroll
    for (int word = 0; word < 4; ++word) {
        if constexpr (sizeof(Out) == 4) {
            const Out one = converted<D_FORMAT>(results[word]);
            if constexpr (D_FORMAT == FORMAT_F32) bytes.words[word] = __float_as_uint(one);
            else bytes.words[word] = static_cast<uint32>(one);
        } else if constexpr (sizeof(Out) == 2) {
            bytes.words[word] = pack_out(static_cast<float>(results[2 * word]), static_cast<float>(results[2 * word + 1]));
        } else {
            bytes.words[word] = pack_pair(results[4 * word], results[4 * word + 1]) | pack_pair(results[4 * word + 2], results[4 * word + 3]) << 16;
        }
    }
    return bytes;
}
