"""The selection model: who computes what is as the launch divides it, and what costs time costs it in the model."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewright.codegen.division import divide
from stridewright.codegen.model import Features, best_first, features, modelled_us, physical_us, space
from stridewright.codegen.model_likeness import beyond_form, coordinates, likeness
from stridewright.codegen.model_table import PATH, Fitted, fitted, read_fitted
from stridewright.codegen.model_work import work_of
from stridewright.codegen.select import SMS
from stridewright.codegen.space import most_stages
from stridewright.kernels.config import GemmConfig, Problem

SIZES = st.one_of(st.integers(1, 300), st.integers(1, 20_000))
DEPTHS = st.integers(1, 2048).map(lambda k: 8 * k)


@given(SIZES, SIZES, DEPTHS)
@settings(max_examples=25, deadline=None)
def test_the_model_divides_a_problem_as_the_launch_does(m: int, n: int, k: int) -> None:
    configs = [config for _, config in best_first(Problem(m=m, n=n, k=k), most=12)]
    work = work_of(features(configs), SMS)
    for place, config in enumerate(configs):
        rows, columns = (n, m) if config.schedule.swap else (m, n)
        division = divide(config, rows, columns, k)
        assert work.ctas[place] == division.ctas
        assert work.k_blocks[place] == division.k_blocks
        shared = division.shared_blocks * division.k_blocks / division.clusters
        whole = -(-(division.blocks - division.shared_blocks) // division.clusters) * division.k_blocks
        assert work.slots[place] == pytest.approx(shared + whole)


def changed(x: Features, **columns: float) -> Features:
    return dataclasses.replace(x, **{name: np.full_like(x.k, value) for name, value in columns.items()})


@given(st.integers(1, 40).map(lambda m: 16 * m), st.sampled_from([512, 3072, 8192]), st.integers(8, 128))
@settings(max_examples=25, deadline=None)
def test_more_work_is_never_modelled_as_less_time(m: int, n: int, slots: int) -> None:
    x = space(Problem(m=m, n=n, k=64 * slots))
    c = fitted().constants
    now = physical_us(x, SMS, c)
    assert np.isfinite(now).all()
    assert (now > c.launch * 0.8).all()
    assert (physical_us(changed(x, k=128 * slots), SMS, c) >= now).all()
    assert (physical_us(dataclasses.replace(x, stages=x.stages + 1), SMS, c) <= now).all()


@given(SIZES, SIZES, st.integers(1, 40).map(lambda k: 8 * k))
@settings(max_examples=40, deadline=None)
def test_little_depth_has_a_modelled_time_too(m: int, n: int, k: int) -> None:
    times = physical_us(space(Problem(m=m, n=n, k=k)), SMS, fitted().constants)
    assert (times > 0.8 * fitted().constants.launch).all()


def test_rows_that_begin_between_sectors_cost_more_than_a_little_more_depth() -> None:
    """5,576 elements of 2 bytes are no multiple of 32 bytes, 5,584 are."""
    between, aligned = (space(Problem(m=241, n=871, k=k)) for k in (5576, 5584))
    tiles = [one.tile_k == 64 for one in (between, aligned)]
    costs = [
        physical_us(one, SMS, fitted().constants)[which] for one, which in zip((between, aligned), tiles, strict=True)
    ]
    assert len(costs[0]) == len(costs[1])
    assert (costs[0] > costs[1]).all()


def test_boxes_outside_the_operand_cost_time() -> None:
    """Tiles of 128 rows for 64 rows of A: half of each box is outside."""
    config = GemmConfig(problem=Problem(m=64, n=6144, k=4096)).replace(
        schedule_kind="pingpong", tile_m=128, tile_n=48, stages=8
    )
    inside = features([config.replace(problem=Problem(m=128, n=6144, k=4096))])
    one_less = physical_us(features([config]), SMS, fitted().constants)
    assert one_less > 0.98 * physical_us(inside, SMS, fitted().constants)


def points_of(m: int, n: int, k: int) -> tuple[Features, Any]:
    x = space(Problem(m=m, n=n, k=k))
    few = Features(**{name: column[:: max(1, len(column) // 60)] for name, column in vars(x).items()})
    return few, coordinates(few, work_of(few, SMS))


def test_likeness_is_a_covariance() -> None:
    """Symmetric, 1 for a point and itself, positive: no weights give a sum of negative variance."""
    points = np.concatenate([points_of(*shape)[1] for shape in ((16, 6144, 4096), (300, 777, 1000), (512, 512, 512))])
    alike = likeness(points, points)
    assert np.diag(alike) == pytest.approx(1)
    assert alike == pytest.approx(alike.T)
    assert alike.min() >= 0
    assert np.linalg.eigvalsh(alike).min() > -1e-9


def test_configurations_that_differ_in_more_are_less_alike() -> None:
    config = GemmConfig(problem=Problem(m=512, n=512, k=512)).replace(tile_n=64)
    further = [config, config.replace(tile_n=72), config.replace(tile_n=128), config.replace(tile_n=128, cluster_m=2)]
    x = features(further)
    alike = likeness(coordinates(x, work_of(x, SMS))[:1], coordinates(x, work_of(x, SMS)))[0]
    assert list(alike) == sorted(alike, reverse=True)
    assert len(set(alike)) == 4


def test_a_run_corrects_its_own_point_and_leaves_doubt_far_away() -> None:
    x, points = points_of(16, 6144, 4096)
    run = (*(float(column[0]) for column in vars(x).values()), -0.2)
    fit = Fitted(fitted().constants, (run,), 0.03)
    work = work_of(x, SMS)
    found = beyond_form(x, work, fit)
    alike = likeness(points, points[:1])[:, 0]
    assert found[0] == pytest.approx(-0.2)
    assert found == pytest.approx(-0.2 * alike + 0.03 * (1 - alike))
    assert (beyond_form(x, work, Fitted(fit.constants, (), 0.03)) == 0.03).all()


def test_the_runs_that_ship_correct_by_no_more_than_they_may() -> None:
    """Weights of either sign add up to less than a third, wherever a choice looks."""
    for shape in ((1, 4096, 4096), (96, 3072, 14336), (333, 777, 1504), (5000, 301, 2008)):
        x = space(Problem(m=shape[0], n=shape[1], k=shape[2]))
        few = Features(**{name: column[::7] for name, column in vars(x).items()})
        assert np.abs(beyond_form(few, work_of(few, SMS), fitted())).max() < 0.45


def test_a_fit_of_another_form_is_refused() -> None:
    record: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    del record["constants"]["dram"]
    with pytest.raises(ValueError, match="dram"):
        read_fitted(json.dumps(record))


@pytest.mark.parametrize(("m", "n", "k"), [(235, 12288, 3072), (411, 6635, 8024), (64, 4096, 14336), (3000, 300, 4000)])
def test_a_ring_has_as_many_slots_as_fit(m: int, n: int, k: int) -> None:
    for _, config in best_first(Problem(m=m, n=n, k=k), most=40):
        if config.split.kind == "none":
            assert config.pipeline.stages == most_stages(config), config.name


@pytest.mark.parametrize("n", [1024, 1023])
def test_the_space_holds_what_can_be_built(n: int) -> None:
    problem = Problem(m=200, n=n, k=4096)
    x = space(problem)
    assert set(np.unique(x.swapped)) == {0, 1}
    assert ((x.parts == 1) | (x.pingpong == 0)).all()
    rows, columns = np.where(x.swapped > 0, n, 200), np.where(x.swapped > 0, 200, n)
    assert (x.rows == rows).all()
    assert (x.columns == columns).all()
    combined = np.stack(list(vars(x).values()))
    assert len(np.unique(combined, axis=1).T) == len(x.k)
    assert (modelled_us(x) > 0).all()
