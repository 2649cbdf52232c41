// Rung 1: no tensor cores.
//
// The textbook kernel. A CTA copies a slice of A and a slice of B into shared memory, so that each element is read from L2 once instead of once for
// every product it takes part in; each thread then keeps 8 x 8 sums in registers, so that a value read from shared memory serves eight multiplies.
// Every multiply is an ordinary fused multiply-add on a float: 128 a clock on an SM, where its tensor cores do 2048.
#pragma once
#include "ladder/pair_store.cuh"

DEVICE float from_bf16(uint32 bits) { return __uint_as_float(bits << 16); }

// 8 neighbours along K of row `row` -> a column of shared memory, widened to float; zeros outside the matrix.
DEVICE void load_chunk(float (&tile)[TILE_K][TILE_M], const bf16 *matrix, uint64 row_stride, uint32 rows, uint32 first_row, uint32 k_first, uint32 k) {
    const uint32 row = threadIdx.x % TILE_M;
    const uint32 at = threadIdx.x / TILE_M * 8;
    uint4 chunk = {0, 0, 0, 0};
    if (first_row + row < rows && k_first + at < k) {
        chunk = *reinterpret_cast<const uint4 *>(matrix + (first_row + row) * row_stride + k_first + at);
    }
    const uint32 words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    #pragma unroll
    for (int i = 0; i < 8; ++i) tile[at + i][row] = from_bf16(words[i / 2] >> (i % 2 * 16) & 0xffff);
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
stridewright_ladder(const bf16 *a, uint64 a_row_stride, const bf16 *b, uint64 b_row_stride, bf16 *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k) {
    __shared__ alignas(16) float a_tile[TILE_K][TILE_M];
    __shared__ alignas(16) float b_tile[TILE_K][TILE_M];
    const uint32 columns = (n + TILE_N - 1) / TILE_N;
    const uint32 row = blockIdx.x / columns * TILE_M;
    const uint32 column = blockIdx.x % columns * TILE_N;
    // A thread's 8 x 8 sums are four blocks of 4 x 4, half a tile apart: neighbouring lanes then read neighbouring 16 bytes.
    const uint32 thread_row = threadIdx.x / 16 * 4;
    const uint32 thread_column = threadIdx.x % 16 * 4;

    float sums[8][8] = {};
    for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
        load_chunk(a_tile, a, a_row_stride, m, row, k_first, k);
        load_chunk(b_tile, b, b_row_stride, n, column, k_first, k);
        __syncthreads();
        #pragma unroll
        for (int step = 0; step < TILE_K; ++step) {
            float left[8], right[8];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<float4 *>(&left[half * 4]) = *reinterpret_cast<const float4 *>(&a_tile[step][half * TILE_M / 2 + thread_row]);
                *reinterpret_cast<float4 *>(&right[half * 4]) = *reinterpret_cast<const float4 *>(&b_tile[step][half * TILE_N / 2 + thread_column]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] += left[i] * right[j];
            }
        }
        __syncthreads();
    }

    const PairStore store(d, d_row_stride, m, n);
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; j += 2) {
            store.pair(row + i / 4 * TILE_M / 2 + thread_row + i % 4, column + j / 4 * TILE_N / 2 + thread_column + j % 4, sums[i][j], sums[i][j + 1]);
        }
    }
}
