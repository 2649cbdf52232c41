// Epilogue: accumulators -> 16-bit elements -> panels of 64 rows x PANEL_COLUMNS in swizzled shared memory -> TMA stores that run under the
// next tile.
#pragma once
#include "output.cuh"

struct Epilogue {
    const TensorMap *map;         // box of 64 rows x PANEL_COLUMNS
    const TensorMap *map_tail;    // narrower, for the tile's last panel: the next tile must not be overwritten
    uint32 staging;               // this warpgroup's STAGING_BUFFERS panels
    uint32 barrier;               // this warpgroup's named barrier
    Out *group_d;                 // for plain stores, where rows end inside a panel because another group's begin
    uint64 group_row_stride;      // elements
    uint32 m, n;
    uint32 buffer;
    uint32 batch;

    DEVICE Epilogue(const Output &output, uint32 shared, uint32 consumer, uint32 m, uint32 n)
        : map(output.map), map_tail(output.tail_map), staging(shared + STAGING_OFFSET + consumer * (STAGING_BUFFERS * PANEL_BYTES)),
          barrier(STAGING_BARRIERS + consumer), group_d(output.d), group_row_stride(output.d_row_stride), m(m), n(n), buffer(0), batch(0) {}

    // `accumulators` is this thread's part of a strip of 64 x TILE_N sums whose first is D(row, column).
    template <typename Sums> DEVICE void store(const Sums &accumulators, uint32 row, uint32 column) {
        const uint32 warp = (threadIdx.x / 32) % 4;
        const uint32 lane = threadIdx.x % 32;
        if (row >= m) return;

        #pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const uint32 first_column = column + panel * PANEL_COLUMNS;
            if (first_column >= n) return;
            const uint32 target = staging + buffer * PANEL_BYTES;

            // The store that last used this buffer must have read it. Only the thread that issued the stores can wait for them.
            if (leads_warpgroup()) tma_store_wait_read<STAGING_BUFFERS - 1>();
            named_barrier_sync<WARPGROUP_THREADS>(barrier);

            #pragma unroll
            for (int step = 0; step < PANEL_COLUMNS / 16; ++step) {
                const int first = (panel * PANEL_COLUMNS + step * 16) / 2;    // accumulators[first..first+8): 16 columns
                const uint32 address = target + staging_offset(lane, warp, step);
                if (first + 8 <= TILE_N / 2) {
                    stmatrix_x4(address, pack_out(accumulators[first + 0], accumulators[first + 1]),
                                pack_out(accumulators[first + 2], accumulators[first + 3]),
                                pack_out(accumulators[first + 4], accumulators[first + 5]),
                                pack_out(accumulators[first + 6], accumulators[first + 7]));
                } else if (TILE_N % 16 != 0 && first + 4 <= TILE_N / 2) {
                    stmatrix_x2(address, pack_out(accumulators[first + 0], accumulators[first + 1]),
                                pack_out(accumulators[first + 2], accumulators[first + 3]));
                }
            }

            fence_async_proxy();
            named_barrier_sync<WARPGROUP_THREADS>(barrier);
            // The group's last rows.
            if (FORM == FORM_GROUPS_M && row + 64 > m) store_rows(target, row, first_column, column + TILE_N);
            if (leads_warpgroup()) {
                const TensorMap *const panel_map = TAIL_COLUMNS != 0 && panel == PANELS - 1 ? map_tail : map;
                if (SEVERAL_D) {
                    tma_store_3d(panel_map, target, first_column, row, batch);
                } else if (FORM != FORM_GROUPS_M || row + 64 <= m) {
                    tma_store_2d(panel_map, target, first_column, row);
                }
                tma_store_commit();
            }
            buffer = buffer + 1 == STAGING_BUFFERS ? 0 : buffer + 1;
        }
    }

    // The rows of a panel up to this group's last one, 16 bytes a thread at a time: the copy engine would write on into the next group's.
    DEVICE void store_rows(uint32 shared, uint32 row, uint32 first_column, uint32 column_end) const {
        const uint32 chunk = threadIdx.x % (PANEL_COLUMNS / 8);
        const uint32 column = first_column + chunk * 8;
        for (uint32 down = threadIdx.x % 128 / (PANEL_COLUMNS / 8); row + down < m; down += 128 / (PANEL_COLUMNS / 8)) {
            if (down < 64 && column < n && column < column_end) {
                shared_to_global_16(group_d + (row + down) * group_row_stride + column, shared + staging_chunk(down, chunk));
            }
        }
    }

    // What is stored next belongs to this batch, and its rows end there.
    DEVICE void move_to(uint32 next_batch, uint32 row_end) {
        batch = next_batch;
        m = row_end;
    }

    // Shared memory must outlive the stores that read it. Their writes are waited for by whoever waits for the grid.
    DEVICE void finish() {
        if (leads_warpgroup()) tma_store_wait_read<0>();
    }
};
