// Rung 9: fewer instructions between the multiplies.
//
// Descriptors are made once and advanced by additions; slot and parity are counted along instead of divided for; and a tile's first multiply
// overwrites the sums, so that they need not be set to zero.
#pragma once
#include "ladder/direct_store.cuh"
#include "ladder/instructions.cuh"

// A position in the ring. It is carried from tile to tile: the barriers do not know where a tile ends.
struct Position {
    uint32 slot = 0;
    uint32 parity = 0;

    DEVICE void advance() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

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

    DEVICE void wait_full(Position at) const { mbarrier_wait(full + at.slot * 8, at.parity); }
    // A fresh barrier counts the phase "before the first" as complete with parity 1, so at first all slots are free.
    DEVICE void wait_empty(Position at) const { mbarrier_wait(empty + at.slot * 8, at.parity ^ 1); }
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
    Position at;
    Tile tile;
    while (scheduler.take(tile)) {
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
            ring.wait_empty(at);
            const uint32 full = ring.full + at.slot * 8;
            mbarrier_arrive_expect_tx(full, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            load_box(shared + A_OFFSET + at.slot * A_SLOT_BYTES, map_a, full, k_first, tile.row);
            load_box_multicast(shared + B_OFFSET + at.slot * B_SLOT_BYTES + slice * B_ROW_BYTES, map_b, full, everyone, k_first, tile.column + slice);
            at.advance();
        }
    }
}

DEVICE void consume(const DirectStore &store, uint32 shared, Ring ring, Scheduler scheduler, uint32 consumer, uint32 k) {
    const uint32 first_block = consumer * M_BLOCKS;    // each consumer has its rows of the tile
    // A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits, so advancing it is an addition.
    const uint64 descriptor_a = A_DESCRIPTOR + ((shared + A_OFFSET + first_block * A_BLOCK_BYTES & 0x3ffff) >> 4);
    const uint64 descriptor_b = B_DESCRIPTOR + ((shared + B_OFFSET & 0x3ffff) >> 4);

    Position at;
    Tile tile;
    while (scheduler.take(tile)) {
        float accumulators[M_BLOCKS][TILE_N / 2];
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
            const uint64 a = descriptor_a + at.slot * (A_SLOT_BYTES >> 4);
            const uint64 b = descriptor_b + at.slot * (B_SLOT_BYTES >> 4);
            ring.wait_full(at);
            wgmma_fence();
            #pragma unroll
            for (int step = 0; step < TILE_K / 16; ++step) {
                #pragma unroll
                for (int block = 0; block < M_BLOCKS; ++block) {
                    wgmma(accumulators[block], a + (block * A_BLOCK_BYTES + a_step_bytes(step) >> 4), b + (b_step_bytes(step) >> 4), k_first > 0 || step > 0);
                }
            }
            wgmma_commit();
            wgmma_wait<0>();
            ring.release(at.slot);    // the multiplies have read it: it may be refilled
            at.advance();
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
