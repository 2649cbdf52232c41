// Epilogue: accumulators -> bfloat16 -> panels of 64 x 64 elements in swizzled shared memory -> TMA stores that run under the next tile.
#pragma once
#include "output.cuh"

struct Epilogue {
    const TensorMap *map;         // box of 64 rows x PANEL_COLUMNS
    const TensorMap *map_tail;    // box of 64 rows x TAIL_COLUMNS: the tile's last panel, so that the next tile is not overwritten
    uint32 staging;               // this warpgroup's STAGING_BUFFERS panels
    uint32 barrier;               // this warpgroup's named barrier; 0 is the whole CTA's
    uint32 m, n;
    uint32 buffer;

    DEVICE Epilogue(const Output &output, uint32 shared, uint32 consumer, uint32 m, uint32 n)
        : map(output.map), map_tail(output.map_tail), staging(shared + STAGING_OFFSET + consumer * (STAGING_BUFFERS * PANEL_BYTES)), barrier(1 + consumer), m(m), n(n), buffer(0) {}

    // `accumulators` is this thread's part of a 64 x TILE_N block whose first element is D(row, column).
    DEVICE void store(const float (&accumulators)[TILE_N / 2], uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        if (row >= m) return;

        #pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const uint32 first_column = column + panel * PANEL_COLUMNS;
            if (first_column >= n) return;
            const uint32 shared = staging + buffer * PANEL_BYTES;

            // The store that last used this buffer must have read it. Only the thread that issued the stores can wait for them.
            if (threadIdx.x % 128 == 0) tma_store_wait_read<STAGING_BUFFERS - 1>();
            named_barrier_sync<128>(barrier);

            #pragma unroll
            for (int step = 0; step < PANEL_COLUMNS / 16; ++step) {
                const int first = (panel * PANEL_COLUMNS + step * 16) / 2;    // accumulators[first..first+8): 16 columns
                const uint32 address = shared + staging_offset(lane, warp, step);
                if (first + 8 <= TILE_N / 2) {
                    stmatrix_x4(address, pack_bf16(accumulators[first + 0], accumulators[first + 1]), pack_bf16(accumulators[first + 2], accumulators[first + 3]),
                                pack_bf16(accumulators[first + 4], accumulators[first + 5]), pack_bf16(accumulators[first + 6], accumulators[first + 7]));
                } else if (first + 4 <= TILE_N / 2) {
                    stmatrix_x2(address, pack_bf16(accumulators[first + 0], accumulators[first + 1]), pack_bf16(accumulators[first + 2], accumulators[first + 3]));
                }
            }

            fence_async_proxy();
            named_barrier_sync<128>(barrier);
            if (threadIdx.x % 128 == 0) {
                const bool tail = TAIL_COLUMNS != 0 && panel == PANELS - 1;
                tma_store_2d(tail ? map_tail : map, shared, first_column, row);
                tma_store_commit();
            }
            buffer = buffer + 1 == STAGING_BUFFERS ? 0 : buffer + 1;
        }
    }

    // Shared memory must outlive the stores that read it. Their writes are waited for by whoever waits for the grid.
    DEVICE void finish() {
        if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();
    }
};
