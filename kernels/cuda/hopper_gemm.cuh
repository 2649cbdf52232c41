// D[M,N] = A[M,K] B[N,K]^T on Hopper.
//
// One CTA has 1 + CONSUMERS warpgroups. Warpgroup 0 is the producer: one thread of it asks the copy engine for the tiles of A and
// B, slot after slot around a ring of STAGES slots. The others are consumers, which multiply straight from shared memory and store the
// result: cooperative ones TILE_M / CONSUMERS rows of each tile, ping-pong ones every second tile. Two barriers a slot say "filled" and "free again".
//
// The constants in capitals and the functions a_step_advance, b_step_advance, staging_offset, accumulator_row and accumulator_column come from the layouts of this
// configuration: they stand above, each under a comment that names its layout.
#pragma once
#include "pipeline.cuh"

struct Tiles {
    uint32 a;    // shared address of slot 0 of A
    uint32 b;
};

DEVICE void produce(const TensorMap *map_a, const TensorMap *map_b, Tiles tiles, Ring ring, TileScheduler scheduler) {
    // This CTA's slices: rows of A for its row of the cluster, rows of B for its column.
    const uint32 slice_a = ring.place.column * A_SLICE_ROWS;
    const uint32 slice_b = ring.place.row * B_SLICE_ROWS;
    const uint64 policy_a = l2_policy<HINT_A>();
    const uint64 policy_b = l2_policy<HINT_B>();
    RingPosition at;
    Work work;
    bool more = scheduler.take(work);    // its divisions are done while the kernel before ends
    // Nothing is loaded before that has ended, and nothing is stored before something was loaded.
    dependency_wait();
    for (; more; more = scheduler.take(work)) {
        const uint32 k_end = work.first_k() + work.count * TILE_K;
        for (uint32 k_first = work.first_k(); k_first < k_end; k_first += TILE_K) {
            ring.wait_empty(at);
            const uint32 full = ring.full_barrier(at.slot);
            mbarrier_arrive_expect_tx(full, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            #pragma unroll
            for (int box = 0; box < (A_BOXES > B_BOXES ? A_BOXES : B_BOXES); ++box) {
                // K-major, boxes follow one another along K; MN-major, along the rows.
                if (box < A_BOXES) {
                    const uint32 a = tiles.a + at.slot * A_SLOT_BYTES + box * A_PANEL_BYTES + slice_a * A_ROW_BYTES;
                    const int row = work.first_row() + (CLUSTER_N > 1 ? slice_a : 0) + (A_MN ? box * 64 : 0);
                    load_box<A_MN, FORM == FORM_BATCH, (CLUSTER_N > 1), HINT_A>(a, map_a, full, ring.place.row_mask(), policy_a, k_first + (A_MN ? 0 : box * PANEL_K), row, work.batch);
                }
                if (box < B_BOXES) {
                    const uint32 b = tiles.b + at.slot * B_SLOT_BYTES + box * B_PANEL_BYTES + slice_b * B_ROW_BYTES;
                    const int row = work.column * TILE_N + (CLUSTER_M > 1 ? slice_b : 0) + (B_MN ? box * 64 : 0);
                    load_box<B_MN, FORM == FORM_BATCH || FORM == FORM_GROUPS_M, (CLUSTER_M > 1), HINT_B>(b, map_b, full, ring.place.column_mask(), policy_b, k_first + (B_MN ? 0 : box * PANEL_K), row, work.batch);
                }
            }
            at.advance();
        }
    }
    if (CLUSTER_SIZE > 1) ring.drain(at);
}

DEVICE void consume(Epilogue epilogue, Finish &finish, PartialSums partial_sums, Tiles tiles, Ring ring, TileScheduler scheduler, uint32 consumer) {
    // Cooperative consumers share a tile, each its rows; ping-pong consumers take turns at whole tiles: one multiplies while the other stores.
    const uint32 first_row = PINGPONG ? 0 : consumer * M_BLOCKS * 64;
    // A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits, so advancing an operand is an addition.
    // (In a cluster, the bits above say which CTA's shared memory is meant.)
    const uint64 descriptor_a = A_DESCRIPTOR + (((tiles.a + first_row * A_ROW_BYTES) & 0x3ffff) >> 4);
    const uint64 descriptor_b = B_DESCRIPTOR + ((tiles.b & 0x3ffff) >> 4);
    const uint32 k_blocks = scheduler.shares.k_blocks;

    RingPosition at;
    if (PINGPONG && consumer == 1) {
        named_barrier_arrive<256>(TURN_BARRIERS);    // the first turn is consumer 0's
        scheduler.skip();
        at.skip(k_blocks);
    }
    Work work;
    while (scheduler.take(work)) {
        Accumulator accumulators[M_BLOCKS][TILE_N / 2];
        // Turns keep the consumers' reads of the ring in the producer's order; without them a parity could be taken for one that is two phases off.
        if (PINGPONG) named_barrier_sync<256>(TURN_BARRIERS + consumer);
        finish.move_to(work.batch, FORM == FORM_GROUPS_M ? work.end : finish.m);
        finish.prefetch(work.column * TILE_N);
        multiply_tile(accumulators, descriptor_a, descriptor_b, ring, at, work, finish, work.first_row() + first_row, work.column * TILE_N);
        const uint32 last = (at.slot + STAGES - 1) % STAGES;
        if (PINGPONG) {
            if (scheduler.any_left()) named_barrier_arrive<256>(TURN_BARRIERS + 1 - consumer);
            scheduler.skip();    // the next tile is the other's
            at.skip(k_blocks);
        }
        wgmma_wait<0>();
        if (!PROMOTED && (FORM != FORM_GROUPS_K || work.count > 0)) ring.release(last);    // an empty group used no slot

        if (SPLIT && work.count < k_blocks) {
            partial_sums.write(accumulators, work);
            continue;
        }
        if (FORM != FORM_ONE) epilogue.move_to(work.batch, FORM == FORM_GROUPS_M ? work.end : finish.m);
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            finish.store(epilogue, accumulators[block], work.first_row() + first_row + block * 64, work.column * TILE_N);
        }
    }
    if (SPLIT) partial_sums.finish();
    epilogue.finish();
    finish.end();
}

