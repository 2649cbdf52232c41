// ======== The tile, and who computes it ============================================================================
// A CTA computes 64 x 40 of D at a time; its K runs through slots of 64 elements.
// 1 consumer warpgroup of 64 rows, wgmma m64n40k16: 20 accumulator registers a thread.
// setmaxnreg takes registers from the producer and gives them to the consumers: 56 + 1 * 240 = 296 for one thread of each warpgroup,
// and 128 such threads take 37888 of the SM's 65536.
constexpr int TILE_M = 64;                  // rows of D that a CTA computes at a time
constexpr int TILE_N = 40;                  // columns of D
constexpr int TILE_K = 64;                  // elements of K in a slot of the ring
constexpr int BOX_K = 64;                   // elements of K that the copy engine brings in one box
constexpr int K_STEPS = 4;                  // multiplies along K in a slot
constexpr int STAGES = 8;                   // slots of the ring
constexpr int SLOT_READERS = 1;             // consumers that read a slot
constexpr int STRIPS = 1;                   // strips of 64 rows, a wgmma each, that a consumer has of a tile
constexpr int CLUSTER_M = 1;                // CTAs of a cluster above one another
constexpr int CLUSTER_N = 1;                // CTAs of a cluster beside one another
constexpr int THREADS = 256;                // of a CTA: the producer's warpgroup and the consumers'
constexpr int WARPGROUP_THREADS = 128;
constexpr int GROUP_M = 8;                  // rows of blocks in a band of the order
constexpr int STAGING_BARRIERS = 1;         // first of the consumers' named barriers, one each; 0 is the whole CTA's
constexpr int PRODUCER_REGISTERS = 56;      // that a producer thread keeps
constexpr int CONSUMER_REGISTERS = 240;     // that a consumer thread gets

// ======== A slot of A ==============================================================================================
// (m, k) -> element of the slot:  S<3,3,3> o ((8,8),(64,1)):((64,512),(1,0))
// the same in bytes:  S<3,4,3> o ((8,8),(64,1)):((128,1024),(2,0))
// TMA: 1 x box 64 x 64 elements, swizzle 128B; the barrier expects 8192 bytes, also where the box leaves the tensor.
// Matrix descriptor at address 0: 0x4000004000010000, K-major.
//   bits 0-13   start        0 B
//   bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
//   bits 32-45  stride       1024 B
//   bits 49-51  base offset  0
//   bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
// A multiply takes 16 elements of K, 32 bytes of a row; the next one's descriptor is as much further on, in the middle of a swizzled row.
// That is right, with base offset 0: the hardware swizzles each address that it comes to, with bits above those that the steps change,
// and a slot begins at a multiple of 1024 bytes, where the swizzle begins anew.
constexpr uint32 A_SLOT_BYTES = 8192;                     // from slot to slot
constexpr uint64 A_DESCRIPTOR = 0x4000004000010000ull;    // all but the address
constexpr uint32 A_BOX_BYTES = 8192;                      // from box to box of a slot
constexpr uint32 A_ROW_BYTES = 128;                       // from row to row of a box
constexpr uint32 A_STRIP_ADVANCE = 0;                     // descriptor units from strip to strip

// (step) -> units of 16 bytes:  4:2
DEVICE uint32 a_step_advance(uint32 step) {
    return step << 1;
}

// ======== A slot of B ==============================================================================================
// (n, k) -> element of the slot:  S<3,3,3> o ((8,5),(64,1)):((64,512),(1,0))
// the same in bytes:  S<3,4,3> o ((8,5),(64,1)):((128,1024),(2,0))
// TMA: 1 x box 64 x 40 elements, swizzle 128B; the barrier expects 5120 bytes, also where the box leaves the tensor.
// Matrix descriptor at address 0: 0x4000004000010000, K-major.
//   bits 0-13   start        0 B
//   bits 16-29  leading      16 B (not looked at in K-major with a swizzle)
//   bits 32-45  stride       1024 B
//   bits 49-51  base offset  0
//   bits 62-63  swizzle      128B: bits 7-9 of the address XOR into bits 4-6
// A multiply takes 16 elements of K, 32 bytes of a row; the next one's descriptor is as much further on, in the middle of a swizzled row.
// That is right, with base offset 0: the hardware swizzles each address that it comes to, with bits above those that the steps change,
// and a slot begins at a multiple of 1024 bytes, where the swizzle begins anew.
constexpr uint32 B_SLOT_BYTES = 5120;                     // from slot to slot
constexpr uint64 B_DESCRIPTOR = 0x4000004000010000ull;    // all but the address
constexpr uint32 B_BOX_BYTES = 5120;                      // from box to box of a slot
constexpr int MOST_BOXES = 1;                             // of A's and B's, which one loop loads

// (step) -> units of 16 bytes:  4:2
DEVICE uint32 b_step_advance(uint32 step) {
    return step << 1;
}

// ======== Shared memory ============================================================================================
constexpr uint32 A_OFFSET = 0;                      // slot 0 of A
constexpr uint32 B_OFFSET = 65536;                  // slot 0 of B
constexpr uint32 STAGING_OFFSET = 106496;           // the consumers' panels of D
constexpr uint32 FULL_BARRIERS_OFFSET = 122880;     // a slot's barrier: filled
constexpr uint32 EMPTY_BARRIERS_OFFSET = 122944;    // free again

// ======== From accumulators to D, through shared memory ============================================================
// accumulator: (thread, value) -> m + 64 n:  ((4,8,4),(2,2,5)):((128,1,16),(64,8,512))
// panel of D: (m, n) -> element:  S<3,3,3> o ((8,8),(64,1)):((64,512),(1,0))
// stmatrix x4: (lane, warp, step) -> byte of a 16-byte row:  S<3,4,3> o ((16,2),4,4):((128,16),2048,32)
// Bank conflicts: 4 wavefronts a store, 4 are ideal, for every warp and step: none.
// TMA store: box 40 x 64, swizzle 128B; the tile's last panel is 40 columns wide and has a map of its own.
// Its rows, too, lie 128 bytes apart in shared memory: as far as the swizzle spans, whatever the box's width.
constexpr int PANEL_COLUMNS = 64;     // columns of D that are staged and stored at once: a panel
constexpr int PANELS = 1;             // of a strip of a tile
constexpr int PANEL_BYTES = 8192;     // in shared memory
constexpr int STAGING_BUFFERS = 2;    // panels of a consumer, used in turn

// (lane, warp, step) -> bytes:  S<3,4,3> o ((16,2),4,4):((128,16),2048,32)
DEVICE uint32 staging_offset(uint32 lane, uint32 warp, uint32 step) {
    return (((lane & 15) << 7) + (lane & 0x10) + (warp << 11) + (step << 5)) ^ ((lane & 7) << 4);
}

