// Rung 3: a larger tile.
//
// A tile of TILE_M x TILE_N takes (TILE_M + TILE_N) * TILE_K elements of loads for TILE_M * TILE_N * TILE_K multiplies: 128 x 128 instead of 64 x 64
// halves what each multiply costs in L2 and shared-memory traffic. The warpgroup multiplies M_BLOCKS blocks of 64 rows one after another, with the
// same tile of B.
#pragma once
#include "ladder/direct_store.cuh"
#include "ladder/instructions.cuh"

// A matrix descriptor holds its address, 18 bits of it, in units of 16 bytes in its low bits.
DEVICE uint64 at_address(uint64 descriptor, uint32 address) { return descriptor | (address & 0x3ffff) >> 4; }

extern "C" __global__ void __launch_bounds__(THREADS)
stridewright_ladder(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b,
                    bf16 *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;    // the swizzle acts on address bits
    const uint32 loaded = shared + BARRIERS_OFFSET;
    const uint32 columns = (n + TILE_N - 1) / TILE_N;
    const uint32 row = blockIdx.x / columns * TILE_M;
    const uint32 column = blockIdx.x % columns * TILE_N;

    if (threadIdx.x == 0) {
        mbarrier_init(loaded, 1);
        mbarrier_init_fence();
    }
    __syncthreads();

    float accumulators[M_BLOCKS][TILE_N / 2] = {};
    uint32 parity = 0;
    for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(loaded, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            load_box(shared + A_OFFSET, &tensor_map_a, loaded, k_first, row);
            load_box(shared + B_OFFSET, &tensor_map_b, loaded, k_first, column);
        }
        mbarrier_wait(loaded, parity);
        parity ^= 1;

        wgmma_fence();
        #pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) {
            const uint64 b = at_address(B_DESCRIPTOR, shared + B_OFFSET + b_step_bytes(step));
            #pragma unroll
            for (int block = 0; block < M_BLOCKS; ++block) {
                const uint64 a = at_address(A_DESCRIPTOR, shared + A_OFFSET + block * A_BLOCK_BYTES + a_step_bytes(step));
                wgmma(accumulators[block], a, b, true);
            }
        }
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();    // the multiplies have read the tiles, as every warp knows: they may be overwritten
    }

    const DirectStore store(d, d_row_stride, m, n);
    #pragma unroll
    for (int block = 0; block < M_BLOCKS; ++block) store.block(accumulators[block], row + block * 64, column);
}
