// The textbook kernel: one CTA, one tile, one multiply after the other, nothing overlapped.
//
// Each thread copies its share of the tiles of A and B into shared memory, one thread multiplies, all wait, and in the end each thread loads one row of the
// accumulator and stores it. Tensor memory is taken before and given back after.
#pragma once
#include "output.cuh"

// The tile's rows from `row` on and 64 columns from `k_first` on, into shared memory where the multiply expects them; outside the matrix are zeros.
// (The caller gives the address function of its operand.)
template <uint32 Rows, class Place> DEVICE void stage(uint32 slot, const uint16 *matrix, uint32 row, uint32 rows, uint32 k_first, uint32 k, Place place) {
    for (uint32 chunk = threadIdx.x; chunk < Rows * (TILE_K / 8); chunk += THREADS) {
        const uint32 r = chunk / (TILE_K / 8);
        const uint32 c = chunk % (TILE_K / 8);
        Bytes16 eight = {};
        if (row + r < rows && k_first + 8 * c < k) eight = load_global_16(matrix + uint64(row + r) * k + k_first + 8 * c);
        store_shared_16(slot + place(r, c), eight);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) stridewright_gemm(const uint16 *a, const uint16 *b, Out *d, uint32 m, uint32 n, uint32 k) {
    extern __shared__ uint8 dynamic_shared[];
    const uint32 shared = (shared_address(dynamic_shared) + 1023) & ~1023u;
    const uint32 multiplied = shared + FULL_BARRIERS_OFFSET;
    const uint32 warp = warp_uniform(threadIdx.x / 32);
    const uint32 lane = threadIdx.x % 32;
    const uint32 row = blockIdx.x / ((n + TILE_N - 1) / TILE_N) * TILE_M;
    const uint32 column = blockIdx.x % ((n + TILE_N - 1) / TILE_N) * TILE_N;

    if (threadIdx.x == 0) {
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
        stage<A_ROWS>(shared + A_OFFSET, a, row, m, k_first, k, a_place);
        stage<B_ROWS>(shared + B_OFFSET, b, column, n, k_first, k, b_place);
        fence_async_proxy();    // the tensor core reads through another proxy than these stores
        __syncthreads();
        if (warp == 0 && elect_one()) {
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
    #pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        uint32 values[VALUES];
        tmem_load(values, tmem + warp_lanes(warp) + piece * PIECE_COLUMNS);
        tmem_load_wait(values);
        #pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            const uint32 r = row + fragment_row(lane, warp);
            const uint32 c = column + fragment_column(lane, warp, i, piece);
            if (r < m && c < n) d[uint64(r) * n + c] = converted<D_FORMAT>(sum_of(values[i]));
        }
    }

    __syncthreads();
    if (warp == 0) tmem_free<TMEM_COLUMNS>(tmem);
}
