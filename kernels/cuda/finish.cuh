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

// What a sum becomes before it is converted. Whole numbers to which nothing is done stay whole: float32 has not all beyond 2^24.
template <bool Changed> struct Finally { using type = float; };
template <> struct Finally<false> { using type = Accumulator; };
using Final = Finally<CHANGED>::type;

// The value itself, but the compiler does not know that: what it computes from this it neither shares among strips and tiles nor keeps in
// registers until it comes to them. There are too few for the addresses of all columns.
DEVICE uint32 afresh(uint32 value) {
    asm volatile("" : "+r"(value));
    return value;
}
DEVICE uint64 afresh(uint64 value) {
    asm volatile("" : "+l"(value));
    return value;
}

// Where what belongs to one sum lies, and how far from there (`pitch`) that of the next row of C or aux lies, or the next row's scale.
struct Beside {
    const Stored<C_FORMAT>::type *added;
    uint64 added_pitch;
    const Stored<BIAS_FORMAT>::type *biased;
    Out *stored;
    uint64 stored_pitch;
    const float *factor_a;
    uint64 pitch_a;
    const float *factor_b;
    uint64 pitch_b;

    // Of the sum at (0, 0).
    DEVICE Beside(const Terms &terms, uint32 batch)
        : added(terms.c + (SEVERAL_D ? batch * terms.c_batch_stride : 0)),
          added_pitch(HAS_C ? afresh(terms.c_row_stride) : 0),
          biased(terms.bias + (FORM == FORM_ONE ? 0 : batch * terms.bias_batch_stride)),
          stored(terms.aux + (SEVERAL_D ? batch * terms.aux_batch_stride : 0)),
          stored_pitch(AUX ? afresh(terms.aux_row_stride) : 0),
          factor_a(terms.scale_a + batch * terms.scale_a_batch_stride),
          pitch_a(SCALES_A == SCALES_ROW ? afresh(terms.scale_a_stride) : 0),
          factor_b(terms.scale_b + batch * terms.scale_b_batch_stride),
          pitch_b(SCALES_B == SCALES_ROW ? afresh(terms.scale_b_stride) : 0) {}

    // Of the sum so many rows and columns on, of the kernel's own problem, in which operands may have changed places.
    DEVICE void move(uint32 down, uint32 right) {
        if (HAS_C) added += (SWAPPED ? right : down) * added_pitch + (SWAPPED ? down : right);
        if (BIAS != BIAS_NONE) biased += BIAS_ALONG_COLUMNS ? right : down;
        if (AUX) stored += (SWAPPED ? right : down) * stored_pitch + (SWAPPED ? down : right);
        if (SCALES_A == SCALES_ROW) factor_a += (SWAPPED ? right : down) * pitch_a;
        if (SCALES_B == SCALES_ROW) factor_b += (SWAPPED ? down : right) * pitch_b;
    }
};

struct Finish {
    const Terms &terms;
    uint32 m, n;
    uint32 batch;
    float alpha;
    float scale_d;
    float most;

    DEVICE Finish(const Terms &terms, uint32 m, uint32 n)
        : terms(terms), m(m), n(n), batch(0), alpha(terms.alpha), scale_d(1.0f), most(0.0f) {
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
        if (SCALE_D) scale_d = *terms.scale_d;
    }

    // Brings the bias of a tile's columns near while the tile is multiplied: after its last multiply nothing would hide the way to L2.
    // Called by one consumer's 128 threads.
    DEVICE void prefetch(uint32 column) const {
        constexpr uint32 STEP = 128 / sizeof(*terms.bias);
        const uint32 at = column + threadIdx.x % 128 * STEP;
        if (threadIdx.x % 128 <= TILE_N / STEP) prefetch_line(terms.bias + (FORM == FORM_ONE ? 0 : batch * terms.bias_batch_stride) + min(at, n - 1));
    }

    // The sum at (row, column) of the kernel's own problem. What is not `inside` is not counted, and not stored beside D either.
    DEVICE Final finished(Accumulator sum, uint32 row, uint32 column, const Beside &its, bool inside) {
        if (!CHANGED) {
            if (AUX && inside) *its.stored = converted<D_FORMAT>(sum);
            if (AMAX && inside) most = max(most, fabsf(static_cast<float>(sum)));
            return sum;
        }
        float acc = static_cast<float>(sum);
        if (SCALES_A == SCALES_ROW) acc *= *its.factor_a;
        if (SCALES_B == SCALES_ROW) acc *= *its.factor_b;
        const float c = HAS_C ? widened<C_FORMAT>(*its.added) : 0.0f;
        const float bias = BIAS != BIAS_NONE ? widened<BIAS_FORMAT>(*its.biased) : 0.0f;
        float x = ALPHA ? alpha * acc : acc;
        if (HAS_C) x += terms.beta * c;
        if (BIAS != BIAS_NONE) x += bias;
        if (AUX && inside) *its.stored = converted<D_FORMAT>(x);
        if (GATED) {
            return x;
        } else {
            return counted(activated(acc, c, bias, alpha, terms.beta, x, SWAPPED ? column : row, SWAPPED ? row : column), inside);
        }
    }

    // The same of one that is inside.
    DEVICE Final finished(Accumulator sum, uint32 row, uint32 column) {
        Beside its(terms, batch);
        its.move(row, column);
        return finished(sum, row, column, its, true);
    }

    DEVICE float counted(float value, bool inside) {
        if (AMAX && inside) most = max(most, fabsf(value));
        return SCALE_D ? value * scale_d : value;
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

// This thread's part of a strip, finished one by one as it is read. `Inside`: all of the strip lies inside, and addresses are constants
// apart. Otherwise what lies outside is computed from the nearest row and column inside, so that loads need no branches.
template <bool Inside> struct Finished {
    Finish &finish;
    const Accumulator (&sums)[TILE_N / 2];
    uint32 row;
    uint32 column;
    const Beside &from;    // of the first one if they are inside, else of the sum at (0, 0)

    DEVICE Final one(int value) const {
        const uint32 down = accumulator_row(0, value), right = accumulator_column(0, value);
        const uint32 near_row = Inside ? row + down : min(row + down, finish.m - 1);
        const uint32 near_column = Inside ? column + right : min(column + right, finish.n - 1);
        // Sixteen columns at a time, and a branch: otherwise the compiler computes the addresses of all before it uses the first, and has
        // too few registers for them.
        if (!Inside && column + accumulator_column(0, value / 8 * 8) >= finish.n) return 0;
        const bool inside = Inside || (row + down < finish.m && column + right < finish.n);
        Beside its = from;
        its.move(Inside ? down : near_row, Inside ? right : near_column);
        return finish.finished(sums[value], near_row, near_column, its, inside);
    }

    DEVICE Final operator[](int value) const {
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
    const uint32 first_row = row + accumulator_row(thread, 0), first_column = afresh(column) + accumulator_column(thread, 0);
    Beside from(terms, batch);
    // Most are.
    if (row + 64 <= m && column + TILE_N <= n) {
        from.move(first_row, first_column);
        epilogue.store(Finished<true>{*this, sums, first_row, first_column, from}, row, column);
    } else {
        epilogue.store(Finished<false>{*this, sums, first_row, first_column, from}, row, column);
    }
}
