// Names for the few types the kernels use. NVRTC has no standard headers, so they are spelled out here.
#pragma once

using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;
using int32 = int;

// A bfloat16 is only ever moved here, never computed with: its 16 bits are enough.
using bf16 = uint16;

// The 128-byte object that cuTensorMapEncodeTiled fills. The TMA unit wants it 64-byte aligned (PTX ISA, "Tensor-map").
struct alignas(64) TensorMap {
    uint64 words[16];
};

// The number formats of D, of C and of a bias.
enum Format { FORMAT_BF16, FORMAT_F16, FORMAT_F32, FORMAT_E4M3, FORMAT_E5M2, FORMAT_S8, FORMAT_S32 };

// What one launch computes: one product, a batch of them, one for each group of rows of A, or one for each group of K.
enum Form { FORM_ONE, FORM_BATCH, FORM_GROUPS_M, FORM_GROUPS_K };

// Factors of a dimension's rows of an operand: none, one a row, or one for each block of K.
enum Scales { SCALES_NONE, SCALES_ROW, SCALES_BLOCK };

// Which dimension of D a bias runs along.
enum Bias { BIAS_NONE, BIAS_M, BIAS_N };

// How long L2 should keep the lines that a copy brings.
enum Hint { HINT_NONE, HINT_FIRST, HINT_LAST };    // first, last: to be evicted

// The order in which the tiles of D are taken.
enum Order { ORDER_ROW, ORDER_COLUMN, ORDER_GROUPED, ORDER_SERPENTINE, ORDER_TABLE };
