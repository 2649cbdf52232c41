"""The choice without tuning: always a valid configuration, in the regime that the shape belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright import Gemm
from stridewright.codegen.model import features, modelled_us
from stridewright.codegen.select import many_turns, modelled_columns, ranked, resident_ctas, select
from stridewright.kernels.config import Problem

sizes = st.one_of(st.integers(1, 300), st.integers(1, 300_000))


@given(sizes, sizes, st.integers(1, 4096).map(lambda k: 8 * k))
def test_every_shape_gets_a_valid_configuration(m: int, n: int, k: int) -> None:
    config = select(Problem(m=m, n=n, k=k))
    assert config.problems() == []
    assert (config.epilogue.store == "direct") == (n * 2 % 16 != 0)


@given(sizes, sizes, st.sampled_from([64, 4096]))
@settings(max_examples=30, deadline=None)
def test_the_choice_has_the_least_modelled_cost(m: int, n: int, k: int) -> None:
    problem = Problem(m=m, n=n, k=k)
    costs = [cost for cost, _ in ranked(problem, most=20)]
    assert costs == sorted(costs)
    assert ranked(problem, most=20)[0][1] == select(problem)
    configs = [config for _, config in ranked(problem, most=20)]
    assert len(set(configs)) == len(configs)
    if many_turns(m, n):
        assert costs == [modelled_columns(config) for config in configs]
    else:
        assert costs == pytest.approx(modelled_us(features(configs)).tolist())


def test_few_tiles_and_much_k_are_split_in_an_order_that_is_always_the_same() -> None:
    split = select(Problem(m=256, n=256, k=65536)).split
    assert (split.kind, split.reduce) == ("split", "ordered")
    assert split.parts > 8
    assert select(Problem(m=8192, n=8192, k=65536)).split.kind == "none"


@pytest.mark.parametrize(("m", "swapped"), [(1, True), (8, True), (32, True), (4096, False)])
def test_few_rows_of_a_swap_the_operands(m: int, swapped: bool) -> None:
    assert select(Problem(m=m, n=8192, k=4096)).schedule.swap is swapped


@given(sizes, sizes, st.integers(1, 200))
def test_the_grid_is_whole_clusters_and_never_more_than_the_tiles(m: int, n: int, sms: int) -> None:
    gemm = Gemm(m, n, 64)
    cluster = gemm.config.cluster.m * gemm.config.cluster.n
    grid = gemm.grid(sms)[0]
    assert grid % cluster == 0
    assert cluster <= grid <= gemm.tiles()
    assert grid <= max(resident_ctas(cluster, sms), cluster)


def test_a_choice_without_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the sizes"):
        select(Problem())
