// The copy engine stages: one thread asks for the boxes of A and B, and the hardware writes them to shared memory under the 128-byte swizzle.
//
// Still one thing at a time: ask, wait for the bytes, multiply, wait for the multiply.
#pragma once
#include "finish_none.cuh"
#include "epilogue_direct.cuh"
#include "loads.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
stridewright_gemm(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b, const __grid_constant__ TensorMap tensor_map_d,
                  const __grid_constant__ TensorMap tensor_map_d_tail, Out *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    // The swizzle acts on address bits, so tiles start at multiples of 1024 bytes. The launch asks for 1023 bytes more than the map below.
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const uint32 loaded = shared + FULL_BARRIERS_OFFSET;
    const uint32 multiplied = shared + EMPTY_BARRIERS_OFFSET;
    const uint32 warp = warp_uniform(threadIdx.x / 32);
    const uint32 row = blockIdx.x / ((n + TILE_N - 1) / TILE_N) * TILE_M;
    const uint32 column = blockIdx.x % ((n + TILE_N - 1) / TILE_N) * TILE_N;

    if (threadIdx.x == 0) {
        mbarrier_init(loaded, 1);        // one arrive.expect_tx
        mbarrier_init(multiplied, 1);    // one commit
        mbarrier_init_fence();
    }
    if (warp == 0) {
        tmem_allocate<TMEM_COLUMNS>(shared + TMEM_ADDRESS_OFFSET);
        tmem_relinquish();
    }
    __syncthreads();
    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);

    uint32 parity = 0;
    for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
        if (warp == 0 && elect_one()) {
            mbarrier_arrive_expect_tx(loaded, A_COUNTED_BYTES + B_COUNTED_BYTES);    // what lies outside the tensors is filled with zeros and counted too
            load_a(&tensor_map_a, shared + A_OFFSET, loaded, row, k_first);
            load_b(&tensor_map_b, shared + B_OFFSET, loaded, column, k_first);
            mbarrier_wait(loaded, parity);
            const uint64 descriptor_a = A_DESCRIPTOR + (((shared + A_OFFSET) & 0x3ffff) >> 4);
            const uint64 descriptor_b = B_DESCRIPTOR + (((shared + B_OFFSET) & 0x3ffff) >> 4);
            #pragma unroll
            for (int step = 0; step < K_STEPS; ++step) {
                tmem_multiply(tmem, descriptor_a + a_step_advance(step), descriptor_b + b_step_advance(step), k_first > 0 || step > 0);
            }
            tmem_commit(multiplied);
        }
        __syncwarp();
        mbarrier_wait(multiplied, parity);    // only then may the tiles be overwritten
        parity ^= 1;
    }

    tmem_fence_after_sync();
    Finish finish(Terms(), m, n);
    Epilogue epilogue({&tensor_map_d, &tensor_map_d_tail, d, d_row_stride, m, n}, shared);
    #pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        uint32 values[VALUES];
        tmem_load(values, tmem + warp_lanes(warp) + piece * PIECE_COLUMNS);
        tmem_load_wait(values);
        epilogue.put(finish, values, piece, row, column);
    }

    __syncthreads();
    if (warp == 0) tmem_free<TMEM_COLUMNS>(tmem);
}
