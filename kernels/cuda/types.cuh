// Names for the few types the kernels use. NVRTC has no standard headers, so they are spelled out here.
#pragma once

using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;

// A bfloat16 is only ever moved here, never computed with: its 16 bits are enough.
using bf16 = uint16;

// The 128-byte object that cuTensorMapEncodeTiled fills. The TMA unit wants it 64-byte aligned (PTX ISA, "Tensor-map").
struct alignas(64) TensorMap {
    uint64 words[16];
};

// Four floats that are read and written in one access.
struct alignas(16) Float4 {
    float x, y, z, w;
};

// How long L2 should keep the lines that a copy brings.
enum Hint { HINT_NONE, HINT_FIRST, HINT_LAST };    // first, last: to be evicted

// The order in which the tiles of D are taken.
enum Order { ORDER_ROW, ORDER_COLUMN, ORDER_GROUPED, ORDER_SERPENTINE, ORDER_TABLE };
