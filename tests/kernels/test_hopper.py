"""The derived constants mean what the hardware does with them: each is checked element by element against the chip's own rules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stridewright.kernels.config import ConfigError, GemmConfig, Problem
from stridewright.kernels.fusion import Fusion
from stridewright.kernels.hopper import (
    PANEL_COLUMNS,
    accumulator_columns,
    accumulator_rows,
    byte_offsets,
    derive,
    panel_k,
    stmatrix_rows,
    swizzled_tile,
)
from stridewright.layout.hardware import decode_matrix_descriptor
from stridewright.layout.hardware.fragments import wgmma_d_layout

CONFIGS = [
    GemmConfig(),
    GemmConfig().replace(tile_m=64, tile_n=8, consumers=1, stages=8),
    GemmConfig().replace(tile_m=256, tile_n=72, consumers=2, stages=3),
    GemmConfig().replace(tile_m=128, tile_n=200, stages=2, store="direct"),
    GemmConfig().replace(tile_m=64, tile_n=32, tile_k=128, consumers=1, stages=4),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_the_copy_engine_puts_every_element_where_the_tile_s_layout_says(config: GemmConfig) -> None:
    derivation = derive(config)
    maps = derivation.tensor_maps(1000, 1000, 1000)
    for tensor_map, operand in ((maps.a, derivation.a), (maps.b, derivation.b)):
        assert tensor_map.problems() == []
        panels = config.tile.k // panel_k(config)
        assert tensor_map.box_bytes * panels == operand.panel_bytes * panels == operand.slot_bytes
        for row in {0, 1, 7, min(8, operand.rows - 1), operand.rows - 1}:
            for k in range(0, config.tile.k, 5):
                panel, within = divmod(k, panel_k(config))
                landed = panel * operand.panel_bytes + tensor_map.byte_of((within, row))
                assert landed == 2 * operand.layout(row, k)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_the_tensor_core_reads_every_element_where_the_tile_s_layout_says(config: GemmConfig) -> None:
    derivation = derive(config)
    for operand, rows in ((derivation.a, 64), (derivation.b, derivation.b.rows)):
        for block in range(operand.rows // rows):
            for step in range(config.tile.k // 16):
                word = operand.descriptor + block * operand.block_advance + operand.step_advance(step)
                addresses = decode_matrix_descriptor(word, "sm_90a").addresses("bf16", "k", rows)
                expected = [
                    [2 * operand.layout(block * rows + row, 16 * step + k) for k in range(16)] for row in range(rows)
                ]
                np.testing.assert_array_equal(addresses, expected)


def test_stmatrix_stores_every_accumulator_where_the_panel_s_layout_says() -> None:
    """Plays stmatrix x4 by its definition (PTX ISA): lane 8 i + r names row r of matrix i, lane t holds elements 2 (t % 4) and the next of row t / 4."""
    panel = swizzled_tile(64, PANEL_COLUMNS)
    addresses, fragment = stmatrix_rows(panel), wgmma_d_layout(PANEL_COLUMNS)
    stored: dict[int, int] = {}
    for warp in range(4):
        for step in range(PANEL_COLUMNS // 16):
            for lane in range(32):
                for register in range(4):
                    for half in range(2):
                        naming_lane, column = 8 * register + lane // 4, 2 * (lane % 4) + half
                        place = addresses(naming_lane, warp, step) + 2 * column
                        stored[place] = fragment(lane + 32 * warp, 8 * step + 2 * register + half)
    expected = {byte_offsets(panel)(m, n): m + 64 * n for m in range(64) for n in range(PANEL_COLUMNS)}
    assert stored == expected


@pytest.mark.parametrize("tokens", [8, 16, 40, 88, 256])
def test_transposing_stmatrix_stores_every_accumulator_where_the_swapped_panel_s_layout_says(tokens: int) -> None:
    """With .trans, lane t's halves go to rows 2 (t % 4) and the next of the matrix, at column t / 4."""
    panel = swizzled_tile(-(-tokens // 16) * 16, PANEL_COLUMNS)
    addresses, fragment = stmatrix_rows(panel, tokens, swapped=True), wgmma_d_layout(tokens)
    stored: dict[int, int] = {}
    for warp in range(4):
        for lane in range(32):
            for value in range(tokens // 2):
                step, (register, half) = value // 8, divmod(value % 8, 2)
                row, column = 2 * (lane % 4) + half, lane // 4
                place = addresses(8 * register + row, warp, step) + 2 * column
                stored[place] = fragment(lane + 32 * warp, value)
    expected = {byte_offsets(panel)(token, n): n + 64 * token for token in range(tokens) for n in range(64)}
    assert stored == expected


@pytest.mark.parametrize("n", [8, 72, 256])
def test_accumulator_rows_and_columns_are_the_two_parts_of_the_fragment(n: int) -> None:
    fragment = wgmma_d_layout(n)
    rows, columns = accumulator_rows(fragment), accumulator_columns(fragment)
    for thread in range(128):
        for value in range(n // 2):
            assert rows(thread, value) + 64 * columns(thread, value) == fragment(thread, value)
            assert 0 <= rows(thread, value) < 64


def test_the_staged_epilogue_is_free_of_bank_conflicts() -> None:
    report = derive(GemmConfig()).staging_report
    assert report is not None
    assert (report.wavefronts, report.ideal) == (4, 4)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_shared_memory_parts_do_not_overlap_and_are_aligned(config: GemmConfig) -> None:
    derivation = derive(config)
    end = 0
    for use, offset, length in derivation.shared_map:
        assert offset == end
        assert offset % (8 if use == "barriers" else 1024) == 0 or length == 0
        end += length
    assert derivation.a.slot_bytes % 1024 == derivation.b.slot_bytes % 1024 == 0
    assert end < derivation.shared_bytes <= 232_448


def test_the_last_panel_s_store_ends_with_the_tile() -> None:
    maps = derive(GemmConfig().replace(tile_n=200, stages=2)).tensor_maps(512, 512, 512)
    assert maps.d is not None
    assert maps.d_tail is not None
    assert (maps.d.box, maps.d_tail.box) == ((64, 64), (8, 64))


def test_an_invalid_configuration_is_not_derived() -> None:
    with pytest.raises(ConfigError, match="tile_n=204"):
        derive(GemmConfig().replace(tile_n=204))


def test_how_partial_sums_are_added_is_refused_where_there_are_none() -> None:
    (problem,) = GemmConfig().replace(reduce="atomic").problems()
    assert problem.startswith("reduce='atomic': is how partial sums of shared tiles are added")
    assert GemmConfig().replace(tile_n=128, split_kind="stream", reduce="atomic").problems() == []


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_promoted_tiles_of_plain_stores_hold_64_sums(cluster: tuple[int, int], sets: int, scaled: bool) -> None:
    """That they compile is tested by tests/codegen/test_source.py."""
    fusion = Fusion(scale_a="block", scale_b="block") if scaled else Fusion()
    config = GemmConfig(problem=Problem(a="e4m3", b="e4m3", d="f32"), fusion=fusion).replace(
        tile_m=128, tile_n=128, tile_k=128
    )
    config = config.replace(promote=128, accumulators=sets, cluster_m=cluster[0], cluster_n=cluster[1], store="direct")
    assert not config.violations()
    several = dataclasses.replace(config, problem=dataclasses.replace(config.problem, form="groups_m"))
    if scaled and sets == 2 and cluster != (1, 1):
        assert "at most 48 fit beside the rest" in str(several.violations()[0])
    else:
        assert not several.violations()
    wider = config.replace(tile_m=256, tile_n=128)
    assert "at most 64 fit beside the rest" in str(wider.violations()[0])
