// D[M,N] = A[M,K] B[N,K]^T on Hopper: bfloat16 in and out, float32 accumulation.
//
// One CTA has 1 + CONSUMERS warpgroups. Warpgroup 0 is the producer: one thread of it asks the copy engine for the tiles of A and
// B, slot after slot around a ring of STAGES slots. The others are consumers: each multiplies TILE_M / CONSUMERS rows of the
// tile, straight from shared memory, and stores them. Two barriers a slot say "filled" and "free again".
//
// The constants in capitals and the functions staging_offset, accumulator_row and accumulator_column come from the layouts of this
// configuration: they stand above, each under a comment that names its layout.
#pragma once
#include "pipeline.cuh"
#include "scheduler.cuh"

struct Tiles {
    uint32 a;    // shared address of slot 0 of A
    uint32 b;
};

DEVICE void produce(const TensorMap *map_a, const TensorMap *map_b, Tiles tiles, Ring ring, uint32 m, uint32 n, uint32 k) {
    RingPosition at;
    TileScheduler scheduler(m, n);
    TileCoordinate tile;
    while (scheduler.take(tile)) {
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
            ring.wait_empty(at);
            const uint32 full = ring.full_barrier(at.slot);
            mbarrier_arrive_expect_tx(full, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            tma_load_2d(tiles.a + at.slot * A_SLOT_BYTES, map_a, full, k_first, tile.row * TILE_M);
            tma_load_2d(tiles.b + at.slot * B_SLOT_BYTES, map_b, full, k_first, tile.column * TILE_N);
            at.advance();
        }
    }
}

// Multiplies one slot: TILE_K of the sum for M_BLOCKS blocks of 64 rows. `first` starts the sum instead of adding to it.
DEVICE void multiply_slot(float (&accumulators)[M_BLOCKS][TILE_N / 2], uint64 a, uint64 b, bool first) {
    #pragma unroll
    for (int step = 0; step < TILE_K / 16; ++step) {
        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            wgmma(accumulators[block], a + block * A_BLOCK_ADVANCE + step * A_STEP_ADVANCE, b + step * B_STEP_ADVANCE, !(first && step == 0));
        }
    }
}

DEVICE void consume(Epilogue epilogue, Tiles tiles, Ring ring, uint32 consumer, uint32 m, uint32 n, uint32 k) {
    // A matrix descriptor holds its address in units of 16 bytes in its low bits, so advancing an operand is an addition.
    const uint64 descriptor_a = A_DESCRIPTOR + ((tiles.a + consumer * M_BLOCKS * 64 * A_ROW_BYTES) >> 4);
    const uint64 descriptor_b = B_DESCRIPTOR + (tiles.b >> 4);
    const uint32 k_blocks = (k + TILE_K - 1) / TILE_K;

    RingPosition at;
    TileScheduler scheduler(m, n);
    TileCoordinate tile;
    while (scheduler.take(tile)) {
        float accumulators[M_BLOCKS][TILE_N / 2];
        uint32 previous = 0;
        for (uint32 k_block = 0; k_block < k_blocks; ++k_block) {
            ring.wait_full(at);
            wgmma_fence();
            multiply_slot(accumulators, descriptor_a + at.slot * (A_SLOT_BYTES >> 4), descriptor_b + at.slot * (B_SLOT_BYTES >> 4), k_block == 0);
            wgmma_commit();
            if (k_block > 0) {
                wgmma_wait<1>();    // the multiplies of the slot before are done: it may be refilled
                ring.release(previous);
            }
            previous = at.slot;
            at.advance();
        }
        wgmma_wait<0>();
        ring.release(previous);

        #pragma unroll
        for (int block = 0; block < M_BLOCKS; ++block) {
            epilogue.store(accumulators[block], tile.row * TILE_M + (consumer * M_BLOCKS + block) * 64, tile.column * TILE_N);
        }
    }
    epilogue.finish();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
stridewright_gemm(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b, const __grid_constant__ TensorMap tensor_map_d,
                  const __grid_constant__ TensorMap tensor_map_d_tail, bf16 *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    // The swizzle acts on address bits, so tiles start at multiples of 1024 bytes. The launch asks for 1023 bytes more than the map below.
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const Tiles tiles = {shared + A_OFFSET, shared + B_OFFSET};
    const Ring ring = {shared + FULL_BARRIERS_OFFSET, shared + EMPTY_BARRIERS_OFFSET};
    const uint32 warpgroup = warp_uniform(threadIdx.x / 128);

    if (threadIdx.x == 0) {
        tensor_map_prefetch(&tensor_map_a);
        tensor_map_prefetch(&tensor_map_b);
        ring.initialise();
    }
    __syncthreads();

    if (warpgroup == 0) {
        registers_release<PRODUCER_REGISTERS>();
        if (warp_uniform(threadIdx.x / 32) == 0 && elect_one()) {
            produce(&tensor_map_a, &tensor_map_b, tiles, ring, m, n, k);
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        const uint32 consumer = warpgroup - 1;
        const Output output = {&tensor_map_d, &tensor_map_d_tail, d, d_row_stride};
        consume(Epilogue(output, shared, consumer, m, n), tiles, ring, consumer, m, n, k);
    }
}
