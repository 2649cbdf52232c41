// The multiply reads A in tensor memory, where a warpgroup writes it: each thread takes its row of a slot from shared memory through its registers, where `words_of` may make
// another format of it. One warp may touch a quarter of the lanes, so its rows are those of that quarter.
#pragma once

struct LeftOperand {
    static constexpr int WARPS = 4;

    uint32 slots;    // shared address of slot 0 of A
    uint32 ready;    // ready[slot]: every warp has written its rows of the slot
    uint32 tmem;

    DEVICE LeftOperand(Slots slots, uint32 shared, uint32 tmem) : slots(slots.a), ready(shared + A_READY_OFFSET), tmem(tmem + TENSOR_A_COLUMN) {}

    DEVICE static void initialise(uint32 shared) {
        for (uint32 slot = 0; slot < STAGES; ++slot) mbarrier_init(shared + A_READY_OFFSET + slot * 8, WARPS);
    }

    // Twelve warps have 168 registers each, too few for some epilogues: the warps of one thread's work give theirs to it.
    DEVICE static void registers_of_few() { registers_release<FEW_REGISTERS>(); }
    DEVICE static void registers_of_epilogue() { registers_claim<EPILOGUE_REGISTERS>(); }

    // By the four warps.
    DEVICE void convert(Ring ring, Tiles tiles, uint32 k) const {
        registers_release<CONVERT_REGISTERS>();
        const uint32 warp = threadIdx.x / 32 % 4;
        const uint32 row = threadIdx.x % 128;
        Position<STAGES> at;
        TileCoordinate tile;
        while (tiles.take(tile)) {
            for (uint32 k_first = 0; k_first < k; k_first += TILE_K) {
                // The slot is filled only after the multiplies that read its columns are complete, so these may be overwritten.
                ring.wait_full(at);
                tmem_fence_after_sync();
                const uint32 source = slots + at.slot * A_SLOT_BYTES;
                #pragma unroll
                for (int part = 0; part < A_STORES; ++part) {
                    uint32 words[A_STORED];
                    #pragma unroll
                    for (int chunk = 0; chunk < A_STORE_CHUNKS; ++chunk) {
                        words_of(load_shared_16(source + a_chunk(row, part * A_STORE_CHUNKS + chunk)), words + chunk * A_WORDS);
                    }
                    tmem_store(words, tmem + tensor_a(at.slot, 0) + part * A_STORED + warp_lanes(warp));
                }
                tmem_store_wait();
                tmem_fence_before_sync();
                fence_async_proxy();    // the copy engine overwrites through another proxy what these loads have read
                __syncwarp();
                if (elect_one()) {
                    mbarrier_arrive(ready + at.slot * 8);
                    mbarrier_arrive(ring.empty_barrier(at.slot));    // beside the commit, which speaks for the multiplies alone
                }
                at.advance();
            }
        }
    }

    DEVICE void fill(Position<STAGES> at, uint64) const {
        mbarrier_wait(ready + at.slot * 8, at.parity);
        tmem_fence_after_sync();
    }

    // A of one step of K: its place in tensor memory.
    DEVICE TensorMemory of_step(uint64, uint32 slot, int step) const { return {tmem + tensor_a(slot, step)}; }
};
