// Copies an operand into rows that the copy engine can read: K contiguous, each row at a multiple of 16 bytes. For operands with other strides.
//
// Compiled on its own, with no GEMM in it. One-dimensional blocks of 256 threads take tiles of 32 x 32 elements; through shared memory, so that reads are contiguous whichever
// dimension is, and writes always.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

// `in` has `batches` matrices of `rows` x `k` elements with these strides (elements); `out` has rows `pitch` apart, and matrices `rows` * `pitch`.
template <typename Element>
__device__ __forceinline__ void relayout(const Element* in, Element* out, u64 rows, u64 k, u64 batches, s64 row_stride, s64 k_stride, s64 batch_stride, u64 pitch) {
    __shared__ Element tile[32][33];
    const u32 x = threadIdx.x % 32;
    const u32 y = threadIdx.x / 32;
    const u64 across = (k + 31) / 32;
    const u64 down = (rows + 31) / 32;
    const bool along_rows = row_stride == 1;    // neighbouring lanes read neighbouring elements
    for (u64 number = blockIdx.x; number < across * down * batches; number += gridDim.x) {
        const u64 batch = number / (across * down);
        const u64 first_k = number % across * 32;
        const u64 first_row = number / across % down * 32;
        for (u32 i = y; i < 32; i += 8) {
            const u32 r = along_rows ? x : i;
            const u32 c = along_rows ? i : x;
            if (first_row + r < rows && first_k + c < k) {
                tile[r][c] = in[static_cast<s64>(batch) * batch_stride + static_cast<s64>(first_row + r) * row_stride + static_cast<s64>(first_k + c) * k_stride];
            }
        }
        __syncthreads();
        for (u32 i = y; i < 32; i += 8) {
            if (first_row + i < rows && first_k + x < k) out[(batch * rows + first_row + i) * pitch + first_k + x] = tile[i][x];
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) relayout_1(const u8* in, u8* out, u64 rows, u64 k, u64 batches, s64 row_stride, s64 k_stride, s64 batch_stride, u64 pitch) {
    relayout(in, out, rows, k, batches, row_stride, k_stride, batch_stride, pitch);
}

extern "C" __global__ void __launch_bounds__(256) relayout_2(const u16* in, u16* out, u64 rows, u64 k, u64 batches, s64 row_stride, s64 k_stride, s64 batch_stride, u64 pitch) {
    relayout(in, out, rows, k, batches, row_stride, k_stride, batch_stride, pitch);
}

extern "C" __global__ void __launch_bounds__(256) relayout_4(const u32* in, u32* out, u64 rows, u64 k, u64 batches, s64 row_stride, s64 k_stride, s64 batch_stride, u64 pitch) {
    relayout(in, out, rows, k, batches, row_stride, k_stride, batch_stride, pitch);
}
