// Instructions in the plainest form, one function each, as in ptx.cuh: what only the ladder uses.
#pragma once
#include "ptx.cuh"

// ---- tensor cores without warpgroups ------------------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements from rows of 16 bytes to registers; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void ldmatrix_x4(uint32 (&matrices)[4], uint32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(row)
                 : "memory");
}

// d += A B^T for one block of 16 x 8 x 16, all of it in the registers of one warp.
DEVICE void mma_m16n8k16(float (&d)[4], const uint32 (&a)[4], uint32 b_low, uint32 b_high) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

// ---- barriers that are waited for by one's own arrival --------------------------------------------------------------

// Arrives and returns the barrier's state before: it names the phase that this arrival belongs to.
DEVICE uint64 mbarrier_arrive_state(uint32 barrier) {
    uint64 state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
    return state;
}

// Returns once the phase that `state` names has completed.
DEVICE void mbarrier_wait_state(uint32 barrier, uint64 state) {
    asm volatile(
        "{\n"
        "  .reg .pred done;\n"
        "wait:\n"
        "  mbarrier.try_wait.shared::cta.b64 done, [%0], %1;\n"
        "  @done bra finished;\n"
        "  bra wait;\n"
        "finished:\n"
        "}\n" ::"r"(barrier),
        "l"(state)
        : "memory");
}

// ---- the copy engine (TMA) ----------------------------------------------------------------------------------------

// Box at element coordinates (x innermost, y) of the tensor -> shared memory; its bytes are counted at `barrier`.
DEVICE void load_box(uint32 destination, const TensorMap *map, uint32 barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

// The same into the shared memory of every CTA of the cluster in `cta_mask`, at this offset, counted at that CTA's own barrier.
DEVICE void load_box_multicast(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y)
        : "memory");
}
