// Tiles whose K is shared among CTAs.
//
// !ATOMIC: Each CTA writes its partial sums to a place of their own in global memory and counts itself in; at its end it waits until all
// have done so, and then every one of them adds up a part of the tile and stores it. The order of the additions is always the same, and so
// are the bits of the result.
//
// ATOMIC: Each CTA adds its partial sums to the tile's in global memory and counts itself in; at its end it waits until all have done so,
// and then every one of them stores a part of the tile.
//
// ATOMIC && !INTEGER: The additions come in any order: the last bits of the result may differ from launch to launch.
//
// Nobody waits before all of his own multiplies are done, so the wait ends if all CTAs of the grid run at the same time, or come to: see
// the top of the file. The counters are zero before and after a launch.
#pragma once
#include "scheduler.cuh"

constexpr uint32 FRAGMENTS = CONSUMERS * STRIPS * (TILE_N / 8) * 128;    // of four accumulators, in one tile

struct PartialSums {
    Four *partials;      // tiles of fragments
    uint32 *counters;    // two for each tile: CTAs that came, CTAs that left
    TileScheduler scheduler;
    Output output;
    Finish &sums;
    uint32 rank;
    uint32 consumer;
    uint32 m, n;

    DEVICE PartialSums(Four *partials, uint32 *counters, TileScheduler scheduler, Output output, Finish &sums, uint32 consumer, uint32 m,
                       uint32 n)
        : partials(partials), counters(counters), scheduler(scheduler), output(output), sums(sums),
          rank(CLUSTER_SIZE > 1 ? cluster_rank() : 0), consumer(consumer), m(m), n(n) {}

    // Where the partial sums of a block lie.
    //
    // !ATOMIC: A cluster's share cuts at most two blocks: it holds the end of one, or a middle, and the beginning of another. Each has its
    // place.
    DEVICE Four *fragments_of(uint32 cluster, uint32 block, bool beginning) const {
        const uint32 number = ATOMIC ? block : 2 * cluster + (beginning ? 1 : 0);
        return partials + (uint64(number) * CLUSTER_SIZE + rank) * FRAGMENTS;
    }

    DEVICE uint32 *counter(uint32 block) const { return counters + 2 * (block * CLUSTER_SIZE + rank); }

    // This thread's part of the sums of a tile, `work` of its K.
    DEVICE void write(const Accumulator (&accumulators)[STRIPS][TILE_N / 2], Work work) const {
        Four *const first =
            fragments_of(blockIdx.x / CLUSTER_SIZE, work.block, work.first == 0) + (consumer * STRIPS * (TILE_N / 8)) * 128 + threadIdx.x % 128;
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int octet = 0; octet < TILE_N / 8; ++octet) {    // of columns: four accumulators
                const Accumulator *const four = accumulators[strip] + octet * 4;
                Four *const target = first + (strip * (TILE_N / 8) + octet) * 128;
                if (ATOMIC) {
                    global_add(&target->x, four[0], four[1], four[2], four[3]);
                } else {
                    *target = {four[0], four[1], four[2], four[3]};
                }
            }
        }
        named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER);    // all of this CTA's sums are written
        if (consumer == 0 && leads_warpgroup()) global_count(counter(work.block));    // releases them, whoever wrote them
    }

    // Stores this CTA's part of each of the tiles that its share cut.
    DEVICE void finish() {
        const Shares &shares = scheduler.shares;
        const uint32 cluster = blockIdx.x / CLUSTER_SIZE;
        const uint32 begin = shares.begin(cluster);
        const uint32 end = shares.begin(cluster + 1);
        if (begin == end) return;
        const uint32 first = begin / scheduler.k_blocks;
        const uint32 last = (end - 1) / scheduler.k_blocks;
        finish_block(first, cluster);
        if (last != first) finish_block(last, cluster);
    }

    DEVICE void finish_block(uint32 block, uint32 cluster) {
        const Shares &shares = scheduler.shares;
        const uint32 first = shares.owner(block * scheduler.k_blocks);
        const uint32 count = shares.owner((block + 1) * scheduler.k_blocks - 1) - first + 1;
        if (count == 1) return;    // computed and stored whole
        if (consumer == 0 && leads_warpgroup()) global_wait(counter(block), count);
        named_barrier_sync<CONSUMER_THREADS>(PARTIAL_SUMS_BARRIER);

        Work work;
        work.block = block;
        scheduler.locate(work);
        const uint32 row = work.row * TILE_M;
        const uint32 column = work.first_column();
        if (TERMS) sums.move_to(work.batch, m);
        const uint32 thread = threadIdx.x - 128;
        // A warp takes 32 neighbouring fragments, 512 bytes, at a time; the warps of all CTAs that share the tile take turns.
        for (uint32 fragment = (cluster - first) * CONSUMER_THREADS + thread; fragment < FRAGMENTS; fragment += count * CONSUMER_THREADS) {
            Four sum;
            if (ATOMIC) {
                Four *const sums_of_all = fragments_of(0, block, false) + fragment;
                sum = *sums_of_all;
                *sums_of_all = {0, 0, 0, 0};    // as the next launch wants to find it
            } else {
                sum = {0, 0, 0, 0};
                #pragma unroll 8
                for (uint32 part = 0; part < count; ++part) {    // always in this order: the same bits every time
                    const Four four = fragments_of(first + part, block, part == 0)[fragment];
                    sum = {sum.x + four.x, sum.y + four.y, sum.z + four.z, sum.w + four.w};
                }
            }
            store_four(sum, fragment, row, column, work.batch);
        }

        // The last to leave sets the counters back for the next launch. That needs no barrier: who polls a counter has left it behind when
        // he counts himself out, and what slower warps still read is written again only by the next launch.
        if (consumer == 0 && leads_warpgroup()) {
            uint32 *const came = counter(block);
            if (global_count(came + 1) == count - 1) {
                came[0] = 0;
                came[1] = 0;
            }
        }
    }

    // Four sums, which lie in two rows of D, two neighbouring columns each.
    DEVICE void store_four(Four sum, uint32 fragment, uint32 row, uint32 column, uint32 batch) {
        const uint32 octet = fragment / 128 % (TILE_N / 8);
        const uint32 strip = fragment / 128 / (TILE_N / 8);    // through all consumers
        const uint32 first_row = row + strip * 64 + accumulator_row(fragment % 128, 0);
        const uint32 first_column = column + accumulator_column(fragment % 128, 0) + octet * 8;
        const uint64 stride = output.d_row_stride;
        Out *const first = output.d + (SEVERAL_D ? batch * output.batch_stride : 0) + (SWAPPED ? first_column * stride + first_row : first_row * stride + first_column);
        const Accumulator values[4] = {sum.x, sum.y, sum.z, sum.w};
        #pragma unroll
        for (int value = 0; value < 4; ++value) {
            const uint32 down = accumulator_row(0, value);
            const uint32 right = accumulator_column(0, value);
            if (first_row + down < m && first_column + right < n) {
                Out *const place = first + (SWAPPED ? right * stride + down : down * stride + right);
                *place = converted<D_FORMAT>(TERMS ? sums.finished(values[value], first_row + down, first_column + right) : values[value]);
            }
        }
    }
};
