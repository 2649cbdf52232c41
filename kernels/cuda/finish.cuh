// What is done to a sum before it is stored: D = act(alpha * acc + beta * C + bias) * scale, of which this kernel has a part, converted to
// D's format. `acc` is the sum times the factors of its row of A and its row of B, where there are such.
#pragma once
#include "activations.cuh"
#include "output.cuh"
#include "terms.cuh"

DEVICE uint32 batches(const Terms &terms) { return terms.batches; }
DEVICE const int32 *offsets(const Terms &terms) { return terms.offsets; }

// Along which dimension of the kernel's own problem the bias runs.
constexpr bool BIAS_ALONG_COLUMNS = BIAS == (SWAPPED ? BIAS_M : BIAS_N);

struct Finish {
    const Terms &terms;
    uint32 m, n;
    uint32 batch;
    float alpha;
    float most;

    DEVICE Finish(const Terms &terms, uint32 m, uint32 n) : terms(terms), m(m), n(n), batch(0), alpha(terms.alpha), most(0.0f) {
        dependency_wait();    // factors are read before anything was loaded by the producer
    }

    // What is finished next belongs to this batch or group, and its rows end there.
    DEVICE void move_to(uint32 next_batch, uint32 row_end) {
        batch = next_batch;
        m = row_end;
        if (ALPHA) {
            alpha = terms.alpha;
            #pragma unroll
            for (int factor = 0; factor < 3; ++factor) {
                if (terms.factors[factor] != nullptr) alpha *= *terms.factors[factor];
            }
        }
    }

    // Brings the bias of a tile's columns near while the tile is multiplied: after its last multiply nothing would hide the way to L2.
    // Called by one consumer's 128 threads.
    DEVICE void prefetch(uint32 column) const {
        constexpr uint32 STEP = 128 / sizeof(*terms.bias);
        const uint32 at = column + threadIdx.x % 128 * STEP;
        if (threadIdx.x % 128 <= TILE_N / STEP) prefetch_line(terms.bias + (FORM == FORM_ONE ? 0 : batch * terms.bias_batch_stride) + min(at, n - 1));
    }

    // The biases of the kernel's own problem, in which operands may have changed places, from (row, column) on.
    DEVICE const Stored<BIAS_FORMAT>::type *bias_at(uint32 row, uint32 column) const {
        return terms.bias + (FORM == FORM_ONE ? 0 : batch * terms.bias_batch_stride) + (BIAS_ALONG_COLUMNS ? column : row);
    }

    // The sum at (row, column) of the kernel's own problem. Unless it is known to be `Inside`, what lies outside is computed from the
    // nearest row and column inside, so that loads need no branches, and is not stored.
    template <bool Inside> DEVICE float finished(Accumulator sum, uint32 row, uint32 column, const Stored<BIAS_FORMAT>::type *bias_of_it) {
        const bool inside = Inside || (row < m && column < n);
        const uint32 near_row = Inside ? row : min(row, m - 1);
        const uint32 near_column = Inside ? column : min(column, n - 1);
        const uint32 d_row = SWAPPED ? near_column : near_row;
        const uint32 d_column = SWAPPED ? near_row : near_column;
        float acc = static_cast<float>(sum);
        if (SCALES_A == SCALES_ROW) acc *= terms.scale_a[batch * terms.scale_a_batch_stride + d_row * terms.scale_a_stride];
        if (SCALES_B == SCALES_ROW) acc *= terms.scale_b[batch * terms.scale_b_batch_stride + d_column * terms.scale_b_stride];
        const float c = HAS_C ? widened<C_FORMAT>(terms.c[(SEVERAL_D ? batch * terms.c_batch_stride : 0) + d_row * terms.c_row_stride + d_column]) : 0.0f;
        const float bias = BIAS != BIAS_NONE ? widened<BIAS_FORMAT>(Inside ? *bias_of_it : *bias_at(near_row, near_column)) : 0.0f;
        float x = ALPHA ? alpha * acc : acc;
        if (HAS_C) x += terms.beta * c;
        if (BIAS != BIAS_NONE) x += bias;
        if (AUX && inside) terms.aux[(SEVERAL_D ? batch * terms.aux_batch_stride : 0) + d_row * terms.aux_row_stride + d_column] = converted<D_FORMAT>(x);
        if (GATED) {
            return x;
        } else {
            return counted(activated(acc, c, bias, alpha, terms.beta, x, d_row, d_column), inside);
        }
    }

    // The same of one that is inside.
    DEVICE float finished(Accumulator sum, uint32 row, uint32 column) { return finished<true>(sum, row, column, bias_at(row, column)); }

    DEVICE float counted(float value, bool inside) {
        if (AMAX && inside) most = max(most, fabsf(value));
        return SCALE_D ? value * *terms.scale_d : value;
    }

    // Stores this thread's part of a strip of 64 x TILE_N sums whose first is at (row, column), each finished when the epilogue takes it.
    template <typename Store> DEVICE void store(Store &epilogue, const Accumulator (&sums)[TILE_N / 2], uint32 row, uint32 column);

    // After the last tile: what was counted is told.
    DEVICE void end() const {
        if (AMAX) {
            const uint32 largest = warp_maximum(__float_as_uint(most));
            if (threadIdx.x % 32 == 0) global_maximum(terms.amax, largest);
        }
    }
};

// This thread's part of a strip, finished one by one as it is read. `Inside`: all of the strip lies inside.
template <bool Inside> struct Finished {
    Finish &finish;
    const Accumulator (&sums)[TILE_N / 2];
    uint32 row;
    uint32 column;
    const Stored<BIAS_FORMAT>::type *bias;    // of the first one

    DEVICE float one(int value) const {
        const uint32 down = accumulator_row(0, value), right = accumulator_column(0, value);
        return finish.finished<Inside>(sums[value], row + down, column + right, bias + (BIAS_ALONG_COLUMNS ? right : down));
    }

    DEVICE float operator[](int value) const {
        if (GATED) {
            // Neighbouring columns are a pair: what is activated, and what it multiplies.
            const bool inside = Inside || (row + accumulator_row(0, value) < finish.m && column + accumulator_column(0, value) < finish.n);
            const float gate = one(value);
            const float other = one(value + 1);
            return finish.counted(activated(gate, 0.0f, 0.0f, finish.alpha, finish.terms.beta, gate, 0, 0) * other, inside);
        } else {
            return one(value);
        }
    }
};

template <typename Store> DEVICE void Finish::store(Store &epilogue, const Accumulator (&sums)[TILE_N / 2], uint32 row, uint32 column) {
    if (row >= m || column >= n) return;
    const uint32 thread = threadIdx.x % 128;
    const uint32 first_row = row + accumulator_row(thread, 0), first_column = column + accumulator_column(thread, 0);
    const Stored<BIAS_FORMAT>::type *const bias = bias_at(first_row, first_column);
    // Most are, and then addresses are constants apart.
    if (row + 64 <= m && column + TILE_N <= n) {
        epilogue.store(Finished<true>{*this, sums, first_row, first_column, bias}, row, column);
    } else {
        epilogue.store(Finished<false>{*this, sums, first_row, first_column, bias}, row, column);
    }
}
