// A persistent grid: CTA (or pair) i computes tiles i, i + CTAs, ... Every role counts for itself, so there is nothing to wait for.
#pragma once

struct Tiles {
    Grid grid;
    uint32 next;

    DEVICE Tiles(uint32, uint32 m, uint32 n, uint32 batches) : grid(m, n, batches), next(blockIdx.x / CLUSTER_CTAS) {}

    DEVICE static void initialise(uint32) {}

    DEVICE bool take(TileCoordinate &tile) {
        if (next >= grid.tiles()) return false;
        tile = in_cluster(grid.at(next));
        next += gridDim.x / CLUSTER_CTAS;
        return true;
    }

    DEVICE void schedule() {}
};
