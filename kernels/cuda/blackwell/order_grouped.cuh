// Which tile has which number: groups of GROUP_M tile rows, walked column by column, so that CTAs that run at the same time share panels of A and B in L2.
// (Of a cluster that holds several tiles: which cluster; a block is what it computes.)
#pragma once

struct TileCoordinate {
    uint32 row;       // in tiles of TILE_M
    uint32 column;    // in tiles of TILE_N
    uint32 batch = 0;
};

struct TileGrid {
    uint32 rows;
    uint32 columns;

    DEVICE TileGrid(uint32 m, uint32 n) : rows((m + BLOCK_M - 1) / BLOCK_M), columns((n + BLOCK_N - 1) / BLOCK_N) {}

    DEVICE uint32 tiles() const { return rows * columns; }

    DEVICE TileCoordinate at(uint32 number) const {
        const uint32 per_group = GROUP_M * columns;
        const uint32 group = number / per_group;
        const uint32 within = number - group * per_group;
        const uint32 first_row = group * GROUP_M;
        const uint32 height = min(rows - first_row, uint32(GROUP_M));    // the last group may be lower
        const uint32 column = within / height;
        return {first_row + within - column * height, column};
    }
};
