// The launch computes one product.
#pragma once

// Which tile has which number.
struct Grid {
    TileGrid tiles_of_one;

    DEVICE Grid(uint32 m, uint32 n, uint32) : tiles_of_one(m, n) {}

    DEVICE uint32 tiles() const { return tiles_of_one.tiles(); }
    DEVICE TileCoordinate at(uint32 number) const { return tiles_of_one.at(number); }
};

// A panel of D goes to where its first element is D(row, column).
DEVICE void store_panel(const TensorMap *map, uint32 panel, uint32 column, uint32 row, uint32) { tma_store_2d(map, panel, column, row); }
