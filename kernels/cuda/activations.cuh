// What may be applied to a sum. Accurate to a few units in the last place of float32 unless said otherwise.
#pragma once
#include "ptx.cuh"

DEVICE float relu(float x) { return x < 0.0f ? 0.0f : x; }    // NaN stays NaN

// 1 / (1 + e^-x) by the hardware's exponential and reciprocal: within 2^-21 of it.
DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

DEVICE float silu(float x) { return x < -80.0f ? 0.0f * x : x * sigmoid(x); }    // e^80 is still finite; below, the product is under 1e-33

// x times the probability that a normal variable is below x (Hendrycks and Gimpel, 2016), by Abramowitz and Stegun's 7.1.26 for the tail beyond |x|, within 1.5e-7:
// erff has branches and needs three times the registers.
DEVICE float gelu(float x) {
    const float size = fminf(fabsf(x), 14.0f);    // beyond, the tail is 0 and infinity times it would be NaN
    const float z = size * 0.70710678f;
    const float t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
    const float polynomial = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float tail = 0.5f * size * polynomial * __expf(-z * z);
    return x < 0.0f ? -tail : x - tail;
}

// Its approximation: x sigmoid(2 y) is x (1 + tanh y) / 2.
DEVICE float gelu_tanh(float x) {
    const float y = 0.79788456f * (x + 0.044715f * x * x * x);
    return y < -40.0f ? 0.0f * x : x * sigmoid(2.0f * y);
}
