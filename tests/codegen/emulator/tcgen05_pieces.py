"""CUDA wrappers of single tcgen05 instructions, and the kernels that several tests share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from stridewright.codegen import build
from stridewright.codegen.emulator import EmulationResult, emulate_ptx

from .cuda_pieces import WRAPPERS, filled

TCGEN05 = (
    WRAPPERS
    + """
#ifndef GROUP
#define GROUP "1"
#endif
#define CG ".cta_group::" GROUP
__device__ __forceinline__ void tmem_alloc(u32 *slot, u32 columns) { ASM("tcgen05.alloc" CG ".sync.aligned.shared::cta.b32 [%0], %1;" :: "r"(shared(slot)), "r"(columns) : "memory"); }
__device__ __forceinline__ void tmem_permit() { ASM("tcgen05.relinquish_alloc_permit" CG ".sync.aligned;"); }
__device__ __forceinline__ void tmem_dealloc(u32 address, u32 columns) { ASM("tcgen05.dealloc" CG ".sync.aligned.b32 %0, %1;" :: "r"(address), "r"(columns)); }
__device__ __forceinline__ void fence_before() { ASM("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void fence_after() { ASM("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void wait_ld() { ASM("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_st() { ASM("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit(u64 *b) { ASM("tcgen05.commit" CG ".mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(shared(b)) : "memory"); }
__device__ __forceinline__ void commit_all(u64 *b, u16 mask) {
    ASM("tcgen05.commit" CG ".mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" :: "r"(shared(b)), "h"(mask) : "memory");
}
#ifndef KIND
#define KIND "f16"
#endif
__device__ __forceinline__ void mma(u32 d, u64 a, u64 b, u32 idesc, u32 keep) {
    ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\ntcgen05.mma" CG ".kind::" KIND " [%0], %1, %2, %3, p;\\n}"
        :: "r"(d), "l"(a), "l"(b), "r"(idesc), "r"(keep) : "memory");
}
__device__ __forceinline__ void mma_ts(u32 d, u32 a, u64 b, u32 idesc, u32 keep) {
    ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %4, 0;\\ntcgen05.mma" CG ".kind::" KIND " [%0], [%1], %2, %3, p;\\n}"
        :: "r"(d), "r"(a), "l"(b), "r"(idesc), "r"(keep) : "memory");
}
__device__ __forceinline__ void ld8(u32 (&r)[8], u32 address) {
    ASM("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]) : "r"(address));
}
__device__ __forceinline__ void st8(u32 address, const u32 (&r)[8]) {
    ASM("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};"
        :: "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]));
}
// Registers that a load has written may be used from here on: the compiler must not use them earlier.
__device__ __forceinline__ void wait_ld8(u32 (&r)[8]) {
    ASM("tcgen05.wait::ld.sync.aligned;" : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]), "+r"(r[6]), "+r"(r[7]) :: "memory");
}
__device__ __forceinline__ u64 operand(const void *p) {   // K-major, 128-byte swizzle, 8 rows every 1024 bytes
    return (u64)((shared(p) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}
// A tile of `rows` rows of 64 16-bit values, 128-byte swizzle, by ordinary stores.
__device__ __forceinline__ void stage(u16 *to, const u16 *from, int rows, int pitch) {
    for (int i = threadIdx.x; i < rows * 64; i += blockDim.x) {
        int row = i / 64, k = i % 64;
        to[row * 64 + (k ^ row % 8 * 8)] = from[row * pitch + k];
    }
}
"""
)

# One block computes D (128, WIDTH) = A (128, 64) B (WIDTH, 64)^T: allocate, stage with ordinary stores, four MMAs, commit, load, store, release.
TEXTBOOK = (
    TCGEN05
    + """
extern "C" __global__ void __launch_bounds__(128) textbook(const u16 *a, const u16 *b, float *d) {
    __shared__ __align__(1024) u16 tile_a[128 * 64];
    __shared__ __align__(1024) u16 tile_b[WIDTH * 64];
    __shared__ u64 done;
    __shared__ u32 slot;
    u32 warp = threadIdx.x / 32;
    if (warp == 0) { ALLOC; PERMIT; }
    if (threadIdx.x == 0) { init(&done, 1); FENCE_INIT; }
    stage(tile_a, a, 128, 64);
    stage(tile_b, b, WIDTH, 64);
    FENCE_PROXY;
    __syncthreads();
    u32 address = slot;
    if (warp == MMA_WARP && elect()) {
        for (int k = 0; k < 4; ++k) mma(address, operand(tile_a) + 2 * k, operand(tile_b) + 2 * k, IDESC, KEEP);
        COMMIT;
    }
    WAIT;
    FENCE_AFTER;
    for (int n = 0; n < WIDTH; n += 8) {
        u32 r[8];
        ld8(r, address + LANE + n);
        WAIT_LD;
        for (int i = 0; i < 8; ++i) d[threadIdx.x * WIDTH + n + i] = __uint_as_float(r[i]);
    }
    FENCE_BEFORE;
    SYNC_END;
    if (warp == 0) { DEALLOC; }
}
"""
)
TEXTBOOK_PARTS = {
    "WIDTH": "64",
    "COLUMNS": "64",
    "IDESC": "0x08100490",
    "ALLOC": "tmem_alloc(&slot, COLUMNS)",
    "PERMIT": "tmem_permit()",
    "FENCE_INIT": "fence_init()",
    "FENCE_PROXY": "fence_async()",
    "MMA_WARP": "1",
    "KEEP": "k > 0",
    "COMMIT": "commit(&done)",
    "WAIT": "wait(&done, 0)",
    "FENCE_AFTER": "fence_after()",
    "LANE": "(warp << 21)",
    "WAIT_LD": "wait_ld8(r)",
    "FENCE_BEFORE": "fence_before()",
    "SYNC_END": "__syncthreads()",
    "DEALLOC": "tmem_dealloc(address, COLUMNS)",
}


@functools.cache
def compile_blackwell(source: str, arch: str = "sm_100a") -> str:
    """The PTX of a CUDA source, assembled for the architecture too."""
    return build.build(source, arch, name="test.cu", use_cache=False, strict=False).ptx


def run_blackwell(
    source: str, kernel: str, grid: Any, block: Any, args: Sequence[Any], **options: Any
) -> EmulationResult:
    """Compiles for sm_100a and emulates."""
    return emulate_ptx(compile_blackwell(source), kernel, grid, block, args, **options)


__all__ = ["TCGEN05", "TEXTBOOK", "TEXTBOOK_PARTS", "compile_blackwell", "filled", "run_blackwell"]
