// Random matrices, a float64 reference and comparisons, for timing and checking GEMMs where their operands lie.
//
// Compiled on its own, with no GEMM in it. Elements are bf16 or f16 (`half` != 0), two bytes each; matrices are row-major
// with a pitch in elements. Launch one-dimensional blocks of 256 threads.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The finaliser of splitmix64 (Steele, Lea and Flood, 2014): a good 64-bit number for every count, in any order.
__device__ __forceinline__ u64 mixed(u64 count) {
    count += 0x9e3779b97f4a7c15ull;
    count = (count ^ (count >> 30)) * 0xbf58476d1ce4e5b9ull;
    count = (count ^ (count >> 27)) * 0x94d049bb133111ebull;
    return count ^ (count >> 31);
}

__device__ __forceinline__ u16 rounded(float value, u32 half) {
    if (half) {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
    const u32 bits = __float_as_uint(value);
    return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ float widened(u16 bits, u32 half) {
    if (half) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    return __uint_as_float(static_cast<u32>(bits) << 16);
}

// Standard normal numbers (Box and Muller), or with `integers` whole ones from -3 to 3, whose products add up exactly.
extern "C" __global__ void __launch_bounds__(256) fill_random(u16* out, u64 elements, u64 seed, u32 half, u32 integers) {
    const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 pair = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; 2 * pair < elements; pair += threads) {
        const u64 bits = mixed(mixed(seed) + pair);
        float first, second;
        if (integers) {
            first = static_cast<float>(static_cast<int>((bits >> 32) % 7) - 3);
            second = static_cast<float>(static_cast<int>((bits & 0xffffffffu) % 7) - 3);
        } else {
            const float radius = sqrtf(-2.0f * __logf(static_cast<float>((bits >> 40) + 1) * 0x1p-24f));
            const float angle = static_cast<float>(bits & 0xffffffu) * (6.2831853f * 0x1p-24f);
            first = radius * __cosf(angle);
            second = radius * __sinf(angle);
        }
        out[2 * pair] = rounded(first, half);
        if (2 * pair + 1 < elements) out[2 * pair + 1] = rounded(second, half);
    }
}

// What `compare_rows` finds: sums over the compared elements.
struct Found {
    double error_square;
    double reference_square;
    u64 largest_error;   // the bits of a double that is not negative, which compare as whole numbers
    u64 outside;         // elements beyond their bound, or not finite
    u64 first_outside;   // the smallest row * n + column of them
};

constexpr int kRows = 8;  // rows of A that a warp multiplies with one row of B, so that B is read once for eight

// Compares the listed rows of D (m, n) with A (m, k) B (n, k)^T. One warp makes eight elements of a column. A product of
// two elements is exact in float32; they are added in float64. The bound of an element is `step` * k times the row of
// |A| on that of |B|, and `roundoff` of the result.
extern "C" __global__ void __launch_bounds__(256) compare_rows(const u16* a, const u16* b, const u16* d, const u32* rows,
                                                               u32 row_count, u32 n, u32 k, u64 pitch_a, u64 pitch_b,
                                                               u64 pitch_d, u32 half, double step, double roundoff,
                                                               double smallest, Found* found) {
    const u32 lane = threadIdx.x % 32;
    const u32 column = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const u32 first = blockIdx.y * kRows;
    if (column >= n) return;
    const u16* row_of_a[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) row_of_a[i] = a + rows[min(first + i, row_count - 1)] * pitch_a;
    const u16* row_of_b = b + column * pitch_b;
    double sum[kRows] = {};
    float size[kRows] = {};
    for (u32 i = lane; i < k; i += 32) {
        const float right = widened(row_of_b[i], half);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const float product = widened(row_of_a[r][i], half) * right;
            sum[r] += static_cast<double>(product);
            size[r] += fabsf(product);
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        double exact = sum[r];
        float total = size[r];
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2) {
            exact += __shfl_xor_sync(0xffffffffu, exact, apart);
            total += __shfl_xor_sync(0xffffffffu, total, apart);
        }
        if (lane != 0 || first + r >= row_count) continue;
        const u32 row = rows[first + r];
        const double got = static_cast<double>(widened(d[row * pitch_d + column], half));
        const double error = fabs(got - exact);
        const double accumulated = step * k * total;
        // Written so that NaN, which compares with nothing, is outside.
        const bool right = error <= accumulated + roundoff * (fabs(exact) + accumulated) + smallest;
        atomicAdd(&found->reference_square, exact * exact);
        if (!right) {
            atomicAdd(&found->outside, 1ull);
            atomicMin(&found->first_outside, static_cast<u64>(row) * n + column);
        }
        if (error < 1e300) {
            atomicAdd(&found->error_square, error * error);
            atomicMax(&found->largest_error, static_cast<u64>(__double_as_longlong(error)));
        }
    }
}

// Counts the NaNs among the elements of D, all of it: what was poisoned and never written.
extern "C" __global__ void __launch_bounds__(256) count_nans(const u16* d, u64 elements, u32 half, u64* count) {
    const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
    const u32 infinity = half ? 0x7c00u : 0x7f80u;
    u32 mine = 0;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += threads)
        mine += (d[i] & 0x7fffu) > infinity;
    mine = __reduce_add_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0 && mine != 0) atomicAdd(count, static_cast<u64>(mine));
}

// Counts the elements whose bits differ.
extern "C" __global__ void __launch_bounds__(256) count_different(const u16* x, const u16* y, u64 elements, u64* count) {
    const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
    u32 mine = 0;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += threads) mine += x[i] != y[i];
    mine = __reduce_add_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0 && mine != 0) atomicAdd(count, static_cast<u64>(mine));
}
