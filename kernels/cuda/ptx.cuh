// One function for each PTX instruction that C++ cannot spell, and nothing else: no policy, and no control flow but the loops in which a
// wait tries again. Shared-memory addresses are 32-bit offsets in the shared window, as the instructions take them.
#pragma once
#include "types.cuh"

#define DEVICE __device__ __forceinline__

// Where the pointer points in the shared window.
DEVICE uint32 shared_address(const void *pointer) { return static_cast<uint32>(__cvta_generic_to_shared(pointer)); }

// ---- who am I ---------------------------------------------------------------------------------------------------

// The number of the SM that this CTA runs on.
DEVICE uint32 sm_number() {
    uint32 number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

// True in exactly one lane of a converged warp, and always in the same one.
DEVICE bool elect_one() {
    uint32 elected;
    asm volatile(
        "{\n"
        "  .reg .pred p;\n"
        "  elect.sync _|p, 0xffffffff;\n"
        "  selp.b32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(elected));
    return elected != 0;
}

// The value of lane 0 in every lane: tells the compiler that it is the same for the whole warp.
DEVICE uint32 warp_uniform(uint32 value) {
    uint32 result;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(result) : "r"(value));
    return result;
}

// The value of any lane of the warp.
DEVICE float from_lane(float value, uint32 lane) {
    uint32 result;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(result) : "r"(__float_as_uint(value)), "r"(lane));
    return __uint_as_float(result);
}

// ---- registers --------------------------------------------------------------------------------------------------

// Leaves each thread of the warpgroup `Count` registers, and gives the others back to the CTA; claiming waits until there are so many.
template <int Count> DEVICE void registers_release() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)); }
template <int Count> DEVICE void registers_claim() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }

// ---- barriers ---------------------------------------------------------------------------------------------------

// Barrier `id` of the CTA's 16: all of `Threads` threads, whole warps, wait for one another.
template <int Threads> DEVICE void named_barrier_sync(uint32 id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(Threads) : "memory"); }

// Counts as one of them, without waiting.
template <int Threads> DEVICE void named_barrier_arrive(uint32 id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(Threads) : "memory");
}

// A barrier whose phases complete after so many arrivals each.
DEVICE void mbarrier_init(uint32 barrier, uint32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the other CTAs of the cluster.
DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival at a barrier of this CTA.
DEVICE void mbarrier_arrive(uint32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }

// One arrival at the barrier at this offset in another CTA of the cluster. The default form (release at CTA scope) is meant: with
// .release.cluster the compiler puts a memory barrier for the whole GPU in front of it.
DEVICE void mbarrier_arrive_remote(uint32 barrier, uint32 cta_rank) {
    asm volatile(
        "{\n"
        "  .reg .b32 remote;\n"
        "  mapa.shared::cluster.u32 remote, %0, %1;\n"
        "  mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(barrier),
        "r"(cta_rank)
        : "memory");
}

// One arrival, and `bytes` more that the copy engine must bring before the phase completes.
DEVICE void mbarrier_arrive_expect_tx(uint32 barrier, uint32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Returns once the phase with this parity has completed. A try suspends the thread until then or for a time that the hardware chooses.
DEVICE void mbarrier_wait(uint32 barrier, uint32 parity) {
    asm volatile(
        "{\n"
        "  .reg .pred done;\n"
        "wait:\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "  @done bra finished;\n"
        "  bra wait;\n"
        "finished:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- programmatic dependent launch: both do nothing in a launch without it -----------------------------------------

// Returns once every grid that this one depends on has ended and its memory is visible.
DEVICE void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The grids that depend on this one may be launched once every CTA of it has called this or ended.
DEVICE void dependency_allow() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- between CTAs, through global memory --------------------------------------------------------------------------

// Adds one to a counter and returns what it was. Whoever sees the new count can read what this thread wrote before, or could read; and this
// thread what those wrote who had counted before.
DEVICE uint32 global_count(uint32 *counter) {
    uint32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(reinterpret_cast<uint64>(counter)) : "memory");
    return before;
}

// Puts a number in the place of another, which it returns: of several threads that do so one is the first.
DEVICE uint32 global_exchange(uint32 *place, uint32 value) {
    uint32 before;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(reinterpret_cast<uint64>(place)), "r"(value) : "memory");
    return before;
}

// Writes a number that others exchange and count, as an access that may meet theirs.
DEVICE void global_set(uint32 *place, uint32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(reinterpret_cast<uint64>(place)), "r"(value) : "memory");
}

// What this thread wrote before can be read by the whole GPU before anything that it does afterwards.
DEVICE void global_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Returns once the counter has reached `count`; what was written before it was counted can be read then.
DEVICE void global_wait(const uint32 *counter, uint32 count) {
    uint32 seen;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(reinterpret_cast<uint64>(counter)) : "memory");
    } while (seen < count);
}

