// Epilogue by plain stores: a thread has values that lie side by side in a row of D, and writes 16 bytes at a time where rows are 16-byte aligned.
#pragma once
#include "output.cuh"

struct Epilogue {
    Output output;
    bool aligned;

    DEVICE Epilogue(const Output &output, uint32) : output(output), aligned((output.d_row_stride * 2 + reinterpret_cast<uint64>(output.d)) % 16 == 0 && output.d_row_stride % 8 == 0) {}

    // `values` is this thread's part of piece `piece` of the tile whose first element is D(row, column).
    DEVICE void put(const uint32 (&values)[VALUES], int piece, uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        row += fragment_row(lane, warp);
        if (row >= output.m) return;
        uint16 *const line = output.d + row * output.d_row_stride;
        #pragma unroll
        for (int first = 0; first < VALUES; first += 8) {
            const uint32 left = column + fragment_column(lane, warp, first, piece);
            const Bytes16 eight = rounded(values + first);
            if (aligned && left + 8 <= output.n) {
                store_global_16(line + left, eight);
            } else {
                #pragma unroll
                for (uint32 i = 0; i < 8; ++i) {
                    if (left + i < output.n) line[left + i] = static_cast<uint16>(eight.words[i / 2] >> (16 * (i % 2)));
                }
            }
        }
    }

    DEVICE void finish() {}
};
