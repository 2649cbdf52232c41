// The multiply reads A in tensor memory, where the thread that multiplies copies it slot by slot. Copies and the multiplies after them need no wait between them (PTX ISA
// 9.1, section 9.7.16.6: cp and mma are pipelined).
#pragma once

struct LeftOperand {
    static constexpr int WARPS = 0;

    uint32 tmem;

    DEVICE LeftOperand(Slots, uint32, uint32 tmem) : tmem(tmem + TENSOR_A_COLUMN) {}
    DEVICE static void initialise(uint32) {}
    DEVICE static void registers_of_few() {}
    DEVICE static void registers_of_epilogue() {}
    DEVICE void convert(Ring, Tiles, uint32) const {}

    // A slot that is full goes to its columns, of a pair in both CTAs.
    DEVICE void fill(Position<STAGES> at, uint64 a) const {
        // The multiplies that last read these columns were issued by this thread, but their end came by way of the copy engine's thread.
        tmem_fence_after_sync();
        #pragma unroll
        for (int step = 0; step < K_STEPS; ++step) tmem_copy_rows(tmem + tensor_a(at.slot, step), a + a_step_advance(step));
    }

    // A of one step of K: its place in tensor memory.
    DEVICE TensorMemory of_step(uint64, uint32 slot, int step) const { return {tmem + tensor_a(slot, step)}; }
};
