// Which output tiles a CTA computes, and in which order. The grid is persistent: cluster i takes blocks of tiles i, i + clusters, ... where a block is one tile
// for each of its CTAs. A CTA whose tile lies outside D still loads its slices for the others; its own results are not stored.
#pragma once
#include "cluster.cuh"

struct TileCoordinate {
    uint32 row;       // in tiles of TILE_M
    uint32 column;    // in tiles of TILE_N
};

// Blocks in groups of GROUP_M block rows, walked column by column: CTAs that run at the same time share panels of A and B in L2.
struct TileScheduler {
    ClusterPlace place;
    uint32 rows;
    uint32 columns;
    uint32 next;

    DEVICE TileScheduler(ClusterPlace place, uint32 m, uint32 n)
        : place(place), rows((m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M)), columns((n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N)), next(blockIdx.x / CLUSTER_SIZE) {}

    DEVICE bool take(TileCoordinate &tile) {
        if (!any_left()) return false;
        const uint32 per_group = GROUP_M * columns;
        const uint32 group = next / per_group;
        const uint32 within = next - group * per_group;
        const uint32 first_row = group * GROUP_M;
        const uint32 height = min(rows - first_row, uint32(GROUP_M));    // the last group may be lower
        const uint32 column = within / height;
        tile.row = (first_row + within - column * height) * CLUSTER_M + place.row;
        tile.column = column * CLUSTER_N + place.column;
        skip();
        return true;
    }

    DEVICE void skip() { next += gridDim.x / CLUSTER_SIZE; }
    DEVICE bool any_left() const { return next < rows * columns; }
};
