// What a CTA computes next.
//
// CLUSTER_SIZE == 1: The grid is persistent: CTA i takes the tiles with the numbers i, i + CTAs, and so on. (A block of tiles, and a
// cluster, is here a single one.)
//
// CLUSTER_SIZE > 1: The grid is persistent: cluster i takes the blocks of tiles with the numbers i, i + clusters, and so on; of each block
// a CTA has one tile.
//
// PLACED: i is not where it stands in the grid, but the number that it takes when it starts.
//
// CLUSTER_SIZE > 1: a CTA whose tile lies outside D still loads its slices for the others; its own results are not stored.
//
// SPLIT: the first `shared_blocks` blocks are laid end to end, the K of one after the K of the other, and cut into equal shares, one for
// each cluster: a share is the end of one block, perhaps some whole ones, and the beginning of another. The shares come first; the other
// blocks are then taken whole.
//
// FORM == FORM_BATCH: the blocks of one matrix follow those of the other.
//
// FORM == FORM_GROUPS_M: `offsets` holds `batches` + 1 ascending numbers in device memory: group g has the rows of A and D from offsets[g]
// up to offsets[g + 1]. A group of no rows has no blocks.
//
// FORM == FORM_GROUPS_K: `offsets` holds `batches` + 1 ascending numbers in device memory: group g has the elements of K from offsets[g] up
// to offsets[g + 1].
#pragma once
#include "cluster.cuh"

// What to compute next: a tile.
//
// SPLIT: Of its K the k-blocks, of TILE_K elements each, first .. first + count.
struct Work {
    uint32 row;           // in tiles of TILE_M
    uint32 column;        // in tiles of TILE_N
    uint32 first;         // k-block
    uint32 count;         // of k-blocks
    uint32 block;         // of tiles: its number in the order
    uint32 batch = 0;     // the matrix of the batch, or the group
    uint32 group_begin;   // the group's first row of A and D, or first element of K
    uint32 group_end;

    DEVICE uint32 first_row() const { return (FORM == FORM_GROUPS_M ? group_begin : 0) + row * TILE_M; }
    DEVICE uint32 first_column() const { return column * TILE_N; }
    DEVICE uint32 first_k() const { return (FORM == FORM_GROUPS_K ? group_begin : 0) + (SPLIT ? first * TILE_K : 0); }
};

// The order of the blocks of tiles, from a number to the block's row and column.
struct BlockOrder {
    uint32 rows;            // in blocks
    uint32 columns;
    const uint32 *table;    // row | column << 16 of every block

    DEVICE void find(uint32 number, uint32 &row, uint32 &column) const {
        if (ORDER == ORDER_ROW) {
            row = number / columns;
            column = number - row * columns;
        } else if (ORDER == ORDER_COLUMN) {
            column = number / rows;
            row = number - column * rows;
        } else if (ORDER == ORDER_TABLE) {
            const uint32 entry = table[number];
            row = entry & 0xffff;
            column = entry >> 16;
        } else {
            // Bands of GROUP_M rows of blocks, walked column by column: CTAs that run at the same time find the same rows of A and of B in
            // L2.
            const uint32 per_band = GROUP_M * columns;
            const uint32 band = number / per_band;
            const uint32 within = number - band * per_band;
            const uint32 first_row = band * GROUP_M;
            const uint32 height = min(rows - first_row, uint32(GROUP_M));    // the last band may be lower
            column = within / height;
            row = first_row + within - column * height;
            // Every second band is walked back again.
            if (ORDER == ORDER_SERPENTINE && band % 2 == 1) column = columns - 1 - column;
        }
    }
};

// How the shared blocks are cut: cluster c has the k-blocks begin(c) .. begin(c + 1) of all of them together. No share is empty: the host
// launches no more clusters than there are such k-blocks.
struct Shares {
    uint32 total;       // k-blocks of all shared blocks
    uint32 clusters;

    DEVICE uint32 begin(uint32 cluster) const { return static_cast<uint32>(uint64(cluster) * total / clusters); }

