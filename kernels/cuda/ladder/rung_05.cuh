// Rung 5: two consumers, and a tile of 128 x 256.
//
// A wider tile needs fewer loads for each multiply again, but its sums no longer fit into one warpgroup's registers. Two consumer warpgroups share
// it, 64 rows each: while one of them waits for a slot or gives it back, the other's multiplies keep the tensor cores busy. The producer, which
// needs few registers, hands most of its own to them.
#pragma once
#include "ladder/direct_store.cuh"
#include "ladder/instructions.cuh"

// A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits.
DEVICE uint64 at_address(uint64 descriptor, uint32 address) { return descriptor | (address & 0x3ffff) >> 4; }

// Two barriers a slot, with the same 1 + CONSUMER_THREADS participants: the producer's thread and every consumer thread. Whoever waits arrives
// itself, and waits for the phase that its arrival belongs to.
struct Ring {
    uint32 full;
    uint32 empty;

    DEVICE void initialise() const {
        for (uint32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + slot * 8, 1 + CONSUMER_THREADS);
            mbarrier_init(empty + slot * 8, 1 + CONSUMER_THREADS);
        }
        mbarrier_init_fence();
    }

    DEVICE void wait_full(uint32 slot) const { mbarrier_wait_state(full + slot * 8, mbarrier_arrive_state(full + slot * 8)); }
    DEVICE void wait_empty(uint32 slot) const { mbarrier_wait_state(empty + slot * 8, mbarrier_arrive_state(empty + slot * 8)); }
    DEVICE void expect(uint32 slot, uint32 bytes) const { mbarrier_arrive_expect_tx(full + slot * 8, bytes); }
    DEVICE void release(uint32 slot) const { mbarrier_arrive(empty + slot * 8); }
};

DEVICE void produce(const TensorMap *map_a, const TensorMap *map_b, uint32 shared, Ring ring, uint32 row, uint32 column, uint32 k) {
    for (uint32 k_block = 0; k_block * TILE_K < k; ++k_block) {
        const uint32 slot = k_block % STAGES;
        ring.wait_empty(slot);
        ring.expect(slot, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
        load_box(shared + A_OFFSET + slot * A_SLOT_BYTES, map_a, ring.full + slot * 8, k_block * TILE_K, row);
        load_box(shared + B_OFFSET + slot * B_SLOT_BYTES, map_b, ring.full + slot * 8, k_block * TILE_K, column);
    }
}

DEVICE void consume(const DirectStore &store, uint32 shared, Ring ring, uint32 consumer, uint32 row, uint32 column, uint32 k) {
    const uint32 first_block = consumer * M_BLOCKS;    // each consumer has its rows of the tile
    for (uint32 slot = 0; slot < STAGES; ++slot) ring.release(slot);    // at first all slots are free

    float accumulators[M_BLOCKS][TILE_N / 2] = {};
    for (uint32 k_block = 0; k_block * TILE_K < k; ++k_block) {
        const uint32 slot = k_block % STAGES;
        ring.wait_full(slot);
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
    for (int block = 0; block < M_BLOCKS; ++block) store.block(accumulators[block], row + (first_block + block) * 64, column);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
stridewright_ladder(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b,
                    bf16 *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;    // the swizzle acts on address bits
    const Ring ring = {shared + BARRIERS_OFFSET, shared + BARRIERS_OFFSET + STAGES * 8};
    const uint32 columns = (n + TILE_N - 1) / TILE_N;
    const uint32 row = blockIdx.x / columns * TILE_M;
    const uint32 column = blockIdx.x % columns * TILE_N;

    if (threadIdx.x == 0) ring.initialise();
    __syncthreads();

    const uint32 warpgroup = warp_uniform(threadIdx.x / 128);
    if (warpgroup == 0) {
        registers_release<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(&tensor_map_a, &tensor_map_b, shared, ring, row, column, k);
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        consume(DirectStore(d, d_row_stride, m, n), shared, ring, warpgroup - 1, row, column, k);
    }
}
