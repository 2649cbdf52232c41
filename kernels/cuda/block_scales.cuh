// The factors of blocks of K: what promoted sums are multiplied by before they are added.
#pragma once
#include "finish.cuh"

constexpr bool SCALED = SCALES_A == SCALES_BLOCK;

// Scales of blocks of 128 elements of K: A has one a row, B one for each 128 of its rows; a tile lies within one of those.
//
// The four threads that share their rows of the sums share the loads, too: each has the scales of every fourth block. So they are loaded
// four blocks at a time and four ahead, since memory takes longer to answer than a block to multiply.
struct BlockScales {
    float four[STRIPS][2];              // this thread's of four blocks: A's scale times B's
    float next_a[STRIPS][2], next_b;    // of the next four
    const float *a[STRIPS][2], *b;
    uint32 taken;                       // blocks of the tile
    uint32 first, last;                 // block of K in the operands: this thread's next one, and the tile's last

    // `row` and `column` are the tile's first.
    DEVICE BlockScales(const Finish &finish, uint32 row, uint32 column, const Work &work) : next_b(0.0f), taken(0), first(work.first_k() / 128) {
        const Terms &terms = finish.terms;
        const uint32 before = SPLIT ? work.first % PROMOTE_SLOTS : 0;
        last = first + (before + work.count - 1) / PROMOTE_SLOTS;
        first += threadIdx.x % 4;
        b = terms.scale_b + finish.batch * terms.scale_b_batch_stride + min(column, finish.n - 1) / 128 * terms.scale_b_stride;
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32 at = min(row + strip * 64 + accumulator_row(threadIdx.x % 128, 2 * half), finish.m - 1);
                a[strip][half] = terms.scale_a + finish.batch * terms.scale_a_batch_stride + at * terms.scale_a_stride;
                next_a[strip][half] = four[strip][half] = 0.0f;
            }
        }
        if (SCALED && work.count != 0) load(terms);
    }

    // Those of the next four blocks, or of the last one again.
    DEVICE void load(const Terms &terms) {
        const uint32 block = min(first, last);
        first += 4;
        next_b = b[block * terms.scale_b_k_stride];
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) next_a[strip][half] = a[strip][half][block * terms.scale_a_k_stride];
        }
    }
};

// A's scale times B's, of one block of K and each 64 rows of a thread's sums: values 2 and 3 of four lie eight rows below values 0 and 1.
struct BlockFactors {
    float of[STRIPS][2];

    // Those of the next block. By whole warps.
    DEVICE BlockFactors(BlockScales &scales, const Terms &terms) {
        const uint32 among_four = scales.taken % 4;
        if (SCALED && among_four == 0) {
            #pragma unroll
            for (int strip = 0; strip < STRIPS; ++strip) {
                #pragma unroll
                for (int half = 0; half < 2; ++half) scales.four[strip][half] = scales.next_a[strip][half] * scales.next_b;
            }
            scales.load(terms);
        }
        const uint32 lane = threadIdx.x % 32 / 4 * 4 + among_four;
        #pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) of[strip][half] = SCALED ? from_lane(scales.four[strip][half], lane) : 1.0f;
        }
        ++scales.taken;
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
