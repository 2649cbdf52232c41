// Sums are stored as they are: D = A B^T.
#pragma once
#include "output.cuh"

struct Terms {};
DEVICE uint32 batches(const Terms &) { return 1; }
DEVICE const int32 *offsets(const Terms &) { return nullptr; }

struct Finish {
    uint32 m;

    DEVICE Finish(const Terms &, uint32 m, uint32) : m(m) {}
    DEVICE void move_to(uint32, uint32) {}
    DEVICE void prefetch(uint32) const {}
    DEVICE Accumulator finished(Accumulator sum, uint32, uint32) const { return sum; }
    DEVICE void end() const {}
    template <typename Store> DEVICE void store(Store &epilogue, const Accumulator (&sums)[TILE_N / 2], uint32 row, uint32 column) const { epilogue.store(sums, row, column); }
};
