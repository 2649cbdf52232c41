// A of 8-bit floats is multiplied as the 16-bit format of B, which has every value of theirs.
#pragma once
#include "tcgen05.cuh"

// Two of them, the first in bits 0-7, as two of 16 bits.
DEVICE uint32 widened_pair(uint32 two) {
    uint32 halves;
    asm("cvt.rn.f16x2." A_TYPE " %0, %1;" : "=r"(halves) : "h"(static_cast<uint16>(two)));
    return TO_F16 ? halves : pack_bf16(widened_f16(static_cast<uint16>(halves)), widened_f16(static_cast<uint16>(halves >> 16)));
}

DEVICE void words_of(Bytes16 elements, uint32 *words) {
    #pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = widened_pair(elements.words[i / 2] >> (16 * (i % 2)) & 0xffff);
}