// !INTEGER: Four additions to neighbouring numbers in one access, each atomic by itself.
DEVICE void global_add(float *sum, float x, float y, float z, float w) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint64>(sum)),
                 "f"(x), "f"(y), "f"(z), "f"(w)
                 : "memory");
}
// INTEGER: Four additions to neighbouring numbers, each atomic by itself. Only floats have an instruction for all four.
DEVICE void global_add(int32 *sum, int32 x, int32 y, int32 z, int32 w) {
    asm volatile(
        "red.relaxed.gpu.global.add.s32 [%0], %1;\n"
        "red.relaxed.gpu.global.add.s32 [%0+4], %2;\n"
        "red.relaxed.gpu.global.add.s32 [%0+8], %3;\n"
        "red.relaxed.gpu.global.add.s32 [%0+12], %4;" ::"l"(reinterpret_cast<uint64>(sum)),
        "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

// Raises a number, as its bits: right for floats that are not negative.
DEVICE void global_maximum(uint32 *most, uint32 value) {
    asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(reinterpret_cast<uint64>(most)), "r"(value) : "memory");
}

// Asks for the line around an address in L2.
DEVICE void prefetch_l2(const void *address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<uint64>(address))); }

// Asks for the 128 bytes around an address in the first-level cache.
DEVICE void prefetch_line(const void *address) { asm volatile("prefetch.global.L1 [%0];" ::"l"(reinterpret_cast<uint64>(address))); }

// 2^x within 2^-22, and 1 / x within one unit in the last place; results and x below 2^-126 count as 0.
DEVICE float exp2_approximately(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float reciprocal_approximately(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The largest of the warp's numbers.
DEVICE uint32 warp_maximum(uint32 value) {
    uint32 most;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(value));
    return most;
}

// ---- clusters ---------------------------------------------------------------------------------------------------

// The number of this CTA in its cluster.
DEVICE uint32 cluster_rank() {
    uint32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Every thread of every CTA of the cluster has arrived. Relaxed is enough where a fence has published what matters.
DEVICE void cluster_sync_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Every thread of every CTA of the cluster has arrived, and what each wrote before can be read by all after.
DEVICE void cluster_sync_ordered() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The number at this offset in the shared memory of another CTA of the cluster.
DEVICE uint32 shared_load_remote(uint32 address, uint32 cta_rank) {
    uint32 value;
    asm volatile(
        "{\n"
        "  .reg .b32 remote;\n"
        "  mapa.shared::cluster.u32 remote, %1, %2;\n"
        "  ld.shared::cluster.u32 %0, [remote];\n"
        "}\n" : "=r"(value) : "r"(address), "r"(cta_rank) : "memory");
    return value;
}

// ---- the copy engine (TMA) --------------------------------------------------------------------------------------

// Fetches a tensor map before it is needed.
DEVICE void tensor_map_prefetch(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64>(map)) : "memory");
}

// What L2 is told about lines that a copy brings, an operand of the copy: that they go first when it needs room.
DEVICE uint64 l2_evict_first() {
    uint64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// That they go last.
DEVICE uint64 l2_evict_last() {
    uint64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Box at element coordinates (x innermost, y) of a matrix -> shared memory; its bytes are counted at `barrier`.
DEVICE void tma_load_2d(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

// Box at element coordinates (x innermost, y) of a matrix -> shared memory; its bytes are counted at `barrier`; L2 keeps it by `policy`.
DEVICE void tma_load_2d_hinted(uint32 destination, const TensorMap *map, uint32 barrier, uint64 policy, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "l"(policy)
        : "memory");
}

// Box at element coordinates (x innermost, y) of a matrix -> shared memory of every CTA of the cluster in `cta_mask`, at this offset,
// counted at that CTA's own barrier.
DEVICE void tma_load_2d_multicast(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y)
        : "memory");
}

// Box at element coordinates (x innermost, y) of a matrix -> shared memory of every CTA of the cluster in `cta_mask`, at this offset,
// counted at that CTA's own barrier; L2 keeps it by `policy`.
DEVICE void tma_load_2d_multicast_hinted(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, uint64 policy,
                                          int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%4, %5}], [%2], %3, %6;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y), "l"(policy)
        : "memory");
}

