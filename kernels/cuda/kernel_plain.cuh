// The kernel whose launch computes one product and stores it as it is.
#pragma once
#include "hopper_gemm.cuh"

extern "C" __global__ void CLUSTER_ATTRIBUTE __launch_bounds__(THREADS, 1)
stridewright_gemm(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b,
                  const __grid_constant__ TensorMap tensor_map_d, const __grid_constant__ TensorMap tensor_map_d_tail,
                  Out *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k, const uint32 *order, void *partials, uint32 *counters,
                  uint32 shared_blocks) {
    const Output output(&tensor_map_d, &tensor_map_d_tail, d, d_row_stride, 0);
    gemm(tensor_map_a, tensor_map_b, output, FIXED_M ? FIXED_M : m, FIXED_N ? FIXED_N : n, FIXED_K ? FIXED_K : k, order, partials, counters,
         shared_blocks, Terms());
}
