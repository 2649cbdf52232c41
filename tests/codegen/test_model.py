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
from stridewright.codegen.model import Features, _work, best_first, features, modelled_us, physical_us, space
from stridewright.codegen.model_table import FAMILY, PATH, family_codes, fitted, read_fitted
from stridewright.codegen.select import SMS
from stridewright.kernels.config import GemmConfig, Problem

SIZES = st.one_of(st.integers(1, 300), st.integers(1, 20_000))
DEPTHS = st.integers(1, 2048).map(lambda k: 8 * k)


@given(SIZES, SIZES, DEPTHS)
@settings(max_examples=25, deadline=None)
def test_the_model_divides_a_problem_as_the_launch_does(m: int, n: int, k: int) -> None:
    configs = [config for _, config in best_first(Problem(m=m, n=n, k=k), most=12)]
    work = _work(features(configs), SMS)
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


def test_a_family_that_was_never_measured_is_doubted() -> None:
    fit = fitted()
    unheard = family_codes(0, 1, 2, 64, 32, 4, 4, 1)
    assert fit.of_families(unheard) == fit.doubt
    x = space(Problem(m=512, n=512, k=512))
    seen = np.unique(fit.of_families(family_codes(*(getattr(x, name) for name in FAMILY[:-1]), x.parts != 1)))
    assert len(seen) > 20
    assert np.abs(seen).max() < 0.3


def test_families_have_codes_of_their_own() -> None:
    rng = np.random.default_rng(0)
    choices = [(0, 1), (0, 1), (1, 2, 3), (64, 128, 192, 256), (32, 64, 128, 256), (1, 2, 4), (1, 2, 4), (0, 1)]
    families = {tuple(int(rng.choice(choice)) for choice in choices) for _ in range(2000)}
    codes = family_codes(*np.asarray(sorted(families)).T)
    assert len(np.unique(codes)) == len(families)


def test_a_fit_of_another_form_is_refused() -> None:
    record: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    del record["constants"]["dram"]
    with pytest.raises(ValueError, match="dram"):
        read_fitted(json.dumps(record))


def test_the_doubt_adds_to_what_few_shapes_showed() -> None:
    record: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    family = [0, 0, 1, 64, 64, 1, 1, 0]
    for shapes in (0.5, 3):
        record["families"]["rows"] = [[*family, 0.01, shapes]]
        found = read_fitted(json.dumps(record)).of_families(family_codes(*np.asarray([family]).T))
        assert found == pytest.approx(0.01 + record["doubt"] / (1 + shapes))
    record["families"]["rows"] = []
    assert read_fitted(json.dumps(record)).of_families(family_codes(*np.asarray([family]).T)) == record["doubt"]


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
