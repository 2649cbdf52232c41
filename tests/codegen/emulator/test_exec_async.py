"""TMA, mbarriers, wgmma, bulk copies and clusters: right values, no races, in every order of completion."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator import EmulationError, EmulationResult, TensorMapArgument
from stridewright.layout.hardware import TensorMap

from .cuda_pieces import COPY_OUT, COPY_OUT_PARTS, PRODUCT, PRODUCT_PARTS, RING, RING_PARTS, WRAPPERS, filled
from .harness import run_cuda

SEEDS = range(4)


def words(rows: int, columns: int = 32) -> NDArray[np.uint32]:
    return np.random.default_rng(rows).integers(0, 1000, (rows, columns)).astype(np.uint32)


def word_map(array: NDArray[np.uint32], swizzle: Any = "none") -> TensorMapArgument:
    return TensorMapArgument(TensorMap("u32", (32, array.shape[0]), (128,), (32, 32), swizzle), array)


def run_ring(tiles: int, seed: int = 0, **changes: str) -> tuple[bool, EmulationResult]:
    data, out = words(32 * max(tiles, 1)), np.zeros(32, np.uint32)
    source = filled(RING, RING_PARTS, **changes)
    result = run_cuda(source, "ring", 1, 64, [word_map(data), out, np.int32(tiles)], shared=3 * 4096, seed=seed)
    return bool((out == data[: 32 * tiles].sum(axis=0)).all()), result


@pytest.mark.parametrize("tiles", range(8))
def test_a_ring_of_tensor_loads(tiles: int) -> None:
    for seed in SEEDS:
        right, result = run_ring(tiles, seed)
        assert right
        assert result.races == ()


def run_copy_out(rounds: int, seed: int = 0, **changes: str) -> tuple[bool, EmulationResult]:
    out = np.zeros((32 * rounds, 32), np.uint32)
    result = run_cuda(
        filled(COPY_OUT, COPY_OUT_PARTS, **changes), "copy_out", 1, 128, [word_map(out), np.int32(rounds)], seed=seed
    )
    return bool((out.reshape(-1) == np.arange(1024 * rounds)).all()), result


def test_tensor_stores_through_two_buffers() -> None:
    for seed in SEEDS:
        right, result = run_copy_out(5, seed)
        assert right
        assert result.races == ()


def run_product(tiles: int, seed: int = 0, **changes: str) -> tuple[bool, EmulationResult]:
    random = np.random.default_rng(tiles)
    a, b = (random.integers(-4, 5, (rows, 64 * tiles)).astype(ml_dtypes.bfloat16) for rows in (64, 8))
    out = np.zeros((64, 8), np.float32)
    maps = [
        TensorMapArgument(TensorMap("bf16", (64 * tiles, rows), (128 * tiles,), (64, rows), "128B"), array)
        for rows, array in ((64, a), (8, b))
    ]
    source = filled(PRODUCT, PRODUCT_PARTS, **changes)
    result = run_cuda(source, "product", 1, 128, [*maps, out, np.int32(tiles)], seed=seed)
    return bool((out == a.astype(np.float32) @ b.astype(np.float32).T).all()), result


@pytest.mark.parametrize("tiles", [1, 2, 3, 7])
def test_wgmma_from_swizzled_tiles(tiles: int) -> None:
    # Waiting for all but one group before the next load into the other slot is enough.
    for seed in SEEDS:
        right, result = run_product(tiles, seed)
        assert right
        assert [str(race) for race in result.races] == []


CLUSTER = (
    WRAPPERS
    + """
