// Epilogue for what TMA cannot store (a row's bytes are no multiple of 16, D is not 16-byte aligned) or stmatrix cannot stage (elements
// that have not 16 bits): plain, predicated stores.
#pragma once
#include "output.cuh"

struct Epilogue {
    Out *d;
    uint64 d_row_stride;    // elements
    uint64 several_stride;
    uint64 offset;          // of this batch
    uint32 m, n;

    DEVICE Epilogue(const Output &output, uint32, uint32, uint32 m, uint32 n)
        : d(output.d), d_row_stride(output.d_row_stride), several_stride(output.batch_stride), offset(0), m(m), n(n) {}

    // What is stored next belongs to this batch, and its rows end there.
    DEVICE void move_to(uint32 batch, uint32 row_end) {
        if (SEVERAL_D) offset = batch * several_stride;
        m = row_end;
    }

    // `accumulators` is this thread's part of a strip of 64 x TILE_N sums whose first is D(row, column).
    template <typename Sums> DEVICE void store(const Sums &accumulators, uint32 row, uint32 column) {
        // The map from (thread, value) to (row, column) is linear, so the thread's part and the value's, a constant, are taken apart:
        // one pointer serves all stores.
        const uint32 thread = threadIdx.x % 128;
        const uint32 first_row = row + accumulator_row(thread, 0);
        const uint32 first_column = column + accumulator_column(thread, 0);
        const uint64 row_stride = SWAPPED ? 1 : d_row_stride;    // with operands swapped, the accumulators' columns are D's rows
        const uint64 column_stride = SWAPPED ? d_row_stride : 1;
        Out *const first = d + (SEVERAL_D ? offset : 0) + first_row * row_stride + first_column * column_stride;
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) {
            const uint32 down = accumulator_row(0, value);
            const uint32 right = accumulator_column(0, value);
            if (first_row + down < m && first_column + right < n) {
                first[down * row_stride + right * column_stride] = converted<D_FORMAT>(accumulators[value]);
            }
        }
    }

    DEVICE void finish() {}
};
