// Where the result goes, in both forms: tensor maps for the copy engine, a pointer for plain stores. An epilogue uses one of them.
#pragma once
#include "ptx.cuh"

struct Output {
    const TensorMap *map;
    const TensorMap *map_tail;
    bf16 *d;
    uint64 d_row_stride;    // elements
};
