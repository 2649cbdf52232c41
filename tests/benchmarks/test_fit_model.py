"""The fit of the selection model: reproducible from the timings that ship, and right where the answer is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")

import fit_model
import selection_timings

from stridewright.codegen.model import Features, modelled_us, physical_us
from stridewright.codegen.model_likeness import beyond_form
from stridewright.codegen.model_table import PATH, Fitted, fitted, read_fitted
from stridewright.codegen.model_work import work_of
from stridewright.codegen.select import SMS
from stridewright.codegen.tuned.records import config_record
from stridewright.kernels.config import GemmConfig, Problem


@pytest.fixture(scope="module")
def shapes() -> list[dict[str, Any]]:
    record = json.loads(fit_model.TIMINGS.read_text(encoding="utf-8"))
    assert record["features"] == list(selection_timings.NAMES)
    return list(record["shapes"])


def test_the_table_that_ships_is_the_fit_of_the_timings_that_ship(shapes: list[dict[str, Any]]) -> None:
    timings = fit_model.Timings(shapes)
    anew = read_fitted(fit_model.as_text(fit_model.fit(timings)))
    record = json.loads(PATH.read_text(encoding="utf-8"))
    assert (record["timings"], record["shapes"]) == (len(timings.log), len(timings.shapes))
    differ = np.log(modelled_us(timings.features, fit=anew) / modelled_us(timings.features))
    assert np.abs(differ).max() < 0.02


def test_choices_are_near_the_best_measured(shapes: list[dict[str, Any]]) -> None:
    timings = fit_model.Timings(shapes)
    assert fit_model.reached(timings.costs(modelled_us(timings.features))) > 0.98


@pytest.mark.slow
def test_choices_for_shapes_that_the_fit_did_not_see_are_near_the_best_measured(shapes: list[dict[str, Any]]) -> None:
    names, costs = fit_model.cross_validated(shapes, 6)
    assert len(names) == len(fit_model.Timings(shapes).shapes)
    assert fit_model.reached(costs) > 0.965


def test_a_fit_to_modelled_times_finds_the_model(shapes: list[dict[str, Any]]) -> None:
    """Times that the form itself gives, with other constants and each shape scaled, are met within a percent or two."""
    truth = dict(json.loads(PATH.read_text(encoding="utf-8"))["constants"])
    truth.update(dram=4.0, l2=9.0, burst=35.0, launch=1.5, direct=12.0, misaligned=0.4)
    constants = type(fitted().constants)(**truth)
    made = []
    for number, shape in enumerate(shapes):
        x = Features(*np.asarray(shape["features"], dtype=np.float64).T)
        us = physical_us(x, SMS, constants)
        made.append({**shape, "us": us.tolist(), "best": float(us.min())})
        if number == 60:
            break
    timings = fit_model.Timings(made)
    found = fit_model.fit_constants(timings)
    error = timings.within(np.log(physical_us(timings.features, SMS, found)) - timings.log)
    assert float(np.sqrt((timings.weight * error**2).sum() / timings.weight.sum())) < 0.02
    assert fit_model.reached(timings.costs(physical_us(timings.features, SMS, found))) > 0.99


def test_what_the_form_is_off_by_is_found_for_shapes_that_were_not_measured(shapes: list[dict[str, Any]]) -> None:
    """Clusters of two along the rows are made a tenth slower than the form says; every second shape is left out."""
    made = []
    for shape in shapes:
        x = Features(*np.asarray(shape["features"], dtype=np.float64).T)
        us = physical_us(x, SMS, fitted().constants) * np.where((x.cluster_m == 2) & (x.cluster_n == 1), 1.1, 1.0)
        made.append({**shape, "us": us.tolist(), "best": float(us.min())})
    runs = fit_model.fit_runs(fit_model.Timings(made[::2]), fitted().constants)
    fit = Fitted(fitted().constants, tuple(map(tuple, runs)), 0.0)
    others = fit_model.Timings(made[1::2])
    x = others.features
    found = others.within(beyond_form(x, work_of(x, SMS), fit))
    true = others.within(np.log(1.1) * ((x.cluster_m == 2) & (x.cluster_n == 1)))
    assert (others.weight * found * true).sum() > 0.2 * (others.weight * true**2).sum()
    assert (others.weight * (found - true) ** 2).sum() < 0.75 * (others.weight * true**2).sum()


SHAPE = (256, 512, 1024)
CONFIG = GemmConfig(problem=Problem(m=256, n=512, k=1024)).replace(tile_n=128)


def rounds(*timed: tuple[GemmConfig, float]) -> dict[str, Any]:
    m, n, k = SHAPE
    return {"m": m, "n": n, "k": k, "entries": [{"config": config_record(one), "us": us} for one, us in timed]}


def test_times_of_runs_are_scaled_to_what_both_measured() -> None:
    other, third = CONFIG.replace(tile_n=64), CONFIG.replace(tile_n=192)
    first = selection_timings.from_rounds(rounds((CONFIG, 10.0), (other, 12.0)))
    second = selection_timings.from_rounds(rounds((CONFIG, 20.0), (third, 18.0)))
    alone = selection_timings.from_rounds(rounds((CONFIG.replace(stages=3), 1.0)))
    (found,) = selection_timings.merged([first, second, alone])
    keys = [selection_timings.key_of(one) for one in (CONFIG, other, third)]
    assert found.us == {keys[0]: pytest.approx(10.0), keys[1]: 12.0, keys[2]: pytest.approx(9.0)}
    assert found.best == pytest.approx(9.0)


def test_the_variant_that_is_chosen_without_tuning_counts() -> None:
    row, faster = CONFIG.replace(order="row"), CONFIG.replace(hint_b="first")
    run = selection_timings.from_rounds(rounds((row, 9.5), (CONFIG, 10.0), (faster, 9.0)))
    assert list(run.us.values()) == [10.0]
    assert run.best == 9.0
    assert list(selection_timings.from_rounds(rounds((row, 9.5), (faster, 9.0))).us.values()) == [9.0]


def test_screens_of_a_tuner_are_scaled_as_its_finalists_were() -> None:
    """Finalists took 12 and 12.6 us in rounds after screens of 10 and 10.5: a third that was screened with 20 would take 24."""
    configs = [CONFIG.replace(tile_n=tile_n) for tile_n in (128, 64, 192)]
    outcomes = [
        {"status": "measured", "config": config_record(config), "us": us, "ratio": ratio}
        for config, us, ratio in zip(configs, (10.0, 10.5, 20.0), (1.0, 1.05, None), strict=True)
    ]
    problem = {"m": 256, "n": 512, "k": 1024, "a": "bf16", "b": "bf16", "d": "bf16", "a_major": "k", "b_major": "k"}
    record = {"problem": problem, "best": {"us": 12.0}, "outcomes": [*outcomes, {"status": "refused"}]}
    run = selection_timings.from_tuner(record)
    assert run.shape == SHAPE
    assert list(run.us.values()) == pytest.approx([12.0, 12.6, 24.0])
    assert run.best == 12.0


def test_merged_timings_can_be_merged_again(tmp_path: Path) -> None:
    run = selection_timings.from_rounds(rounds((CONFIG, 10.0), (CONFIG.replace(tile_n=64), 12.0)))
    shape = {"shape": list(run.shape), "best": run.best, "features": [list(key) for key in run.us]}
    record = {"features": list(selection_timings.NAMES), "shapes": [{**shape, "us": list(run.us.values())}]}
    path = tmp_path / "timings.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert selection_timings.runs_of(path) == [run]
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="neither"):
        selection_timings.runs_of(path)
