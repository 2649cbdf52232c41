// A warpgroup's sums from registers straight to D: the way of all rungs before the tenth.
#pragma once
#include "ladder/pair_store.cuh"

// Transposes 4 x 4 words within each four neighbouring lanes: word i of lane j becomes word j of lane i.
DEVICE void exchange_in_fours(uint32 (&words)[4]) {
    #pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        const bool upper = threadIdx.x & distance;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & distance) continue;
            const uint32 received = __shfl_xor_sync(0xffffffff, upper ? words[i] : words[i + distance], distance);
            (upper ? words[i] : words[i + distance]) = received;
        }
    }
}

struct DirectStore {
    PairStore store;
    bool in_chunks;    // whether eight neighbours of a row are always one aligned chunk of 16 bytes inside D

    DEVICE DirectStore(bf16 *d, uint64 row_stride, uint32 m, uint32 n)
        : store(d, row_stride, m, n), in_chunks(n % 8 == 0 && row_stride % 8 == 0 && reinterpret_cast<uint64>(d) % 16 == 0) {}

    // A block of 64 x TILE_N accumulators, each thread its own; the block's first element is D(row, column).
    DEVICE void block(const float (&accumulators)[TILE_N / 2], uint32 row, uint32 column) const {
        const uint32 thread = threadIdx.x % 128;
        if (!in_chunks) {
            #pragma unroll
            for (int value = 0; value < TILE_N / 2; value += 2) {
                store.pair(row + accumulator_row(thread, value), column + accumulator_column(thread, value), accumulators[value], accumulators[value + 1]);
            }
            return;
        }
        // Four neighbouring lanes hold two columns each of a row's every eight. They exchange, so that each has all eight of one block out of four
        // and writes 16 bytes at once: memory is written in whole sectors.
        #pragma unroll
        for (int first = 0; first < TILE_N / 2; first += 16) {
            const uint32 chunk_column = column + accumulator_column(0, first + 4 * (thread % 4));
            #pragma unroll
            for (int half = 0; half < 4; half += 2) {    // the second half lies 8 rows below
                uint32 words[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) words[i] = pack_bf16(accumulators[first + 4 * i + half], accumulators[first + 4 * i + half + 1]);
                exchange_in_fours(words);
                const uint32 chunk_row = row + accumulator_row(thread, half);
                if (chunk_row < store.m && chunk_column < store.n) {
                    *reinterpret_cast<uint4 *>(store.d + chunk_row * store.row_stride + chunk_column) = make_uint4(words[0], words[1], words[2], words[3]);
                }
            }
        }
    }

    DEVICE void finish() const {}    // plain stores need no waiting for
};
