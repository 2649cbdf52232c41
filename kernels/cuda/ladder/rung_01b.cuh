// Rung 1b: the copy engine, and tensor cores the old way.
//
// The copy engine (TMA) fetches a tile of A and a tile of B for one thread's asking, and lays them out swizzled, so that reading them has no bank
// conflicts. A warp loads blocks of them into its registers (ldmatrix) and multiplies these (mma.sync m16n8k16): 2048 multiply-adds for one
// instruction of a warp. But every operand passes through registers, and mma.sync reaches about 60 % of what Hopper's tensor cores can do.
#pragma once
#include "ladder/pair_store.cuh"
#include "ladder/instructions.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
stridewright_ladder(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b,
                    bf16 *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;    // the swizzle acts on address bits
    const uint32 loaded = shared + BARRIERS_OFFSET;
    const uint32 columns = (n + TILE_N - 1) / TILE_N;
    const uint32 row = blockIdx.x / columns * TILE_M;
    const uint32 column = blockIdx.x % columns * TILE_N;
    const uint32 lane = threadIdx.x % 32;
    const uint32 warp_row = threadIdx.x / 32 / WARPS_N;
    const uint32 warp_column = threadIdx.x / 32 % WARPS_N;

    if (threadIdx.x == 0) {
        mbarrier_init(loaded, 1);
        mbarrier_init_fence();
    }
    __syncthreads();

    float accumulators[BLOCKS_M][BLOCKS_N][4] = {};
    uint32 parity = 0;
    for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(loaded, A_SLOT_BYTES + B_SLOT_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            load_box(shared + A_OFFSET, &tensor_map_a, loaded, k_first, row);
            load_box(shared + B_OFFSET, &tensor_map_b, loaded, k_first, column);
        }
        mbarrier_wait(loaded, parity);
        parity ^= 1;

        #pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) {
            uint32 a[BLOCKS_M][4], b[BLOCKS_N / 2][4];
            #pragma unroll
            for (int i = 0; i < BLOCKS_M; ++i) ldmatrix_x4(a[i], shared + A_OFFSET + a_fragment_offset(lane, warp_row * BLOCKS_M + i, step));
            #pragma unroll
            for (int j = 0; j < BLOCKS_N / 2; ++j) ldmatrix_x4(b[j], shared + B_OFFSET + b_fragment_offset(lane, warp_column * BLOCKS_N / 2 + j, step));
            #pragma unroll
            for (int i = 0; i < BLOCKS_M; ++i) {
                #pragma unroll
                for (int j = 0; j < BLOCKS_N; ++j) mma_m16n8k16(accumulators[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
        // Every warp has read the tiles, and these ordinary reads are ordered before what the copy engine writes there next.
        fence_async_proxy();
        __syncthreads();
    }

    const PairStore store(d, d_row_stride, m, n);
    #pragma unroll
    for (int i = 0; i < BLOCKS_M; ++i) {
        #pragma unroll
        for (int j = 0; j < BLOCKS_N; ++j) {
            #pragma unroll
            for (int value = 0; value < 4; value += 2) {
                store.pair(row + (warp_row * BLOCKS_M + i) * 16 + fragment_row(lane, value), column + (warp_column * BLOCKS_N + j) * 8 + fragment_column(lane, value),
                           accumulators[i][j][value], accumulators[i][j][value + 1]);
            }
        }
    }
}
