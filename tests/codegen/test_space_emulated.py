"""Whatever the tuner can choose is right: configurations in which every pair of features comes together run on the emulator,
on small problems with ragged edges, without a wrong bit, a race or a deadlock. A dozen of them here, all of them nightly.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.build import BuildError
from stridewright.codegen.space import configurations, cores, neighbours, variants
from stridewright.codegen.space_sample import covering, draw, features, pairs, sample, small_shape
from stridewright.kernels.config import GemmConfig, Problem

IN_CI = 12
NIGHTLY_DRAWS = 60


def integers(rows: int, k: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.generic]]:
    """Integers from -4 to 4, whose sums are exact in float32 however they are split and ordered."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, k)).astype(ml_dtypes.bfloat16)


def assert_right(config: GemmConfig, seed: int) -> None:
    """The exact product, bit for bit, and no race; a deadlock raises. D starts as NaN."""
    (m, n, k), sms = small_shape(config, seed)
    gemm = Gemm(m, n, k, arch=config.arch, config=config)
    try:
        _ = gemm.build
    except BuildError as error:
        # What spills is refused by the build, so that no tuner can choose it. Nothing else may be wrong with it.
        if "spill" not in error.lines[0]:
            raise
        return
    a, b = integers(m, k, seed), integers(n, k, seed + 1)
    emulation = gemm.emulate(a, b, seed=seed, sms=sms)
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(emulation.d.view(np.uint16), exact.view(np.uint16))
    assert emulation.races == ()


@pytest.mark.parametrize("number", range(IN_CI))
def test_a_sample_of_what_the_tuner_can_choose_is_right(number: int) -> None:
    assert_right(sample(IN_CI, seed=20261130)[number], number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(covering())))
def test_every_pair_of_features_is_right(number: int) -> None:
    assert_right(covering()[number], 100 + number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(covering(0, "sm_100a"))))
def test_every_pair_of_features_is_right_on_blackwell(number: int) -> None:
    assert_right(covering(0, "sm_100a")[number], 300 + number)


@pytest.mark.parametrize("number", range(4))
def test_a_sample_is_right_on_blackwell(number: int) -> None:
    assert_right(sample(4, seed=20261130, arch="sm_100a")[number], number)


@pytest.mark.slow
def test_few_of_them_are_refused_by_the_build() -> None:
    refused = []
    for number, config in enumerate(covering()):
        try:
            _ = Gemm(*small_shape(config, 100 + number)[0], config=config).build
        except BuildError:
            refused.append(config.name)
    assert len(refused) <= len(covering()) // 6, refused


@pytest.mark.slow
@pytest.mark.parametrize("number", range(NIGHTLY_DRAWS))
def test_configurations_drawn_at_random_are_right(number: int) -> None:
    assert_right(next(draw(1000 + number)), 1000 + number)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_every_pair_that_any_configuration_has_is_covered(arch: str) -> None:
    covered = set().union(*map(pairs, covering(0, arch)))
    for config in itertools.islice(draw(7, arch), 1000):
        assert pairs(config) <= covered


def test_the_sample_has_every_feature_of_the_tuner_s_space() -> None:
    """Drawn from the walk itself, not from the dice that the covering configurations come from."""
    known = set().union(*map(features, covering()))
    for problem in (Problem(m=4096, n=4096, k=4096), Problem(m=16, n=6144, k=4096), Problem(m=200, n=777, k=8192)):
        every = list(cores(problem))
        for core in every[:: max(1, len(every) // 10)]:
            near = itertools.islice(neighbours(core), 0, None, 2)
            wide = itertools.islice(variants(core), 0, 1000, 97)
            for config in (core, *near, *wide):
                if not config.violations():
                    assert set(features(config)) <= known, config.name
    first = next(configurations(Problem(m=64, n=64, k=64)))
    assert set(features(first)) <= known


def test_the_small_problems_have_ragged_edges_and_several_tiles() -> None:
    shared = turns = 0
    for number, config in enumerate(covering()):
        (m, n, k), sms = small_shape(config, number)
        assert config.replace(problem=Problem(m=m, n=n, k=k)).violations() == ()
        division = Gemm(m, n, k, config=config).division(sms)
        shared += division.shared_blocks > 0 and division.clusters > division.shared_blocks
        turns += division.blocks > division.clusters
        assert m % config.tile.m or n % config.tile.n or k % config.tile.k
    assert shared >= 8
    assert turns >= 8
