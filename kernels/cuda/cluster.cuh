// CLUSTER_SIZE > 1: CTAs that run together: each loads a slice of an operand for all that need it. Along a cluster's column the CTAs share
// a tile of B, along its row a tile of A.
#pragma once
#include "ptx.cuh"

constexpr int CLUSTER_SIZE = CLUSTER_M * CLUSTER_N;
constexpr int CLUSTER_PEERS = CLUSTER_M + CLUSTER_N - 1;    // CTAs of the same row or column, itself included

// Where this CTA stands in its cluster.
struct ClusterPlace {
    uint32 row;
    uint32 column;

    DEVICE ClusterPlace() : row(0), column(0) {
        if (CLUSTER_SIZE > 1) {
            const uint32 rank = cluster_rank();
            row = rank % CLUSTER_M;
            column = rank / CLUSTER_M;
        }
    }

    // Ranks of the CTAs in this one's row, which need the same tile of A, as a bit mask.
    DEVICE uint16 row_mask() const {
        uint32 mask = 0;
        for (uint32 c = 0; c < CLUSTER_N; ++c) mask |= 1u << (row + c * CLUSTER_M);
        return static_cast<uint16>(mask);
    }

    // Ranks of the CTAs in this one's column, which need the same tile of B.
    DEVICE uint16 column_mask() const { return static_cast<uint16>(((1u << CLUSTER_M) - 1) << (column * CLUSTER_M)); }

    // The rank of peer i: first the column, then the rest of the row.
    DEVICE uint32 peer(uint32 i) const {
        if (i < CLUSTER_M) return i + column * CLUSTER_M;
        const uint32 other = i - CLUSTER_M;
        return row + (other + (other >= column ? 1 : 0)) * CLUSTER_M;
    }
};
