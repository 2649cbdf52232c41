// Epilogue of gated pairs, by plain stores: neighbouring columns 2 j and 2 j + 1 of the product make column j of D.
#pragma once
#include "output.cuh"

struct Epilogue {
    Output output;
    uint64 offset;    // of this matrix of a batch

    DEVICE Epilogue(const Output &output, uint32) : output(output), offset(0) {}

    // What is stored next belongs to this matrix of a batch.
    DEVICE void move_to(uint32 batch) { offset = batch * output.d_batch_stride; }

    // `values` is this thread's part of piece `piece` of the tile whose first element is (row, column) of the product.
    DEVICE void put(Finish &finish, const uint32 (&values)[VALUES], int piece, uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        row += fragment_row(lane, warp);
        if (row >= output.m) return;
        Out *const line = output.d + (FORM == FORM_BATCH ? offset : 0) + row * output.d_row_stride;
        #pragma unroll
        for (int first = 0; first < VALUES; first += 2) {
            const uint32 left = column + fragment_column(lane, warp, first, piece);
            const bool inside = left < output.n;
            const float gate = finish.one(sum_of(values[first]), row, left);
            const float other = finish.one(sum_of(values[first + 1]), row, left + 1);
            const float value = finish.gated(gate, other, inside);
            if (inside) line[left / 2] = converted<D_FORMAT>(value);
        }
    }

    DEVICE void finish() {}
};
