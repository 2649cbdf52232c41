// Epilogue by plain stores: a thread has values that lie side by side in a row of D, and writes 16 bytes at a time where rows are 16-byte aligned.
#pragma once
#include "output.cuh"

struct Epilogue {
    Output output;
    bool aligned;    // and a chunk is 16 bytes
    uint64 offset;   // of this matrix of a batch

    DEVICE Epilogue(const Output &output, uint32)
        : output(output), aligned(CHUNK * sizeof(Out) == 16 && (output.d_row_stride * sizeof(Out) + reinterpret_cast<uint64>(output.d)) % 16 == 0 && output.d_row_stride % CHUNK == 0 && output.d_batch_stride % CHUNK == 0), offset(0) {}

    // What is stored next belongs to this matrix of a batch.
    DEVICE void move_to(uint32 batch) { offset = batch * output.d_batch_stride; }

    // `values` is this thread's part of piece `piece` of the tile whose first element is D(row, column).
    DEVICE void put(Finish &finish, const uint32 (&values)[VALUES], int piece, uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        row += fragment_row(lane, warp);
        if (row >= output.m) return;
        Out *const line = output.d + (FORM == FORM_BATCH ? offset : 0) + row * output.d_row_stride;
        #pragma unroll
        for (int first = 0; first < VALUES; first += CHUNK) {
            const uint32 left = column + fragment_column(lane, warp, first, piece);
            Finish::Result results[CHUNK];
            finish.finished(results, values + first, row, left);
            if (aligned && left + CHUNK <= output.n) {
                store_chunk(line + left, results);
            } else {
                #pragma unroll
                for (uint32 i = 0; i < CHUNK; ++i) {
                    if (left + i < output.n) line[left + i] = converted<D_FORMAT>(results[i]);
                }
            }
        }
    }

    DEVICE static void store_chunk(Out *place, const Finish::Result (&results)[CHUNK]) {
        if constexpr (CHUNK * sizeof(Out) == 16) store_global_16(place, packed(results));
    }

    DEVICE void finish() {}
};
