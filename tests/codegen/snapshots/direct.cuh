// ======== The tile, and who computes it ============================================================================
// A CTA computes 256 x 72 of D at a time; its K runs through slots of 64 elements.
// 2 consumer warpgroups of 128 rows each, wgmma m64n72k16: 72 accumulator registers a thread.
// setmaxnreg takes registers from the producer's threads (40) and gives them to the consumers' (232).
constexpr int TILE_M = 256;
constexpr int TILE_N = 72;
constexpr int TILE_K = 64;
constexpr int PANEL_K = 64;
constexpr int K_STEPS = 4;
constexpr bool SWAPPED = 0;
constexpr int STAGES = 3;
constexpr int CONSUMERS = 2;
constexpr bool PINGPONG = 0;
constexpr int SLOT_READERS = 2;
constexpr int M_BLOCKS = 2;
constexpr int CLUSTER_M = 1;
constexpr int CLUSTER_N = 1;
constexpr int THREADS = 384;
constexpr Order ORDER = ORDER_GROUPED;
constexpr int GROUP_M = 8;
constexpr Hint HINT_A = HINT_NONE;
constexpr Hint HINT_B = HINT_NONE;
constexpr bool SPLIT = 0;
constexpr bool ATOMIC = 0;
constexpr uint32 FIXED_M = 0;
constexpr uint32 FIXED_N = 0;
constexpr uint32 FIXED_K = 0;
constexpr Format D_FORMAT = FORMAT_BF16;
constexpr bool INTEGER = 0;
constexpr Form FORM = FORM_ONE;
constexpr int TURN_BARRIERS = 3;
constexpr int PARTIAL_SUMS_BARRIER = 5;
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;

// ======== A slot of A ==============================================================================================
// (m, k) -> element of the slot:  S<3,3,3> o ((8,32),(64,1)):((64,512),(1,0))
// the same in bytes:  S<3,4,3> o ((8,32),(64,1)):((128,1024),(2,0))
// TMA: 1 x box 64 x 256 elements, swizzle 128B; the barrier expects 32768 bytes, also where the box leaves the tensor.
// Matrix descriptor at address 0: 0x4000004000010000, K-major.
//   bits 0-13   start        0 B
//   bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
//   bits 32-45  stride       1024 B
//   bits 49-51  base offset  0
//   bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
// Each k-step of 16 elements adds to the descriptor, in its units of 16 bytes:
//   step -> 4:2
constexpr uint32 A_SLOT_BYTES = 32768;
constexpr uint64 A_DESCRIPTOR = 0x4000004000010000ull;
constexpr uint32 A_PANEL_BYTES = 32768;
constexpr int A_BOXES = 1;
constexpr bool A_MN = 0;
constexpr uint32 A_ROW_BYTES = 128;
constexpr uint32 A_SLICE_ROWS = 256;
constexpr uint32 A_BLOCK_ADVANCE = 512;

// (step) -> units of 16 bytes:  4:2
DEVICE uint32 a_step_advance(uint32 step) {
    return step << 1;
}

// ======== A slot of B ==============================================================================================
// (n, k) -> element of the slot:  S<3,3,3> o ((8,9),(64,1)):((64,512),(1,0))
// the same in bytes:  S<3,4,3> o ((8,9),(64,1)):((128,1024),(2,0))
// TMA: 1 x box 64 x 72 elements, swizzle 128B; the barrier expects 9216 bytes, also where the box leaves the tensor.
// Matrix descriptor at address 0: 0x4000004000010000, K-major.
//   bits 0-13   start        0 B
//   bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
//   bits 32-45  stride       1024 B
//   bits 49-51  base offset  0
//   bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
// Each k-step of 16 elements adds to the descriptor, in its units of 16 bytes:
//   step -> 4:2
constexpr uint32 B_SLOT_BYTES = 9216;
constexpr uint64 B_DESCRIPTOR = 0x4000004000010000ull;
constexpr uint32 B_PANEL_BYTES = 9216;
constexpr int B_BOXES = 1;
constexpr bool B_MN = 0;
constexpr uint32 B_ROW_BYTES = 128;
constexpr uint32 B_SLICE_ROWS = 72;

// (step) -> units of 16 bytes:  4:2
DEVICE uint32 b_step_advance(uint32 step) {
    return step << 1;
}

// ======== Shared memory ============================================================================================
//       0 ..   98304  tiles of A
//   98304 ..  125952  tiles of B
//  125952 ..  126000  barriers
// 127024 bytes to ask for: 1024 more, so that offset 0 can be a multiple of 1024.
constexpr uint32 A_OFFSET = 0;
constexpr uint32 B_OFFSET = 98304;
constexpr uint32 STAGING_OFFSET = 125952;
constexpr uint32 FULL_BARRIERS_OFFSET = 125952;
constexpr uint32 EMPTY_BARRIERS_OFFSET = 125976;

// ======== From accumulators to D, by plain stores ==================================================================
// accumulator: (thread, value) -> m + 64 n:  ((4,8,4),(2,2,9)):((128,1,16),(64,8,512))

// (thread, value) -> rows:  ((4,8,4),(2,2,9)):((0,1,16),(0,8,0))
DEVICE uint32 accumulator_row(uint32 thread, uint32 value) {
    return (thread >> 2) + ((thread >> 5) << 3) + ((value & 2) << 2);
}

// (thread, value) -> columns:  ((4,8,4),(2,2,9)):((2,0,0),(1,0,8))
DEVICE uint32 accumulator_column(uint32 thread, uint32 value) {
    return ((thread & 3) << 1) + (value & 1) + ((value >> 2) << 3);
}

#define CLUSTER_ATTRIBUTE

