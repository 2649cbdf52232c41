// A cluster holds CLUSTER_M x CLUSTER_N tiles. Tiles of a row need the same rows of A and tiles of a column the same rows of B, so each of their CTAs loads a slice and
// the copy engine writes it to all of them: L2 is read once.
#pragma once

// This CTA's tile in the cluster. Ranks count the CTAs of a tile first, then tiles down a column, then columns.
DEVICE uint32 place_row() { return cluster_rank() / CTAS % CLUSTER_M; }
DEVICE uint32 place_column() { return cluster_rank() / CTAS / CLUSTER_M; }

DEVICE TileCoordinate in_cluster(TileCoordinate block) { return {block.row * CLUSTER_M + place_row(), block.column * CLUSTER_N + place_column()}; }

// The CTA that asks for the cluster's next tiles, and an arrival at its barrier.
DEVICE bool first_cta() { return cluster_rank() == 0; }
DEVICE void arrive_at_first(uint32 barrier) { mbarrier_arrive_remote(barrier, 0); }

// Ranks of the CTAs that need the same rows of A as CTA `cta` of this tile, and the same rows of B, as bit masks.
DEVICE uint32 sharers_of_a(uint32 cta) {
    uint32 mask = 0;
    for (uint32 column = 0; column < CLUSTER_N; ++column) mask |= 1u << (cta + CTAS * (place_row() + CLUSTER_M * column));
    return mask;
}
DEVICE uint32 sharers_of_b(uint32 cta) {
    uint32 mask = 0;
    for (uint32 row = 0; row < CLUSTER_M; ++row) mask |= 1u << (cta + CTAS * (row + CLUSTER_M * place_column()));
    return mask;
}

// The multiplies of a slot are over: says so to every CTA whose loads fill it.
DEVICE void commit_slot(uint32 barrier) {
    uint32 mask = 0;
    for (uint32 cta = 0; cta < CTAS; ++cta) mask |= sharers_of_a(cta) | sharers_of_b(cta);
    tmem_commit_to(barrier, static_cast<uint16>(mask));
}

// This CTA's slice of the tile that it needs, box after box, into every slot that needs it. Along which dimension the boxes follow one another depends on the operand's
// major: along K where rows of K are contiguous, along M or N where those are.
DEVICE void load_a(const TensorMap *map, uint32 slot, uint32 barrier, uint32 row, uint32 k, uint32) {
    const uint32 slice = place_column();
    const uint16 mask = static_cast<uint16>(sharers_of_a(cta_of_tile()));
    row += slice * A_SLICE_ROWS;
    #pragma unroll
    for (int box = 0; box < A_BOXES; ++box) {
        const uint32 along = box * A_BOX_SPAN;
        const uint32 place = slot + slice * A_SLICE_BYTES + box * A_BOX_STEP;
        const uint32 x = A_K_MAJOR ? k + along : row + along;
        const uint32 y = A_K_MAJOR ? row : k;
        if (CLUSTER_N > 1) {
            tma_load_to_tiles(place, map, barrier, mask, x, y);
        } else {
            tma_load_to_tile(place, map, barrier, x, y);
        }
    }
}

DEVICE void load_b(const TensorMap *map, uint32 slot, uint32 barrier, uint32 row, uint32 k, uint32) {
    const uint32 slice = place_row();
    const uint16 mask = static_cast<uint16>(sharers_of_b(cta_of_tile()));
    row += slice * B_SLICE_ROWS;
    #pragma unroll
    for (int box = 0; box < B_BOXES; ++box) {
        const uint32 along = box * B_BOX_SPAN;
        const uint32 place = slot + slice * B_SLICE_BYTES + box * B_BOX_STEP;
        const uint32 x = B_K_MAJOR ? k + along : row + along;
        const uint32 y = B_K_MAJOR ? row : k;
        if (CLUSTER_M > 1) {
            tma_load_to_tiles(place, map, barrier, mask, x, y);
        } else {
            tma_load_to_tile(place, map, barrier, x, y);
        }
    }
}
