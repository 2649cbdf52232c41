// The sum over one group's part of K. Its last slot may hold what belongs to the next group: rows of both operands (MN-major, a row for
// each element of K) that are made zero.
#pragma once
#include "multiply_slot.cuh"
#include "scheduler.cuh"

constexpr bool PROMOTED = false;

// Zeros from element `k` of K on, in a slot of `boxes` boxes of TILE_K lines of 128 bytes. All consumers share the work.
DEVICE void clear_from(uint32 slot, uint32 k, uint32 boxes, uint32 box_bytes) {
    const uint32 pieces = (TILE_K - k) * 8;    // of 16 bytes, in each box; a swizzle moves them only within their line
    for (uint32 piece = threadIdx.x - 128; piece < boxes * pieces; piece += CONSUMER_THREADS) {
        const uint32 box = piece / pieces;
        shared_zero_16(slot + box * box_bytes + k * 128 + (piece - box * pieces) * 16);
    }
}

// Slot after slot of the ring through the tensor core, one batch of multiplies in flight while the next is issued.
DEVICE void multiply_tile(Accumulator (&accumulators)[STRIPS][TILE_N / 2], uint64 descriptor_a, uint64 descriptor_b, Ring ring, RingPosition &at,
                          const Work &work, const Finish &, uint32, uint32) {
    uint32 previous = 0;
    if (work.count == 0) {
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int value = 0; value < TILE_N / 2; ++value) accumulators[strip][value] = 0;
        }
    }
    for (uint32 k_block = 0; k_block < work.count; ++k_block) {
        ring.wait_full(at);
        const uint32 left = work.group_end - work.group_begin - k_block * TILE_K;
        if (left < TILE_K) {
            const uint32 start = ring.full - FULL_BARRIERS_OFFSET;
            clear_from(start + A_OFFSET + at.slot * A_SLOT_BYTES, left, A_SLOT_BYTES / A_BOX_BYTES, A_BOX_BYTES);
            clear_from(start + B_OFFSET + at.slot * B_SLOT_BYTES, left, B_SLOT_BYTES / B_BOX_BYTES, B_BOX_BYTES);
            fence_async_proxy();
            named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER);
        }
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
