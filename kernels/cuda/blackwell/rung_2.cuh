// A ring of slots: while one slot is multiplied, the copy engine fills the others. One thread still does both, asking STAGES slots ahead.
#pragma once
#include "finish_none.cuh"
#include "epilogue_direct.cuh"
#include "loads.cuh"
#include "rings.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
stridewright_gemm(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b, const __grid_constant__ TensorMap tensor_map_d,
                  const __grid_constant__ TensorMap tensor_map_d_tail, Out *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    // The swizzle acts on address bits, so tiles start at multiples of 1024 bytes. The launch asks for 1023 bytes more than the map below.
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const Ring ring = {shared + FULL_BARRIERS_OFFSET, shared + EMPTY_BARRIERS_OFFSET};
    const uint32 multiplied = shared + ACCUMULATOR_FULL_OFFSET;
    const uint32 warp = warp_uniform(threadIdx.x / 32);
    const uint32 row = blockIdx.x / ((n + TILE_N - 1) / TILE_N) * TILE_M;
    const uint32 column = blockIdx.x % ((n + TILE_N - 1) / TILE_N) * TILE_N;

    if (threadIdx.x == 0) {
        ring.initialise();
        mbarrier_init(multiplied, 1);    // one commit
        mbarrier_init_fence();
    }
    if (warp == 0) {
        tmem_allocate<TMEM_COLUMNS>(shared + TMEM_ADDRESS_OFFSET);
        tmem_relinquish();
    }
    __syncthreads();
    const uint32 tmem = load_shared(shared + TMEM_ADDRESS_OFFSET);

    if (warp == 0 && elect_one()) {
        const uint64 descriptor_a = A_DESCRIPTOR + (((shared + A_OFFSET) & 0x3ffff) >> 4);
        const uint64 descriptor_b = B_DESCRIPTOR + (((shared + B_OFFSET) & 0x3ffff) >> 4);
        Position<STAGES> fill;
        Position<STAGES> at;
        uint32 k_ahead = 0;
        for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
            // Ask as far ahead as the ring goes: at first for all slots, then for the one whose multiplies were the longest ago.
            for (; k_ahead < k && k_ahead < k_first + STAGES * TILE_K; k_ahead += TILE_K) {
                ring.wait_empty(fill);
                const uint32 full = ring.full_barrier(fill.slot);
                mbarrier_arrive_expect_tx(full, A_COUNTED_BYTES + B_COUNTED_BYTES);    // what lies outside the tensors is filled with zeros and counted too
                load_a(&tensor_map_a, shared + A_OFFSET + fill.slot * A_SLOT_BYTES, full, row, k_ahead);
                load_b(&tensor_map_b, shared + B_OFFSET + fill.slot * B_SLOT_BYTES, full, column, k_ahead);
                fill.advance();
            }
            ring.wait_full(at);
            const uint64 a = descriptor_a + at.slot * (A_SLOT_BYTES >> 4);
            const uint64 b = descriptor_b + at.slot * (B_SLOT_BYTES >> 4);
            #pragma unroll
            for (int step = 0; step < K_STEPS; ++step) {
                tmem_multiply(tmem, a + a_step_advance(step), b + b_step_advance(step), k_first > 0 || step > 0);
            }
            tmem_commit(ring.empty_barrier(at.slot));
            at.advance();
        }
        tmem_commit(multiplied);
        ring.drain(fill);
    }
    __syncwarp();
    mbarrier_wait(multiplied, 0);

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
