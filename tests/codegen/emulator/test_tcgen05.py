"""tcgen05 end to end: the textbook kernel and its variations give the right product, with no race in any order of completion."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stridewright.codegen.emulator import EmulationResult, TensorMapArgument, emulate_ptx
from stridewright.layout.hardware import TensorMap

from .tcgen05_pieces import (
    PAIR,
    PAIR_PARTS,
    PIPELINE,
    PIPELINE_PARTS,
    TEXTBOOK,
    TEXTBOOK_PARTS,
    compile_blackwell,
    filled,
    run_blackwell,
)

SEEDS = range(6)


def run_textbook(
    seed: int = 0, strict: bool = True, numerics: str = "float32", n: int = 64, **changes: str
) -> tuple[bool, EmulationResult]:
    random = np.random.default_rng(n)
    a, b = (random.integers(-8, 9, (rows, 64)).astype(ml_dtypes.bfloat16) for rows in (128, n))
    out = np.zeros((128, n), np.float32)
    source = filled(TEXTBOOK, TEXTBOOK_PARTS, **changes)
    result = run_blackwell(source, "textbook", 1, 128, [a, b, out], seed=seed, strict=strict, numerics=numerics)
    return bool((out == a.astype(np.float32) @ b.astype(np.float32).T).all()), result


@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("strict", [True, False])
def test_the_textbook_kernel(strict: bool, numerics: str) -> None:
    for seed in SEEDS:
        right, result = run_textbook(seed, strict, numerics)
        assert right
        assert [str(race) for race in result.races] == []


def run_pipeline(
    tiles: int, depth: int, seed: int = 0, strict: bool = True, timeline: bool = False, **changes: str
) -> tuple[bool, EmulationResult]:
    random = np.random.default_rng(tiles)
    a, b = (random.integers(-4, 5, (rows, 64 * depth)).astype(ml_dtypes.bfloat16) for rows in (128 * tiles, 64))
    out = np.zeros((128 * tiles, 64), np.float32)
    maps = [
        TensorMapArgument(TensorMap("bf16", (64 * depth, len(array)), (128 * depth,), (64, rows), "128B"), array)
        for rows, array in ((128, a), (64, b))
    ]
    source = filled(PIPELINE, PIPELINE_PARTS, **changes)
    args = [*maps, out, np.int32(tiles), np.int32(depth)]
    result = run_blackwell(
        source, "pipeline", 1, 192, args, shared=2 * 24576, seed=seed, strict=strict, timeline=timeline
    )
    return bool((out == a.astype(np.float32) @ b.astype(np.float32).T).all()), result


@pytest.mark.parametrize("accumulators", ["1", "2"])
@pytest.mark.parametrize(("tiles", "depth"), [(1, 1), (2, 3), (3, 2), (4, 5)])
def test_a_warp_specialised_pipeline(tiles: int, depth: int, accumulators: str) -> None:
    for seed in SEEDS:
        right, result = run_pipeline(tiles, depth, seed, ACCUMULATORS=accumulators)
        assert right
        assert [str(race) for race in result.races] == []


def run_pair(
    seed: int = 0, strict: bool = True, blocks: int = 2, timeline: bool = False, **changes: str
) -> tuple[bool, EmulationResult]:
    random = np.random.default_rng(5)
    a, b = (random.integers(-8, 9, (rows, 64)).astype(ml_dtypes.bfloat16) for rows in (256, 64))
    out = np.zeros((256, 64), np.float32)
    source = filled(PAIR, PAIR_PARTS, **changes)
    result = run_blackwell(source, "pair", blocks, 128, [a, b, out], seed=seed, strict=strict, timeline=timeline)
    return bool((out == a.astype(np.float32) @ b.astype(np.float32).T).all()), result


@pytest.mark.parametrize("strict", [True, False])
def test_a_pair_of_blocks(strict: bool) -> None:
    for seed in SEEDS:
        right, result = run_pair(seed, strict)
        assert right
        assert [str(race) for race in result.races] == []


@pytest.mark.parametrize("strict", [True, False])
def test_a_pair_that_ends_by_a_handshake(strict: bool) -> None:
    for seed in SEEDS:
        right, result = run_pair(seed, strict, SYNC_END="HANDSHAKE")
        assert right
        assert [str(race) for race in result.races] == []


def test_the_life_of_an_accumulator_is_on_record() -> None:
    """With a timeline: columns are allocated, written afresh once a tile, added to, read by all lanes, and given back."""
    _, result = run_pipeline(3, 2, timeline=True)
    events = result.tensor_memory
    assert [event.what for event in (events[0], events[-1])] == ["alloc", "dealloc"]
    assert all(event.done >= event.issued for event in events)
    products = [event for event in events if event.what == "mma"]
    assert len(products) == 3 * 2 * 4
    assert [event.fresh for event in products] == [number % 8 == 0 for number in range(24)]
    assert {event.column for event in products} == {0, 64}
    for tile in range(3):
        last = max(event.done for event in products[8 * tile : 8 * tile + 8])
        column = tile % 2 * 64
        reads = [e for e in events if e.what == "ld" and column <= e.column < column + 64 and e.issued > last]
        assert {e.lanes for e in reads} == {(0, 32), (32, 32), (64, 32), (96, 32)}
    assert run_pipeline(1, 1)[1].tensor_memory == ()


def test_a_swizzle_counts_from_absolute_addresses() -> None:
    """A tile staged relative to its own start must start at 1024 bytes, or the descriptor's base offset must say where the pattern starts."""
    assert not run_textbook(TILE="tile_a + 64")[0]
    assert not run_textbook(TILE="tile_a + 256")[0]
    assert run_textbook(TILE="tile_a + 64", BASE="1ull << 49")[0]
    assert run_textbook(TILE="tile_a + 256", BASE="4ull << 49")[0]


@pytest.mark.parametrize("target", ["sm_103a", "sm_100f", "sm_103f", "sm_110a"])
def test_the_other_targets_that_have_tensor_memory(target: str) -> None:
    a, b = (np.ones((rows, 64), ml_dtypes.bfloat16) for rows in (128, 64))
    out = np.zeros((128, 64), np.float32)
    ptx = compile_blackwell(filled(TEXTBOOK, TEXTBOOK_PARTS), target)
    assert f".target {target}" in ptx
    assert emulate_ptx(ptx, "textbook", 1, 128, [a, b, out]).races == ()
    assert (out == 64).all()
