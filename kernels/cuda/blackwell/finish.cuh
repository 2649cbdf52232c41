// What is done to a sum before it is stored: D = (act(alpha * acc + beta * C + bias)) * scale, converted to D's format. `acc` is the sum times the factors of its row of A
// and its row of B. What the configuration does not use costs nothing: its constants are false.
#pragma once
#include "output.cuh"
#include "../terms.cuh"

DEVICE uint32 batches(const Terms &terms) { return terms.batches; }

// What a sum becomes before it is converted. Whole numbers to which nothing is done stay whole: float32 has not all beyond 2^24.
template <bool Changed> struct Finally { using type = float; };
template <> struct Finally<false> { using type = Accumulator; };

struct Finish {
    using Result = Finally<CHANGED>::type;

    const Terms &terms;
    uint32 m, n;
    uint32 batch;
    float alpha;
    float most;

    DEVICE Finish(const Terms &terms, uint32 m, uint32 n) : terms(terms), m(m), n(n), batch(0), alpha(terms.alpha), most(0.0f) {}

    // Before the first sum: what lies in device memory may come from the kernel before.
    DEVICE void begin() {
        dependency_wait();
        if (ALPHA) {
            #pragma unroll
            for (int factor = 0; factor < 3; ++factor) {
                if (terms.factors[factor] != nullptr) alpha *= *terms.factors[factor];
            }
        }
    }

    // What is finished next belongs to this matrix of a batch.
    DEVICE void move_to(uint32 next) { batch = next; }

    // Sums of neighbouring columns, the first at D(row, column).
    DEVICE void finished(Result (&results)[CHUNK], const uint32 *sums, uint32 row, uint32 column) {
        #pragma unroll
        for (int i = 0; i < CHUNK; ++i) results[i] = one(sum_of(sums[i]), row, column + i);
    }

    DEVICE uint64 of_batch(uint64 stride) const { return FORM == FORM_BATCH ? batch * stride : 0; }

    // What lies outside is computed from the nearest row and column inside, so that loads need no branches, and is not stored.
    DEVICE Result one(Accumulator sum, uint32 row, uint32 column) {
        const bool inside = row < m && column < n;
        const uint32 d_row = min(row, m - 1);
        const uint32 d_column = min(column, n - 1);
        if (!CHANGED) {
            if (AUX && inside) terms.aux[of_batch(terms.aux_batch_stride) + d_row * terms.aux_row_stride + d_column] = converted<D_FORMAT>(sum);
            if (AMAX && inside) most = max(most, fabsf(static_cast<float>(sum)));
            return sum;
        }
        float acc = static_cast<float>(sum);
        if (SCALES_A == SCALES_ROW) acc *= terms.scale_a[of_batch(terms.scale_a_batch_stride) + d_row * terms.scale_a_stride];
        if (SCALES_B == SCALES_ROW) acc *= terms.scale_b[of_batch(terms.scale_b_batch_stride) + d_column * terms.scale_b_stride];
        float c = 0.0f;
        if (HAS_C) c = widened<C_FORMAT>(terms.c[of_batch(terms.c_batch_stride) + d_row * terms.c_row_stride + d_column]);
        float bias = 0.0f;
        if (BIAS != BIAS_NONE) bias = widened<BIAS_FORMAT>(terms.bias[of_batch(terms.bias_batch_stride) + (BIAS == BIAS_M ? d_row : d_column)]);
        float x = ALPHA ? alpha * acc : acc;
        if (HAS_C) x += terms.beta * c;
        if (BIAS != BIAS_NONE) x += bias;
        if (AUX && inside) terms.aux[of_batch(terms.aux_batch_stride) + d_row * terms.aux_row_stride + d_column] = converted<D_FORMAT>(x);
        if (GATED) return x;
        return counted(activated(acc, c, bias, alpha, terms.beta, x, d_row, d_column), inside);
    }

    // Two neighbouring columns that make one: what is activated, and what it multiplies.
    DEVICE float gated(float gate, float other, bool inside) { return counted(activated(gate, 0.0f, 0.0f, alpha, terms.beta, gate, 0, 0) * other, inside); }

    DEVICE float counted(float value, bool inside) {
        if (AMAX && inside) most = max(most, fabsf(value));
        return SCALE_D ? value * *terms.scale_d : value;
    }

    // After the last tile: what was counted is told.
    DEVICE void end() const {
        if (AMAX) {
            const uint32 largest = warp_maximum(__float_as_uint(most));
            if (threadIdx.x % 32 == 0) global_maximum(terms.amax, largest);
        }
    }
};
