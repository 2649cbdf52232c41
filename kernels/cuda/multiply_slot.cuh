// One slot of the ring through the tensor core.
#pragma once
#include "output.cuh"
#include "pipeline.cuh"

// After the wait for the multiplies that made them: the sums may be read.
DEVICE void results(Accumulator (&accumulators)[STRIPS][TILE_N / 2]) {
    #pragma unroll
    for (int strip = 0; strip < STRIPS; ++strip) {
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) wgmma_result(accumulators[strip][value]);
    }
}

// Multiplies one slot: TILE_K of the sum for a consumer's strips of 64 rows. `first` starts the sum instead of adding to it:
// the tensor core does not look at what the accumulators held.
DEVICE void multiply_slot(Accumulator (&accumulators)[STRIPS][TILE_N / 2], uint64 a, uint64 b, bool first) {
    #pragma unroll
    for (int step = 0; step < K_STEPS; ++step) {
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            wgmma(accumulators[strip], a + strip * A_STRIP_ADVANCE + a_step_advance(step), b + b_step_advance(step), !(first && step == 0));
        }
    }
}
