"""The PTX of the Blackwell kernels, run on the emulator in strict mode, is right: every rung, every tile, every order of completion.

The nightly command runs every rung under 20 orders, and every form of a tile:  python -m pytest -m slow tests/codegen/test_blackwell_emulated.py
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stridewright import Gemm, gemm
from stridewright.codegen.bind import OperandError
from stridewright.codegen.blackwell_gemm import BlackwellGemm, kinds_of
from stridewright.codegen.check import check_gemm
from stridewright.codegen.launch import LaunchError
from stridewright.kernels.blackwell_ladder import rungs
from stridewright.kernels.config import GemmConfig, Problem

from .blackwell_cases import SHAPES, assert_right, gemm_of, operand, rung

RUNGS = range(10)
FORMS = [(False, 64), (False, 128), (True, 128), (True, 256)]
BASE = GemmConfig(arch="sm_100a").replace(stages=3, accumulators=2, group_m=2)


@pytest.mark.parametrize("number", RUNGS)
def test_every_rung_is_right_at_ragged_edges(number: int) -> None:
    for seed, shape in enumerate(SHAPES):
        assert_right(rung(number, shape), seed)


@pytest.mark.parametrize("number", RUNGS)
def test_every_number_of_k_tiles_goes_round_the_ring(number: int) -> None:
    stages = rungs()[number].config.pipeline.stages
    tile = rungs()[number].config.tile
    for k_tiles in range(1, 2 * stages + 2):
        # Three tiles for each CTA or pair: positions in the rings must survive from one to the next.
        assert_right(rung(number, (3 * tile.m, tile.n, 64 * k_tiles)), k_tiles, sms=2)


@pytest.mark.parametrize("number", RUNGS)
def test_every_rung_is_right_in_any_order_of_completion(number: int) -> None:
    for seed in range(1, 4):
        assert_right(rung(number, (300, 264, 328)), seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20, 5))
@pytest.mark.parametrize("number", RUNGS)
def test_every_rung_is_right_under_20_orders(number: int, first: int) -> None:
    stages = rungs()[number].config.pipeline.stages
    for seed, shape in itertools.product(range(first, first + 5), [(400, 264, 456), (300, 520, 64 * (2 * stages + 1))]):
        assert_right(rung(number, shape), seed)


@pytest.mark.parametrize(("pair", "m"), FORMS)
@pytest.mark.parametrize("store", ["tma", "direct"])
def test_every_form_of_a_tile_is_right(pair: bool, m: int, store: str) -> None:
    for seed, (n, launch) in enumerate(((16, "clc"), (80, "static"), (256, "one"))):
        config = BASE.replace(pair=pair, tile_m=m, tile_n=n, launch=launch, store=store)
        assert_right(gemm_of(config, (2 * m + 40, n + 24, 136)), seed)


@pytest.mark.parametrize(("pair", "m"), FORMS)
def test_both_majors_of_both_operands_are_right(pair: bool, m: int) -> None:
    for seed, (a, b) in enumerate(itertools.product(("k", "mn"), repeat=2)):
        dtype, n = ("bf16", "f16")[seed in (1, 2)], (48, 128)[(seed + m // 64) % 2]
        problem = Problem(a=dtype, b=dtype, d=dtype, a_major=a, b_major=b)  # type: ignore[arg-type]
        config = BASE.replace(pair=pair, tile_m=m, tile_n=n, problem=problem)
        assert_right(gemm_of(config, (m + 72, 2 * n + 8, 136)), seed)


@pytest.mark.parametrize(("m", "n"), [(2, 1), (1, 2), (2, 2), (4, 1), (1, 4)])
def test_tiles_of_a_cluster_share_what_they_load(m: int, n: int) -> None:
    for seed, ((pair, tile_m), launch) in enumerate(((FORMS[0], "clc"), (FORMS[1], "static"), (FORMS[3], "clc"))):
        major = ("k", "mn")[seed % 2]
        config = BASE.replace(
            pair=pair, tile_m=tile_m, tile_n=64, cluster_m=m, cluster_n=n, launch=launch,
            problem=Problem(a_major=major, b_major=major),
        )  # fmt: skip
        assert_right(gemm_of(config, (tile_m * m + 48, 64 * n + 72, 200)), seed, sms=8)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(2, 1), (1, 2), (2, 2), (4, 1), (1, 4)])
def test_every_cluster_of_every_form_is_right_in_any_order(m: int, n: int) -> None:
    forms = itertools.product(FORMS, ("static", "clc", "one"), itertools.product(("k", "mn"), repeat=2), (64, 256))
    for seed, ((pair, tile_m), launch, (a, b), tile_n) in enumerate(forms):
        config = BASE.replace(
            pair=pair, tile_m=tile_m, tile_n=tile_n, cluster_m=m, cluster_n=n, launch=launch, stages=2,
            problem=Problem(a_major=a, b_major=b),
        )  # fmt: skip
        assert_right(gemm_of(config, (tile_m * m + 48, tile_n * n + 72, 328)), seed, sms=8)


def test_k_may_be_anything_where_both_operands_are_mn_major() -> None:
    config = BASE.replace(tile_n=64, problem=Problem(a_major="mn", b_major="mn"))
    for k in (1, 13, 77):
        assert_right(gemm_of(config, (136, 72, k)))


@pytest.mark.slow
@pytest.mark.parametrize(("pair", "m"), FORMS)
@pytest.mark.parametrize("n", range(16, 257, 16))
def test_every_tile_is_right(pair: bool, m: int, n: int) -> None:
    for seed, (store, a, b, k) in enumerate(itertools.product(("tma", "direct"), ("k", "mn"), ("k", "mn"), (32, 64))):
        launch = ("static", "clc", "one")[seed % 3]
        config = BASE.replace(
            pair=pair, tile_m=m, tile_n=n, tile_k=k, launch=launch, store=store, accumulators=1 + seed % 2,
            problem=Problem(a_major=a, b_major=b),
        )  # fmt: skip
        assert_right(gemm_of(config, (m + 40, n + 24, 200)), seed)


@pytest.mark.parametrize("launch", ["static", "clc"])
@pytest.mark.parametrize("pair", [False, True])
def test_ctas_without_a_tile_and_with_many_are_right(pair: bool, launch: str) -> None:
    config = BASE.replace(pair=pair, tile_m=256 if pair else 128, tile_n=32, launch=launch)
    for sms in (2, 6, 148):
        assert_right(gemm_of(config, (520, 168, 72)), sms, sms=sms)


class Wide(BlackwellGemm):
    """Launched with more CTAs than there are tiles."""

    def grid(self, sms: int = 4) -> tuple[int, int, int]:
        return ((self.tiles() + 2) * self.ctas, 1, 1)


@pytest.mark.parametrize("pair", [False, True])
def test_a_cta_without_a_tile_gives_back_what_it_took(pair: bool) -> None:
    config = BASE.replace(pair=pair, tile_m=256 if pair else 128, tile_n=32)
    for seed in range(2):
        emulation = assert_right(Wide(256, 64, 136, config=config), seed)
        assert emulation.result.grid[0] > 2 * (2 if pair else 1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (512, 512, 256), (500, 129, 1000), (16, 1024, 512)])
def test_the_chosen_kernel_is_right(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    gemm = Gemm(m, n, k, arch="sm_100a")
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((rows, k), np.float32).astype(gemm.result_dtype) for rows in (m, n))  # type: ignore[attr-defined]
    emulation = gemm.emulate(a, b)
    check = check_gemm(emulation.d, a, b)
    assert check.passed, check.worst
    assert emulation.races == ()


def test_staged_results_do_not_conflict_on_banks() -> None:
    for pair, m in FORMS:
        emulation = assert_right(gemm_of(BASE.replace(pair=pair, tile_m=m, tile_n=128), (m, 128, 64)))
        assert all(record.conflicts == 0 for record in emulation.conflicts)


def test_operands_that_do_not_fit_are_refused_in_words() -> None:
    gemm = Gemm(64, 64, 64, arch="sm_100a", a_major="mn")
    with pytest.raises(OperandError, match=r'a: its columns are not contiguous.*a_major="mn"'):
        gemm.emulate(operand(64, 64, 1), operand(64, 64, 2))
    with pytest.raises(OperandError, match=r"b: dtype float16, and this GEMM takes bfloat16"):
        gemm.emulate(operand(64, 64, 1, major="mn"), operand(64, 64, 2, "f16"))
    with pytest.raises(OperandError, match=r"a: shape \(32, 64\)"):
        gemm.emulate(operand(32, 64, 1, major="mn"), operand(64, 64, 2))
    with pytest.raises(ValueError, match="a B200 has 148"):
        gemm.emulate(operand(64, 64, 1, major="mn"), operand(64, 64, 2), sms=0)


def test_without_its_gpu_the_error_offers_the_emulator() -> None:
    gemm = Gemm(64, 64, 64, arch="sm_100a")
    with pytest.raises(LaunchError, match=r"no GPU to run sm_100a on: .*emulate"):
        gemm(operand(64, 64, 1), operand(64, 64, 2))


def test_majors_are_read_from_the_arrays() -> None:
    a, b = operand(64, 32, 1), operand(32, 48, 2).T
    assert kinds_of(a, b) == ("k", "mn")
    assert kinds_of(a.astype(np.float16), operand(8, 32, 1, "f16")) == ("k", "k")
    with pytest.raises(LaunchError, match="no GPU to run sm_100a on"):
        gemm(a, b, arch="sm_100a")
