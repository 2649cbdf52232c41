"""The predicate that says which parameters make a kernel: it names every broken rule and a value that works."""

from __future__ import annotations

import itertools
import re
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.kernels.config import (
    Cluster,
    ConfigError,
    GemmConfig,
    Order,
    Pipeline,
    Problem,
    Schedule,
    Tile,
    plain_violations,
)
from stridewright.kernels.fusion import Fusion
from stridewright.kernels.hopper_rules import ALIGNMENT_SLACK, SHARED_LIMIT, registers, shared_bytes


def test_the_default_is_valid() -> None:
    assert GemmConfig().problems() == []


def test_a_tile_of_204_columns_names_the_rule_and_its_neighbours() -> None:
    assert GemmConfig(tile=Tile(n=204)).problems() == [
        "tile_n=204: must be a multiple of 8 and at most 256 (wgmma N, bf16); nearest 200, 208"
    ]


def test_every_broken_rule_is_reported_at_once() -> None:
    config = GemmConfig(
        arch="sm_80",
        problem=Problem(m=0, n=-3, k=0, a="f8", d="f64", a_major="sideways"),  # type: ignore[arg-type]
        tile=Tile(m=100, n=204, k=48),
        pipeline=Pipeline(stages=1),
        cluster=Cluster(m=3),
        schedule=Schedule(consumers=4),
    )
    parameters = {violation.parameter for violation in config.violations()}
    assert parameters >= {
        "arch",
        "m",
        "n",
        "k",
        "a",
        "d",
        "a_major",
        "tile_m",
        "tile_n",
        "tile_k",
        "stages",
        "cluster",
        "consumers",
    }


