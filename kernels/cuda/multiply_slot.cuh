// One slot of the ring through the tensor core.
#pragma once
#include "output.cuh"
#include "pipeline.cuh"

// Multiplies one slot: TILE_K of the sum for a consumer's strips of 64 rows. `first` starts the sum instead of adding to it.
DEVICE void multiply_slot(Accumulator (&accumulators)[STRIPS][TILE_N / 2], uint64 a, uint64 b, bool first) {
    #pragma unroll
    for (int step = 0; step < K_STEPS; ++step) {
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            wgmma(accumulators[strip], a + strip * A_STRIP_ADVANCE + a_step_advance(step), b + b_step_advance(step), !(first && step == 0));
        }
    }
}
