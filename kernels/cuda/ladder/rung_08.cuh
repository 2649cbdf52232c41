// Rung 8: clusters, and one load for two CTAs.
//
// CLUSTER_M CTAs form a cluster and compute tiles above one another, which need the same tile of B. Each loads one slice of it, and the copy engine
// writes that into the shared memory of all of them (multicast): L2 delivers B once for the cluster. A slot may be refilled only when the consumers
// of all CTAs have read it, so a warp now arrives at every CTA's barrier.
#pragma once
#include "ladder/direct_store.cuh"
#include "ladder/instructions.cuh"

// A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits.
DEVICE uint64 at_address(uint64 descriptor, uint32 address) { return descriptor | (address & 0x3ffff) >> 4; }

// full: the copy engine has filled the slot; one arrival, the producer's. empty: every consumer warp of every CTA
// of the cluster has finished reading its own copy: what is loaded here is written there as well.
struct Ring {
    uint32 full;
    uint32 empty;

    DEVICE void initialise() const {
        for (uint32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + slot * 8, 1);
            mbarrier_init(empty + slot * 8, CONSUMER_WARPS * CLUSTER_M);
        }
        mbarrier_init_fence();
    }

    // Phases complete with parity 0, 1, 0, ...: the slot's first phase belongs to turns 0 .. STAGES - 1, and so on.
    DEVICE void wait_full(uint32 turn) const { mbarrier_wait(full + turn % STAGES * 8, turn / STAGES % 2); }
    // A fresh barrier counts the phase "before the first" as complete with parity 1, so at first all slots are free.
    DEVICE void wait_empty(uint32 turn) const { mbarrier_wait(empty + turn % STAGES * 8, turn / STAGES % 2 ^ 1); }
    DEVICE void expect(uint32 slot, uint32 bytes) const { mbarrier_arrive_expect_tx(full + slot * 8, bytes); }
    DEVICE void release(uint32 slot) const {
        const uint32 lane = threadIdx.x % 32;
        if (lane < CLUSTER_M) mbarrier_arrive_remote(empty + slot * 8, lane);
    }
};

struct Tile {
    uint32 row;       // of its first element
    uint32 column;
};

// The tiles of this CTA, one after another: a cluster takes CLUSTER_M of them, one above the other.
struct Scheduler {
    uint32 rows;       // of clusters' tiles
    uint32 columns;
    uint32 next;

    DEVICE Scheduler(uint32 m, uint32 n)
        : rows((m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M)), columns((n + TILE_N - 1) / TILE_N), next(blockIdx.x / CLUSTER_M) {}

    DEVICE bool take(Tile &tile) {
        if (next >= rows * columns) return false;
        const uint32 first_row = next / (GROUP_M * columns) * GROUP_M;
        const uint32 within = next % (GROUP_M * columns);
        const uint32 height = min(rows - first_row, uint32(GROUP_M));    // the last group may be lower
        tile = {((first_row + within % height) * CLUSTER_M + cluster_rank()) * TILE_M, within / height * TILE_N};
        next += gridDim.x / CLUSTER_M;
        return true;
    }
};

DEVICE void produce(const TensorMap *map_a, const TensorMap *map_b, uint32 shared, Ring ring, Scheduler scheduler, uint32 k) {
    const uint32 slice = cluster_rank() * B_SLICE_ROWS;    // this CTA's part of each tile of B
    const uint16 everyone = (1 << CLUSTER_M) - 1;
    uint32 turn = 0;    // counts on from tile to tile: the barriers do not know where a tile ends
    Tile tile;
    while (scheduler.take(tile)) {
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K, ++turn) {
            const uint32 slot = turn % STAGES;
            ring.wait_empty(turn);
            ring.expect(slot, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            load_box(shared + A_OFFSET + slot * A_SLOT_BYTES, map_a, ring.full + slot * 8, k_first, tile.row);
            load_box_multicast(shared + B_OFFSET + slot * B_SLOT_BYTES + slice * B_ROW_BYTES, map_b, ring.full + slot * 8, everyone, k_first, tile.column + slice);
        }
    }
}

DEVICE void consume(const DirectStore &store, uint32 shared, Ring ring, Scheduler scheduler, uint32 consumer, uint32 k) {
    const uint32 first_block = consumer * M_BLOCKS;    // each consumer has its rows of the tile
    uint32 turn = 0;
    Tile tile;
    while (scheduler.take(tile)) {
        float accumulators[M_BLOCKS][TILE_N / 2] = {};
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K, ++turn) {
            const uint32 slot = turn % STAGES;
            ring.wait_full(turn);
            wgmma_fence();
            #pragma unroll
            for (int step = 0; step < TILE_K / 16; ++step) {
                const uint64 b = at_address(B_DESCRIPTOR, shared + B_OFFSET + slot * B_SLOT_BYTES + b_step_bytes(step));
                #pragma unroll
                for (int block = 0; block < M_BLOCKS; ++block) {
                    const uint64 a = at_address(A_DESCRIPTOR, shared + A_OFFSET + slot * A_SLOT_BYTES + (first_block + block) * A_BLOCK_BYTES + a_step_bytes(step));
                    wgmma(accumulators[block], a, b, true);
                }
            }
            wgmma_commit();
            wgmma_wait<0>();
            ring.release(slot);    // the multiplies have read it: it may be refilled
        }
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) store.block(accumulators[block], tile.row + (first_block + block) * 64, tile.column);
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER_M, 1, 1) __launch_bounds__(THREADS, 1)
stridewright_ladder(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b,
                    bf16 *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;    // the swizzle acts on address bits
    const Ring ring = {shared + BARRIERS_OFFSET, shared + BARRIERS_OFFSET + STAGES * 8};
    const Scheduler scheduler(m, n);

    if (threadIdx.x == 0) ring.initialise();
    cluster_sync_relaxed();    // the other CTAs' barriers must be ready before anything arrives at them

    const uint32 warpgroup = warp_uniform(threadIdx.x / 128);
    if (warpgroup == 0) {
        registers_release<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(&tensor_map_a, &tensor_map_b, shared, ring, scheduler, k);
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        consume(DirectStore(d, d_row_stride, m, n), shared, ring, scheduler, warpgroup - 1, k);
    }
    __syncwarp();
    cluster_sync_relaxed();    // a CTA's shared memory must outlive what the others still write to it
}
