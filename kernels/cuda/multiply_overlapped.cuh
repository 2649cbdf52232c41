// As multiply_promoted.cuh, with two sets of partial sums: while those of one slot are added to the float32 sums, the next slot goes
// through the tensor core into the other set.
#pragma once
#include "block_scales.cuh"
#include "multiply_slot.cuh"
#include "scheduler.cuh"

constexpr bool PROMOTED = true;

// One consumer's way through the slots of a tile, each of which is a block of K.
struct Blocks {
    uint64 descriptor_a, descriptor_b;
    Ring ring;
    RingPosition &at;
    const Terms &terms;
    BlockScales scales;
    uint32 left;    // blocks whose sums are still to be added

    // Starts the multiplies of the next slot; returns which it was.
    DEVICE uint32 start(float (&partial)[STRIPS][TILE_N / 2]) {
        const uint32 slot = at.slot;
        ring.wait_full(at);
        wgmma_fence();
        multiply_slot(partial, descriptor_a + slot * (A_SLOT_BYTES >> 4), descriptor_b + slot * (B_SLOT_BYTES >> 4), true);
        wgmma_commit();
        at.advance();
        return slot;
    }

    // Waits for all multiplies but the `Later` last: the slot before may be refilled then, and its sums are added.
    template <int Later> DEVICE void take(float (&sums)[STRIPS][TILE_N / 2], float (&partial)[STRIPS][TILE_N / 2], uint32 slot) {
        const BlockFactors factors(scales, terms);
        wgmma_wait<Later>();
        results(partial);
        ring.release(slot);
        --left;
        promote(sums, partial, factors);
    }
};

DEVICE void multiply_tile(float (&sums)[STRIPS][TILE_N / 2], uint64 descriptor_a, uint64 descriptor_b, Ring ring, RingPosition &at,
                          const Work &work, const Finish &finish, uint32 row, uint32 column) {
    #pragma unroll
    for (int strip = 0; strip < STRIPS; ++strip) {
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) sums[strip][value] = 0.0f;
    }
    if (work.count == 0) return;
    float even[STRIPS][TILE_N / 2], odd[STRIPS][TILE_N / 2];
    Blocks blocks{descriptor_a, descriptor_b, ring, at, finish.terms, BlockScales(finish, row, column, work), work.count};
    uint32 even_slot = blocks.start(even);
    while (blocks.left > 2) {
        const uint32 odd_slot = blocks.start(odd);
        blocks.take<1>(sums, even, even_slot);
        even_slot = blocks.start(even);
        blocks.take<1>(sums, odd, odd_slot);
    }
    if (blocks.left == 2) {
        const uint32 odd_slot = blocks.start(odd);
        blocks.take<1>(sums, even, even_slot);
        blocks.take<0>(sums, odd, odd_slot);
    } else {
        blocks.take<0>(sums, even, even_slot);
    }
}
