// Epilogue for swapped operands: a strip of accumulators is 64 columns x TILE_N rows of D, transposed by stmatrix on its way to a panel in
// swizzled shared memory.
#pragma once
#include "output.cuh"

struct Epilogue {
    const TensorMap *map;    // box of TILE_N rows x 64 columns
    uint32 staging;          // this warpgroup's STAGING_BUFFERS panels
    uint32 barrier;          // this warpgroup's named barrier
    uint32 m, n;             // of the swapped problem: m counts columns of D
    uint32 buffer;
    uint32 batch;

    DEVICE Epilogue(const Output &output, uint32 shared, uint32 consumer, uint32 m, uint32 n)
        : map(output.map), staging(shared + STAGING_OFFSET + consumer * (STAGING_BUFFERS * PANEL_BYTES)), barrier(STAGING_BARRIERS + consumer),
          m(m), n(n), buffer(0), batch(0) {}

    // `accumulators` is this thread's part of a strip of 64 x TILE_N sums whose first is D(column, row).
    template <typename Sums> DEVICE void store(const Sums &accumulators, uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        if (row >= m || column >= n) return;
        const uint32 target = staging + buffer * PANEL_BYTES;

        // The store that last used this buffer must have read it. Only the thread that issued the stores can wait for them.
        if (leads_warpgroup()) tma_store_wait_read<STAGING_BUFFERS - 1>();
        named_barrier_sync<WARPGROUP_THREADS>(barrier);

        #pragma unroll
        for (int step = 0; step < (TILE_N + 15) / 16; ++step) {
            const int first = step * 8;    // accumulators[first..first+8): 16 rows of D
            const uint32 address = target + staging_offset(lane, warp, step);
            if (first + 8 <= TILE_N / 2) {
                stmatrix_x4_transposed(address, pack_out(accumulators[first + 0], accumulators[first + 1]),
                                       pack_out(accumulators[first + 2], accumulators[first + 3]),
                                       pack_out(accumulators[first + 4], accumulators[first + 5]),
                                       pack_out(accumulators[first + 6], accumulators[first + 7]));
            } else {
                stmatrix_x2_transposed(address, pack_out(accumulators[first + 0], accumulators[first + 1]),
                                       pack_out(accumulators[first + 2], accumulators[first + 3]));
            }
        }

        fence_async_proxy();
        named_barrier_sync<WARPGROUP_THREADS>(barrier);
        if (leads_warpgroup()) {
            if (SEVERAL_D) {
                tma_store_3d(map, target, row, column, batch);
            } else {
                tma_store_2d(map, target, row, column);
            }
            tma_store_commit();
        }
        buffer = buffer + 1 == STAGING_BUFFERS ? 0 : buffer + 1;
    }

    // What is stored next belongs to this batch.
    DEVICE void move_to(uint32 next_batch, uint32) { batch = next_batch; }

    // Shared memory must outlive the stores that read it. Their writes are waited for by whoever waits for the grid.
    DEVICE void finish() {
        if (leads_warpgroup()) tma_store_wait_read<0>();
    }
};
