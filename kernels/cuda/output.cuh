// Where the result goes.
#pragma once
#include "formats.cuh"

constexpr bool SEVERAL_D = FORM == FORM_BATCH || FORM == FORM_GROUPS_K;    // a D for each matrix of a batch, or each group of K

// One thread of each warpgroup, always the same one, for what must be done once.
DEVICE bool leads_warpgroup() { return threadIdx.x % 128 == 0; }

struct Output {
    const TensorMap *map;
    const TensorMap *tail_map;
    Out *d;
    uint64 d_row_stride;      // elements
    uint64 batch_stride;

    DEVICE Output(const TensorMap *map, const TensorMap *tail_map, Out *d, uint64 d_row_stride, uint64 batch_stride)
        : map(map), tail_map(tail_map), d(d), d_row_stride(d_row_stride), batch_stride(batch_stride) {}
};
