// Which tile has which number: row after row.
#pragma once

struct TileCoordinate {
    uint32 row;       // in tiles of TILE_M
    uint32 column;    // in tiles of TILE_N
};

struct TileGrid {
    uint32 rows;
    uint32 columns;

    DEVICE TileGrid(uint32 m, uint32 n) : rows((m + TILE_M - 1) / TILE_M), columns((n + TILE_N - 1) / TILE_N) {}

    DEVICE uint32 tiles() const { return rows * columns; }
    DEVICE TileCoordinate at(uint32 number) const { return {number / columns, number % columns}; }
};
