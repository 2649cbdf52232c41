// The multiply reads A in shared memory, where the copy engine put it.
#pragma once

struct LeftOperand {
    static constexpr int WARPS = 0;

    DEVICE LeftOperand(Slots, uint32, uint32) {}
    DEVICE static void initialise(uint32) {}
    DEVICE static void registers_of_few() {}
    DEVICE static void registers_of_epilogue() {}
    DEVICE void convert(Ring, Tiles, uint32) const {}
    DEVICE void fill(Position<STAGES>, uint64) const {}

    // A of one step of K: its descriptor.
    DEVICE uint64 of_step(uint64 a, uint32, int step) const { return a + a_step_advance(step); }
};
