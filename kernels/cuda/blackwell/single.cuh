// One CTA computes a tile by itself: the instructions in their form for cta_group::1.
#pragma once
#include "tcgen05.cuh"

// ---- who am I ---------------------------------------------------------------------------------------------------

DEVICE uint32 cta_of_tile() { return 0; }

// The barrier at this offset in the CTA that multiplies.
DEVICE uint32 leaders_barrier(uint32 barrier) { return barrier; }
DEVICE void arrive_at_leader(uint32 barrier) { mbarrier_arrive(barrier); }

// ---- tensor memory: by one whole warp -----------------------------------------------------------------------------

// Waits until so many columns are free, takes them and writes their address to `slot` in shared memory.
template <int Columns> DEVICE void tmem_allocate(uint32 slot) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot), "n"(Columns) : "memory");
}

// This CTA allocates no more: a CTA of another kernel on this SM need not wait for it to end.
DEVICE void tmem_relinquish() { asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory"); }

template <int Columns> DEVICE void tmem_free(uint32 tmem) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "n"(Columns) : "memory");
}

// What must have happened before memory is taken and before it is given back. CTAs of other tiles in a cluster reach into this one's shared memory.
DEVICE void sync_ctas() {
    if (CLUSTER_CTAS > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
}
DEVICE void sync_before_allocation() {}

// ---- the multiply: by one thread, always the same ------------------------------------------------------------------

// D (+)= A B^T for TILE_M x TILE_N and 32 bytes of K. The operands are read from shared memory through their descriptors, D stays in tensor memory.
DEVICE void tmem_multiply(uint32 d, uint64 a, uint64 b, bool accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred accumulate;\n"
        "  setp.ne.b32 accumulate, %4, 0;\n"
        "  tcgen05.mma" MULTIPLY_FORM ".cta_group::1." MULTIPLY_KIND " [%0], %1, %2, %3, accumulate;\n"
        "}\n" ::"r"(d),
        "l"(a), "l"(b), "r"(INSTRUCTION_DESCRIPTOR), "r"(int(accumulate))
        : "memory");
}

// The same with A in tensor memory.
DEVICE void tmem_multiply(uint32 d, TensorMemory a, uint64 b, bool accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred accumulate;\n"
        "  setp.ne.b32 accumulate, %4, 0;\n"
        "  tcgen05.mma.cta_group::1." MULTIPLY_KIND " [%0], [%1], %2, %3, accumulate;\n"
        "}\n" ::"r"(d),
        "r"(a.address), "l"(b), "r"(INSTRUCTION_DESCRIPTOR), "r"(int(accumulate))
        : "memory");
}

// 128 rows of 32 bytes of shared memory -> 8 columns of tensor memory.
DEVICE void tmem_copy_rows(uint32 tmem, uint64 descriptor) { asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(tmem), "l"(descriptor) : "memory"); }

// One arrival at `barrier` when every multiply that this thread has issued is complete.
DEVICE void tmem_commit(uint32 barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
}

// The same in every CTA of the cluster in `cta_mask`.
DEVICE void tmem_commit_to(uint32 barrier, uint16 cta_mask) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier), "h"(cta_mask) : "memory");
}

// ---- the copy engine ---------------------------------------------------------------------------------------------

// Box at element coordinates (x innermost, y) of the tensor -> shared memory; its bytes are counted at the leader's `barrier`.
DEVICE void tma_load_to_tile(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

// The same from matrix z of several.
DEVICE void tma_load_matrix_to_tile(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// The same into the shared memory of every CTA of the cluster in `cta_mask`, at this offset, counted at that CTA's leader's barrier.
DEVICE void tma_load_to_tiles(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y)
        : "memory");
}
