// ======== The tile, and who computes it ============================================================================
// A CTA computes 64 x 40 of D at a time; its K runs through slots of 128 elements.
// 1 consumer warpgroup of 64 rows each, wgmma m64n40k16: 20 accumulator registers a thread.
// setmaxnreg takes registers from the producer's threads (56) and gives them to the consumers' (240).
constexpr int TILE_M = 64;
constexpr int TILE_N = 40;
constexpr int TILE_K = 128;
constexpr int PANEL_K = 64;
constexpr int K_STEPS = 8;
constexpr bool SWAPPED = 1;
constexpr int STAGES = 4;
constexpr int CONSUMERS = 1;
constexpr bool PINGPONG = 0;
constexpr int SLOT_READERS = 1;
constexpr int M_BLOCKS = 1;
constexpr int CLUSTER_M = 1;
constexpr int CLUSTER_N = 1;
constexpr int THREADS = 256;
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
constexpr int TURN_BARRIERS = 2;
constexpr int PARTIAL_SUMS_BARRIER = 4;
constexpr int PRODUCER_REGISTERS = 56;
constexpr int CONSUMER_REGISTERS = 240;

// ======== A slot of A ==============================================================================================
// (m, k) -> element of the slot:  S<3,3,3> o ((8,8),(64,2)):((64,512),(1,4096))
// the same in bytes:  S<3,4,3> o ((8,8),(64,2)):((128,1024),(2,8192))
// TMA: 2 x box 64 x 64 elements, swizzle 128B; the barrier expects 16384 bytes, also where the box leaves the tensor.
// Matrix descriptor at address 0: 0x4000004000010000, K-major.
//   bits 0-13   start        0 B
//   bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
//   bits 32-45  stride       1024 B
//   bits 49-51  base offset  0
//   bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
// Each k-step of 16 elements adds to the descriptor, in its units of 16 bytes:
//   step -> (4,2):(2,512)
constexpr uint32 A_SLOT_BYTES = 16384;
constexpr uint64 A_DESCRIPTOR = 0x4000004000010000ull;
constexpr uint32 A_PANEL_BYTES = 8192;
constexpr int A_BOXES = 2;
constexpr bool A_MN = 0;
constexpr uint32 A_ROW_BYTES = 128;
constexpr uint32 A_SLICE_ROWS = 64;
constexpr uint32 A_BLOCK_ADVANCE = 0;

// (step) -> units of 16 bytes:  (4,2):(2,512)
DEVICE uint32 a_step_advance(uint32 step) {
    return (step << 1) + (step >> 2) * 504;
}

// ======== A slot of B ==============================================================================================
// (n, k) -> element of the slot:  S<3,3,3> o ((8,5),(64,2)):((64,512),(1,2560))
// the same in bytes:  S<3,4,3> o ((8,5),(64,2)):((128,1024),(2,5120))
// TMA: 2 x box 64 x 40 elements, swizzle 128B; the barrier expects 10240 bytes, also where the box leaves the tensor.
// Matrix descriptor at address 0: 0x4000004000010000, K-major.
//   bits 0-13   start        0 B
//   bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
//   bits 32-45  stride       1024 B
//   bits 49-51  base offset  0
//   bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
// Each k-step of 16 elements adds to the descriptor, in its units of 16 bytes:
//   step -> (4,2):(2,320)
constexpr uint32 B_SLOT_BYTES = 10240;
constexpr uint64 B_DESCRIPTOR = 0x4000004000010000ull;
constexpr uint32 B_PANEL_BYTES = 5120;
constexpr int B_BOXES = 2;
constexpr bool B_MN = 0;
constexpr uint32 B_ROW_BYTES = 128;
constexpr uint32 B_SLICE_ROWS = 40;

// (step) -> units of 16 bytes:  (4,2):(2,320)
DEVICE uint32 b_step_advance(uint32 step) {
    return (step << 1) + (step >> 2) * 312;
}

// ======== Shared memory ============================================================================================
//       0 ..   65536  tiles of A
//   65536 ..  106496  tiles of B
//  106496 ..  116736  staging of D
//  116736 ..  116800  barriers
// 117824 bytes to ask for: 1024 more, so that offset 0 can be a multiple of 1024.
constexpr uint32 A_OFFSET = 0;
constexpr uint32 B_OFFSET = 65536;
constexpr uint32 STAGING_OFFSET = 106496;
constexpr uint32 FULL_BARRIERS_OFFSET = 116736;
constexpr uint32 EMPTY_BARRIERS_OFFSET = 116768;

// ======== From accumulators to D, through shared memory ============================================================
// accumulator: (thread, value) -> m + 64 n:  ((4,8,4),(2,2,5)):((128,1,16),(64,8,512))
// panel of D: (n, m) -> element:  S<3,3,3> o ((8,6),(64,1)):((64,512),(1,0))
// stmatrix x4: (lane, warp, step) -> byte of a 16-byte row:  S<3,4,3> o ((8,2,2),4,3):((128,16,1024),32,2048)
// Bank conflicts: 4 wavefronts a store, 4 are ideal, for every warp and step: none.
// TMA store: box 64 x 40, swizzle 128B.
constexpr int PANEL_COLUMNS = 64;
constexpr int PANELS = 1;
constexpr int TAIL_COLUMNS = 0;
constexpr int PANEL_BYTES = 5120;
constexpr int STAGING_BUFFERS = 2;

// (lane, warp, step) -> bytes:  S<3,4,3> o ((8,2,2),4,3):((128,16,1024),32,2048)
DEVICE uint32 staging_offset(uint32 lane, uint32 warp, uint32 step) {
    return (((lane & 7) << 7) + ((lane & 8) << 1) + ((lane >> 4) << 10) + (warp << 5) + (step << 11)) ^ ((lane & 7) << 4);
}

#define CLUSTER_ATTRIBUTE

