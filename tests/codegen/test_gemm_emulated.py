"""The generated PTX, run on the emulator, is right: for the shapes that break GEMMs, for every number of stages, for random and for exact inputs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.check import check_gemm
from stridewright.kernels.config import GemmConfig

SHAPES = [
    (1, 8, 8),
    (64, 64, 64),
    (128, 128, 64),
    (130, 136, 72),
    (257, 129, 512),
    (333, 777, 1504),
    (1000, 1000, 1000),
    (1024, 1024, 1024),
    (4096, 64, 64),
]


def normal(rows: int, k: int, seed: int) -> np.ndarray[Any, Any]:
    """Random normal values in bfloat16."""
    return np.random.default_rng(seed).standard_normal((rows, k), dtype=np.float32).astype(ml_dtypes.bfloat16)


def integers(rows: int, k: int, seed: int) -> np.ndarray[Any, Any]:
    """Integers from -4 to 4: sums of up to 2^20 of their products are exact in float32."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16)


def assert_exact(gemm: Gemm, seed: int = 1) -> None:
    """The kernel's result for integers is the exact product, rounded once to bfloat16, bit for bit, without a race."""
    a, b = integers(gemm.m, gemm.k, seed), integers(gemm.n, gemm.k, seed + 1)
    emulation = gemm.emulate(a, b)
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(emulation.d.view(np.uint16), exact.view(np.uint16))
    assert emulation.races == ()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_the_chosen_kernel_is_right(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    gemm = Gemm(m, n, k)
    a, b = normal(m, k, 2), normal(n, k, 3)
    emulation = gemm.emulate(a, b)
    check = check_gemm(emulation.d, a, b)
    assert check.passed, check.worst
    assert emulation.races == ()
    assert_exact(gemm)


@pytest.mark.parametrize("stages", range(2, 9))
def test_every_number_of_k_tiles_goes_round_the_ring(stages: int) -> None:
    config = GemmConfig().replace(tile_m=64, tile_n=64, consumers=1, stages=stages)
    for k_tiles in range(1, 2 * stages + 2):
        # Two tiles a CTA: the ring's position must survive from one to the next.
        gemm = Gemm(128, 128, 64 * k_tiles, config=config)
        a, b = integers(128, gemm.k, stages), integers(128, gemm.k, k_tiles)
        emulation = gemm.emulate(a, b, sms=2)
        exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(emulation.d.view(np.uint16), exact.view(np.uint16))
        assert emulation.races == ()


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "consumers"),
    [(64, 8, 1), (64, 256, 1), (128, 24, 2), (128, 136, 1), (128, 200, 2), (256, 128, 2), (256, 192, 2), (256, 72, 1)],
)
@pytest.mark.parametrize(("store", "n"), [("tma", 520), ("direct", 517)])
def test_every_kind_of_tile_is_right_at_ragged_edges(
    tile_m: int, tile_n: int, consumers: int, store: str, n: int
) -> None:
    config = GemmConfig().replace(tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=2, store=store)
    assert_exact(Gemm(275, n, 136, config=config))


@pytest.mark.parametrize(
    "parameters",
    [
        {"schedule_kind": "pingpong", "tile_n": 128},
        {"schedule_kind": "pingpong", "tile_n": 208},
        {"schedule_kind": "pingpong", "tile_n": 80, "cluster_m": 2, "stages": 3},
        {"schedule_kind": "pingpong", "tile_m": 64, "tile_n": 88, "stages": 6, "swap": True},
        {"cluster_m": 2, "tile_n": 64},
        {"cluster_n": 2, "tile_n": 64},
        {"cluster_m": 2, "cluster_n": 2, "tile_n": 64},
        {"cluster_m": 4, "tile_n": 64, "stages": 3},
        {"cluster_n": 4, "tile_n": 64, "stages": 3},
        {"tile_n": 128, "tile_k": 128, "stages": 3},
        {"tile_m": 64, "tile_n": 16, "consumers": 1, "swap": True, "stages": 12},
        {"tile_m": 64, "tile_n": 40, "consumers": 1, "swap": True, "tile_k": 128, "stages": 5},
        {"tile_m": 128, "tile_n": 72, "swap": True, "cluster_n": 2},
        {"tile_m": 64, "tile_n": 8, "consumers": 1, "swap": True, "tile_k": 256, "store": "direct"},
    ],
    ids=lambda parameters: "-".join(f"{name}={value}" for name, value in parameters.items()),
)
def test_every_schedule_is_right_at_ragged_edges(parameters: dict[str, Any]) -> None:
    config = GemmConfig().replace(**parameters)
    for m, n, k in ((130, 136, 72), (275, 520, 456)):
        gemm = Gemm(m, n, k, config=config)
        a, b = integers(m, k, 1), integers(n, k, 2)
        emulation = gemm.emulate(a, b, sms=4)
        exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(emulation.d.view(np.uint16), exact.view(np.uint16))
        assert emulation.races == ()


