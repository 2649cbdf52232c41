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
    __shared__ __align__(1024) u16 tile_a[128 * 64 + 512];
    __shared__ __align__(1024) u16 tile_b[WIDTH * 64];
    __shared__ u64 done;
    __shared__ u32 slot;
    u32 warp = threadIdx.x / 32;
    if (warp == 0) { ALLOC; PERMIT; }
    if (threadIdx.x == 0) { init(&done, 1); FENCE_INIT; }
    stage(TILE, a, 128, 64);
    stage(tile_b, b, WIDTH, 64);
    FENCE_PROXY;
    STAGED;
    u32 address = ADDRESS;
    if (warp == MMA_WARP && elect()) {
        for (int k = 0; k < 4; ++k) mma(address, (operand(TILE) | BASE) + 2 * k, operand(tile_b) + 2 * k, IDESC, KEEP);
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
    "TILE": "tile_a",
    "BASE": "0",
    "COLUMNS": "64",
    "IDESC": "0x08100490",
    "ALLOC": "tmem_alloc(&slot, COLUMNS)",
    "PERMIT": "tmem_permit()",
    "FENCE_INIT": "fence_init()",
    "FENCE_PROXY": "fence_async()",
    "STAGED": "__syncthreads()",
    "ADDRESS": "slot",
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


# D (tiles * 128, 64) = A (tiles * 128, depth * 64) B (64, depth * 64)^T: a producer warp, a warp that multiplies, four warps that store. Two slots, and
# ACCUMULATORS accumulators in turn.
PIPELINE = (
    TCGEN05
    + """
extern "C" __global__ void __launch_bounds__(192) pipeline(
    const __grid_constant__ Map a, const __grid_constant__ Map b, float *d, int tiles, int depth) {
    extern __shared__ __align__(1024) char slots[];   // a slot: A of 16384 bytes, B of 8192
    __shared__ u64 full[2], empty[2], acc_full[2], acc_empty[2];
    __shared__ u32 slot;
    u32 warp = threadIdx.x / 32;
    if (warp == 0) { tmem_alloc(&slot, 64 * ACCUMULATORS); tmem_permit(); }
    if (threadIdx.x == 32) {
        for (int i = 0; i < 2; ++i) { init(&full[i], 1); init(&empty[i], 1); init(&acc_full[i], 1); init(&acc_empty[i], 128); }
        fence_init();
    }
    __syncthreads();
    u32 address = slot;
    if (warp == 0) {
        if (elect()) {
            int turn = 0;
            for (int t = 0; t < tiles; ++t)
                for (int k = 0; k < depth; ++k, ++turn) {
                    int s = turn % 2;
                    WAIT_EMPTY;
                    EXPECT;
                    load(slots + s * 24576, &a, k * 64, t * 128, &full[s]);
                    load(slots + s * 24576 + 16384, &b, k * 64, 0, &full[s]);
                }
        }
    } else if (warp == 1) {
        if (elect()) {
            int turn = 0;
            for (int t = 0; t < tiles; ++t) {
                int e = t % ACCUMULATORS;
                WAIT_ACCUMULATOR;
                MMA_FENCE_AFTER;
                for (int k = 0; k < depth; ++k, ++turn) {
                    int s = turn % 2;
                    WAIT_FULL;
                    for (int j = 0; j < 4; ++j)
                        mma(address + e * 64, operand(slots + s * 24576) + 2 * j, operand(slots + s * 24576 + 16384) + 2 * j, 0x08100490, k + j > 0);
                    COMMIT_SLOT;
                }
                COMMIT_ACCUMULATOR;
            }
        }
    } else {
        for (int t = 0; t < tiles; ++t) {
            int e = t % ACCUMULATORS;
            WAIT_RESULT;
            EPILOGUE_FENCE_AFTER;
            u32 lane = warp % 4 * 32, row = lane + threadIdx.x % 32;
            for (int n = 0; n < 64; n += 8) {
                u32 r[8];
                ld8(r, address + (lane << 16) + e * 64 + n);
                wait_ld8(r);
                if (n == 56) { EARLY; }
                for (int i = 0; i < 8; ++i) d[(t * 128 + row) * 64 + n + i] = __uint_as_float(r[i]);
            }
            RELEASE;
        }
    }
    END;
    if (warp == 0) tmem_dealloc(address, 64 * ACCUMULATORS);
}
"""
)
PIPELINE_PARTS = {
    "ACCUMULATORS": "2",
    "WAIT_EMPTY": "wait(&empty[s], turn / 2 & 1 ^ 1)",
    "EXPECT": "expect(&full[s], 24576)",
    "WAIT_ACCUMULATOR": "wait(&acc_empty[e], t / ACCUMULATORS & 1 ^ 1)",
    "MMA_FENCE_AFTER": "fence_after()",
    "WAIT_FULL": "wait(&full[s], turn / 2 & 1)",
    "COMMIT_SLOT": "commit(&empty[s])",
    "COMMIT_ACCUMULATOR": "commit(&acc_full[e])",
    "WAIT_RESULT": "wait(&acc_full[e], t / ACCUMULATORS & 1)",
    "EPILOGUE_FENCE_AFTER": "fence_after()",
    "EARLY": "fence_before(); arrive(&acc_empty[e])",
    "RELEASE": "",
    "END": "__syncthreads()",
}

# A pair of blocks computes D (256, 64) = A (256, 64) B (64, 64)^T, .cta_group::2: each stages half the rows of A and of B.
PAIR = (
    """
#define GROUP "2"
"""
    + TCGEN05
    + """
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128) pair(const u16 *a, const u16 *b, float *d) {
    __shared__ __align__(1024) u16 tile_a[128 * 64];
    __shared__ __align__(1024) u16 tile_b[32 * 64];
    __shared__ u64 done, leave;
    __shared__ u32 slot;
    u32 warp = threadIdx.x / 32, me = rank();
    if (threadIdx.x == 0) { init(&done, 1); init(&leave, COUNT); fence_init(); }
    SYNC_START;
    if (warp == 0) { ALLOC; PERMIT; }
    stage(tile_a, a + me * 128 * 64, 128, 64);
    stage(tile_b, b + me * 32 * 64, 32, 64);
    FENCE_PROXY;
    SYNC_STAGED;
    u32 address = slot;
    if (me == ISSUER && warp == 1 && elect()) {
        for (int k = 0; k < 4; ++k) mma(address, operand(tile_a) + 2 * k, operand(tile_b) + 2 * k, IDESC, k > 0);
        COMMIT;
    }
    WAIT;
    fence_after();
    for (int n = 0; n < 64; n += 8) {
        u32 r[8];
        ld8(r, address + (warp << 21) + n);
        wait_ld8(r);
        for (int i = 0; i < 8; ++i) d[(me * 128 + threadIdx.x) * 64 + n + i] = __uint_as_float(r[i]);
    }
    fence_before();
    SYNC_END;
    if (warp == 0) { DEALLOC; }
}
"""
)
PAIR_PARTS = {
    "CLUSTER": "2",
    "COUNT": "32",
    # As NVIDIA's kernels end: a warp of each block arrives with all lanes at the other's barrier, and waits for its own.
    "HANDSHAKE": "__syncthreads(); if (warp == 0) { arrive_at(&leave, me ^ 1); wait(&leave, 0); fence_after(); }",
    "SYNC_START": "cluster_sync()",
    "ALLOC": "tmem_alloc(&slot, 64)",
    "PERMIT": "tmem_permit()",
    "FENCE_PROXY": "fence_async()",
    "SYNC_STAGED": "cluster_sync()",
    "ISSUER": "0",
    "IDESC": "0x10100490",
    "COMMIT": "commit_all(&done, 3)",
    "WAIT": "wait(&done, 0)",
    "SYNC_END": "cluster_sync()",
    "DEALLOC": "tmem_dealloc(address, 64)",
}


# Each block of the cluster fills its shared memory from an image and its tensor memory from a table, thread 32 of the first issues ISSUE for each of
# `steps`, and everything that tensor memory then holds is written out.
PROBE = (
    TCGEN05
    + """
extern "C" __global__ void CLUSTER __launch_bounds__(128) probe(
    const u32 *image, int words, const u32 *before, u32 *after, const u64 *a, const u64 *b, int steps, u32 idesc) {
    extern __shared__ __align__(1024) u32 memory[];
    __shared__ u64 done;
    __shared__ u32 slot;
    u32 warp = threadIdx.x / 32, me = rank(), row = me * 128 + threadIdx.x;
    if (threadIdx.x == 0) { init(&done, 1); fence_init(); }
    cluster_sync();
    if (warp == 0) { tmem_alloc(&slot, 512); tmem_permit(); }
    for (int i = threadIdx.x; i < words; i += 128) memory[i] = image[me * words + i];
    fence_async();
    __syncthreads();
    u32 address = slot + (warp << 21);
    for (int n = 0; n < 512; n += 8) {
        u32 r[8];
        for (int i = 0; i < 8; ++i) r[i] = before[row * 512 + n + i];
        st8(address + n, r);
    }
    wait_st();
    fence_before();
    cluster_sync();
    if (me == 0 && warp == 1 && elect()) {
        fence_after();
        u64 base = (shared(memory) & 0x3FFFF) >> 4;
        for (int i = 0; i < steps; ++i) { ISSUE; }
        COMMIT;
    }
    wait(&done, 0);
    fence_after();
    for (int n = 0; n < 512; n += 8) {
        u32 r[8];
        ld8(r, address + n);
        wait_ld8(r);
        for (int i = 0; i < 8; ++i) after[row * 512 + n + i] = r[i];
    }
    cluster_sync();
    if (warp == 0) tmem_dealloc(slot, 512);
}
"""
)


@functools.cache
def compile_blackwell(source: str, arch: str = "sm_100a") -> str:
    """The PTX of a CUDA source, assembled for the architecture too."""
    return build.build(source, arch, name="test.cu", use_cache=False, strict=False).ptx


def run_blackwell(
    source: str, kernel: str, grid: Any, block: Any, args: Sequence[Any], **options: Any
) -> EmulationResult:
    """Compiles for sm_100a and emulates."""
    return emulate_ptx(compile_blackwell(source), kernel, grid, block, args, **options)


__all__ = [
    "PAIR", "PAIR_PARTS", "PIPELINE", "PIPELINE_PARTS", "PROBE", "TCGEN05", "TEXTBOOK", "TEXTBOOK_PARTS", "compile_blackwell", "filled", "run_blackwell",
]  # fmt: skip
