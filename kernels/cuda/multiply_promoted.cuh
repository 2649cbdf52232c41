// The sum over K of one tile, for formats whose tensor-core sums keep few bits: every PROMOTE_SLOTS slots the partial sums are added to float32 sums, times the factors
// of their blocks of K where there are such.
#pragma once
#include "finish.cuh"
#include "multiply_slot.cuh"
#include "scheduler.cuh"

constexpr bool PROMOTED = true;

// Scales of blocks of 128 elements of K: A has one a row, B one for each 128 of its rows; a tile lies within one of those.
// They are loaded a block ahead, so that nothing waits for them: used only once the multiplies of their own block have ended.
struct BlockScales {
    float a[M_BLOCKS][2], b;

    DEVICE void load(const Finish &finish, uint32 row, uint32 column, uint32 k_block) {
        const Terms &terms = finish.terms;
        b = terms.scale_b[finish.batch * terms.scale_b_batch_stride + column / 128 * terms.scale_b_stride + k_block * terms.scale_b_k_stride];
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32 at = row + block * 64 + accumulator_row(threadIdx.x % 128, 2 * half);
                a[block][half] = terms.scale_a[finish.batch * terms.scale_a_batch_stride + min(at, finish.m - 1) * terms.scale_a_stride + k_block * terms.scale_a_k_stride];
            }
        }
    }
};

DEVICE void multiply_tile(float (&sums)[M_BLOCKS][TILE_N / 2], uint64 descriptor_a, uint64 descriptor_b, Ring ring, RingPosition &at, const Work &work, const Finish &finish, uint32 row,
                          uint32 column) {
    constexpr bool SCALED = SCALES_A == SCALES_BLOCK;
    float partial[M_BLOCKS][TILE_N / 2];
    BlockScales scales, next;
    if (SCALED && work.count != 0) next.load(finish, row, min(column, finish.n - 1), work.first * TILE_K / 128);
    #pragma unroll
    for (int block = 0; block < M_BLOCKS; ++block) {
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) sums[block][value] = 0.0f;
    }
    for (uint32 k_block = 0; k_block < work.count;) {
        // A part of a split K may begin within a block of scales, and its first sum ends with that block.
        const uint32 before = SPLIT && SCALED ? (work.first + k_block) % PROMOTE_SLOTS : 0;
        const uint32 slots = min(uint32(PROMOTE_SLOTS) - before, work.count - k_block);
        uint32 previous = 0;
        for (uint32 slot = 0; slot < slots; ++slot) {
            ring.wait_full(at);
            wgmma_fence();
            multiply_slot(partial, descriptor_a + at.slot * (A_SLOT_BYTES >> 4), descriptor_b + at.slot * (B_SLOT_BYTES >> 4), slot == 0);
            wgmma_commit();
            if (slot > 0) {
                wgmma_wait<1>();
                ring.release(previous);
            }
            previous = at.slot;
            at.advance();
        }
        k_block += slots;
        if (SCALED) {
            scales = next;
            if (k_block < work.count) next.load(finish, row, min(column, finish.n - 1), (work.first + k_block) * TILE_K / 128);
        }
        wgmma_wait<0>();
        ring.release(previous);
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            #pragma unroll
            for (int value = 0; value < TILE_N / 2; ++value) {
                // Values 2 and 3 of four lie eight rows below values 0 and 1.
                sums[block][value] += SCALED ? partial[block][value] * (scales.a[block][value / 2 % 2] * scales.b) : partial[block][value];
            }
        }
    }
}
