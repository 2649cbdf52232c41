// The copy engine's moves as the GEMM makes them: boxes of a matrix, or of one matrix of a batch (a third coordinate), into this CTA or several.
#pragma once
#include "ptx.cuh"

// Box at (x innermost, y, z) of a three-dimensional tensor -> shared memory; its bytes are counted at `barrier`.
template <Hint Kind> DEVICE void tma_load_3d(uint32 destination, const TensorMap *map, uint32 barrier, uint64 policy, int x, int y, int z) {
    if (Kind == HINT_NONE) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
            "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(
                destination),
            "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
            : "memory");
    }
}

// The same into the shared memory of every CTA of the cluster in `cta_mask`.
template <Hint Kind>
DEVICE void tma_load_3d_multicast(uint32 destination, const TensorMap *map, uint32 barrier, uint16 cta_mask, uint64 policy, int x, int y, int z) {
    if (Kind == HINT_NONE) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(
                destination),
            "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y), "r"(z)
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5, %6}], "
            "[%2], %3, %7;" ::"r"(destination),
            "l"(reinterpret_cast<uint64>(map)), "r"(barrier), "h"(cta_mask), "r"(x), "r"(y), "r"(z), "l"(policy)
            : "memory");
    }
}

// Shared memory -> box at (x, y, z); elements outside the tensor are not written.
DEVICE void tma_store_3d(const TensorMap *map, uint32 source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(reinterpret_cast<uint64>(map)),
                 "r"(source), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// An operand's box at element k of K and at `row`, MN-major (rows innermost) or K-major, of matrix `batch` if there are several; to all CTAs of `mask` if they
// are more than this one.
template <bool RowsInnermost, bool Several, bool Multicast, Hint Kind>
DEVICE void load_box(uint32 destination, const TensorMap *map, uint32 barrier, uint16 mask, uint64 policy, int k, int row, int batch) {
    const int x = RowsInnermost ? row : k;
    const int y = RowsInnermost ? k : row;
    if (Several) {
        if (Multicast) {
            tma_load_3d_multicast<Kind>(destination, map, barrier, mask, policy, x, y, batch);
        } else {
            tma_load_3d<Kind>(destination, map, barrier, policy, x, y, batch);
        }
    } else if (Multicast) {
        tma_load_2d_multicast<Kind>(destination, map, barrier, mask, policy, x, y);
    } else {
        tma_load_2d<Kind>(destination, map, barrier, policy, x, y);
    }
}
