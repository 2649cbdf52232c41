"""The ladder as data: its order and figures, and the constants derived from its layouts against their definitions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stridewright.kernels.hopper import swizzled_tile
from stridewright.kernels.ladder import RUNGS, RungSpec, derive, find, fragment_rows, gain, tiles
from stridewright.layout.hardware.fragments import mma_a_layout, mma_b_layout

SHARED_LIMIT = 227 * 1024
"""Bytes of shared memory that a CTA can ask for (CUDA C++ Programming Guide, compute capability 9.0)."""

WRITTEN = [spec for spec in RUNGS if spec.file]


def test_the_rungs_are_numbered_in_order() -> None:
    assert [spec.number for spec in RUNGS] == ["1", "1b", *map(str, range(2, 10)), "9b", "10", "11", "12"]


def test_every_rung_has_a_file_of_its_own_but_the_last() -> None:
    files = [spec.file for spec in WRITTEN]
    assert len(set(files)) == len(files) == len(RUNGS) - 1
    assert RUNGS[-1].file == ""


def test_each_published_figure_is_at_least_the_one_before() -> None:
    figures = [spec.published for spec in RUNGS if spec.published is not None]
    assert figures == sorted(figures)
    assert [gain(number) for number in ("1", "1b", "2")] == [None] * 3  # figures of different sources
    assert gain("4") == pytest.approx(543 / 411)
    assert gain("9b") is None  # no rung of the public source
    assert gain("10") == pytest.approx(752 / 743)


def test_an_unknown_rung_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"rung 13: there is none; the rungs are 1, 1b, 2, "):
        find("13")
    with pytest.raises(ValueError, match="rung 12 is the product's kernel"):
        derive(find("12"))


@pytest.mark.parametrize("spec", WRITTEN, ids=lambda spec: spec.number)
@pytest.mark.parametrize("storable", [True, False])
def test_shared_memory_and_tensor_maps_are_what_the_chip_takes(spec: RungSpec, storable: bool) -> None:
    derivation = derive(spec, storable)
    assert derivation.shared_bytes <= SHARED_LIMIT
    for m, n, k in ((1, 8, 8), (4096, 4096, 4096), (333, 776, 1504)):
        for tensor_map in derivation.tensor_maps(m, n, k).values():
            assert tensor_map.problems() == []


@pytest.mark.parametrize("name", ["A", "B"])
def test_ldmatrix_reads_the_fragments_that_mma_sync_wants(name: str) -> None:
    """By definition: register i of lane l holds two neighbours of row l / 4 of matrix i, the row that lane 8 i + l / 4 names."""
    tile = swizzled_tile(128, 64)
    offsets = fragment_rows(name, tile)
    for block, step in ((0, 0), (3, 2), (7, 3)):
        for lane in range(32):
            for register in range(4):
                for half in range(2):
                    named = 8 * register + lane // 4
                    byte = int(offsets(named, block, step)) + 2 * (lane % 4 * 2 + half)
                    value = 2 * register + half
                    if name == "A":
                        place = int(mma_a_layout(16, 8, 16, "bf16")(lane, value))
                        row, k = place % 16, place // 16
                    else:
                        place = int(mma_b_layout(16, 8, 16, "bf16")(lane, value % 4))
                        row, k = place % 8 + 8 * (value // 4), place // 8
                    assert byte == 2 * int(tile(16 * block + row, 16 * step + k))


@pytest.mark.parametrize("number", ["2", "7", "10"])
def test_descriptor_steps_are_the_bytes_to_the_tile_s_next_sixteen_of_k(number: str) -> None:
    derivation = derive(find(number))
    functions = {function.name: function.layout for step in derivation.steps for function in step.functions}
    for name, rows in (("a", derivation.spec.tile_m), ("b", derivation.spec.tile_n)):
        tile = swizzled_tile(rows, derivation.spec.tile_k)
        for step in range(4):
            assert int(functions[f"{name}_step_bytes"](step)) == 2 * int(tile.layout(0, 16 * step))


def test_the_tiles_of_a_cluster_count_as_one() -> None:
    assert tiles(find("7"), 300, 520) == (3, 3)
    assert tiles(find("8"), 300, 520) == (2, 3)


def test_the_wgmma_rungs_keep_the_accumulators_of_a_thread_within_its_registers() -> None:
    for spec in WRITTEN:
        if spec.multiply == "wgmma":
            sums = spec.tile_m * spec.tile_n // (spec.consumers * 128)
            assert sums <= 128
            if spec.registers is not None:
                # The pool is what the CTA was launched with: 168 registers a thread at 384 threads.
                assert spec.registers[0] + 2 * spec.registers[1] <= 3 * 168


def test_published_figures_are_the_ones_recorded_beside_cublas() -> None:
    """TFLOP/s of the public source's rungs at 4096 cubed on an H200, where cuBLAS had 771 in the same run."""
    data = json.loads((Path(__file__).parents[1] / "data" / "ladder_published.json").read_text(encoding="utf-8"))
    for number, speed in data["tflops"].items():
        assert np.isclose(find(number).published or 0, speed / data["cublas"])
