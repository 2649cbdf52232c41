"""The space: nothing valid is left out, nothing invalid or without a difference comes in, and every refusal has a reason."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stridewright.codegen import space
from stridewright.codegen.select import select
from stridewright.codegen.space import (
    Rejections,
    configurations,
    cores,
    neighbours,
    orders,
    splits,
    tile_counts,
    useful_parts,
    useful_stages,
    variants,
    with_most_stages,
)
from stridewright.codegen.tune_plan import Walks, estimate, starting_points
from stridewright.kernels.config import GemmConfig, Problem
from stridewright.kernels.hopper_rules import ALIGNMENT_SLACK, SHARED_LIMIT, shared_bytes
from stridewright.kernels.orders import order_table

PROBLEMS = [
    Problem(m=4096, n=4096, k=4096),
    Problem(m=16, n=6144, k=4096),
    Problem(m=333, n=777, k=1504),
    Problem(m=256, n=256, k=65536),
    Problem(m=1, n=8, k=8),
]


def brute_force(problem: Problem) -> set[tuple[object, ...]]:
    """Every valid core by asking the predicate about each combination, without any walk; useless ones left out by their
    definition: whole blocks of padding, idle CTAs of a cluster, slots that are half padding."""
    assert problem.m is not None
    assert problem.n is not None
    assert problem.k is not None
    found = set()
    base = GemmConfig(problem=problem).replace(store="direct" if problem.n % 8 else "tma")
    for (kind, consumers), swap, tile_m, tile_k, (cluster_m, cluster_n) in itertools.product(
        space.SCHEDULES, (False, True), (64, 128, 192, 256), (32, 64, 128, 256), space.CLUSTERS
    ):
        rows, columns = (problem.n, problem.m) if swap else (problem.m, problem.n)
        if tile_m - 64 >= rows or (tile_k > 32 and tile_k // 2 >= problem.k) or (cluster_m - 1) * tile_m >= rows:
            continue
        for tile_n in range(8, 257, 8):
            if tile_n - 8 * cluster_m >= columns or (cluster_n - 1) * tile_n >= columns:
                continue
            config = base.replace(
                schedule_kind=kind,
                consumers=consumers,
                swap=swap,
                tile_m=tile_m,
                tile_n=tile_n,
                tile_k=tile_k,
                cluster_m=cluster_m,
                cluster_n=cluster_n,
                stages=2,
            )
            if not config.violations():
                found.add((kind, consumers, swap, tile_m, tile_n, tile_k, cluster_m, cluster_n))
    return found


def core_key(config: GemmConfig) -> tuple[object, ...]:
    schedule, tile, cluster = config.schedule, config.tile, config.cluster
    return (schedule.kind, schedule.consumers, schedule.swap, tile.m, tile.n, tile.k, cluster.m, cluster.n)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.n}x{p.k}")
def test_the_walk_finds_exactly_what_the_predicate_allows(problem: Problem) -> None:
    """The walk refuses whole branches by their smallest member; this asks about every member."""
    rejected = Rejections()
    found = list(cores(problem, rejected=rejected))
    assert {core_key(config) for config in found} == brute_force(problem)
    assert len({core_key(config) for config in found}) == len(found)
    assert all(config.violations() == () for config in found)
    assert rejected.total > 0
    assert all(" x " in line and "(first sm_90a" in line for line in rejected.lines())


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.n}x{p.k}")
def test_a_core_has_as_many_slots_as_fit_and_are_of_use(problem: Problem) -> None:
    for config in itertools.islice(cores(problem), 0, None, 37):
        more = config.replace(stages=config.pipeline.stages + 1)
        rows, columns, depth = tile_counts(config)
        needed = sum(shared_bytes(more).values()) + ALIGNMENT_SLACK
        enough = config.pipeline.stages >= max(2, depth * -(-rows * columns // space.SMS))
        assert needed > SHARED_LIMIT or enough or more.pipeline.stages > 16


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 600), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_variant_is_valid_and_none_comes_twice(m: int, n: int, k: int, pick: int) -> None:
    problem = Problem(m=m, n=n, k=8 * k)
    every = list(cores(problem, swaps=(bool(pick % 2),), depths=(32,)))
    core = every[pick % len(every)]
    found = list(itertools.islice(variants(core), 1000))
    assert found[0].replace(stages=core.pipeline.stages) == core
    assert len(set(found)) == len(found)
    for config in found[:: max(1, len(found) // 50)]:
        assert config.violations() == ()
        assert (config.epilogue.store == "direct") or n % 8 == 0


def test_orders_that_take_the_tiles_alike_are_listed_once() -> None:
    for m, n in ((64, 8192), (8192, 64), (200, 20000), (1024, 16384), (3000, 9000), (8192, 8192)):
        config = with_most_stages(GemmConfig(problem=Problem(m=m, n=n, k=512)).replace(tile_n=64))
        rows, columns, _ = tile_counts(config)
        tables = {one: tuple(map(tuple, order_table(one[0], rows, columns, one[1]))) for one in orders(config)}
        assert len(set(tables.values())) == len(tables), (m, n)
        # And none is left out that would differ, of the groups that are tried.
        if len(tables) > 1:
            for order in ("grouped", "serpentine", "row", "column", "hilbert"):
                for group in (8, *space.GROUPS):
                    table = tuple(map(tuple, order_table(order, rows, columns, group)))
                    assert table in tables.values() or (order == "serpentine" and group >= rows)


def test_one_turn_of_tiles_has_one_order() -> None:
    config = GemmConfig(problem=Problem(m=1024, n=1024, k=512)).replace(tile_n=128)
    assert tile_counts(config)[:2] == (8, 8)
    assert len(orders(config)) == 1


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 8000))
@settings(max_examples=100, deadline=None)
def test_parts_of_k_differ_and_leave_none_empty(m: int, n: int, k: int) -> None:
    config = with_most_stages(GemmConfig(problem=Problem(m=m, n=n, k=8 * k)).replace(tile_n=64))
    rows, columns, depth = tile_counts(config)
    parts = useful_parts(config)
    assert list(parts) == sorted(set(parts))
    for number in parts:
        assert 2 <= number <= depth
        assert (number - 1) * rows * columns < space.SMS
    for split in splits(config):
        assert 1 <= split.parts <= depth


def test_pingpong_takes_whole_tiles() -> None:
    config = GemmConfig(problem=Problem(m=256, n=256, k=65536)).replace(schedule_kind="pingpong", tile_n=64)
    assert [split.kind for split in splits(config)] == ["none"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.n}x{p.k}")
def test_neighbours_are_one_step_away_and_reach_every_parameter(problem: Problem) -> None:
    every = list(cores(problem))
    changed: set[str] = set()
    for config in every[:: max(1, len(every) // 40)]:
        near = list(neighbours(config))
        assert config not in near
        assert len(set(near)) == len(near)
        for other in near:
            differing = {
                f"{part}.{name}"
                for part in ("tile", "cluster", "schedule", "split", "epilogue", "pipeline")
                for name in vars(getattr(config, part))
                if getattr(getattr(config, part), name) != getattr(getattr(other, part), name)
            }
            changed |= differing | ({"specialize"} if config.specialize != other.specialize else set())
            # A step that changes the tile refills the ring, and one that changes the schedule may change the tile's height.
            assert len(differing - {"pipeline.stages"}) <= 4, (config.name, other.name)
    assert {"pipeline.hint_a", "pipeline.hint_b", "specialize", "epilogue.buffers", "tile.k"} <= changed | (
        {"epilogue.buffers"} if problem.n is not None and problem.n % 8 else set()
    ) | ({"tile.k"} if problem.k == 8 else set())


def test_the_whole_space_is_walked_lazily() -> None:
    start = time.perf_counter()
    first = list(itertools.islice(configurations(PROBLEMS[0]), 100))
    assert time.perf_counter() - start < 2
    assert len(set(first)) == 100


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.n}x{p.k}")
def test_starting_points_are_valid_different_and_of_many_kinds(problem: Problem) -> None:
    points = starting_points(problem, 24)
    configs = [config for _, config in points]
    assert len(set(configs)) == len(configs)
    assert all(config.violations() == () for config in configs)
    assert [seconds for seconds, _ in points] == [estimate(config) for config in configs]
    if len(configs) == 24:
        assert len({(config.schedule.kind, config.schedule.consumers, config.tile.m) for config in configs}) >= 4


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.n}x{p.k}")
def test_the_list_of_a_problem_is_made_at_once(problem: Problem) -> None:
    """Within 0.2 s on an idle core; three times that on any."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        starting_points(problem, 24)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.6


