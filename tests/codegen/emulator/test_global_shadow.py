"""Races on global memory: what one block writes, no other block may touch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen.emulator.faults import MemoryAccessError
from stridewright.codegen.emulator.global_shadow import GlobalShadow
from stridewright.codegen.emulator.memory import GlobalMemory, SharedMemory
from stridewright.codegen.emulator.shadow import Actor
from stridewright.codegen.emulator.tensor_copy import BoundTensorMap, load, store
from stridewright.layout.hardware import TensorMap

BLOCKS = [Actor(block, 1, np.eye(3, dtype=np.uint32)[block]) for block in range(3)]
accesses = st.tuples(
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 1),
    st.lists(st.integers(0, 24), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 8]),
)


@given(st.lists(accesses, max_size=20))
def test_conflicts_are_bytes_that_two_blocks_touch_and_one_writes(
    steps: list[tuple[int, bool, int, list[int], int]],
) -> None:
    memory = GlobalMemory()
    bases = [memory.register(np.zeros(size, np.uint8)) for size in (203, 256)]
    shadow = GlobalShadow(memory)
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    for block, writing, array, items, size in steps:
        addresses = np.array([bases[array] + size * item for item in items], np.uint64)
        touched = {int(address) + i for address in addresses for i in range(size)}
        want = any(writers.get(byte, block) != block for byte in touched)
        if writing:
            want = want or any(readers.get(byte, set()) - {block} for byte in touched)
        act = shadow.write_lanes if writing else shadow.read_lanes
        assert bool(act(BLOCKS[block], addresses, size, 0)) == want
        for byte in touched:
            if writing:
                writers[byte] = block
            else:
                readers.setdefault(byte, set()).add(block)


def test_one_access_may_use_several_arrays_and_masked_lanes_none() -> None:
    memory = GlobalMemory()
    a, b = (memory.register(np.zeros(16, np.uint32)) for _ in range(2))
    shadow = GlobalShadow(memory)
    assert shadow.write_lanes(BLOCKS[0], np.array([a, b, 5]), 4, 1, np.array([True, True, False])) == []
    found = shadow.write_lanes(BLOCKS[1], np.array([b, a + 4, a]), 4, 2)
    assert sorted((c.low, c.where, c.other_where) for c in found) == [(a, 2, 1), (b, 2, 1)]
    assert shadow.read_lanes(BLOCKS[1], np.array([5]), 4, 1, np.array([False])) == []
    with pytest.raises(MemoryAccessError, match="out of bounds"):
        shadow.read_lanes(BLOCKS[1], np.array([5]), 4, 1)


def test_reads_before_the_first_write_are_not_forgotten() -> None:
    memory = GlobalMemory()
    address = memory.register(np.zeros(64, np.uint8))
    shadow = GlobalShadow(memory)
    lanes = address + 16 * np.arange(2)
    assert shadow.read_lanes(BLOCKS[2], lanes, 16, 5) == []
    assert shadow.write_lanes(BLOCKS[2], lanes, 16, 6) == []
    kinds = {(c.kind, c.other_where) for c in shadow.write_lanes(BLOCKS[0], lanes, 16, 7)}
    assert kinds == {("write after read", 5), ("write after write", 6)}


def test_neighbouring_tiles_of_a_ragged_array_do_not_conflict_and_overlapping_ones_do() -> None:
    memory, shared = GlobalMemory(), SharedMemory(8192)
    shared.write(0, np.zeros(8192, np.uint8))
    array = np.zeros((20, 40), np.uint16)
    tensor_map = TensorMap("u16", (40, 20), (80,), (16, 8))
    bound = BoundTensorMap(tensor_map, memory, memory.register(array))
    shadow = GlobalShadow(memory)
    for block, corner in enumerate([(0, 0), (16, 0), (32, 16)]):
        assert shadow.write_rows(BLOCKS[block], *store(bound, corner, shared, 0).global_rows(), where=block) == []
    assert shadow.read_rows(BLOCKS[0], *load(bound, (0, 1), shared, 0).global_rows(), where=9) == []
    (found,) = shadow.write_rows(BLOCKS[0], *store(bound, (8, 7), shared, 0).global_rows(), where=9)
    assert (found.kind, found.other_agent, found.low) == ("write after write", 1, bound.address + 7 * 80 + 32)
    assert shadow.read_rows(BLOCKS[0], *load(bound, (40, 0), shared, 0).global_rows(), where=9) == []
