// Which part of which output tile a CTA computes next, and in which order. The grid is persistent: cluster i takes blocks of tiles i, i + clusters, ... where a block
// is one tile for each of its CTAs. A CTA whose tile lies outside D still loads its slices for the others; its own results are not stored.
//
// With SPLIT, the first `shared_blocks` blocks are laid end to end, the K of one after the K of the other, and cut into equal shares, one for each cluster: a share
// is the end of one block, perhaps some whole ones, and the beginning of another. The shares come first; the other blocks are then taken whole.
//
// Of a batch, the blocks of one matrix follow those of the other. Groups are told apart by `offsets`, `batches` + 1 ascending numbers in device memory: group g has
// the rows of A and D (FORM_GROUPS_M) or the part of K (FORM_GROUPS_K) from offsets[g] up to offsets[g + 1]. A group of no rows has no blocks.
#pragma once
#include "cluster.cuh"

// What to compute next: a tile, and of its K the slots first .. first + count.
struct Work {
    uint32 row;       // in tiles of TILE_M
    uint32 column;    // in tiles of TILE_N
    uint32 first;
    uint32 count;
    uint32 block;     // its number in the order
    uint32 batch;     // the matrix of the batch, or the group
    uint32 begin;     // of the group: row of A and D (FORM_GROUPS_M), or element of K (FORM_GROUPS_K)
    uint32 end;

    DEVICE uint32 first_row() const { return (FORM == FORM_GROUPS_M ? begin : 0) + row * TILE_M; }
    DEVICE uint32 first_k() const { return (FORM == FORM_GROUPS_K ? begin : 0) + first * TILE_K; }
};

// The order of the blocks, from a number to the block's row and column (kernels/orders.py draws it).
struct BlockOrder {
    uint32 rows;       // in blocks
    uint32 columns;
    const uint32 *table;    // ORDER_TABLE only: row | column << 16 of every block

    DEVICE void place(uint32 number, uint32 &row, uint32 &column) const {
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
            // Groups of GROUP_M block rows, walked column by column: CTAs that run at the same time share panels of A and B in L2.
            const uint32 per_group = GROUP_M * columns;
            const uint32 group = number / per_group;
            const uint32 within = number - group * per_group;
            const uint32 first_row = group * GROUP_M;
            const uint32 height = min(rows - first_row, uint32(GROUP_M));    // the last group may be lower
            column = within / height;
            row = first_row + within - column * height;
            if (ORDER == ORDER_SERPENTINE && group % 2 == 1) column = columns - 1 - column;    // back again
        }
    }
};

// How the shared blocks are cut: cluster c has the slots begin(c) .. begin(c + 1) of all of them together.
struct Shares {
    uint32 k_blocks;    // slots of one block
    uint32 slots;       // of all shared blocks
    uint32 clusters;

    DEVICE uint32 begin(uint32 cluster) const { return static_cast<uint32>(uint64(cluster) * slots / clusters); }

    // The cluster whose share holds this slot: the last one whose share begins at it or before.
    DEVICE uint32 owner(uint32 slot) const { return static_cast<uint32>((uint64(slot + 1) * clusters - 1) / slots); }
};

struct TileScheduler {
    ClusterPlace place;
    BlockOrder order;
    Shares shares;
    uint32 blocks;
    uint32 next;     // block to take whole
    uint32 slot;     // of the shared blocks: where this cluster's share goes on
    uint32 end;
    uint32 batches;
    const int32 *offsets;
    uint32 batch;           // FORM_GROUPS_M: the group of the block that was taken last
    uint32 batch_first;     // and its first block

    DEVICE TileScheduler(ClusterPlace place, uint32 m, uint32 n, uint32 k, uint32 shared_blocks, const uint32 *table, uint32 batches, const int32 *offsets)
        : place(place), slot(0), end(0), batches(batches), offsets(offsets), batch(0), batch_first(0) {
        order.rows = (m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
        order.columns = (n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N);
        order.table = table;
        blocks = order.rows * order.columns;
        if (FORM == FORM_BATCH || FORM == FORM_GROUPS_K) blocks *= batches;
        if (FORM == FORM_GROUPS_M) {
            blocks = 0;
            for (uint32 group = 0; group < batches; ++group) blocks += block_rows(group) * order.columns;
            order.rows = batches ? block_rows(0) : 0;
        }
        const uint32 cluster = blockIdx.x / CLUSTER_SIZE;
        next = cluster;
        shares.k_blocks = (k + TILE_K - 1) / TILE_K;
        if (SPLIT) {
            shares.slots = shared_blocks * shares.k_blocks;
            shares.clusters = gridDim.x / CLUSTER_SIZE;
            slot = shares.begin(cluster);
            end = shares.begin(cluster + 1);
            next += shared_blocks;
        }
    }

    DEVICE bool take(Work &work) {
        work.first = 0;
        work.count = shares.k_blocks;
        if (SPLIT && slot < end) {
            work.block = slot / shares.k_blocks;
            work.first = slot - work.block * shares.k_blocks;
            work.count = min(shares.k_blocks - work.first, end - slot);
            slot += work.count;
        } else {
            if (!any_left()) return false;
            work.block = next;
            skip();
        }
        locate(work);
        if (FORM == FORM_GROUPS_K) work.count = (work.end - work.begin + TILE_K - 1) / TILE_K;
        return true;
    }

    // Blocks of rows of one group.
    DEVICE uint32 block_rows(uint32 group) const {
        return (static_cast<uint32>(offsets[group + 1] - offsets[group]) + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
    }

    // Where this CTA's tile of the block `work.block` lies.
    DEVICE void locate(Work &work) {
        uint32 number = work.block;
        work.batch = 0;
        if (FORM == FORM_BATCH || FORM == FORM_GROUPS_K) {
            work.batch = number / (order.rows * order.columns);
            number -= work.batch * (order.rows * order.columns);
        }
        if (FORM == FORM_GROUPS_M) {
            // Blocks are taken in ascending order, so the search goes on where it stopped.
            while (number - batch_first >= order.rows * order.columns) {
                batch_first += order.rows * order.columns;
                batch += 1;
                order.rows = block_rows(batch);
            }
            work.batch = batch;
            number -= batch_first;
        }
        if (FORM == FORM_GROUPS_M || FORM == FORM_GROUPS_K) {
            work.begin = offsets[work.batch];
            work.end = offsets[work.batch + 1];
        }
        order.place(number, work.row, work.column);
        work.row = work.row * CLUSTER_M + place.row;
        work.column = work.column * CLUSTER_N + place.column;
    }

    DEVICE void skip() { next += gridDim.x / CLUSTER_SIZE; }
    DEVICE bool any_left() const { return next < blocks; }
};
