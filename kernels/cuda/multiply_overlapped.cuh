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

    // The multiplies of a slot have ended: it may be refilled, and its sums are added.
    DEVICE void take(float (&sums)[STRIPS][TILE_N / 2], float (&partial)[STRIPS][TILE_N / 2], uint32 slot) {
        results(partial);
        ring.release(slot);
        const BlockFactors factors(scales);
        --left;
        if (SCALED && left > 0) scales.load(terms);
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
    Blocks blocks{descriptor_a, descriptor_b, ring, at, finish.terms, BlockScales(finish, row, column, work.first_k() / 128), work.count};
    if (SCALED) blocks.scales.load(finish.terms);
    uint32 even_slot = blocks.start(even);
    while (blocks.left > 2) {
        const uint32 odd_slot = blocks.start(odd);
        wgmma_wait<1>();
        blocks.take(sums, even, even_slot);
        even_slot = blocks.start(even);
        wgmma_wait<1>();
        blocks.take(sums, odd, odd_slot);
    }
    if (blocks.left == 2) {
        const uint32 odd_slot = blocks.start(odd);
        wgmma_wait<1>();
        blocks.take(sums, even, even_slot);
        wgmma_wait<0>();
        blocks.take(sums, odd, odd_slot);
    } else {
        wgmma_wait<0>();
        blocks.take(sums, even, even_slot);
    }
}
