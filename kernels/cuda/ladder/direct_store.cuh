// A warpgroup's sums from registers straight to D: the way of all rungs before the tenth.
#pragma once
#include "ladder/pair_store.cuh"

struct DirectStore {
    PairStore store;

    DEVICE DirectStore(bf16 *d, uint64 row_stride, uint32 m, uint32 n) : store(d, row_stride, m, n) {}

    // A block of 64 x TILE_N accumulators, each thread its own; the block's first element is D(row, column).
    DEVICE void block(const float (&accumulators)[TILE_N / 2], uint32 row, uint32 column) const {
        const uint32 thread = threadIdx.x % 128;
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; value += 2) {
            store.pair(row + accumulator_row(thread, value), column + accumulator_column(thread, value), accumulators[value], accumulators[value + 1]);
        }
    }

    DEVICE void finish() const {}    // plain stores need no waiting for
};
