// Epilogue of gated pairs: of every two neighbouring columns of the sums one column of D, by plain, predicated stores.
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

    // `values` is this thread's part of a strip of 64 x TILE_N sums whose first is at (row, column); the even ones are stored.
    template <typename Sums> DEVICE void store(const Sums &values, uint32 row, uint32 column) {
        const uint32 first_row = row + accumulator_row(threadIdx.x % 128, 0);
        const uint32 first_column = column + accumulator_column(threadIdx.x % 128, 0);
        Out *const first = d + (SEVERAL_D ? offset : 0) + first_row * d_row_stride + first_column / 2;
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; value += 2) {
            const uint32 down = accumulator_row(0, value);
            const uint32 right = accumulator_column(0, value);
            if (first_row + down < m && first_column + right < n) first[down * d_row_stride + right / 2] = converted<D_FORMAT>(values[value]);
        }
    }

    DEVICE void finish() {}
};
