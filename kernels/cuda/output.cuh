// Where the result goes, in both forms: tensor maps for the copy engine, a pointer for plain stores. An epilogue uses one of them.
#pragma once
#include "copies.cuh"
#include "formats.cuh"

constexpr bool SEVERAL_D = FORM == FORM_BATCH || FORM == FORM_GROUPS_K;    // a D for each matrix of a batch, or each group of K

struct Output {
    const TensorMap *map;
    const TensorMap *map_tail;
    Out *d;
    uint64 d_row_stride;      // elements
    uint64 d_batch_stride;
};
