// Which number a cluster has among those of the grid: it says which tiles the cluster takes.
//
// PLACED: Numbers follow one another within a GPC. The SMs of a GPC read L2 through a common unit, which asks only once for what several of
// them want at about the same time (unless it is multicast): the more tiles of a row or column are computed in one GPC, the less is read
// and sent across the chip. Which SM a CTA gets is the hardware's choice, and with programmatic dependent launch that of whichever is free
// first, so each cluster takes its number when it starts: `homes` has one for every SM. Where that is taken, because another kernel held
// an SM for long and two clusters ran on one SM in turn, the next free one will do: each number is taken once, wherever clusters run.
#pragma once
#include "scheduler.cuh"

// `taken` has a counter for each number, and one more behind them for how many are taken: zero before and after a launch.
DEVICE bool leads_cluster() { return CLUSTER_SIZE == 1 || cluster_rank() == 0; }

// Of each cluster one thread takes the number, in a warp of the producer's warpgroup that has nothing else to do.
DEVICE bool takes_number() { return threadIdx.x == 32 && leads_cluster(); }

DEVICE uint32 take_number(const uint32 *homes, uint32 *taken) {
    const uint32 clusters = gridDim.x / CLUSTER_SIZE;
    uint32 number = homes[sm_number()];
    while (global_exchange(taken + number, 1) != 0) number = number + 1 < clusters ? number + 1 : 0;
    return number;
}

// The number that this CTA's cluster has taken.
//
// CLUSTER_SIZE > 1: CTA 0 holds it, and cannot end while another still has to read it: each releases slots of CTA 0's ring afterwards.
DEVICE uint32 taken_number(uint32 shared) {
    return CLUSTER_SIZE > 1 ? shared_load_remote(shared + NUMBER_OFFSET, 0) : shared_load(shared + NUMBER_OFFSET);
}

// Near the end: the next grid's clusters should find their numbers in L2, out of which this grid's operands have driven them.
DEVICE void prefetch_numbers(const uint32 *homes, const uint32 *taken) {
    prefetch_l2(homes + sm_number());
    prefetch_l2(taken + homes[sm_number()]);
}

// Whoever is the last to have taken a number frees them all for the next grid, which cannot have begun: see dependency_allow.
DEVICE void count_number(uint32 *taken) {
    const uint32 clusters = gridDim.x / CLUSTER_SIZE;
    if (global_count(taken + clusters) + 1 < clusters) return;
    for (uint32 i = 0; i <= clusters; ++i) global_set(taken + i, 0);
    global_fence();
}