// One CTA. The tensor maps are the kernel's parameters: the copy engine wants to find them there.
DEVICE void gemm(const TensorMap &tensor_map_a, const TensorMap &tensor_map_b, Output output, uint32 m_given, uint32 n_given, uint32 k_given, const uint32 *order, Four *partials,
                 uint32 *counters, uint32 shared_blocks, const Terms &terms) {
    extern __shared__ uint8 dynamic_shared[];
    // The swizzle acts on address bits, so tiles start at multiples of 1024 bytes. The launch asks for 1023 bytes more than the map below.
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const Tiles tiles = {shared + A_OFFSET, shared + B_OFFSET};
    const Ring ring = {shared + FULL_BARRIERS_OFFSET, shared + EMPTY_BARRIERS_OFFSET, ClusterPlace()};
    const uint32 warpgroup = warp_uniform(threadIdx.x / 128);
    const uint32 m = FIXED_M ? FIXED_M : m_given;    // a size baked in is not 0
    const uint32 n = FIXED_N ? FIXED_N : n_given;
    const uint32 k = FIXED_K ? FIXED_K : k_given;
    if (FORM == FORM_GROUPS_M || FORM == FORM_GROUPS_K) dependency_wait();    // the groups' sizes may come from the kernel before
    const TileScheduler scheduler(ring.place, m, n, k, shared_blocks, order, batches(terms), offsets(terms));

    if (threadIdx.x == 0) {
        tensor_map_prefetch(&tensor_map_a);
        tensor_map_prefetch(&tensor_map_b);
        ring.initialise();
    }
    if (CLUSTER_SIZE > 1) {
        cluster_sync_relaxed();    // the peers' barriers must be ready before anything arrives at them
    } else {
        __syncthreads();
    }

    dependency_allow();

    if (warpgroup == 0) {
        registers_release<PRODUCER_REGISTERS>();
        if (warp_uniform(threadIdx.x / 32) == 0 && elect_one()) {
            produce(&tensor_map_a, &tensor_map_b, tiles, ring, scheduler);
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const uint32 consumer = warpgroup - 1;
        Finish finish(terms, m, n);
        const PartialSums partial_sums(partials, counters, scheduler, output, finish, consumer, m, n);
        consume(Epilogue(output, shared, consumer, m, n), finish, partial_sums, tiles, ring, scheduler, consumer);
    }
}