    // The cluster whose share holds this k-block: the last one whose share begins at it or before.
    DEVICE uint32 owner(uint32 k_block) const { return static_cast<uint32>((uint64(k_block + 1) * clusters - 1) / total); }
};

struct TileScheduler {
    ClusterPlace mine;
    BlockOrder order;
    Shares shares;
    uint32 k_blocks;       // of a tile
    uint32 blocks;         // of tiles
    uint32 next;           // block that this cluster takes next, whole
    uint32 share_next;     // k-block where this cluster's share goes on
    uint32 share_end;
    uint32 batches;
    const int32 *offsets;
    uint32 group;          // of the block that was taken last
    uint32 group_first;    // its first block

    DEVICE TileScheduler(ClusterPlace place, uint32 m, uint32 n, uint32 k, uint32 shared_blocks, const uint32 *table, uint32 batches,
                         const int32 *offsets)
        : mine(place), share_next(0), share_end(0), batches(batches), offsets(offsets), group(0), group_first(0) {
        order.rows = (m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
        order.columns = (n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N);
        if (ORDER == ORDER_TABLE) order.table = table;
        blocks = order.rows * order.columns;
        if (FORM == FORM_BATCH || FORM == FORM_GROUPS_K) blocks *= batches;
        if (FORM == FORM_GROUPS_M) {
            blocks = 0;
            for (uint32 g = 0; g < batches; ++g) blocks += block_rows(g) * order.columns;
            order.rows = batches ? block_rows(0) : 0;
        }
        const uint32 cluster = blockIdx.x / CLUSTER_SIZE;
        // PLACED: until the cluster has a number.
        next = cluster;
        k_blocks = (k + TILE_K - 1) / TILE_K;
        if (SPLIT) {
            shares.total = shared_blocks * k_blocks;
            shares.clusters = gridDim.x / CLUSTER_SIZE;
            share_next = shares.begin(cluster);
            share_end = shares.begin(cluster + 1);
            next += shared_blocks;
        }
    }

    // Says what to compute next, or that there is nothing left.
    DEVICE bool take(Work &work) {
        if (SPLIT) work.first = 0;
        work.count = k_blocks;
        if (SPLIT && share_next < share_end) {
            work.block = share_next / k_blocks;
            work.first = share_next - work.block * k_blocks;
            work.count = min(k_blocks - work.first, share_end - share_next);
            share_next += work.count;
        } else {
            if (!any_left()) return false;
            work.block = next;
            pass();
        }
        locate(work);
        if (FORM == FORM_GROUPS_K) work.count = (work.group_end - work.group_begin + TILE_K - 1) / TILE_K;
        return true;
    }

    // Rows of blocks of one group.
    DEVICE uint32 block_rows(uint32 g) const {
        return (static_cast<uint32>(offsets[g + 1] - offsets[g]) + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
    }

    // Where this CTA's tile of the block `work.block` lies.
    DEVICE void locate(Work &work) {
        uint32 number = work.block;
        if (FORM == FORM_BATCH || FORM == FORM_GROUPS_K) {
            work.batch = number / (order.rows * order.columns);
            number -= work.batch * (order.rows * order.columns);
        }
        if (FORM == FORM_GROUPS_M) {
            // Blocks are taken in ascending order, so the search goes on where it stopped.
            while (number - group_first >= order.rows * order.columns) {
                group_first += order.rows * order.columns;
                group += 1;
                order.rows = block_rows(group);
            }
            work.batch = group;
            number -= group_first;
        }
        if (FORM == FORM_GROUPS_M || FORM == FORM_GROUPS_K) {
            work.group_begin = offsets[work.batch];
            work.group_end = offsets[work.batch + 1];
        }
        order.find(number, work.row, work.column);
        if (CLUSTER_SIZE > 1) {
            work.row = work.row * CLUSTER_M + mine.row;
            work.column = work.column * CLUSTER_N + mine.column;
        }
    }

    // On to the block after the next one.
    DEVICE void pass() { next += gridDim.x / CLUSTER_SIZE; }
    DEVICE bool any_left() const { return next < blocks; }
};
