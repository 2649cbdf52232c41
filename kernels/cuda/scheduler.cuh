// Which output tiles a CTA computes, and in which order. The grid is persistent: CTA i takes tiles i, i + gridDim, ...
#pragma once
#include "types.cuh"

struct TileCoordinate {
    uint32 row;       // in tiles of TILE_M
    uint32 column;    // in tiles of TILE_N
};

// Tiles in groups of GROUP_M tile rows, walked column by column: CTAs that run at the same time share panels of A and B in L2.
struct TileScheduler {
    uint32 rows;
    uint32 columns;
    uint32 next;

    DEVICE TileScheduler(uint32 m, uint32 n) : rows((m + TILE_M - 1) / TILE_M), columns((n + TILE_N - 1) / TILE_N), next(blockIdx.x) {}

    DEVICE bool take(TileCoordinate &tile) {
        if (next >= rows * columns) return false;
        const uint32 per_group = GROUP_M * columns;
        const uint32 group = next / per_group;
        const uint32 within = next - group * per_group;
        const uint32 first_row = group * GROUP_M;
        const uint32 height = min(rows - first_row, uint32(GROUP_M));    // the last group may be lower
        tile.column = within / height;
        tile.row = first_row + within - tile.column * height;
        next += gridDim.x;
        return true;
    }
};
