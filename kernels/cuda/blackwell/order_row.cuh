// Which tile has which number: row after row. (Of a cluster that holds several tiles: which cluster; a block is what it computes.)
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
    DEVICE TileCoordinate at(uint32 number) const { return {number / columns, number % columns}; }
};
