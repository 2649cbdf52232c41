// A of 8-bit whole numbers is multiplied as the 16-bit format of B, which has every one of them.
#pragma once
#include "tcgen05.cuh"

DEVICE float whole(uint32 byte) { return static_cast<float>(A_SIGNED ? static_cast<int32>(static_cast<signed char>(byte)) : static_cast<int32>(byte)); }

DEVICE void words_of(Bytes16 elements, uint32 *words) {
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const uint32 two = elements.words[i / 2] >> (16 * (i % 2));
        const float low = whole(two & 0xff);
        const float high = whole(two >> 8 & 0xff);
        words[i] = TO_F16 ? pack_f16(low, high) : pack_bf16(low, high);
    }
}
