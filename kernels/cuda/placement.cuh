// Which number a cluster has among those of the grid: it says which tiles the cluster takes.
//
// PLACED: Numbers follow one another within a GPC. The SMs of a GPC read L2 through a common unit, which asks only once for what several of
// them want at about the same time (unless it is multicast): the more tiles of a row or column are computed in one GPC, the less is read
// and sent across the chip. Which SM a CTA gets is the hardware's choice, and with programmatic dependent launch that of whichever is free
// first. So each cluster claims its number when it starts: `homes` has one for every SM. Where that is taken, say because another kernel
// held an SM for long and two clusters of this grid ran on the same SM in turn, the next free one will do: each number is taken once,
// wherever clusters run.
#pragma once
#include "scheduler.cuh"

DEVICE bool leads_cluster() { return CLUSTER_SIZE == 1 || cluster_rank() == 0; }

// Of each cluster one thread claims the number, in a warp of the producer's warpgroup that has nothing else to do.
DEVICE bool claims_number() { return threadIdx.x == 32 && leads_cluster(); }

// `taken` has a flag for each number, and behind them how many clusters have claimed one: zero before and after a launch.
DEVICE uint32 claim_number(const uint32 *homes, uint32 *taken) {
    const uint32 clusters = gridDim.x / CLUSTER_SIZE;
    uint32 number = homes[sm_number()];
    while (global_exchange(taken + number, 1) != 0) number = number + 1 < clusters ? number + 1 : 0;
    return number;
}

// The number that this CTA's cluster has taken.
//
// CLUSTER_SIZE > 1: CTA 0 holds it, and cannot end while another still has to read it: each other CTA's consumers read it before they
// release the slots, or give away the turn, that CTA 0's ring waits for; and its producer, before it fills them.
DEVICE uint32 number_of_cluster(uint32 shared) {
    return CLUSTER_SIZE > 1 ? shared_load_remote(shared + NUMBER_OFFSET, 0) : shared_load(shared + NUMBER_OFFSET);
}

// Near the end: the next grid's clusters should find their numbers in L2, out of which this grid's operands have driven them.
DEVICE void prefetch_numbers(const uint32 *homes, const uint32 *taken) {
    prefetch_l2(homes + sm_number());
    prefetch_l2(taken + homes[sm_number()]);
}

// Counts this cluster's claim. Whoever counts the last frees all numbers for the next grid, which cannot have begun: this CTA has not
// let it in yet. The fence is between that and the freeing, because the next grid claims numbers before it waits for this one's end: the
// PTX memory model has no word for what orders the two then, and this relies on L2, where all of these accesses are done one by one.
DEVICE void count_claim(uint32 *taken) {
    const uint32 clusters = gridDim.x / CLUSTER_SIZE;
    if (global_count(taken + clusters) + 1 < clusters) return;
    for (uint32 i = 0; i <= clusters; ++i) global_set(taken + i, 0);
    global_fence();
}
