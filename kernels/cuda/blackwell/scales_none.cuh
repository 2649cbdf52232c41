// Operands are multiplied as they are.
#pragma once

struct ScaleMaps {};

struct ScaleFactors {
    static constexpr uint32 SLOT_BYTES = 0;

    DEVICE ScaleFactors(const ScaleMaps &, uint32) {}
    DEVICE void prefetch() const {}
    DEVICE void load(uint32, uint32, TileCoordinate, uint32) const {}
    DEVICE void copy(uint32, uint32) const {}
    template <typename Left> DEVICE void multiply(uint32 d, Left a, uint64 b, uint32, TileCoordinate, uint32, int, bool accumulate) const { tmem_multiply(d, a, b, accumulate); }
};
