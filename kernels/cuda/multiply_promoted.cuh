// The sum over K of one tile, for formats whose tensor-core sums keep few bits: every PROMOTE_SLOTS slots the partial sums are added to
// float32 sums, times the factors of their blocks of K where there are such.
#pragma once
#include "block_scales.cuh"
#include "multiply_slot.cuh"
#include "scheduler.cuh"

constexpr bool PROMOTED = true;

DEVICE void multiply_tile(float (&sums)[STRIPS][TILE_N / 2], uint64 descriptor_a, uint64 descriptor_b, Ring ring, RingPosition &at,
                          const Work &work, const Finish &finish, uint32 row, uint32 column) {
    float partial[STRIPS][TILE_N / 2];
    BlockScales scales(finish, row, column, work);
    #pragma unroll
    for (int strip = 0; strip < STRIPS; ++strip) {
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) sums[strip][value] = 0.0f;
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
        const BlockFactors factors(scales, finish.terms);
        wgmma_wait<0>();
        results(partial);
        ring.release(previous);
        promote(sums, partial, factors);
    }
}
