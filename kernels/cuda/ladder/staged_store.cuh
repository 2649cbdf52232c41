// Results from registers to panels of 64 x PANEL_COLUMNS in swizzled shared memory, and from there to D by the copy engine.
#pragma once
#include "ptx.cuh"

struct StagedStore {
    const TensorMap *map;    // box of 64 rows x PANEL_COLUMNS
    uint32 staging;          // this consumer's STAGING_BUFFERS panels
    uint32 barrier;          // this consumer's named barrier; 0 is the whole CTA's
    uint32 m, n;
    uint32 buffer;

    DEVICE StagedStore(const TensorMap *map, uint32 shared, uint32 consumer, uint32 m, uint32 n)
        : map(map), staging(shared + STAGING_OFFSET + consumer * (STAGING_BUFFERS * PANEL_BYTES)), barrier(1 + consumer), m(m), n(n), buffer(0) {}

    // A warpgroup's block of 64 x TILE_N accumulators, each thread its own; the block's first element is D(row, column).
    DEVICE void block(const float (&accumulators)[TILE_N / 2], uint32 row, uint32 column) {
        const uint32 lane = threadIdx.x % 32;
        const uint32 warp = threadIdx.x / 32 % 4;
        const bool first_thread = threadIdx.x % 128 == 0;
        if (row >= m) return;

        #pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            if (column + panel * PANEL_COLUMNS >= n) return;
            const uint32 panel_address = staging + buffer * PANEL_BYTES;
            // The copy that last used this buffer must have read it. Only the thread that asked for it can wait for it.
            if (first_thread) tma_store_wait_read<STAGING_BUFFERS - 1>();
            named_barrier_sync<128>(barrier);

            #pragma unroll
            for (int step = 0; step < PANEL_COLUMNS / 16; ++step) {
                const float *const sums = accumulators + (panel * PANEL_COLUMNS + step * 16) / 2;    // 16 columns
                stmatrix_x4(panel_address + staging_offset(lane, warp, step), pack_bf16(sums[0], sums[1]), pack_bf16(sums[2], sums[3]),
                            pack_bf16(sums[4], sums[5]), pack_bf16(sums[6], sums[7]));
            }

            fence_async_proxy();
            named_barrier_sync<128>(barrier);
            if (first_thread) {
                tma_store_2d(map, panel_address, column + panel * PANEL_COLUMNS, row);
                tma_store_commit();
            }
            buffer = (buffer + 1) % STAGING_BUFFERS;
        }
    }

    // Shared memory must outlive the copies that read it.
    DEVICE void finish() const {
        if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();
    }
};
