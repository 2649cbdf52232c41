// Epilogue for rows that TMA cannot store (N * 2 bytes is no multiple of 16, or D is not 16-byte aligned): plain, predicated stores.
#pragma once
#include "output.cuh"

struct Epilogue {
    bf16 *d;
    uint64 d_row_stride;    // elements
    uint32 m, n;

    DEVICE Epilogue(const Output &output, uint32, uint32, uint32 m, uint32 n) : d(output.d), d_row_stride(output.d_row_stride), m(m), n(n) {}

    // `accumulators` is this thread's part of a 64 x TILE_N block whose first element is D(row, column).
    DEVICE void store(const float (&accumulators)[TILE_N / 2], uint32 row, uint32 column) {
        const uint32 thread = threadIdx.x % 128;
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) {
            const uint32 r = row + accumulator_row(thread, value);
            const uint32 c = column + accumulator_column(thread, value);
            if (r < m && c < n) d[r * d_row_stride + c] = static_cast<bf16>(pack_bf16(accumulators[value], 0.0f));
        }
    }

    DEVICE void finish() {}
};