def test_nan_and_infinity_go_where_they_belong() -> None:
    gemm = Gemm(64, 72, 128)
    a, b = normal(64, 128, 4), normal(72, 128, 5)
    a[3, 7], b[11, 20], a[9, 1] = np.nan, np.nan, np.inf
    d = gemm.emulate(a, b).d
    expected = np.zeros((64, 72), dtype=bool)
    expected[3, :] = True
    expected[:, 11] = True
    np.testing.assert_array_equal(np.isnan(d), expected)
    assert np.isinf(d[9, np.arange(72) != 11]).all()
    np.testing.assert_array_equal(np.sign(d[9, np.arange(72) != 11]), np.sign(b[np.arange(72) != 11, 1]))


def test_hardware_numerics_stay_within_the_bound_too() -> None:
    gemm = Gemm(130, 136, 264)
    a, b = normal(130, 264, 6), normal(136, 264, 7)
    check = check_gemm(gemm.emulate(a, b, numerics="hardware").d, a, b)
    assert check.passed, check.worst


def test_the_epilogue_s_stores_have_no_bank_conflicts_in_the_ptx_either() -> None:
    emulation = Gemm(128, 256, 64, config=GemmConfig()).emulate(normal(128, 64, 8), normal(256, 64, 9))
    stores = [record for record in emulation.conflicts if "stmatrix" in record.kind]
    assert stores, "the staged epilogue stores with stmatrix"
    assert all(record.wavefronts == record.ideal for record in stores)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, b: (a.astype(np.float32), b), ["a: dtype float32", "takes bfloat16"]),
        (lambda a, b: (a[:, :32], b), ["a: shape (64, 32)", "(M, K) = (64, 64)"]),
        (lambda a, b: (a, b[:8].T), ["b: shape (64, 8)", "(N, K) = (72, 64)"]),
        (lambda a, b: (np.repeat(a, 2, axis=1)[:, ::2], b), ["a: has neither dimension", "np.ascontiguousarray(a)"]),
        (lambda a, b: (a[None], b), ["a: shape (1, 64, 64)"]),
        (lambda a, b: (a.tolist(), b), ["a: list was given"]),
    ],
    ids=["dtype", "k", "transposed", "strided", "rank", "no-array"],
)
def test_arrays_that_do_not_fit_are_refused(change: Any, words: list[str]) -> None:
    a, b = change(normal(64, 64, 1), normal(72, 64, 2))
    with pytest.raises(OperandError) as caught:
        Gemm(64, 72, 64).emulate(a, b)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("sms", [0, -1, 1.5, True, "132"])
def test_a_number_of_multiprocessors_is_a_whole_number(sms: Any) -> None:
    with pytest.raises(ValueError, match=f"sms={sms!r}: must be a whole number of multiprocessors"):
        Gemm(64, 72, 64).emulate(normal(64, 64, 1), normal(72, 64, 2), sms=sms)


@pytest.mark.parametrize("config", [{"tile_n": 128}, "pingpong", 3])
def test_a_configuration_of_another_kind_is_refused_in_words(config: Any) -> None:
    with pytest.raises(TypeError, match="must be a GemmConfig"):
        Gemm(64, 72, 64, config=config)
