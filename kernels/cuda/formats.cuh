// What elements are as they lie in memory, and sums as the tensor core holds them.
#pragma once
#include "ptx.cuh"

template <Format> struct Stored {
    using type = uint16;
};
template <> struct Stored<FORMAT_F32> {
    using type = float;
};
template <> struct Stored<FORMAT_S32> {
    using type = int32;
};
template <> struct Stored<FORMAT_E4M3> {
    using type = uint8;
};
template <> struct Stored<FORMAT_E5M2> {
    using type = uint8;
};
template <> struct Stored<FORMAT_S8> {
    using type = uint8;
};
using Out = Stored<D_FORMAT>::type;

template <bool Integer> struct Sum {
    using type = float;
};
template <> struct Sum<true> {
    using type = int32;
};
using Accumulator = Sum<INTEGER>::type;

// Four sums that are read and written in one access.
struct alignas(16) Four {
    Accumulator x, y, z, w;
};

// Two numbers as 16-bit elements: `low` in bits 0-15.
DEVICE uint32 pack_out(float low, float high) { return D_FORMAT == FORMAT_F16 ? pack_f16(low, high) : pack_bf16(low, high); }

// A number in another format, rounded to the nearest.
//
// D_FORMAT == FORMAT_E4M3 || D_FORMAT == FORMAT_E5M2 || D_FORMAT == FORMAT_S8 || D_FORMAT == FORMAT_S32: What lies beyond the format's
// range becomes its end.
template <Format F> DEVICE typename Stored<F>::type converted(float value) {
    if constexpr (F == FORMAT_F32) return value;
    if constexpr (F == FORMAT_S32) return rounded(value);
    if constexpr (F == FORMAT_S8) return static_cast<uint8>(max(-128, min(127, rounded(value))));
    if constexpr (F == FORMAT_E4M3) return static_cast<uint8>(pack_e4m3(value, 0.0f));
    if constexpr (F == FORMAT_E5M2) return static_cast<uint8>(pack_e5m2(value, 0.0f));
    if constexpr (F == FORMAT_F16) return static_cast<uint16>(pack_f16(value, 0.0f));
    if constexpr (F == FORMAT_BF16) return static_cast<uint16>(pack_bf16(value, 0.0f));
}

// INTEGER: A whole number likewise.
template <Format F> DEVICE typename Stored<F>::type converted(int32 value) {
    if constexpr (F == FORMAT_S32) return value;
    if constexpr (F == FORMAT_S8) return static_cast<uint8>(max(-128, min(127, value)));
    if constexpr (F != FORMAT_S32 && F != FORMAT_S8) return converted<F>(static_cast<float>(value));
}

// An element of C or of a bias as a number.
template <Format F> DEVICE float widened(typename Stored<F>::type element) {
    if constexpr (F == FORMAT_F32) return element;
    if constexpr (F == FORMAT_S32) return static_cast<float>(element);
    if constexpr (F == FORMAT_F16) return widened_f16(element);
    if constexpr (F == FORMAT_BF16) return __uint_as_float(static_cast<uint32>(element) << 16);
}
