"""Modelled times of whole problems: what is extrapolated from a few tiles agrees with what a longer emulation gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stridewright import Gemm
from stridewright.codegen.emulator.timeline_model import CostModel, sharing
from stridewright.codegen.emulator.timeline_replay import Replay
from stridewright.codegen.modelled_time import dram_bytes, modelled_time, recorded
from stridewright.kernels.config import GemmConfig

PINGPONG = GemmConfig().replace(schedule_kind="pingpong", tile_m=128, tile_n=64, stages=4)
COOPERATIVE = GemmConfig().replace(tile_m=128, tile_n=64, stages=4)


def clocks(config: GemmConfig, tiles: int, k_blocks: int) -> float:
    """Modelled clocks of one block."""
    model = CostModel()
    share = sharing(model, 132, 0.1, model.sustained_clock)
    return Replay(recorded(config, tiles, k_blocks), model, share, keep=False).run().clocks


def test_time_is_exactly_linear_where_the_tensor_core_rules() -> None:
    wide = GemmConfig()
    by_k = [clocks(wide, tiles, 12) + (clocks(wide, tiles, 20) - clocks(wide, tiles, 12)) * 2 for tiles in (2, 4)]
    extended = by_k[0] + (by_k[1] - by_k[0]) * 2
    assert extended == pytest.approx(clocks(wide, 6, 28), rel=1e-6)


@pytest.mark.parametrize("config", [PINGPONG, COOPERATIVE], ids=["pingpong", "cooperative"])
def test_time_is_linear_in_tiles_and_blocks_of_k(config: GemmConfig) -> None:
    """Ten tiles of 36 blocks of K, from two and four tiles of 12 and 20 blocks: with tiles as narrow as these, memory's latency rules, to 2 %."""
    by_k = [clocks(config, tiles, 12) + (clocks(config, tiles, 20) - clocks(config, tiles, 12)) * 3 for tiles in (2, 4)]
    extended = by_k[0] + (by_k[1] - by_k[0]) * 4
    assert extended == pytest.approx(clocks(config, 10, 36), rel=0.02)


def test_one_cluster_stands_for_the_grid() -> None:
    """The estimate from one block agrees with the timeline of all 64 blocks of a grid."""
    gemm = Gemm(512, 1024, 256, config=PINGPONG.replace(schedule_kind="cooperative"))
    a, b = np.zeros((512, 256), ml_dtypes.bfloat16), np.zeros((1024, 256), ml_dtypes.bfloat16)
    whole = gemm.emulate(a, b, timeline=True).timeline
    assert len(whole.blocks) == 64
    assert modelled_time(gemm).seconds == pytest.approx(whole.seconds, rel=0.03)


def test_turns_and_dram() -> None:
    """Ten tiles on each of 132 SMs at most; 2 bytes for every element of A, B and D where L2 holds the operands."""
    found = modelled_time(Gemm(2048, 4096, 512, config=PINGPONG))
    assert found.turns == -(-16 * 64 // 132)
    assert found.dram_bytes == 2 * (2048 * 512 + 4096 * 512 + 2048 * 4096)
    assert found.microseconds == found.seconds * 1e6
    assert 0 < found.busy < 1


def test_operands_beyond_l2_are_read_again() -> None:
    """8192 cubed with 128x256 tiles: each turn of 132 tiles reads 8 or 16 rows and 16 or 17 columns of tiles."""
    gemm = Gemm(8192, 8192, 8192, config=GemmConfig())
    once = 2 * 2 * 8192 * 8192
    turns = 64 * 32 / 132
    least, most = turns * 2 * 8192 * (8 * 128 + 16 * 256), (turns + 1) * 2 * 8192 * (24 * 128 + 18 * 256)
    read = dram_bytes(gemm, 132) - 2 * 8192 * 8192
    assert once < read
    assert least <= read <= most
