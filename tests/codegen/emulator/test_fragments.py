"""Lanes and elements of wgmma, mma.sync, ldmatrix, stmatrix and movmatrix, against tags an H200 carried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stridewright.codegen.emulator.faults import MachineError, MemoryAccessError
from stridewright.codegen.emulator.fragments import (
    a_bytes,
    accumulator_to_registers,
    mma_registers,
    mma_rows,
    registers_to_accumulator,
    wgmma_a_bytes,
)
from stridewright.codegen.emulator.matrix_moves import ldmatrix, movmatrix, stmatrix
from stridewright.codegen.emulator.memory import SharedMemory
from stridewright.layout.hardware import wgmma_d_layout

from .oracle import arrays

WGMMA = {key: value for key, value in arrays("wgmma_fragments").items() if key != "agrees_with_ptx"}
MMA = {key: value for key, value in arrays("mma_fragments").items() if key != "agrees_with_ptx"}


def halves(registers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """(count, lanes) -> (count, lanes, 2): the low half first."""
    return np.stack([registers & np.uint32(0xFFFF), registers >> np.uint32(16)], -1)


def tagged(places: NDArray[Any]) -> NDArray[np.uint32]:
    """Registers (count, lanes) whose every element holds its number in ``places`` (lanes, count, elements)."""
    size = 4 // places.shape[2]
    container = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
    elements = np.ascontiguousarray(places.transpose(1, 0, 2)).astype(container)
    return elements.view(np.uint32)[..., 0]


@pytest.mark.parametrize("key", [key for key in WGMMA if key.startswith("d_")])
def test_an_accumulators_registers_hold_what_the_chips_hold(key: str) -> None:
    rows, columns = WGMMA[key].astype(int)
    n = rows.shape[1] * 2
    if key.startswith("d_f16_f16"):
        registers = accumulator_to_registers(np.arange(64 * n).reshape(64, n).astype(np.uint16))
        elements = halves(registers).transpose(1, 0, 2).reshape(128, -1)
    else:
        registers = accumulator_to_registers(np.arange(64 * n, dtype=np.uint32).reshape(64, n))
        elements = registers.T
    assert (elements == rows * n + columns).all()


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_accumulators_go_to_registers_and_back_and_agree_with_the_layout(n: int) -> None:
    matrix = np.arange(64 * n, dtype=np.int32).reshape(64, n)
    registers = accumulator_to_registers(matrix)
    assert (registers_to_accumulator(registers, np.int32) == matrix).all()
    half = matrix.astype(np.uint16)
    assert (registers_to_accumulator(accumulator_to_registers(half), np.uint16) == half).all()
    layout = wgmma_d_layout(n)
    for thread in (0, 37, 127):
        for value in (0, 3, n // 2 - 1):
            place = layout(thread, value)
            assert registers[value, thread] == matrix[place % 64, place // 64]


@pytest.mark.parametrize("key", [key for key in WGMMA if key.startswith("a_")])
def test_a_in_registers_holds_the_rows_and_k_of_the_chip(key: str) -> None:
    rows, k = WGMMA[key].astype(int)
    size = 4 // rows.shape[2]
    shape = (64, 32 // size)
    container = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
    for places, want in ((rows, np.arange(64)[:, None]), (k, np.arange(shape[1])[None, :])):
        assert (wgmma_a_bytes(tagged(places)).view(container) == np.broadcast_to(want, shape)).all()


@pytest.mark.parametrize("key", [key for key in MMA if key.startswith("m16") and key[-1] in "ab"])
def test_mma_syncs_operands_hold_the_elements_of_the_chip(key: str) -> None:
    first, second = MMA[key].astype(int)
    outer, k = (first, second) if key[-1] == "a" else (second, first)
    rows = 16 if key[-1] == "a" else 8
    container = {1: np.uint8, 2: np.uint16, 4: np.uint32}[4 // outer.shape[2]]
    for places, axis in ((outer, 0), (k, 1)):
        got = a_bytes(tagged(places), rows)[0].view(container)
        want = np.arange(got.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
        assert (got == np.broadcast_to(want, got.shape)).all()


@pytest.mark.parametrize("key", [key for key in MMA if key.startswith("m16") and key.endswith("_d")])
def test_mma_syncs_results_hold_the_elements_of_the_chip(key: str) -> None:
    rows, columns = MMA[key].astype(int)
    container = np.uint16 if "_f16_d" in key else np.uint32
    registers = mma_registers(np.arange(128).astype(container).reshape(1, 16, 8))
    elements = halves(registers).transpose(1, 0, 2).reshape(32, -1) if container is np.uint16 else registers.T
    assert (elements.reshape(rows.shape) == rows * 8 + columns).all()


@given(st.integers(1, 4), st.sampled_from([8, 16]), st.sampled_from([np.uint16, np.uint32]))
def test_mma_registers_and_back_for_several_warps(warps: int, rows: int, container: Any) -> None:
    matrices = np.arange(warps * rows * 8).astype(container).reshape(warps, rows, 8)
    assert (mma_rows(mma_registers(matrices), container, rows) == matrices).all()


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix_move_elements_as_the_chip_does(count: int, trans: bool) -> None:
    suffix = "_trans" if trans else ""
    shared, addresses = SharedMemory(1024), np.arange(64) % 32 * 16 + np.arange(64) // 32 * 512
    shared.write(0, np.arange(512, dtype=np.uint16).view(np.uint8))
    got = halves(ldmatrix(shared, addresses, count, trans)).transpose(1, 0, 2)
    want = MMA[f"ldmatrix_x{count}{suffix}"].astype(int)
    for warp in (0, 1):
        assert (got[32 * warp : 32 * warp + 32] == want[..., 0] * 8 + want[..., 1] + 256 * warp).all()

    tags = np.arange(32)[None, :, None] * 8 + np.arange(count)[:, None, None] * 2 + np.arange(2)
    registers = tags.astype(np.uint16).view(np.uint32)[..., 0]
    shared = SharedMemory(1024)
    stmatrix(shared, addresses, np.concatenate([registers, registers], 1), trans)
    want = MMA[f"stmatrix_x{count}{suffix}"].astype(int)
    for warp in (0, 1):
        stored = shared.read(512 * warp, 128 * count).view(np.uint16).reshape(8 * count, 8)
        assert (stored == want[..., 0] * 8 + want[..., 1] * 2 + want[..., 2]).all()
    assert int(shared.state.sum()) == 256 * count


def test_movmatrix_transposes_as_the_chip_does() -> None:
    registers = (np.arange(32) * 2 + ((np.arange(32) * 2 + 1) << 16)).astype(np.uint32)
    want = MMA["movmatrix_trans"].astype(int)
    assert (halves(movmatrix(registers)) == want[..., 0] * 2 + want[..., 1]).all()


def test_addresses_of_lanes_beyond_the_matrices_are_not_looked_at() -> None:
    shared = SharedMemory(128)
    shared.write(0, np.zeros(128, np.uint8))
    addresses = np.where(np.arange(32) < 8, np.arange(32) * 16, 1 << 30)
    assert ldmatrix(shared, addresses, 1).tolist() == [[0] * 32]
    with pytest.raises(MemoryAccessError, match="lane 8: 16 bytes"):
        ldmatrix(shared, addresses, 2)


def test_rows_must_be_aligned_and_counts_must_exist() -> None:
    shared = SharedMemory(1024)
    shared.write(0, np.zeros(1024, np.uint8))
    addresses = np.arange(32) * 16
    addresses[3] += 8
    with pytest.raises(MemoryAccessError, match="misaligned: lane 3"):
        stmatrix(shared, addresses, np.zeros((1, 32), np.uint32))
    with pytest.raises(MachineError, match="3 matrices"):
        ldmatrix(shared, addresses, 3)
    with pytest.raises(MachineError, match="whole warps"):
        ldmatrix(shared, addresses[:16], 1)
