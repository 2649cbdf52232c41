// Each CTA (or pair) computes the one tile that its place in the grid names.
#pragma once

struct Tiles {
    Grid grid;
    bool taken;

    DEVICE Tiles(uint32, uint32 m, uint32 n, uint32 batches) : grid(m, n, batches), taken(false) {}

    DEVICE static void initialise(uint32) {}

    DEVICE bool take(TileCoordinate &tile) {
        if (taken) return false;
        taken = true;
        tile = in_cluster(grid.at(blockIdx.x / CLUSTER_CTAS));
        return true;
    }

    DEVICE void schedule() {}
};
