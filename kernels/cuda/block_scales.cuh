// The factors of blocks of K: what promoted sums are multiplied by before they are added.
#pragma once
#include "finish.cuh"

constexpr bool SCALED = SCALES_A == SCALES_BLOCK;

// Scales of blocks of 128 elements of K: A has one a row, B one for each 128 of its rows; a tile lies within one of those.
// They are loaded a block ahead, so that nothing waits for them: used only once the multiplies of their own block have ended.
struct BlockScales {
    float a[STRIPS][2], b;
    const float *next_a[STRIPS][2], *next_b;

    // `row` and `column` are the tile's first, `k_block` its first block of K.
    DEVICE BlockScales(const Finish &finish, uint32 row, uint32 column, uint32 k_block) : b(0.0f) {
        const Terms &terms = finish.terms;
        next_b = terms.scale_b + finish.batch * terms.scale_b_batch_stride + min(column, finish.n - 1) / 128 * terms.scale_b_stride + k_block * terms.scale_b_k_stride;
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32 at = min(row + strip * 64 + accumulator_row(threadIdx.x % 128, 2 * half), finish.m - 1);
                next_a[strip][half] = terms.scale_a + finish.batch * terms.scale_a_batch_stride + at * terms.scale_a_stride + k_block * terms.scale_a_k_stride;
                a[strip][half] = 0.0f;
            }
        }
    }

    // Those of the next block of K.
    DEVICE void load(const Terms &terms) {
        b = *next_b;
        next_b += terms.scale_b_k_stride;
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                a[strip][half] = *next_a[strip][half];
                next_a[strip][half] += terms.scale_a_k_stride;
            }
        }
    }
};

// Their product for every 64 rows of a thread's sums: values 2 and 3 of four lie eight rows below values 0 and 1.
struct BlockFactors {
    float of[STRIPS][2];

    DEVICE explicit BlockFactors(const BlockScales &scales) {
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) of[strip][half] = scales.a[strip][half] * scales.b;
        }
    }
};

// Adds the sums of one block of K to those of the blocks before, each times its factor.
DEVICE void promote(float (&sums)[STRIPS][TILE_N / 2], const float (&partial)[STRIPS][TILE_N / 2], const BlockFactors &factors) {
    #pragma unroll
    for (int strip = 0; strip < STRIPS; ++strip) {
        #pragma unroll
        for (int value = 0; value < TILE_N / 2; ++value) {
            sums[strip][value] += SCALED ? partial[strip][value] * factors.of[strip][value / 2 % 2] : partial[strip][value];
        }
    }
}
