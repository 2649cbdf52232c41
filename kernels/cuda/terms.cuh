// What finishing a sum is given beside the sum; of both architectures, after their output.cuh.
#pragma once

// The order and sizes of these are known to the host (codegen/terms.py).
struct Terms {
    const float *factors[3];     // in device memory, of every sum beside alpha: alpha itself, and the scales of A and of B as a whole; null for none
    const Stored<C_FORMAT>::type *c;
    uint64 c_row_stride;         // elements, as all strides here
    uint64 c_batch_stride;
    const Stored<BIAS_FORMAT>::type *bias;
    uint64 bias_batch_stride;
    Out *aux;                    // alpha * acc + beta * C + bias
    uint64 aux_row_stride;
    uint64 aux_batch_stride;
    uint32 *amax;                // bits of a float that is raised to the largest |D| before scale_d
    const float *scale_a;
    uint64 scale_a_stride;       // from row to row
    uint64 scale_a_k_stride;     // from one block of K to the next
    uint64 scale_a_batch_stride;
    const float *scale_b;
    uint64 scale_b_stride;
    uint64 scale_b_k_stride;
    uint64 scale_b_batch_stride;
    const float *scale_d;        // one factor
    uint64 d_batch_stride;
    const int32 *offsets;
    float alpha;
    float beta;
    uint32 batches;
    uint32 unused;
};