// Each block of a cluster of two loads half a box for both; both sum all of it, and release the slot in both blocks.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) halves(const __grid_constant__ Map map, u32 *out, int tiles) {
    __shared__ __align__(1024) u32 slot[2048];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) { init(&full, 1); init(&empty, 2 * 32); fence_init(); }
    CLUSTER_SYNC;
    if (threadIdx.x < 32) {
        if (elect()) for (int i = 0; i < tiles; ++i) {
            wait(&empty, i & 1 ^ 1);
            expect(&full, 8192);
            load_all(slot + rank() * 1024, &map, 0, i * 64 + rank() * 32, &full, 3);
        }
    } else {
        u32 total = 0, lane = threadIdx.x % 32;
        for (int i = 0; i < tiles; ++i) {
            wait(&full, i & 1);
            for (int r = 0; r < 64; ++r) total += slot[r * 32 + lane];
            fence_async();
            arrive_at(&empty, 0); arrive_at(&empty, 1);
        }
        out[blockIdx.x * 32 + lane] = total;
    }
    CLUSTER_END;
}
"""
)


def run_cluster(tiles: int, seed: int = 0, **changes: str) -> tuple[bool, EmulationResult]:
    data, out = words(64 * tiles), np.zeros(128, np.uint32)
    parts = {"CLUSTER_SYNC": "cluster_sync()", "CLUSTER_END": "cluster_sync()"}
    result = run_cuda(
        filled(CLUSTER, parts, **changes), "halves", 4, 64, [word_map(data), out, np.int32(tiles)], cluster=2, seed=seed
    )
    return bool((out.reshape(4, 32) == data.sum(axis=0)).all()), result


def test_multicast_and_remote_arrivals() -> None:
    for seed in SEEDS:
        right, result = run_cluster(5, seed)
        assert right
        assert [str(race) for race in result.races] == []


def test_shared_memory_of_the_other_block() -> None:
    source = (
        WRAPPERS
        + """
    extern "C" __global__ void __cluster_dims__(2, 1, 1) k(u32 *out) {
        __shared__ u32 mine[64];
        mine[threadIdx.x] = threadIdx.x + 1000 * rank();
        cluster_sync();
        u32 there, value;
        ASM("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared(&mine[63 - threadIdx.x])), "r"(rank() ^ 1));
        ASM("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there));
        out[blockIdx.x * 64 + threadIdx.x] = value;
        END;
    }"""
    )
    out = np.zeros(128, np.uint32)
    result = run_cuda("#define END cluster_sync()\n" + source, "k", 2, 64, [out])
    assert result.races == ()
    assert out.reshape(2, 64).tolist() == [[1000 * (1 - r) + 63 - t for t in range(64)] for r in range(2)]


def test_bulk_copies_both_ways() -> None:
    source = (
        WRAPPERS
        + """
    extern "C" __global__ void k(const u32 *in, u32 *out) {
        __shared__ __align__(128) u32 buffer[256];
        __shared__ u64 full;
        if (threadIdx.x == 0) {
            init(&full, 1); fence_init();
            expect(&full, 1024);
            ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                :: "r"(shared(buffer)), "l"(in), "r"(1024), "r"(shared(&full)) : "memory");
        }
        __syncthreads();
        wait(&full, 0);
        for (int i = threadIdx.x; i < 256; i += 32) buffer[i] *= 3;
        fence_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            ASM("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(out), "r"(shared(buffer)), "r"(1024) : "memory");
            ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" :: "l"(out + 256), "r"(shared(buffer)), "r"(1024) : "memory");
            store_commit(); store_wait<0>();
        }
    }"""
    )
    data, out = words(8).reshape(-1), np.full(512, 5, np.uint32)
    for seed in SEEDS:
        out[:] = 5
        assert run_cuda(source, "k", 1, 32, [data, out], seed=seed).races == ()
        assert np.array_equal(out[:256], data * 3)
        assert np.array_equal(out[256:], data * 3 + 5)


def test_lane_wise_asynchronous_copies() -> None:
    source = (
        WRAPPERS
        + """
    extern "C" __global__ void k(const u32 *in, u32 *out) {
        __shared__ __align__(16) u32 buffer[128];
        ASM("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared(buffer + threadIdx.x * 4)), "l"(in + threadIdx.x * 4) : "memory");
        ASM("cp.async.commit_group;\\ncp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        for (int i = 0; i < 4; ++i) out[i * 32 + threadIdx.x] = buffer[127 - i * 32 - threadIdx.x];
    }"""
    )
    data, out = words(4).reshape(-1), np.zeros(128, np.uint32)
    assert run_cuda(source, "k", 1, 32, [data, out]).races == ()
    assert np.array_equal(out, data[::-1])


def test_mma_sync_and_the_matrix_moves() -> None:
    source = (
        WRAPPERS
        + """
    extern "C" __global__ void k(const u16 *a, const u16 *b, float *out, u32 *back) {
        __shared__ __align__(16) u16 sa[256], sb[128], sc[64];
        for (int i = threadIdx.x; i < 256; i += 32) sa[i] = a[i];
        for (int i = threadIdx.x; i < 128; i += 32) sb[i] = b[i];
        __syncthreads();
        u32 x[4], y[2], lane = threadIdx.x; float d[4] = {0, 0, 0, 0};
        ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(shared(sa + (lane % 16) * 16 + lane / 16 * 8)));
        ASM("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(shared(sb + (lane % 8) * 16 + lane / 8 % 2 * 8)));
        ASM("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        for (int e = 0; e < 4; ++e) out[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = d[e];
        u32 t;
        ASM("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(y[0]));
        ASM("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" :: "r"(shared(sc + (lane % 8) * 8)), "r"(t) : "memory");
        __syncthreads();
        back[lane] = ((u32 *)sc)[lane];
    }"""
    )
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 9, shape).astype(ml_dtypes.bfloat16) for shape in ((16, 16), (8, 16)))
    out, back = np.zeros((16, 8), np.float32), np.zeros((8, 4), np.uint32)
    assert run_cuda(source, "k", 1, 32, [a.view(np.uint16), b.view(np.uint16), out, back]).races == ()
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)
    # Transposed twice: the first 8x8 block of b.
    assert np.array_equal(back.view(np.uint16), b.view(np.uint16)[:, :8])


REGISTERS = (
    WRAPPERS
    + """
extern "C" __global__ void __launch_bounds__(THREADS) k(u32 *out) {
    if (threadIdx.x < 128) { ASM("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(LOW)); }
    else { ASM("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(HIGH)); out[threadIdx.x] = 1; }
}"""
)


@pytest.mark.parametrize(
    ("threads", "low", "high", "fits"),
    [(384, 24, 240, True), (384, 40, 232, True), (384, 32, 240, False), (512, 32, 160, True), (512, 32, 168, False)],
)
def test_register_counts_come_out_of_the_launch_pool(threads: int, low: int, high: int, fits: bool) -> None:
    source = f"#define THREADS {threads}\n#define LOW {low}\n#define HIGH {high}\n{REGISTERS}"
    out = np.zeros(threads, np.uint32)
    if fits:
        run_cuda(source, "k", 1, threads, [out])
        assert out[128:].all()
    else:
        with pytest.raises(EmulationError, match=r"setmaxnreg.inc \d+: needs \d+ more registers"):
            run_cuda(source, "k", 1, threads, [out])


def test_register_counts_that_no_chip_takes() -> None:
    for low, high, why in [(36, 240, "multiple of 8"), (16, 240, "24..256"), (40, 264, "24..256")]:
        source = f"#define THREADS 384\n#define LOW {low}\n#define HIGH {high}\n{REGISTERS}"
        from .harness import compile_cuda  # the text is changed: the assembler in NVRTC would refuse it

        good = compile_cuda(source.replace(f"LOW {low}", "LOW 40").replace(f"HIGH {high}", "HIGH 240"))
        from stridewright.codegen.emulator import emulate_ptx

        text = good.replace("u32 40;", f"u32 {low};").replace("u32 240;", f"u32 {high};")
        with pytest.raises(EmulationError, match=why):
            emulate_ptx(text, "k", 1, 384, [np.zeros(384, np.uint32)])


def test_a_lone_warp_may_not_change_its_registers() -> None:
    source = f"#define THREADS 384\n#define LOW 40\n#define HIGH 232\n{REGISTERS}".replace(
        "threadIdx.x < 128", "threadIdx.x < 32"
    )
    with pytest.raises(EmulationError, match="every warp of a warpgroup"):
        run_cuda(source, "k", 1, 384, [np.zeros(384, np.uint32)])
