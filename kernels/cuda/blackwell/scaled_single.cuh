// Instructions of block scaling, in their form for cta_group::1.
#pragma once
#include "tcgen05.cuh"

// D (+)= (A times its factors) (B times its factors)^T for TILE_M x TILE_N and 32 bytes of K; the factors stand in tensor memory at `scale_a` and `scale_b`.
DEVICE void tmem_multiply_scaled(uint32 d, uint64 a, uint64 b, uint32 instruction, uint32 scale_a, uint32 scale_b, bool accumulate) {
    asm volatile(
        "{\n"
        "  .reg .pred accumulate;\n"
        "  setp.ne.b32 accumulate, %6, 0;\n"
        "  tcgen05.mma.cta_group::1." MULTIPLY_KIND " [%0], %1, %2, %3, [%4], [%5], accumulate;\n"
        "}\n" ::"r"(d),
        "l"(a), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), "r"(int(accumulate))
        : "memory");
}

// 32 rows of 16 bytes of shared memory, an atom of factors -> 4 columns of tensor memory, the same in each quarter of its lanes.
DEVICE void tmem_copy_atom(uint32 tmem, uint64 descriptor) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tmem), "l"(descriptor) : "memory");
}

// Atoms from (`along` along K, `down` along the rows) on -> shared memory; their bytes are counted at the leader's `barrier`.
DEVICE void tma_load_atoms(uint32 destination, const TensorMap *map, uint32 barrier, int along, int down) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(0), "r"(along), "r"(down)
        : "memory");
}
