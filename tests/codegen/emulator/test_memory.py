"""Shared and global memory: values, bounds, alignment, bytes never written, guards, deferred readers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen.emulator.faults import MemoryAccessError
from stridewright.codegen.emulator.memory import GlobalMemory, SharedMemory

FORMS = [(width, count) for width in (1, 2, 4, 8, 16) for count in (1, 2, 4, 8, 16) if width * count <= 16]
BASE = 2048


def filled(size: int = 4096) -> SharedMemory:
    """A memory whose byte i is i mod 251."""
    memory = SharedMemory(size, BASE)
    memory.write(BASE, (np.arange(size) % 251).astype(np.uint8))
    return memory


def value(start: int, width: int) -> int:
    """The little-endian integer at byte ``start`` of ``filled``."""
    return sum((start + i) % 251 << 8 * i for i in range(width))


@pytest.mark.parametrize(("width", "count"), FORMS)
def test_gather_reads_every_lanes_bytes_in_little_endian_order(width: int, count: int) -> None:
    memory, total = filled(), width * count
    offsets = np.random.default_rng(0).permutation(4096 // total)[:32] * total
    got = memory.gather(BASE + offsets, width, count)
    unit, parts = (8, 2) if width == 16 else (width, count)
    want = np.array([[value(int(o) + unit * p, unit) for o in offsets] for p in range(parts)], np.uint64)
    assert got.reshape(parts, 32).astype(np.uint64).tolist() == want.tolist()


@pytest.mark.parametrize(("width", "count"), FORMS)
def test_scatter_then_gather_gives_the_values_back(width: int, count: int) -> None:
    memory, total = SharedMemory(4096, BASE), width * count
    unit, parts = (8, 2) if width == 16 else (width, count)
    rng = np.random.default_rng(1)
    addresses = BASE + rng.permutation(4096 // total)[:32] * total
    values = rng.integers(0, 256, (parts, 32 * unit), np.uint8).view(f"u{unit}")
    memory.scatter(addresses, values if parts > 1 else values[0], width, count)
    assert memory.gather(addresses, width, count).reshape(parts, 32).tolist() == values.tolist()
    assert int(memory.state.sum()) == 32 * total


@given(st.lists(st.booleans(), min_size=32, max_size=32))
def test_masked_lanes_touch_nothing(bits: list[bool]) -> None:
    mask = np.array(bits)
    memory = SharedMemory(128)
    addresses = np.where(mask, np.arange(32) * 4, 1 << 20)
    memory.scatter(addresses, np.arange(32, dtype=np.uint32) + 7, 4, mask=mask)
    assert (memory.state.reshape(32, 4) == mask[:, None]).all()
    assert memory.gather(addresses, 4, mask=mask).tolist() == np.where(mask, np.arange(32) + 7, 0).tolist()


@pytest.mark.parametrize("offset", [-4, -1024, 4096, 4095 // 4 * 4 + 4, 1 << 31])
def test_outside_is_an_error_that_names_lane_and_address(offset: int) -> None:
    memory = filled()
    addresses = BASE + np.arange(32) * 4
    addresses[5] = BASE + offset
    with pytest.raises(MemoryAccessError, match=f"lane 5: 4 bytes at shared address {BASE + offset:#x}") as raised:
        memory.gather(addresses, 4)
    assert raised.value.kind == "out of bounds"


def test_an_access_that_crosses_the_end_is_outside() -> None:
    with pytest.raises(MemoryAccessError, match="out of bounds"):
        SharedMemory(20).scatter(np.array([16]), np.zeros((2, 1), np.uint32), 4, 2)


@pytest.mark.parametrize(("width", "count"), [form for form in FORMS if form[0] * form[1] > 1])
def test_misalignment_is_an_error_that_names_the_lane(width: int, count: int) -> None:
    memory = filled()
    addresses = BASE + np.arange(32) * 16
    addresses[9] += width * count // 2
    with pytest.raises(MemoryAccessError, match="misaligned: lane 9"):
        memory.gather(addresses, width, count)


@pytest.mark.parametrize(("width", "count"), [(3, 1), (8, 4), (16, 2), (4, 3)])
def test_accesses_that_do_not_exist_are_refused(width: int, count: int) -> None:
    with pytest.raises(MemoryAccessError, match="does not exist"):
        filled().gather(np.array([BASE]), width, count)


@pytest.mark.parametrize(("width", "count"), FORMS)
def test_a_byte_never_written_may_not_be_read(width: int, count: int) -> None:
    memory, total = SharedMemory(256), width * count
    memory.write(0, np.zeros(256 - 1, np.uint8))
    assert memory.gather(np.array([0]), width, count).sum() == 0
    with pytest.raises(MemoryAccessError, match="unwritten: shared bytes 0xff"):
        memory.gather(np.array([0, 256 - total]), width, count)


def test_the_error_for_bytes_never_written_names_the_first_and_the_last() -> None:
    memory = SharedMemory(64, BASE)
    memory.write(BASE, np.zeros(20, np.uint8))
    with pytest.raises(MemoryAccessError, match=r"0x814\.\.0x81f are read, never written"):
        memory.read(BASE + 16, 16)


def test_stores_cut_values_to_their_width() -> None:
    shared, whole = SharedMemory(16), GlobalMemory()
    shared.write(0, np.zeros(16, np.uint8))
    address = whole.register(np.zeros(16, np.uint8))
    for memory, start in ((shared, 0), (whole, address)):
        for width in (1, 2, 4, 8, 16):
            memory.store(start, width, -1 << 4)
            assert memory.load(start, width) == (1 << 8 * width) - 16
            memory.store(start, width, 0)
        assert memory.read(start, 16).tolist() == [0] * 16


def test_guards_are_found_by_overlap() -> None:
    memory = SharedMemory(64, BASE)
    memory.guard(BASE + 16, 8, "mbarrier")
    memory.guard(BASE + 40, 8, "mbarrier")
    for low, high, count in ((0, 16, 0), (0, 17, 1), (23, 24, 1), (24, 40, 0), (24, 41, 1), (0, 64, 2)):
        assert len(memory.guards_within(BASE + low, BASE + high)) == count


def test_a_guard_forbids_reads_and_writes_of_its_bytes_only() -> None:
    memory = filled()
    memory.guard(BASE + 64, 8, "mbarrier")
    around = BASE + np.array([56, 72])
    memory.scatter(around, memory.gather(around, 8), 8)
    for act in (
        lambda: memory.gather(np.array([BASE + 64]), 4),
        lambda: memory.scatter(np.array([BASE + 68]), np.zeros(1, np.uint32), 4),
        lambda: memory.scatter(np.array([BASE + 64]), np.zeros((4, 1), np.uint32), 4, 4),
        lambda: memory.store(BASE + 71, 1, 0),
        lambda: memory.load(BASE + 64, 8),
        lambda: memory.write(BASE, np.zeros(65, np.uint8)),
        lambda: memory.read(BASE + 70, 4),
    ):
        with pytest.raises(MemoryAccessError, match="the mbarrier at 0x840 lives there"):
            act()
    memory.release(BASE + 64)
    memory.store(BASE + 64, 4, 5)
    assert memory.load(BASE + 64, 4) == 5
    with pytest.raises(MemoryAccessError, match="unwritten"):
        memory.load(BASE + 68, 4)


def test_readers_hear_of_every_kind_of_write_before_it_happens() -> None:
    memory = filled()

    class Reader:
        seen: list[tuple[int, int, int]]

        def before_write(self, low: int, high: int) -> None:
            self.seen.append((low, high, int(memory.bytes[low - BASE])))

    reader = Reader()
    reader.seen = []
    memory.readers.append(reader)
    memory.scatter(BASE + np.array([8, 16]), np.array([1, 2]), 4)
    memory.store(BASE + 32, 2, 9)
    memory.write(BASE + 40, np.zeros(3, np.uint8))
    assert reader.seen == [(BASE + 8, BASE + 20, 8), (BASE + 32, BASE + 34, 32), (BASE + 40, BASE + 43, 40)]


def test_atomic_updates_of_one_address_take_turns() -> None:
    memory = SharedMemory(16)
    memory.store(0, 4, 0)
    memory.store(4, 4, 100)
    addresses = np.array([0, 4, 0, 0, 4])
    old = memory.update(addresses, 4, lambda values, lanes: values + lanes.astype(np.uint32) + np.uint32(1))
    assert old.tolist() == [0, 100, 1, 4, 102]
    assert (memory.load(0, 4), memory.load(4, 4)) == (8, 107)


def test_sizes_and_bases_that_make_no_sense_are_refused() -> None:
    for size, base in ((-1, 0), (16, 512)):
        with pytest.raises(ValueError, match="multiple of 1024"):
            SharedMemory(size, base)


def test_global_memory_is_the_callers_arrays() -> None:
    memory = GlobalMemory()
    first, second = np.arange(100, dtype=np.float32), np.zeros((3, 5), np.uint16)
    a, b = memory.register(first, "first"), memory.register(second, "second")
    assert a % 256 == b % 256 == 0
    assert b >= a + first.nbytes
    assert memory.gather(np.array([a + 4, a + 396], np.uint64), 4).view(np.float32).tolist() == [1.0, 99.0]
    memory.scatter(np.array([b + 2, b + 28], np.uint64), np.array([7, 8], np.uint16), 2)
    assert (second[0, 1], second[2, 4]) == (7, 8)
    memory.store(a, 4, 0x40000000)
    assert first[0] == 2.0
    assert memory.load(a, 4) == 0x40000000


def test_lanes_of_one_access_may_use_several_arrays() -> None:
    memory = GlobalMemory()
    a, b = (memory.register(np.full(4, i, np.uint32)) for i in (5, 6))
    addresses = np.array([b, a + 4, b + 12], np.uint64)
    assert memory.gather(addresses, 4).tolist() == [6, 5, 6]
    memory.scatter(addresses, np.array([1, 2, 3], np.uint32), 4)
    assert memory.gather(addresses, 4).tolist() == [1, 2, 3]
    assert memory.gather(addresses, 4, mask=np.array([False, True, False])).tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("make", "index"),
    [
        (lambda whole: whole[2:, 3:], (1, 1)),
        (lambda whole: whole.T, (1, 2)),
        (lambda whole: whole[:, ::2], (3, 1)),
        (lambda whole: whole[1], (4,)),
    ],
)
def test_views_are_addressed_by_their_strides(make: Any, index: tuple[int, ...]) -> None:
    whole = np.arange(64, dtype=np.uint32).reshape(8, 8)
    view = make(whole)
    memory = GlobalMemory()
    address = memory.register(view)
    offset = sum(i * s for i, s in zip(index, view.strides, strict=True))
    assert memory.load(address + offset, 4) == view[index]
    memory.store(address + offset, 4, 1000)
    assert view[index] == 1000


def test_a_part_of_a_registered_array_keeps_its_place() -> None:
    memory = GlobalMemory()
    whole = np.zeros((8, 8), np.uint16)
    address = memory.register(whole)
    assert memory.register(whole[2:, 1:]) == address + 34
    assert memory.register(whole) == address
    assert len(memory.allocations) == 1


def test_negative_strides_are_refused() -> None:
    with pytest.raises(ValueError, match="ascontiguousarray"):
        GlobalMemory().register(np.arange(4)[::-1])


def test_global_errors_name_lane_address_and_nearest_array() -> None:
    memory = GlobalMemory()
    address = memory.register(np.zeros(8, np.uint32), "weights")
    for offset, words in ((32, "0 bytes after the end"), (-4, "4 bytes before the start"), (100, "68 bytes after")):
        addresses = (address + np.arange(4) * 4).astype(np.uint64)
        addresses[2] = address + offset
        with pytest.raises(MemoryAccessError, match=rf"lane 2: .*{words}.*of 'weights' \(32 bytes"):
            memory.gather(addresses, 4)
        with pytest.raises(MemoryAccessError, match="lane 2"):
            memory.scatter(addresses, np.zeros(4, np.uint32), 4)
    with pytest.raises(MemoryAccessError, match="misaligned: lane 1"):
        memory.gather(np.array([address, address + 2], np.uint64), 4)
    with pytest.raises(MemoryAccessError, match="no array was passed"):
        GlobalMemory().load(0x1000, 4)


def test_read_only_arrays_can_be_read_but_not_written() -> None:
    array = np.zeros(4, np.uint32)
    array.setflags(write=False)
    memory = GlobalMemory()
    address = memory.register(array, "frozen")
    assert memory.load(address, 4) == 0
    for act in (
        lambda: memory.store(address, 4, 1),
        lambda: memory.scatter(np.array([address], np.uint64), np.array([1], np.uint32), 4),
    ):
        with pytest.raises(MemoryAccessError, match="'frozen' is read-only"):
            act()
