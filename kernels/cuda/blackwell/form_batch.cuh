// The launch computes a batch of products, matrix after matrix; tensor maps have a third dimension, from matrix to matrix.
#pragma once

// Which tile has which number.
struct Grid {
    TileGrid tiles_of_one;
    uint32 batches;

    DEVICE Grid(uint32 m, uint32 n, uint32 batches) : tiles_of_one(m, n), batches(batches) {}

    DEVICE uint32 tiles() const { return tiles_of_one.tiles() * batches; }
    DEVICE TileCoordinate at(uint32 number) const {
        const uint32 batch = number / tiles_of_one.tiles();
        TileCoordinate tile = tiles_of_one.at(number - batch * tiles_of_one.tiles());
        tile.batch = batch;
        return tile;
    }
};

// A panel of D goes to where its first element is D(row, column) of matrix `batch`.
DEVICE void store_panel(const TensorMap *map, uint32 panel, uint32 column, uint32 row, uint32 batch) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(reinterpret_cast<uint64>(map)),
                 "r"(panel), "r"(column), "r"(row), "r"(batch)
                 : "memory");
}