def test_steps_are_new_valid_and_not_hopeless() -> None:
    parents = [config for _, config in starting_points(PROBLEMS[0], 3)]
    walks = Walks()
    first, refused_first = walks.steps(parents, parents, 7)
    assert len(first) == 7
    rest, refused = walks.steps(parents, [], 1000)
    steps, refused = first + rest, refused_first + refused
    assert not set(steps) & set(parents)
    assert len(set(steps)) == len(steps) > 20
    assert all(config.violations() == () for config in steps)
    assert refused
    assert all(config.violations() for config in refused)
    assert all(estimate(config) <= 1.5 * max(map(estimate, parents)) for config in steps)
    near = {other for parent in parents for other in neighbours(parent)}
    assert set(steps) | set(refused) <= near
    assert walks.steps(parents, [], 1000) == ([], [])
    # A parent that comes later is walked from all the same.
    assert walks.steps(steps[:1], [], 1)[0]


def test_useful_stages_are_few_and_begin_with_the_most() -> None:
    config = with_most_stages(GemmConfig(problem=PROBLEMS[0]).replace(tile_n=64))
    assert useful_stages(config) == (8, 7, 6, 4)


@pytest.mark.parametrize(
    ("problem", "arch", "words"), [(Problem(), "sm_90a", "needs its sizes"), (PROBLEMS[0], "sm_80", "sm_80")]
)
def test_a_space_that_is_not_known_is_refused(problem: Problem, arch: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        next(cores(problem, arch))


# ---- Blackwell ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.n}x{p.k}")
def test_the_walk_of_blackwell_finds_exactly_what_the_predicate_allows(problem: Problem) -> None:
    assert problem.m is not None
    assert problem.n is not None
    assert problem.k is not None
    base = GemmConfig(arch="sm_100a", problem=problem).replace(store="direct" if problem.n % 8 else "tma", stages=1)
    expected = set()
    for pair, tile_m, tile_k, tile_n, accumulators in itertools.product(
        (False, True), (64, 128, 256), (32, 64, 128, 256), range(16, 257, 16), (1, 2)
    ):
        if (tile_m > 64 and tile_m // 2 >= problem.m) or (tile_k > 32 and tile_k // 2 >= problem.k):
            continue
        config = base.replace(pair=pair, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, accumulators=accumulators)
        if tile_n - 16 < problem.n and not config.violations():
            expected.add((pair, tile_m, tile_n, tile_k, accumulators))
    found = list(cores(problem, "sm_100a"))
    tiles = [(one.cluster.pair, one.tile.m, one.tile.n, one.tile.k, one.pipeline.accumulators) for one in found]
    assert set(tiles) == expected
    assert len(set(tiles)) == len(tiles)
    assert all(one.violations() == () and one.replace(stages=one.pipeline.stages + 1).violations() for one in found)


def test_neighbours_reach_every_parameter_of_blackwell() -> None:
    reached: set[str] = set()
    for config in itertools.islice(cores(PROBLEMS[0], "sm_100a"), 0, None, 31):
        near = list(neighbours(config))
        assert config not in near
        assert len(set(near)) == len(near)
        assert any(other.violations() == () for other in near)
        for other in near:
            for part in ("tile", "cluster", "schedule", "epilogue", "pipeline"):
                before, after = getattr(config, part), getattr(other, part)
                reached |= {f"{part}.{name}" for name in vars(before) if getattr(before, name) != getattr(after, name)}
    assert reached == {
        *("tile.m", "tile.n", "tile.k", "cluster.pair", "schedule.order", "schedule.group_m", "schedule.launch"),
        *("epilogue.store", "epilogue.buffers", "pipeline.stages", "pipeline.accumulators"),
    }


def test_starting_points_of_blackwell_are_valid_and_begin_with_what_is_chosen() -> None:
    points = [config for _, config in starting_points(PROBLEMS[0], 24, "sm_100a", 148)]
    assert len(set(points)) == 24
    assert all(config.violations() == () for config in points)
    assert points[0] == select(PROBLEMS[0], "sm_100a", 148)
