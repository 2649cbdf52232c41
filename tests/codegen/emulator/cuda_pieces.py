"""CUDA wrappers of single PTX instructions for the test kernels, and the kernels that several tests share."""

from __future__ import annotations

WRAPPERS = """
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned short u16;
struct alignas(64) Map { char bytes[128]; };
#define ASM(...) asm volatile(__VA_ARGS__)
__device__ __forceinline__ u32 shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64 *b, u32 n) { ASM("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(b)), "r"(n) : "memory"); }
__device__ __forceinline__ void fence_init() { ASM("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void fence_async() { ASM("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void arrive(u64 *b) { ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared(b)) : "memory"); }
__device__ __forceinline__ void expect(u64 *b, u32 n) { ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared(b)), "r"(n) : "memory"); }
__device__ __forceinline__ void wait(u64 *b, u32 parity) {
    ASM("{\\n.reg .pred p;\\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@p bra done;\\nbra again;\\ndone:\\n}" :: "r"(shared(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ bool elect() {
    u32 yes; ASM("{\\n.reg .pred p;\\nelect.sync _|p, 0xffffffff;\\nselp.b32 %0, 1, 0, p;\\n}" : "=r"(yes)); return yes;
}
__device__ __forceinline__ void load(void *to, const Map *map, int x, int y, u64 *b) {
    ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        :: "r"(shared(to)), "l"(map), "r"(x), "r"(y), "r"(shared(b)) : "memory");
}
__device__ __forceinline__ void load_all(void *to, const Map *map, int x, int y, u64 *b, u16 mask) {
    ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
        :: "r"(shared(to)), "l"(map), "r"(x), "r"(y), "r"(shared(b)), "h"(mask) : "memory");
}
__device__ __forceinline__ void store(const Map *map, const void *from, int x, int y) {
    ASM("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" :: "l"(map), "r"(x), "r"(y), "r"(shared(from)) : "memory");
}
__device__ __forceinline__ void store_commit() { ASM("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void store_wait() { ASM("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory"); }
template <int N> __device__ __forceinline__ void store_wait_read() { ASM("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ u32 rank() { u32 r; ASM("mov.u32 %0, %cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void cluster_sync() { ASM("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory"); }
__device__ __forceinline__ void arrive_at(u64 *b, u32 block) {
    ASM("{\\n.reg .b32 a;\\nmapa.shared::cluster.u32 a, %0, %1;\\nmbarrier.arrive.shared::cluster.b64 _, [a];\\n}" :: "r"(shared(b)), "r"(block) : "memory");
}
__device__ __forceinline__ void wgmma_fence() { ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() { ASM("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ u64 descriptor(const void *p) {   // K-major, 128-byte swizzle, 8 rows every 1024 bytes
    return (u64)((shared(p) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ __forceinline__ void wgmma(float (&d)[4], u64 a, u64 b, int keep) {
    ASM("{\\n.reg .pred p;\\nsetp.ne.b32 p, %6, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(keep));
}
"""

RING = (
    WRAPPERS
    + """
// A producer warp loads boxes of 32 rows of 32 words through a ring of slots; a consumer warp sums the columns.
#ifndef SLOTS
#define SLOTS 3
#endif
extern "C" __global__ void __launch_bounds__(64) ring(const __grid_constant__ Map map, u32 *out, int tiles) {
    extern __shared__ __align__(1024) u32 slots[];
    __shared__ u64 full[SLOTS], empty[SLOTS];
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; ++s) { init(&full[s], 1); init(&empty[s], 32); }
        FENCE_INIT;
    }
    SYNC;
    if (threadIdx.x < 32) {
        if (elect()) {
            for (int i = 0; i < tiles; ++i) {
                int s = i % SLOTS;
                wait(&empty[s], i / SLOTS & 1 ^ 1);
                expect(&full[s], BYTES);
                load(slots + s * 1024, &map, 0, i * 32, &full[s]);
            }
        }
    } else {
        u32 total = 0, lane = threadIdx.x % 32;
        for (int i = 0; i < tiles; ++i) {
            int s = i % SLOTS;
            WAIT_FULL;
            for (int r = 0; r < 32; ++r) total += slots[s * 1024 + r * 32 + lane];
            RELEASE;
        }
        out[lane] = total;
    }
}
"""
)
RING_PARTS = {
    "FENCE_INIT": "fence_init()",
    "SYNC": "__syncthreads()",
    "BYTES": "4096",
    "WAIT_FULL": "wait(&full[s], i / SLOTS & 1)",
    "RELEASE": "fence_async(); arrive(&empty[s])",
}

