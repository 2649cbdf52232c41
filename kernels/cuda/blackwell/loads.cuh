// An operand's tile in a slot of shared memory, loaded box after box. Along which dimension the boxes of a slot follow one another depends on the
// operand's major: along K where rows of K are contiguous, along M or N where those are.
#pragma once

DEVICE void load_a(const TensorMap *map, uint32 slot, uint32 barrier, uint32 row, uint32 k, uint32 = 0) {
    #pragma unroll
    for (int box = 0; box < A_BOXES; ++box) {
        const uint32 along = box * A_BOX_SPAN;
        tma_load_to_tile(slot + box * A_BOX_STEP, map, barrier, A_K_MAJOR ? k + along : row + along, A_K_MAJOR ? row : k);
    }
}

DEVICE void load_b(const TensorMap *map, uint32 slot, uint32 barrier, uint32 row, uint32 k, uint32 = 0) {
    #pragma unroll
    for (int box = 0; box < B_BOXES; ++box) {
        const uint32 along = box * B_BOX_SPAN;
        tma_load_to_tile(slot + box * B_BOX_STEP, map, barrier, B_K_MAJOR ? k + along : row + along, B_K_MAJOR ? row : k);
    }
}
