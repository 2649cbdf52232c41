"""Tensor memory's columns: who gets which, who waits for whom, and what is left at the end."""

from __future__ import annotations

import numpy as np
import pytest

from stridewright.codegen.emulator import DeadlockError, EmulationError
from stridewright.codegen.emulator.tmem import TensorMemory, TensorMemoryError, cells, split_address

from .tcgen05_pieces import TCGEN05, run_blackwell

TURNS = (
    TCGEN05
    + """
// Each warp takes COLUMNS columns, fills its lanes of them, reads them back, and returns them.
extern "C" __global__ void turns(u32 *out, int columns, int back) {
    __shared__ u32 slots[8];
    u32 warp = threadIdx.x / 32, lane = warp % 4 << 21;
    tmem_alloc(&slots[warp], columns);
    __syncwarp();
    u32 address = slots[warp], r[8];
    for (int n = 0; n < 8; ++n) r[n] = threadIdx.x * 8 + n;
    st8(address + lane, r);
    wait_st();
    ld8(r, address + lane);
    wait_ld8(r);
    for (int n = 0; n < 8; ++n) out[threadIdx.x * 8 + n] = r[n];
    if (back) tmem_dealloc(address, columns);
}
"""
)


def run_turns(warps: int, columns: int, back: int = 1, seed: int = 0) -> None:
    out = np.zeros(256 * warps, np.uint32)
    result = run_blackwell(TURNS, "turns", 1, 32 * warps, [out, np.int32(columns), np.int32(back)], seed=seed)
    assert [str(race) for race in result.races] == []
    assert (out == np.arange(256 * warps)).all()


@pytest.mark.parametrize(("warps", "columns"), [(1, 512), (4, 128), (8, 64), (2, 512), (6, 256), (8, 512)])
def test_warps_wait_for_columns_that_others_return(warps: int, columns: int) -> None:
    for seed in range(4):
        run_turns(warps, columns, seed=seed)


def test_columns_that_nobody_returns_are_waited_for_in_vain() -> None:
    with pytest.raises(DeadlockError, match=r"tcgen05.alloc of 512 columns: this block owns columns 0..511"):
        run_turns(2, 512, back=0)


def test_what_is_left_is_named_with_its_place() -> None:
    with pytest.raises(EmulationError, match=r"did not deallocate: columns 0..127 \(allocated at test.cu:"):
        run_turns(1, 128, back=0)


def test_places_do_not_overlap_and_fill_the_memory() -> None:
    """Whatever place is picked: requests that do not grow all fit."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        memory = TensorMemory()
        left, size, taken = 512, 512, set[int]()
        while left:
            size = min(size, int(2 ** random.integers(5, 10)), 1 << left.bit_length() - 1)
            memory.request(size, 1, "")
            at = memory.place(size, lambda places: places[random.integers(len(places))])  # noqa: B023
            assert at is not None
            new = set(range(at, at + size))
            assert not new & taken
            memory.take(at, size, 1, "")
            taken |= new
            left -= size
        assert memory.place(32) is None


@pytest.mark.parametrize("columns", [0, 1, 16, 31, 33, 96, 500, 1024, -32])
def test_other_column_counts_are_refused(columns: int) -> None:
    with pytest.raises(TensorMemoryError, match=r"must be a power of two in 32..512; nearest"):
        TensorMemory().request(columns, 1, "")


def test_addresses_and_cells() -> None:
    assert split_address(127 << 16 | 511) == (127, 511)
    for address in (128 << 16, 512, 0xFFFFFFFF):
        with pytest.raises(TensorMemoryError, match="there are 128 lanes of 512 columns"):
            split_address(address)
    every = cells(tuple(range(8)), 0, 512)
    assert sorted(every.tolist()) == list(range(4096))
