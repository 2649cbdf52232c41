// What may be applied to a sum. Accurate to a few units in the last place of float32 unless said otherwise. Every instruction here costs
// the other consumer's multiplies about a cycle, for registers are read at the same ports; so these take the hardware's exponential and
// reciprocal without the scaling that numbers below 2^-126 would need.
#pragma once
#include "ptx.cuh"

DEVICE float relu(float x) { return x < 0.0f ? 0.0f : x; }    // NaN stays NaN

// 1 / (1 + 2^z): within 2^-21 of it. 0 where 2^z is infinite.
DEVICE float logistic(float z) { return reciprocal_approximately(1.0f + exp2_approximately(z)); }

constexpr float LOG2_E = 1.44269504f;

DEVICE float sigmoid(float x) { return logistic(-LOG2_E * x); }

DEVICE float silu(float x) { return x * sigmoid(x); }    // of minus infinity NaN, as PyTorch has it; so gelu and gelu_tanh

// x times the probability that a normal variable is below x (Hendrycks and Gimpel, 2016), which is 1 / (1 + 2^(x p(x^2))) with a polynomial
// p fitted so that the result is within 1.2e-7 of it for negative x and within 4e-7, relative, for positive x. Beyond |x| = 5.6, to which
// it was fitted, p falls faster than what it stands for, and the probability is below 1.1e-8 and becomes 0 or 1.
DEVICE float gelu(float x) {
    const float square = x * x;
    float p = -5.20989163e-9f;
    p = p * square + 3.85044302e-7f;
    p = p * square - 1.14524191e-5f;
    p = p * square + 1.59389339e-4f;
    p = p * square + 9.55931537e-5f;
    p = p * square - 0.10483858f;
    p = p * square - 2.30220723f;
    return x * logistic(x * p);
}

// The same within 2^-9.8 of it, relative, up to |x| = 4.6, and within 2e-8 beyond: for results that keep 8 bits, whose own rounding is up
// to 2^-9 and more. What is shorter here is shorter for the tensor core, which stands still meanwhile.
DEVICE float gelu_coarse(float x) {
    const float square = x * x;
    const float p = ((-1.28289930e-5f * square + 1.42175831e-3f) * square - 0.109440839f) * square - 2.29733414f;
    return x * logistic(x * p);
}

// Its approximation: x sigmoid(2 y) is x (1 + tanh y) / 2, with y = sqrt(2 / pi) (x + 0.044715 x^3).
DEVICE float gelu_tanh(float x) {
    constexpr float SCALE = -2.0f * LOG2_E * 0.79788456f;
    return x * logistic(x * (SCALE + (SCALE * 0.044715f) * (x * x)));
}
