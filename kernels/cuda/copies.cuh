// The copy engine's moves as the GEMM makes them: a box of an operand into a slot.
//
// CLUSTER_SIZE > 1: into the slots of all CTAs of the cluster that need it.
#pragma once
#include "cluster.cuh"

// A box of A at (x innermost, y).
//
// FORM == FORM_BATCH: of matrix `batch`.
DEVICE void load_a(uint32 destination, const TensorMap *map, uint32 barrier, const ClusterPlace &place, uint64 policy, int x, int y, int batch) {
    if (FORM == FORM_BATCH) {
        if (CLUSTER_N > 1) {
            if (HINT_A == HINT_NONE) {
                tma_load_3d_multicast(destination, map, barrier, place.row_mask(), x, y, batch);
            } else {
                tma_load_3d_multicast_hinted(destination, map, barrier, place.row_mask(), policy, x, y, batch);
            }
        } else if (HINT_A == HINT_NONE) {
            tma_load_3d(destination, map, barrier, x, y, batch);
        } else {
            tma_load_3d_hinted(destination, map, barrier, policy, x, y, batch);
        }
    } else if (CLUSTER_N > 1) {
        if (HINT_A == HINT_NONE) {
            tma_load_2d_multicast(destination, map, barrier, place.row_mask(), x, y);
        } else {
            tma_load_2d_multicast_hinted(destination, map, barrier, place.row_mask(), policy, x, y);
        }
    } else if (HINT_A == HINT_NONE) {
        tma_load_2d(destination, map, barrier, x, y);
    } else {
        tma_load_2d_hinted(destination, map, barrier, policy, x, y);
    }
}

// A box of B at (x innermost, y).
//
// FORM == FORM_BATCH: of matrix `batch`.
//
// FORM == FORM_GROUPS_M: each group of rows of A has a matrix of its own.
DEVICE void load_b(uint32 destination, const TensorMap *map, uint32 barrier, const ClusterPlace &place, uint64 policy, int x, int y, int batch) {
    if (FORM == FORM_BATCH || FORM == FORM_GROUPS_M) {
        if (CLUSTER_M > 1) {
            if (HINT_B == HINT_NONE) {
                tma_load_3d_multicast(destination, map, barrier, place.column_mask(), x, y, batch);
            } else {
                tma_load_3d_multicast_hinted(destination, map, barrier, place.column_mask(), policy, x, y, batch);
            }
        } else if (HINT_B == HINT_NONE) {
            tma_load_3d(destination, map, barrier, x, y, batch);
        } else {
            tma_load_3d_hinted(destination, map, barrier, policy, x, y, batch);
        }
    } else if (CLUSTER_M > 1) {
        if (HINT_B == HINT_NONE) {
            tma_load_2d_multicast(destination, map, barrier, place.column_mask(), x, y);
        } else {
            tma_load_2d_multicast_hinted(destination, map, barrier, place.column_mask(), policy, x, y);
        }
    } else if (HINT_B == HINT_NONE) {
        tma_load_2d(destination, map, barrier, x, y);
    } else {
        tma_load_2d_hinted(destination, map, barrier, policy, x, y);
    }
}