COPY_OUT = (
    WRAPPERS
    + """
// A warpgroup writes a box of 32 rows of 32 words and sends it off by a tensor store, `rounds` times through two buffers.
extern "C" __global__ void __launch_bounds__(128) copy_out(const __grid_constant__ Map map, int rounds) {
    __shared__ __align__(1024) u32 buffer[2][1024];
    for (int i = 0; i < rounds; ++i) {
        u32 *at = buffer[i & 1];
        if (threadIdx.x == 0) { WAIT_READ; }
        SYNC_BEFORE;
        for (int k = threadIdx.x; k < 1024; k += 128) at[k] = i * 1024 + k;
        FENCE;
        SYNC_AFTER;
        if (threadIdx.x == 0) { store(&map, at, 0, i * 32); COMMIT; }
    }
    if (threadIdx.x == 0) { WAIT_END; }
}
"""
)
COPY_OUT_PARTS = {
    "WAIT_READ": "store_wait_read<1>()",
    "SYNC_BEFORE": "__syncthreads()",
    "FENCE": "fence_async()",
    "SYNC_AFTER": "__syncthreads()",
    "COMMIT": "store_commit()",
    "WAIT_END": "store_wait<0>()",
}

PRODUCT = (
    WRAPPERS
    + """
// D (64, 8) = sum over tiles of A (64, 64) B (8, 64)^T, bf16; one warpgroup, two slots, all loads by thread 0.
extern "C" __global__ void __launch_bounds__(128) product(const __grid_constant__ Map a, const __grid_constant__ Map b, float *out, int tiles) {
    __shared__ __align__(1024) char tile_a[2][8192];
    __shared__ __align__(1024) char tile_b[2][1024];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) { init(&full[0], 1); init(&full[1], 1); fence_init(); }
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < tiles; ++i) {
        int s = i & 1;
        if (threadIdx.x == 0) {
            expect(&full[s], 8192 + 1024);
            load(tile_a[s], &a, i * 64, 0, &full[s]);
            load(tile_b[s], &b, i * 64, 0, &full[s]);
        }
        WAIT_FULL;
        FENCE;
        for (int k = 0; k < 4; ++k) wgmma(d, descriptor(tile_a[s]) + 2 * k, descriptor(tile_b[s]) + 2 * k, i + k > 0);
        COMMIT;
        WAIT;
        SYNC;
    }
    WAIT_ALL;
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int e = 0; e < 4; ++e) out[(row + e / 2 * 8) * 8 + column + e % 2] = d[e];
}
"""
)
PRODUCT_PARTS = {
    "WAIT_FULL": "wait(&full[s], i / 2 & 1)",
    "FENCE": "wgmma_fence()",
    "COMMIT": "wgmma_commit()",
    "WAIT": "wgmma_wait<1>()",
    "SYNC": "__syncthreads()",
    "WAIT_ALL": "wgmma_wait<0>()",
}


def filled(source: str, parts: dict[str, str], **changes: str) -> str:
    """A kernel's source with its parts put in, some of them changed."""
    defines = "\n".join(f"#define {name} {text}" for name, text in {**parts, **changes}.items())
    return defines + "\n" + source
