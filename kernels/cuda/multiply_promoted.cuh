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
    const float *next_a[M_BLOCKS][2], *next_b;

    // `row` and `column` are the tile's first, `k_block` its first block of K.
    DEVICE BlockScales(const Finish &finish, uint32 row, uint32 column, uint32 k_block) : b(0.0f) {
        const Terms &terms = finish.terms;
        next_b = terms.scale_b + finish.batch * terms.scale_b_batch_stride + min(column, finish.n - 1) / 128 * terms.scale_b_stride + k_block * terms.scale_b_k_stride;
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32 at = min(row + block * 64 + accumulator_row(threadIdx.x % 128, 2 * half), finish.m - 1);
                next_a[block][half] = terms.scale_a + finish.batch * terms.scale_a_batch_stride + at * terms.scale_a_stride + k_block * terms.scale_a_k_stride;
                a[block][half] = 0.0f;
            }
        }
    }

    // Those of the next block of K.
    DEVICE void load(const Terms &terms) {
        b = *next_b;
        next_b += terms.scale_b_k_stride;
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                a[block][half] = *next_a[block][half];
                next_a[block][half] += terms.scale_a_k_stride;
            }
        }
    }
};

// Their product for every 64 rows of a thread's sums: values 2 and 3 of four lie eight rows below values 0 and 1.
struct BlockFactors {
    float of[M_BLOCKS][2];

    DEVICE explicit BlockFactors(const BlockScales &scales) {
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) of[block][half] = scales.a[block][half] * scales.b;
        }
    }
};

DEVICE void multiply_tile(float (&sums)[M_BLOCKS][TILE_N / 2], uint64 descriptor_a, uint64 descriptor_b, Ring ring, RingPosition &at, const Work &work, const Finish &finish, uint32 row,
                          uint32 column) {
    constexpr bool SCALED = SCALES_A == SCALES_BLOCK;
    float partial[M_BLOCKS][TILE_N / 2];
    BlockScales scales(finish, row, column, work.first * TILE_K / 128);
    if (SCALED && work.count != 0) scales.load(finish.terms);
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
        const BlockFactors factors(scales);
        if (SCALED && k_block < work.count) scales.load(finish.terms);
        wgmma_wait<0>();
        ring.release(previous);
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            #pragma unroll
            for (int value = 0; value < TILE_N / 2; ++value) {
                sums[block][value] += SCALED ? partial[block][value] * factors.of[block][value / 2 % 2] : partial[block][value];
            }
        }
    }
}
