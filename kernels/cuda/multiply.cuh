// The sum over K of one tile.
#pragma once
#include "multiply_slot.cuh"
#include "scheduler.cuh"

constexpr bool PROMOTED = false;

// Slot after slot of the ring through the tensor core, one batch of multiplies in flight while the next is issued.
DEVICE void multiply_tile(Accumulator (&accumulators)[STRIPS][TILE_N / 2], uint64 descriptor_a, uint64 descriptor_b, Ring ring, RingPosition &at,
                          const Work &work, const Finish &, uint32, uint32) {
    uint32 previous = 0;
    for (uint32 k_block = 0; k_block < work.count; ++k_block) {
        ring.wait_full(at);
        wgmma_fence();
        multiply_slot(accumulators, descriptor_a + at.slot * (A_SLOT_BYTES >> 4), descriptor_b + at.slot * (B_SLOT_BYTES >> 4),
                      k_block == 0);
        wgmma_commit();
        if (k_block > 0) {
            wgmma_wait<1>();    // the multiplies of the slot before are done: it may be refilled
            ring.release(previous);
        }
        previous = at.slot;
        at.advance();
    }
}