@pytest.mark.parametrize("k", [1, 4, 12, 100, 1001])
def test_a_k_that_tma_cannot_load_is_refused_with_the_nearest_that_works(k: int) -> None:
    (line,) = map(str, plain_violations(Problem(m=8, n=8, k=k)))
    assert line.startswith(f"k={k}: must be a multiple of 8")
    assert str((k // 8 + 1) * 8) in line


@pytest.mark.parametrize("value", [2.0, "64", True, None])
def test_a_tile_size_that_is_no_whole_number_is_refused(value: object) -> None:
    (line,) = GemmConfig(tile=Tile(n=value)).problems()  # type: ignore[arg-type]
    assert line == f"tile_n={value!r}: must be a whole number"


def test_a_tile_whose_accumulators_do_not_fit_names_a_width_that_does() -> None:
    (line,) = GemmConfig().replace(tile_m=256, tile_n=216, stages=2).problems()
    assert line.startswith(
        "tile_n=216: a 256 x 216 tile on 2 consumer warpgroups is 216 accumulator registers a thread"
    )
    assert line.endswith("tile_n=208 works with tile_m=256")
    assert GemmConfig().replace(tile_m=256, tile_n=208, stages=2).problems() == []
    (line,) = GemmConfig().replace(tile_m=256, tile_n=208, stages=2, cluster_n=2).problems()
    assert "at most 200 fit" in line
    (line,) = GemmConfig().replace(tile_m=256, tile_n=160, stages=2, swap=True, store="direct").problems()
    assert "at most 128 fit" in line
    assert GemmConfig().replace(tile_m=256, tile_n=128, stages=2, swap=True, store="direct").problems() == []


@pytest.mark.parametrize(
    ("fusion", "changes", "most"),
    [
        (Fusion(bias="n"), {}, 200),
        (Fusion(bias="n"), {"cluster_n": 2}, 200),
        (Fusion(bias="n"), {"store": "direct"}, 160),
        (Fusion(c="f32"), {}, 160),
        (Fusion(scale_a="row", scale_b="row"), {}, 160),
        (Fusion(c="f32", aux=True, amax=True, scale_a="row", scale_b="row"), {}, 128),
        (Fusion(c="f32"), {"swap": True}, 96),
        (Fusion(scale_b="row"), {"cluster_m": 2}, 128),
        (Fusion(scale_b="row"), {"order": "hilbert"}, 96),
        (Fusion(scale_a="row", scale_b="row"), {"cluster_m": 2}, 96),
        (Fusion(scale_a="row", scale_b="row"), {"swap": True}, 96),
        (Fusion(scale_a="row", scale_b="row"), {"swap": True, "order": "hilbert"}, 64),
        (Fusion(scale_b="row"), {"launch": "placed"}, 128),
        (Fusion(scale_b="row"), {"launch": "placed", "order": "nested"}, 96),
        (Fusion(c="f32"), {"swap": True, "launch": "placed"}, 64),
        (Fusion(c="bf16"), {"split_kind": "stream"}, 128),
        (Fusion(c="bf16"), {"tile_m": 192, "consumers": 3}, 48),
    ],
    ids=str,
)
def test_fused_terms_leave_so_many_registers_to_the_sums(fusion: Fusion, changes: dict[str, Any], most: int) -> None:
    config = GemmConfig(fusion=fusion).replace(**{"tile_m": 256, "stages": 2, **changes})
    rows = 192 if config.tile.m == 192 else 256
    widest = config.replace(tile_n=most * config.schedule.consumers * 128 // rows)
    assert widest.problems() == []
    (line,) = widest.replace(tile_n=widest.tile.n + 16).problems()
    assert f"at most {most} fit beside the rest" in line


def test_ping_pong_consumers_hold_a_whole_tile_each() -> None:
    (line,) = GemmConfig().replace(schedule_kind="pingpong", tile_m=128, tile_n=216, stages=2).problems()
    assert "a 128 x 216 tile on 1 consumer warpgroup is 216 accumulator registers a thread" in line
    (line,) = GemmConfig().replace(schedule_kind="pingpong", consumers=1, tile_n=128).problems()
    assert line == "consumers=1: ping-pong is played by two; consumers=2 works"


def test_a_slice_of_a_cluster_s_tile_is_whole_groups_of_8_rows() -> None:
    (line,) = GemmConfig().replace(tile_n=168, cluster_m=2).problems()
    assert line.startswith("tile_n=168: 2 CTAs of a cluster load a slice each")
    assert line.endswith("nearest 160, 176")
    assert GemmConfig().replace(tile_n=176, cluster_m=2).problems() == []


def test_stages_that_overflow_shared_memory_name_the_number_that_fits() -> None:
    (line,) = GemmConfig().replace(stages=8).problems()
    assert "stages=8: " in line
    assert line.endswith("stages=4 fits")


def test_rows_of_d_that_tma_cannot_store_are_refused_for_tma_only() -> None:
    config = GemmConfig(problem=Problem(m=8, n=777, k=64))
    assert any("'tma'" in line and '"direct" works' in line for line in config.problems())
    assert config.replace(store="direct").problems() == []


def test_require_valid_raises_with_all_violations() -> None:
    config = GemmConfig(tile=Tile(m=100, n=204))
    with pytest.raises(ConfigError) as caught:
        config.require_valid()
    assert [str(violation) for violation in caught.value.violations] == config.problems()


def test_replace_names_the_parameters_there_are() -> None:
    with pytest.raises(TypeError, match="tile_q=3: no such parameter; there are tile_m"):
        GemmConfig().replace(tile_q=3)


def test_numpy_s_integers_are_whole_numbers() -> None:
    config = GemmConfig().replace(tile_n=np.int64(128), stages=np.uint8(3))
    assert config == GemmConfig().replace(tile_n=128, stages=3)
    assert type(config.tile.n) is int
    assert GemmConfig(tile=Tile(m=np.int32(64))).problems() == GemmConfig(tile=Tile(m=64)).problems()  # type: ignore[arg-type]
    assert GemmConfig().replace(tile_n=np.float64(128)).problems() == [
        "tile_n=np.float64(128.0): must be a whole number"
    ]
    assert "must be a whole number" in GemmConfig().replace(tile_n=np.zeros(2, int)).problems()[0]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tile", 3, "must be a Tile; tile_m, tile_n, tile_k change it one by one"),
        ("schedule", "pingpong", "must be a Schedule; schedule_kind"),
        ("problem", 3, "must be a Problem"),
        ("cluster", (1, 1), "must be a Cluster"),
    ],
)
def test_a_part_of_another_kind_is_refused_in_words(name: str, value: object, words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{name}={value!r}: {words}")):
        GemmConfig().replace(**{name: value})
    assert GemmConfig(**{name: value}).problems()[0].startswith(f"{name}={value!r}: must be a ")  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "near"), [(0, 1), (-8, 1), (1025, 1024), (2**40, 1024)])
def test_a_group_is_small_enough_to_count(value: int, near: int) -> None:
    (problem,) = GemmConfig().replace(group_m=value, tile_n=128).problems()
    assert problem.startswith(f"group_m={value}: must be from 1 to 1024")
    assert problem.endswith(f"nearest {near}")
    assert GemmConfig().replace(group_m=near, tile_n=128).problems() == []


@pytest.mark.parametrize("value", [2, -1, "yes", 1.0, None])
def test_swap_is_yes_or_no(value: object) -> None:
    assert GemmConfig().replace(swap=value).problems() == [f"swap={value!r}: must be 0 or 1"]
    assert GemmConfig().replace(swap=1, tile_n=64).problems() == []


