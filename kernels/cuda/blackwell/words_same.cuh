// A is multiplied in the format that it has in memory.
#pragma once
#include "tcgen05.cuh"

DEVICE void words_of(Bytes16 elements, uint32 *words) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = elements.words[i];
}
