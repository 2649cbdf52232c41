// Two CTAs of a cluster compute a tile together: the instructions in their form for cta_group::2. Each CTA loads half the rows of A and half the
// rows of B and ends with half the rows of D; one of them, the leader, multiplies for both, reading both shared memories and writing both tensor memories.
#pragma once
#include "tcgen05.cuh"

// ---- who am I ---------------------------------------------------------------------------------------------------

// 0 in the leader, 1 in its peer: a pair's ranks in the cluster are an even number and the next.
DEVICE uint32 cta_of_tile() { return cluster_rank() & 1; }

// The barrier at this offset in the leader, as an address in the cluster's window: bits 24 and up hold the rank, and the leader's is even.
DEVICE uint32 leaders_barrier(uint32 barrier) { return barrier & 0xfeffffff; }
DEVICE void arrive_at_leader(uint32 barrier) { mbarrier_arrive_remote(barrier, cluster_rank() & ~1u); }

// ---- tensor memory: by one whole warp of each CTA, together ----------------------------------------------------------

// Waits until so many columns are free in both CTAs, takes them and writes their address to each CTA's `slot` in shared memory.
template <int Columns> DEVICE void tmem_allocate(uint32 slot) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot), "n"(Columns) : "memory");
}

// This CTA allocates no more: a CTA of another kernel on this SM need not wait for it to end.
DEVICE void tmem_relinquish() { asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory"); }

template <int Columns> DEVICE void tmem_free(uint32 tmem) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "n"(Columns) : "memory");
}

// What must have happened before memory is taken and before it is given back.
DEVICE void sync_ctas() { cluster_sync(); }

// The pair allocates together, so both must have started; the same barrier publishes the mbarriers to the peer.
DEVICE void sync_before_allocation() { sync_ctas(); }

// ---- the multiply: by one thread of the leader, always the same -------------------------------------------------------

// D (+)= A B^T for TILE_M x TILE_N and 32 bytes of K. The descriptors and D's address hold in both CTAs, each at its own memory.
DEVICE void tmem_multiply(uint32 d, uint64 a, uint64 b, bool accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred accumulate;\n"
        "  setp.ne.b32 accumulate, %4, 0;\n"
        "  tcgen05.mma.cta_group::2." MULTIPLY_KIND " [%0], %1, %2, %3, accumulate;\n"
        "}\n" ::"r"(d),
        "l"(a), "l"(b), "r"(INSTRUCTION_DESCRIPTOR), "r"(int(accumulate))
        : "memory");
}

// The same with A in tensor memory, that of each CTA in its own.
DEVICE void tmem_multiply(uint32 d, TensorMemory a, uint64 b, bool accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred accumulate;\n"
        "  setp.ne.b32 accumulate, %4, 0;\n"
        "  tcgen05.mma.cta_group::2." MULTIPLY_KIND " [%0], [%1], %2, %3, accumulate;\n"
        "}\n" ::"r"(d),
        "r"(a.address), "l"(b), "r"(INSTRUCTION_DESCRIPTOR), "r"(int(accumulate))
        : "memory");
}

// 128 rows of 32 bytes of shared memory -> 8 columns of tensor memory, in both CTAs.
DEVICE void tmem_copy_rows(uint32 tmem, uint64 descriptor) { asm volatile("tcgen05.cp.cta_group::2.128x256b [%0], %1;" ::"r"(tmem), "l"(descriptor) : "memory"); }

// One arrival at `barrier` in both CTAs when every multiply that this thread has issued is complete.
DEVICE void tmem_commit(uint32 barrier) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier), "h"(static_cast<uint16>(0b11 << (cluster_rank() & ~1u))) : "memory");
}

// The same in every CTA of the cluster in `cta_mask`.
DEVICE void tmem_commit_to(uint32 barrier, uint16 cta_mask) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier), "h"(cta_mask) : "memory");
}

// ---- the copy engine ---------------------------------------------------------------------------------------------

// Box at element coordinates (x innermost, y) of the tensor -> this CTA's shared memory; its bytes are counted at the leader's `barrier`.
DEVICE void tma_load_to_tile(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

// The same from matrix z of several.
DEVICE void tma_load_matrix_to_tile(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// The same into the shared memory of every CTA of the cluster in `cta_mask`, at this offset, counted at that CTA's leader's barrier.
DEVICE void tma_load_to_tiles(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y)
        : "memory");
}
