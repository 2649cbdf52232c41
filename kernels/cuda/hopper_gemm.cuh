// D[M,N] = A[M,K] B[N,K]^T on Hopper: what the producer and the consumers do, and the CTA that they make up.
#pragma once
#include "copies.cuh"
#include "pipeline.cuh"
#include "placement.cuh"

// Where the ring's slots lie in shared memory.
struct Tiles {
    uint32 a;    // slot 0 of A
    uint32 b;
};

// The producer, one thread: fills slot after slot of the ring, tile after tile, as far ahead as there are free slots.
DEVICE void produce(const TensorMap *map_a, const TensorMap *map_b, Tiles tiles, Ring ring, TileScheduler scheduler) {
    // This CTA's slices: rows of A for its row of the cluster, rows of B for its column.
    const uint32 slice_a = ring.place.column * A_SLICE_ROWS;
    const uint32 slice_b = ring.place.row * B_SLICE_ROWS;
    const uint64 policy_a = HINT_A == HINT_FIRST ? l2_evict_first() : HINT_A == HINT_LAST ? l2_evict_last() : 0;
    const uint64 policy_b = HINT_B == HINT_FIRST ? l2_evict_first() : HINT_B == HINT_LAST ? l2_evict_last() : 0;
    RingPosition at;
    Work work;
    bool more = scheduler.take(work);    // where the tile lies is found out while the kernel before ends
    // Nothing is loaded before that has ended, and so nothing is stored: the consumers wait for slots that are filled after this.
    dependency_wait();
    for (; more; more = scheduler.take(work)) {
        const uint32 k_end = (SPLIT || FORM == FORM_GROUPS_K ? work.first_k() : 0) + work.count * TILE_K;
        for (uint32 k_first = (SPLIT || FORM == FORM_GROUPS_K ? work.first_k() : 0); k_first < k_end; k_first += TILE_K) {
            // A slot always gets all of its bytes: what lies outside the tensors is filled with zeros, which are counted too.
            ring.wait_empty(at);
            const uint32 full = ring.full_barrier(at.slot);
            mbarrier_arrive_expect_tx(full, A_SLOT_BYTES + B_SLOT_BYTES);
            #pragma unroll
            for (int box = 0; box < MOST_BOXES; ++box) {
                if (A_BOXES >= B_BOXES || box < A_BOXES) {
                    const uint32 a = tiles.a + at.slot * A_SLOT_BYTES + box * A_BOX_BYTES + (CLUSTER_N > 1 ? slice_a * A_ROW_BYTES : 0);
                    const int row_a = work.first_row() + (CLUSTER_N > 1 ? slice_a : 0) + (A_MN ? box * 64 : 0);
                    const int k_a = k_first + (A_MN ? 0 : box * BOX_K);
                    load_a(a, map_a, full, ring.place, policy_a, A_MN ? row_a : k_a, A_MN ? k_a : row_a, work.batch);
                }
                if (B_BOXES >= A_BOXES || box < B_BOXES) {
                    const uint32 b = tiles.b + at.slot * B_SLOT_BYTES + box * B_BOX_BYTES + (CLUSTER_M > 1 ? slice_b * B_ROW_BYTES : 0);
                    const int row_b = work.first_column() + (CLUSTER_M > 1 ? slice_b : 0) + (B_MN ? box * 64 : 0);
                    const int k_b = k_first + (B_MN ? 0 : box * BOX_K);
                    load_b(b, map_b, full, ring.place, policy_b, B_MN ? row_b : k_b, B_MN ? k_b : row_b, work.batch);
                }
            }
            at.advance();
        }
    }
    if (CLUSTER_SIZE > 1) ring.drain(at);
}

