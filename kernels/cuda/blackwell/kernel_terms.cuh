// The kernel whose launch takes more than A and B: what is added, scaled and applied.
#pragma once
#include "gemm.cuh"

extern "C" __global__ void CLUSTER_ATTRIBUTE __launch_bounds__(THREADS, 1)
stridewright_gemm(const __grid_constant__ TensorMap tensor_map_a, const __grid_constant__ TensorMap tensor_map_b, const __grid_constant__ TensorMap tensor_map_d,
                  const __grid_constant__ TensorMap tensor_map_d_tail, Out *d, uint64 d_row_stride, uint32 m, uint32 n, uint32 k, const __grid_constant__ Terms terms) {
    gemm(tensor_map_a, tensor_map_b, ScaleMaps(), {&tensor_map_d, &tensor_map_d_tail, d, d_row_stride, m, n, terms.d_batch_stride}, k, terms);
}