@given(
    st.sampled_from([64, 128, 256]),
    st.integers(1, 32).map(lambda n: 8 * n),
    st.integers(2, 8),
    st.sampled_from([1, 2]),
    st.sampled_from(["tma", "direct"]),
    st.integers(1, 4),
)
def test_a_valid_configuration_keeps_the_chip_s_limits(
    m: int, n: int, stages: int, consumers: int, store: str, buffers: int
) -> None:
    config = GemmConfig().replace(tile_m=m, tile_n=n, stages=stages, consumers=consumers, store=store, buffers=buffers)
    problems = config.problems()
    fits = sum(shared_bytes(config).values()) + ALIGNMENT_SLACK <= SHARED_LIMIT
    enough_rows = m >= 64 * consumers
    few_enough = m * n / (128 * consumers) <= 208
    assert (problems == []) == (fits and enough_rows and few_enough)


def test_the_register_split_fits_the_pool_that_the_launch_leaves() -> None:
    # ptxas assigns 168 registers a thread at 384 threads; setmaxnreg takes multiples of 8 from 24 to 256.
    # Four warpgroups are launched with 128 each: 65536 registers are in the file.
    pools = {1: 336, 2: 504, 3: 512}
    for consumers, tile_m in ((1, 64), (2, 128), (3, 192)):
        for wanted in (0, 24, 40, 56):
            config = GemmConfig().replace(consumers=consumers, tile_m=tile_m, tile_n=128, producer_registers=wanted)
            producer, consumer = registers(config)
            assert producer + consumers * consumer <= pools[consumers]
            assert all(count % 8 == 0 and 24 <= count <= 256 for count in (producer, consumer))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split_kind": "split", "parts": 4}, 'split_kind=\'split\': beside launch="placed" must be "none"'),
        ({"split_kind": "stream"}, 'split_kind=\'stream\': beside launch="placed" must be "none"'),
        ({"cluster_m": 2, "cluster_n": 2}, 'cluster=2x2: beside launch="placed" must be one row or column of CTAs'),
        ({"problem": Problem(form="batch")}, 'form=\'batch\': beside launch="placed" must be "one"'),
        ({"problem": Problem(form="groups_m")}, 'form=\'groups_m\': beside launch="placed" must be "one"'),
    ],
    ids=str,
)
def test_what_cannot_go_with_placed_clusters_is_named(changes: dict[str, Any], words: str) -> None:
    config = GemmConfig().replace(tile_n=128, launch="placed", **changes)
    (problem,) = config.problems()
    assert problem.startswith(words)
    assert problem.endswith(', or launch="static"')
    assert config.replace(launch="static").problems() == []


@pytest.mark.parametrize("cluster", [(1, 1), (1, 2), (2, 1), (1, 4), (4, 1)], ids=str)
@pytest.mark.parametrize("order", get_args(Order))
def test_placed_clusters_go_with_every_order(cluster: tuple[int, int], order: str) -> None:
    config = GemmConfig().replace(
        tile_n=128, launch="placed", order=order, cluster_m=cluster[0], cluster_n=cluster[1], stages=3
    )
    assert config.problems() == []
    assert "_placed_" in config.name
    # What is held beside the ring needs its place.
    assert sum(shared_bytes(config).values()) == sum(shared_bytes(config.replace(launch="static")).values()) + 8


@pytest.mark.parametrize("launch", ["clc", "one", "anywhere", 1])
def test_who_hands_out_tiles_is_a_word_of_the_architecture(launch: Any) -> None:
    (problem,) = GemmConfig().replace(launch=launch).problems()
    assert problem.startswith(f'launch={launch!r}: must be one of "static", "placed"')


def test_numbers_take_registers_of_the_producer() -> None:
    (problem,) = GemmConfig().replace(launch="placed", producer_registers=32).problems()
    assert "a multiple of 8 from 40 to 56" in problem
    assert GemmConfig().replace(launch="placed", producer_registers=40).problems() == []
    assert GemmConfig().replace(producer_registers=32).problems() == []
    three = GemmConfig().replace(tile_m=192, tile_n=128, consumers=3, launch="placed")
    assert registers(three) == (32, 160)
    assert registers(three.replace(cluster_n=2)) == (40, 152)


def test_names_tell_orders_and_launches_apart() -> None:
    names = {
        GemmConfig().replace(launch=launch, order=order, group_m=group, cluster_m=cluster).name
        for launch, order, cluster in itertools.product(("static", "placed"), get_args(Order), (1, 2))
        for group in ((1, 8) if order in ("grouped", "serpentine", "nested") else (8,))
    }
    assert len(names) == 2 * 2 * (3 * 2 + 3)


@pytest.mark.parametrize("form", ["groups_m", "groups_k"])
def test_groups_have_no_table_of_tiles(form: Any) -> None:
    major: Any = "mn" if form == "groups_k" else "k"
    config = GemmConfig(problem=Problem(form=form, a_major=major, b_major=major)).replace(tile_n=128, order="nested")
    found = [problem for problem in config.problems() if problem.startswith("order=")]
    assert bool(found) == (form == "groups_m")
