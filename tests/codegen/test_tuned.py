"""Results on the disk and in tables: found again, never mixed up, never believed when damaged, stale or invalid."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen import tuned
from stridewright.codegen.cache import CacheError
from stridewright.codegen.space_sample import draw
from stridewright.codegen.tuned import (
    Place,
    StaleRecordError,
    Store,
    TableEntry,
    TuningDevice,
    config_record,
    lookup,
    read_config,
    read_table,
    shipped_tables,
    write_table,
)
from stridewright.codegen.tuned.store import write_atomically
from stridewright.codegen.tuned.table import FOLDER
from stridewright.codegen.tuned.transfer import adapted, transfers
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.fusion import Fusion

PROBLEM = Problem(m=64, n=4096, k=4096)
CONFIG = GemmConfig().replace(
    schedule_kind="cooperative",
    consumers=1,
    swap=True,
    tile_m=64,
    tile_n=64,
    stages=6,
    order="serpentine",
    split_kind="split",
    parts=3,
    reduce="atomic",
    hint_a="first",
    specialize="nk",
    problem=PROBLEM,
)
H200 = "NVIDIA H200"


def best(config: GemmConfig = CONFIG, dependent: bool = True) -> dict[str, Any]:
    return {"best": {"config": config_record(config), "dependent": dependent, "us": 9.0}}


def place(problem: Problem = PROBLEM, device: str = H200, driver: str = "580.65") -> Place:
    return Place(device, driver, "sm_90a", problem)


# ---- records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_a_configuration_comes_back_from_json(whole: bool) -> None:
    for config in (CONFIG, CONFIG.replace(fusion=Fusion(bias="n", activation="gelu"))):
        record = json.loads(json.dumps(config_record(config, whole)))
        assert read_config(record, PROBLEM) == config


def test_a_whole_record_does_not_lean_on_defaults() -> None:
    record = config_record(GemmConfig())
    assert record["tile"] == {"m": 128, "n": 256, "k": 64}
    assert "problem" not in record
    assert config_record(GemmConfig(), whole=False) == {}


@pytest.mark.parametrize(
    "record", [{"tile": {"depth": 1}}, {"warp": 3}, {"tile": 5}, [], "x", None, {"schedule": {"kind": []}, "x": 1}]
)
def test_what_this_version_does_not_know_is_stale(record: Any) -> None:
    with pytest.raises(StaleRecordError):
        read_config(record, PROBLEM)


# ---- the store ---------------------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded_from_its_own_place_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(place(), best())
    loaded = store.load(place())
    assert loaded is not None
    assert loaded["best"] == best()["best"]
    for other in (
        place(device="NVIDIA H100"),
        place(driver="581"),
        place(Problem(m=64, n=4096, k=8192)),
        place(Problem(m=64, n=4096, k=4096, d="f32")),
        place(Problem(m=64, n=4096, k=4096, b_major="mn")),
        place(Problem(m=64, n=4096, k=4096, form="batch")),
        Place(H200, "580.65", "sm_100a", PROBLEM),
    ):
        assert store.load(other) is None


def test_a_reader_finds_the_old_file_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    path = store.save(place(), {"us": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.save(place(), {"us": 2})
    loaded = store.load(place())
    assert loaded is not None
    assert loaded["us"] == 1
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"format": 1', '"format": 99'),
        lambda text: text.replace('"m": 64', '"m": 65'),
        lambda text: text.replace('"m": 64', '"m": "many"'),
        lambda text: "\x00\xff" * 10,
    ],
)
def test_a_damaged_file_is_logged_and_counts_as_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    store = Store(tmp_path)
    path = store.save(place(), best())
    path.write_text(damage(path.read_text()))
    with caplog.at_level(logging.WARNING):
        assert store.load(place()) is None
    assert str(path) in caplog.text
    assert lookup(PROBLEM, H200, store=store, tables=()) is None
    assert len(store.entries()) == 1


def test_the_newest_of_another_driver_serves_until_the_own_one_was_tuned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = place(driver="570"), place(driver="575")
    os.utime(store.save(old, {"us": 1}), (1000, 1000))
    os.utime(store.save(new, {"us": 2}), (2000, 2000))
    found = store.load_any_driver(place())
    assert found is not None
    assert found["us"] == 2
    store.save(place(), {"us": 3})
    own = store.load_any_driver(place())
    assert own is not None
    assert own["us"] == 3


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be written"):
        Store(tmp_path / "file").save(place(), {})


def test_clearing_counts_and_removes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(place(), best())
    store.save(place(driver="2"), best())
    count, size = store.clear()
    assert count == 2
    assert size > 100
    assert store.entries() == ()
    assert store.clear() == (0, 0)


def test_names_of_devices_cannot_leave_the_folder(tmp_path: Path) -> None:
    path = Store(tmp_path).path(place(device="../../etc", driver="a/b"))
    assert path.resolve().is_relative_to(tmp_path.resolve())


# ---- tables ------------------------------------------------------------------------------------------------------


def table_with(tmp_path: Path, *entries: tuple[Problem, TableEntry]) -> tuned.Table:
    path = tmp_path / "table.json"
    write_table(path, H200, "580.65", "sm_90a", 132, entries)
    return read_table(path)


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    other = Problem(m=128, n=128, k=64)
    entries = {
        PROBLEM: TableEntry(CONFIG, True, 9.125),
        other: TableEntry(GemmConfig(problem=other).replace(stages=3), False, None),
    }
    table = table_with(tmp_path, *entries.items())
    assert (table.device, table.driver, table.arch, table.sms) == (H200, "580.65", "sm_90a", 132)
    assert dict(table.entries) == entries


def test_stale_and_invalid_entries_are_skipped_and_the_others_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = Problem(m=128, n=128, k=64)
    table_with(
        tmp_path, (PROBLEM, TableEntry(CONFIG, True, 9.0)), (good, TableEntry(GemmConfig(problem=good), True, 1.0))
    )
    path = tmp_path / "table.json"
    record = json.loads(path.read_text())
    first = next(entry for entry in record["entries"] if entry["problem"]["m"] == 64)
    variants: list[dict[str, Any]] = []
    for change in (
        {"config": {**first["config"], "tile": {"m": 64, "n": 60, "k": 64}}},
        {"config": {**first["config"], "unheard_of": 1}},
        {"config": {**first["config"], "arch": "sm_100a"}},
        {"problem": {**first["problem"], "m": None}},
        {"config": None},
    ):
        variants.append({**first, **change})
    record["entries"] = [*variants, {}, 5, *(entry for entry in record["entries"] if entry is not first)]
    path.write_text(json.dumps(record))
    with caplog.at_level(logging.WARNING):
        assert list(read_table(path).entries) == [good]
    assert len(caplog.records) == 7
    assert "tile_n=60: must be a multiple of 8" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "entries": []}'])
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.json: is no table"):
        read_table(path)


def test_every_shipped_entry_is_valid_and_none_is_lost() -> None:
    paths = sorted(FOLDER.glob("*.json"))
    tables = shipped_tables()
    assert [table.name for table in tables] == [path.stem for path in paths]
    for path, table in zip(paths, tables, strict=True):
        # Reading skips what is stale or invalid, so a table that is read whole holds neither.
        assert len(table.entries) == len(json.loads(path.read_text())["entries"])
        for problem, entry in table.entries.items():
            assert entry.config.problem == problem
            assert entry.config.problems() == []
            assert entry.us is None or entry.us > 0


# ---- lookup ------------------------------------------------------------------------------------------------------


def test_own_results_come_before_the_package_s(tmp_path: Path) -> None:
    table = table_with(tmp_path, (PROBLEM, TableEntry(CONFIG, False, 9.0)))
    store = Store(tmp_path)
    shipped = lookup(PROBLEM, H200, store=store, tables=(table,))
    assert shipped is not None
    assert (shipped.config, shipped.dependent) == (CONFIG, False)
    assert shipped.source == "the package's table for NVIDIA H200"
    own = CONFIG.replace(stages=5)
    store.save(place(), best(own))
    found = lookup(PROBLEM, H200, store=store, tables=(table,))
    assert found is not None
    assert (found.config, found.dependent, found.source) == (own, True, "tuned on NVIDIA H200, driver 580.65")


def test_a_result_that_is_no_longer_valid_gives_way(tmp_path: Path) -> None:
    table = table_with(tmp_path, (PROBLEM, TableEntry(CONFIG, False, 9.0)))
    store = Store(tmp_path)
    store.save(place(), best(CONFIG.replace(tile_n=60)))
    found = lookup(PROBLEM, H200, store=store, tables=(table,))
    assert found is not None
    assert found.source.startswith("the package's table")


@given(st.integers(1, 200), st.integers(1, 200))
def test_another_m_serves_exactly_where_every_configuration_has_as_many_tiles(measured: int, asked: int) -> None:
    entry = TableEntry(CONFIG.replace(problem=Problem(m=measured, n=4096, k=4096)), True, 1.0)
    table = tuned.Table("t", H200, "1", "sm_90a", 132, {Problem(m=measured, n=4096, k=4096): entry})
    found = lookup(Problem(m=asked, n=4096, k=4096), H200, store=Store("/nonexistent"), tables=(table,))
    # Extents of tiles along M: wgmma's M of 64 and its multiples, or with operands swapped every N.
    extents = {*range(8, 257, 8), 64, 128, 192, 256}
    same = all(-(-measured // extent) == -(-asked // extent) for extent in extents)
    assert (found is not None) == same
    if found is not None:
        assert found.config.problem.m == asked
        assert ("measured for m=" in found.source) == (measured != asked)


def test_of_several_rows_the_nearest_serves(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for m, stages in ((57, 4), (64, 5)):
        problem = Problem(m=m, n=4096, k=4096)
        store.save(place(problem), best(CONFIG.replace(problem=problem, stages=stages)))
    for m, stages in ((57, 4), (58, 4), (62, 5), (64, 5)):
        found = lookup(Problem(m=m, n=4096, k=4096), H200, store=store, tables=())
        assert found is not None
        assert found.config.pipeline.stages == stages


def test_other_n_k_types_and_majors_never_serve(tmp_path: Path) -> None:
    table = table_with(tmp_path, (PROBLEM, TableEntry(CONFIG, False, 9.0)))
    for other in (
        Problem(m=64, n=4104, k=4096),
        Problem(m=64, n=4096, k=4104),
        Problem(m=64, n=4096, k=4096, a="f16"),
        Problem(m=64, n=4096, k=4096, a_major="mn"),
        Problem(m=64, n=4096, k=4096, form="batch"),
        Problem(),
    ):
        assert lookup(other, H200, store=Store(tmp_path), tables=(table,)) is None


def test_another_device_serves_where_it_has_as_many_multiprocessors(tmp_path: Path) -> None:
    table = table_with(tmp_path, (PROBLEM, TableEntry(CONFIG, False, 9.0)))
    store = Store(tmp_path)
    assert lookup(PROBLEM, "NVIDIA H100 80GB HBM3", sms=132, store=store, tables=(table,)) is not None
    assert lookup(PROBLEM, "NVIDIA H100 PCIe", sms=114, store=store, tables=(table,)) is None
    assert lookup(PROBLEM, H200, arch="sm_100a", store=store, tables=(table,)) is None


def test_the_current_device_is_asked_for_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.save(place(driver="590"), best())
    monkeypatch.setattr(tuned, "current_device", lambda: TuningDevice(H200, "590", "sm_90a", 132))
    assert lookup(PROBLEM, store=store, tables=()) is not None
    monkeypatch.setattr(tuned, "current_device", lambda: TuningDevice("NVIDIA GH200", "590", "sm_90a", 132))
    assert lookup(PROBLEM, store=store, tables=()) is None
    # Without a GPU the package's table serves, so that source for it can be generated anywhere.
    monkeypatch.setattr(tuned, "current_device", lambda: None)
    table = table_with(tmp_path, (PROBLEM, TableEntry(CONFIG, False, 9.0)))
    assert lookup(PROBLEM, store=store, tables=(table,)) is not None


def test_writing_leaves_no_half_file_behind(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", "one")
    write_atomically(tmp_path / "a.json", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "two")]


# ---- what other shapes tell --------------------------------------------------------------------------------------------


def test_the_nearest_shapes_come_first_and_are_made_to_fit(tmp_path: Path) -> None:
    near, far, odd = Problem(m=64, n=8192, k=4096), Problem(m=4096, n=4096, k=4096), Problem(m=64, n=4097, k=4096)
    plain = GemmConfig().replace(tile_n=128, stages=5)
    table = table_with(
        tmp_path,
        (near, TableEntry(CONFIG.replace(problem=near), True, 1.0)),
        (far, TableEntry(plain.replace(problem=far), True, 1.0)),
        (odd, TableEntry(plain.replace(problem=odd, store="direct", tile_n=96), True, 1.0)),
    )
    store = Store(tmp_path)
    store.save(place(PROBLEM), best(CONFIG.replace(stages=5)))
    store.save(place(PROBLEM, device="another"), best(CONFIG.replace(stages=4)))
    found = transfers(PROBLEM, 10, store, (table,), H200)
    # Its own result first, without sizes baked in; the odd one is stored by TMA where that can be done.
    expected = [CONFIG.replace(stages=5), CONFIG, plain.replace(tile_n=96), plain]
    assert [one.replace(split=CONFIG.split) for one in found[:2]] == [
        one.replace(problem=PROBLEM, specialize="") for one in expected[:2]
    ]
    assert found[2:] == [one.replace(problem=PROBLEM) for one in expected[2:]]
    assert transfers(PROBLEM, 1, store, (table,), H200) == found[:1]
    assert transfers(Problem(m=64, n=4096, k=4096, a="f16"), 5, store, (table,), H200) == []


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 1000), st.integers(0, 10**6))
def test_what_is_adapted_is_valid_for_the_other_problem(m: int, n: int, k: int, seed: int) -> None:
    config = next(draw(seed))
    problem = Problem(m=m, n=n, k=8 * k)
    fitted = adapted(config, problem)
    if fitted is not None:
        assert fitted.violations() == ()
        assert fitted.problem == problem
        assert (fitted.tile, fitted.cluster, fitted.schedule) == (config.tile, config.cluster, config.schedule)
        assert fitted.specialize == ""


def test_a_table_for_sustained_load_serves_only_those_who_ask_and_the_other_table_serves_the_rest(
    tmp_path: Path,
) -> None:
    problem, other = Problem(m=512, n=512, k=512), Problem(m=1024, n=512, k=512)
    burst, lasting = (GemmConfig(problem=problem).replace(tile_n=n) for n in (128, 64))
    for name, load, entries in (
        ("a.json", "bursts", [(problem, TableEntry(burst, True, 1.0)), (other, TableEntry(burst, True, 1.0))]),
        ("b.json", "sustained", [(problem, TableEntry(lasting, True, 1.0))]),
    ):
        write_table(tmp_path / name, "NVIDIA H200", "580", "sm_90a", 132, entries, load=load)
    tables = tuple(read_table(tmp_path / name) for name in ("a.json", "b.json"))
    assert [table.load for table in tables] == ["bursts", "sustained"]
    store = Store(tmp_path / "empty")

    def tile_n(asked: Problem, load: str) -> int:
        found = lookup(asked, "NVIDIA H200", store=store, tables=tables, load=load)
        assert found is not None
        return found.config.tile.n

    assert [tile_n(problem, "bursts"), tile_n(problem, "sustained")] == [128, 64]
    assert [tile_n(other, "bursts"), tile_n(other, "sustained")] == [128, 128]