// Box at (x innermost, y, z) of several matrices -> shared memory; its bytes are counted at `barrier`.
DEVICE void tma_load_3d(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// Box at (x innermost, y, z) of several matrices -> shared memory; its bytes are counted at `barrier`; L2 keeps it by `policy`.
DEVICE void tma_load_3d_hinted(uint32 destination, const TensorMap *map, uint32 barrier, uint64 policy, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

// Box at (x innermost, y, z) of several matrices -> shared memory of every CTA of the cluster in `cta_mask`, at this offset, counted at
// that CTA's own barrier.
DEVICE void tma_load_3d_multicast(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// Box at (x innermost, y, z) of several matrices -> shared memory of every CTA of the cluster in `cta_mask`, at this offset, counted at
// that CTA's own barrier; L2 keeps it by `policy`.
DEVICE void tma_load_3d_multicast_hinted(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, uint64 policy,
                                          int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%4, %5, %6}], [%2], %3, %7;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

// Shared memory -> box at (x, y) of a matrix; elements outside it are not written.
DEVICE void tma_store_2d(const TensorMap *map, uint32 source, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(reinterpret_cast<uint64>(map)),
                 "r"(source), "r"(x), "r"(y)
                 : "memory");
}

// Shared memory -> box at (x, y, z) of several matrices; elements outside them are not written.
DEVICE void tma_store_3d(const TensorMap *map, uint32 source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
                 "l"(reinterpret_cast<uint64>(map)),
                 "r"(source), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// Ends a group of this thread's stores; the waits below count groups.
DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// At most `Pending` of this thread's store groups may still be reading shared memory.
template <int Pending> DEVICE void tma_store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory"); }

// Orders this thread's ordinary shared-memory accesses before later ones of the copy engine and the tensor cores.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- tensor cores (the multiply itself is generated for the tile's N: see wgmma below) ----------------------------

// Before multiplies: orders the warpgroup's earlier accesses of their accumulator registers before them.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a batch of multiplies.
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Returns once at most `Pending` of this warp's batches of multiplies are still under way. Until then their accumulators are the tensor
// core's.
template <int Pending> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"); }

// !INTEGER: No instruction. What stands below reads an accumulator only now: "memory" above orders no registers, and the compiler might read
// it before the wait.
DEVICE void wgmma_result(float &accumulator) { asm volatile("" : "+f"(accumulator)); }
// INTEGER: No instruction. What stands below reads an accumulator only now: "memory" above orders no registers, and the compiler might read
// it before the wait.
DEVICE void wgmma_result(int32 &accumulator) { asm volatile("" : "+r"(accumulator)); }

// ---- results ----------------------------------------------------------------------------------------------------

// 16 bytes of shared memory to global memory.
DEVICE void shared_to_global_16(void *target, uint32 source) {
    asm volatile(
        "{\n"
        "  .reg .b32 a, b, c, d;\n"
        "  ld.shared.v4.b32 {a, b, c, d}, [%1];\n"
        "  st.global.v4.b32 [%0], {a, b, c, d};\n"
        "}\n" ::"l"(reinterpret_cast<uint64>(target)),
        "r"(source)
        : "memory");
}

// One number to shared memory.
DEVICE void shared_store(uint32 address, uint32 value) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory"); }

// One number from shared memory.
DEVICE uint32 shared_load(uint32 address) {
    uint32 value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

// 16 bytes of zeros to shared memory.
DEVICE void shared_zero_16(uint32 target) { asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(target), "r"(0) : "memory"); }

// Two floats, rounded to nearest even, as two float16: `low` in bits 0-15.
DEVICE uint32 pack_f16(float low, float high) {
    uint32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Two floats, rounded to nearest even, as two bfloat16: `low` in bits 0-15.
DEVICE uint32 pack_bf16(float low, float high) {
    uint32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Two floats as two e4m3: `low` in bits 0-7; what is beyond the largest becomes the largest.
DEVICE uint16 pack_e4m3(float low, float high) {
    uint16 packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

// Two floats as two e5m2: `low` in bits 0-7; what is beyond the largest becomes the largest.
DEVICE uint16 pack_e5m2(float low, float high) {
    uint16 packed;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

// The nearest whole number (of two, the even one), kept within -2^31 .. 2^31 - 1; NaN is 0.
DEVICE int32 rounded(float value) {
    int32 whole;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(whole) : "f"(value));
    return whole;
}

// A float16 as a float.
DEVICE float widened_f16(uint16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Four 8x8 matrices of 16-bit elements from registers to rows of 16 bytes; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void stmatrix_x4(uint32 row, uint32 a, uint32 b, uint32 c, uint32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Two 8x8 matrices of 16-bit elements; lanes 0 to 15 give the addresses of the rows.
DEVICE void stmatrix_x2(uint32 row, uint32 a, uint32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}

// Four 8x8 matrices, each transposed on its way: the registers hold columns of what is written.
DEVICE void stmatrix_x4_transposed(uint32 row, uint32 a, uint32 b, uint32 c, uint32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// Two 8x8 matrices, each transposed on its way.
DEVICE void stmatrix_x2_transposed(uint32 row, uint32 a, uint32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}