// A consumer, one warpgroup: multiplies straight from the slots, and stores what comes out.
//
// !PINGPONG && CONSUMERS > 1: the consumers share every tile.
//
// PINGPONG: consumers take turns at whole tiles: one multiplies while the other stores.
DEVICE void consume(Epilogue epilogue, Finish &finishing, PartialSums partial_sums, Tiles tiles, Ring ring, TileScheduler scheduler,
                    uint32 consumer) {
    // Each consumer has its rows of the tile, these after the others'.
    const uint32 rows_before = consumer * STRIPS * 64;
    // A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits, so advancing an operand is an addition.
    const uint64 descriptor_a = A_DESCRIPTOR + (((tiles.a + (PINGPONG ? 0 : rows_before * A_ROW_BYTES)) & 0x3ffff) >> 4);
    const uint64 descriptor_b = B_DESCRIPTOR + ((tiles.b & 0x3ffff) >> 4);
    const uint32 tile_k_blocks = scheduler.k_blocks;

    RingPosition at;
    // The first turn is consumer 0's.
    if (PINGPONG && consumer == 1) {
        named_barrier_arrive<CONSUMER_THREADS>(TURN_BARRIERS);
        scheduler.pass();
        at.skip(tile_k_blocks);
    }
    Work work;
    while (scheduler.take(work)) {
        // Not set: the first multiply of a tile starts its sums.
        Accumulator accumulators[STRIPS][TILE_N / 2];
        // Turns keep the consumers' reads of the ring in the producer's order; without them a parity could be taken for one that is two
        // phases off.
        if (PINGPONG) named_barrier_sync<CONSUMER_THREADS>(TURN_BARRIERS + consumer);
        if (TERMS) finishing.move_to(work.batch, FORM == FORM_GROUPS_M ? work.group_end : finishing.m);
        if (BIAS == BIAS_N && !SWAPPED) finishing.prefetch(work.first_column());
        multiply_tile(accumulators, descriptor_a, descriptor_b, ring, at, work, finishing, work.first_row() + (PINGPONG ? 0 : rows_before),
                      work.first_column());
        const uint32 last = (at.slot + STAGES - 1) % STAGES;    // the slot before: the only one that is not released yet
        // The next tile is the other's. Its turn may come while the last multiplies of this one still run: all of this tile's slots have
        // been waited for, the last one is released only below, and each consumer has accumulators of its own.
        if (PINGPONG) {
            if (scheduler.any_left()) named_barrier_arrive<CONSUMER_THREADS>(TURN_BARRIERS + 1 - consumer);
            scheduler.pass();
            at.skip(tile_k_blocks);
        }
        wgmma_wait<0>();
        if (FORM == FORM_GROUPS_K) {
            if (work.count > 0) ring.release(last);    // an empty group used no slot
        } else if (!PROMOTED) {
            ring.release(last);
        }
        if (!PROMOTED) results(accumulators);

        // A part of the tile: others have the rest.
        if (SPLIT && work.count < tile_k_blocks) {
            partial_sums.write(accumulators, work);
            continue;
        }
        if (FORM != FORM_ONE) epilogue.move_to(work.batch, FORM == FORM_GROUPS_M ? work.group_end : finishing.m);
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            const uint32 row = work.first_row() + (PINGPONG ? 0 : rows_before) + strip * 64;
            if (TERMS) {
                finishing.store(epilogue, accumulators[strip], row, work.first_column());
            } else {
                epilogue.store(accumulators[strip], row, work.first_column());
            }
        }
    }
    if (SPLIT) partial_sums.finish();
    epilogue.finish();
    if (TERMS) finishing.end();
}

// One CTA. The copy engine reads a tensor map from parameters of the kernel, as here, or from constant or global memory: from no copy on a
// thread's stack.
DEVICE void gemm(const TensorMap &tensor_map_a, const TensorMap &tensor_map_b, Output output, uint32 m, uint32 n, uint32 k, const uint32 *order,
                 void *partials, uint32 *counters, uint32 shared_blocks, const Terms &terms) {
    extern __shared__ uint8 dynamic_shared[];
    // The swizzle acts on address bits, so the map of shared memory starts at a multiple of 1024 bytes.
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const Tiles tiles = {shared + A_OFFSET, shared + B_OFFSET};
    const Ring ring(shared);
    const uint32 warpgroup = warp_uniform(threadIdx.x / 128);
    // The groups' sizes may come from the kernel before.
    if (FORM == FORM_GROUPS_M || FORM == FORM_GROUPS_K) dependency_wait();
    TileScheduler scheduler(ring.place, m, n, k, shared_blocks, order, batches(terms), offsets(terms));

    if (PLACED && claims_number()) shared_store(shared + NUMBER_OFFSET, claim_number(ORDER == ORDER_TABLE ? order + scheduler.blocks : order, counters));
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&tensor_map_a);
        tensor_map_prefetch(&tensor_map_b);
        ring.initialise();
    }
    if (CLUSTER_SIZE > 1 && PLACED) {
        cluster_sync_ordered();    // the peers' barriers must be ready before anything arrives at them, and the number before it is read
    } else if (CLUSTER_SIZE > 1) {
        cluster_sync_relaxed();    // the peers' barriers must be ready before anything arrives at them
    } else {
        // Nobody may come to a barrier that is not initialised.
        __syncthreads();
    }

    // So early, because it costs nothing: the next grid gets an SM when a CTA of this one leaves it, and waits for all of this one before
    // it loads.
    //
    // PLACED: The next grid waits for a call in every CTA, so that the CTAs which took a number can hold it back until all numbers are
    // free again; the others need not.
    if (!PLACED || !leads_cluster()) dependency_allow();

    if (warpgroup == 0) {
        registers_release<PRODUCER_REGISTERS>();
        if (warp_uniform(threadIdx.x / 32) == 0 && elect_one()) {
            if (PLACED) scheduler.next = number_of_cluster(shared);
            produce(&tensor_map_a, &tensor_map_b, tiles, ring, scheduler);
            if (PLACED && leads_cluster()) prefetch_numbers(ORDER == ORDER_TABLE ? order + scheduler.blocks : order, counters);
        }
        if (PLACED && claims_number()) {
            count_claim(counters);
            dependency_allow();
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const uint32 consumer = warpgroup - 1;
        if (PLACED) scheduler.next = warp_uniform(number_of_cluster(shared));
        Finish finishing(terms, m, n);
        const Epilogue epilogue(output, shared, consumer, m, n);
        const PartialSums partial_sums(static_cast<Four *>(partials), counters, scheduler, output, finishing, consumer, m, n);
        consume(epilogue, finishing, partial_sums, tiles, ring, scheduler, consumer);
    }
}
