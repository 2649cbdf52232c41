// Epilogue through shared memory: each warp fills panels of its own rows x 128 bytes, swizzled so that its stores do not conflict on banks, and the copy engine
// writes them to D under the next panel and the next tile.
#pragma once
#include "output.cuh"

struct Epilogue {
    Output output;
    uint32 staging;    // this warp's STAGING_BUFFERS panels
    uint32 buffer;
    uint32 batch;

    DEVICE Epilogue(const Output &output, uint32 shared)
        : output(output), staging(shared + STAGING_OFFSET + (threadIdx.x / 32) % 4 * (STAGING_BUFFERS * PANEL_BYTES)), buffer(0), batch(0) {}

    // What is stored next belongs to this matrix of a batch.
    DEVICE void move_to(uint32 next) { batch = next; }

    // `values` is this thread's part of piece `piece` of the tile whose first element is D(row, column).
    DEVICE void put(Finish &finish, const uint32 (&values)[VALUES], int piece, uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        const int within = piece % PANEL_PIECES;
        const uint32 panel = staging + buffer * PANEL_BYTES;

        // The store that last used this buffer must have read it. Only the thread that issued the stores can wait for them.
        if (within == 0) {
            if (lane == 0) tma_store_wait_read<STAGING_BUFFERS - 1>();
            __syncwarp();
        }
        #pragma unroll
        for (int first = 0; first < VALUES; first += CHUNK) {
            Finish::Result results[CHUNK];
            finish.finished(results, values + first, row + fragment_row(lane, warp), column + fragment_column(lane, warp, first, piece));
            store_shared_16(panel + staging_offset(lane, first / CHUNK, within), packed(results));
        }
        if (within == PANEL_PIECES - 1 || piece == PIECES - 1) {
            fence_async_proxy();
            __syncwarp();
            if (lane == 0) {
                const bool tail = TAIL_COLUMNS != 0 && piece == PIECES - 1;
                const uint32 first_row = row + fragment_row(0, warp);
                const uint32 first_column = column + fragment_column(0, warp, 0, piece - within);
                if (first_row < output.m && first_column < output.n) store_panel(tail ? output.map_tail : output.map, panel, first_column, first_row, batch);
                tma_store_commit();    // also where nothing was stored: the wait above counts panels
            }
            buffer = buffer + 1 == STAGING_BUFFERS ? 0 : buffer + 1;
        }
    }

    // Shared memory must outlive the stores that read it. (Their writes are waited for by the end of the grid.)
    DEVICE void finish() {
        if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
    }
};
