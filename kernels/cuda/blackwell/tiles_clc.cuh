// The grid has a CTA (or pair) for every tile, and those that run cancel those that wait and take over their tiles: the hardware balances the load.
// A scheduler thread asks ahead; every thread of every other role reads its answers from a ring of TILE_SLOTS slots.
#pragma once
#include "launch_control.cuh"

struct Tiles {
    Grid grid;
    uint32 full;       // full[slot]: the answer is there. Each CTA has its own.
    uint32 empty;      // empty[slot]: every reader of all CTAs has read it. Only the first CTA's counts.
    uint32 answers;
    bool started;
    Position<TILE_SLOTS> at;

    DEVICE Tiles(uint32 shared, uint32 m, uint32 n, uint32 batches)
        : grid(m, n, batches), full(shared + TILE_FULL_OFFSET), empty(shared + TILE_EMPTY_OFFSET), answers(shared + ANSWERS_OFFSET), started(false) {}

    DEVICE static void initialise(uint32 shared) {
        for (uint32 slot = 0; slot < TILE_SLOTS; ++slot) {
            mbarrier_init(shared + TILE_FULL_OFFSET + slot * 8, 1);    // this CTA's scheduler
            mbarrier_init(shared + TILE_EMPTY_OFFSET + slot * 8, TILE_READERS);
        }
    }

    // The first tile is the one that this CTA was launched for.
    DEVICE bool take(TileCoordinate &tile) {
        if (!started) {
            started = true;
            tile = in_cluster(grid.at(blockIdx.x / CLUSTER_CTAS));
            return true;
        }
        mbarrier_wait(full + at.slot * 8, at.parity);
        const Answer answer = load_answer(answers + at.slot * 16);
        fence_async_proxy();    // what overwrites the answer comes through another proxy than this read
        arrive_at_first(empty + at.slot * 8);
        at.advance();
        if (!launch_control_granted(answer)) return false;
        tile = in_cluster(grid.at(launch_control_block(answer) / CLUSTER_CTAS));
        return true;
    }

    // By one thread of each CTA. After an answer that grants nothing none may be asked for again.
    DEVICE void schedule() {
        Position<TILE_SLOTS> ask;
        TileCoordinate tile;
        take(tile);
        do {
            if (first_cta()) mbarrier_wait(empty + ask.slot * 8, ask.parity ^ 1);
            mbarrier_arrive_expect_tx(full + ask.slot * 8, 16);
            if (first_cta()) launch_control_ask(answers + ask.slot * 16, full + ask.slot * 8);
            ask.advance();
        } while (take(tile));
    }
};
