"""cp.async.bulk, its reductions, and the lane-wise cp.async."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewright.codegen.emulator import bulk_copy
from stridewright.codegen.emulator.faults import MemoryAccessError, TensorCopyError
from stridewright.codegen.emulator.memory import GlobalMemory, SharedMemory
from stridewright.codegen.emulator.reductions import OPERATIONS, reduce_values


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_bytes_go_there_and_back_unchanged(source: int, target: int, chunks: int) -> None:
    memory, shared = GlobalMemory(), SharedMemory(512)
    data, back = np.random.default_rng(0).integers(0, 256, (2, 512), np.uint8)
    before = back.copy()
    a, b = memory.register(data), memory.register(back)
    assert bulk_copy.load(memory, a + 16 * source, shared, 16 * target, 16 * chunks) == 16 * chunks
    bulk_copy.store(memory, b + 16 * source, shared, 16 * target, 16 * chunks)
    part = slice(16 * source, 16 * (source + chunks))
    before[part] = data[part]
    assert (back == before).all()


def test_a_block_copies_into_another_blocks_memory() -> None:
    one, two = SharedMemory(256, 1024), SharedMemory(256, 4096)
    one.write(1024, np.arange(64, dtype=np.uint8))
    assert bulk_copy.between(one, 1040, two, 4096 + 32, 32) == 32
    assert two.read(4096 + 32, 32).tolist() == list(range(16, 48))
    two.write(4096, np.ones(16, np.uint8))
    assert bulk_copy.reduce_between(one, 1024, two, 4096, 16, "u32", "add") == 16
    assert two.read(4096, 16).tolist() == [i + 1 for i in range(16)]


def test_a_reduction_into_global_memory() -> None:
    memory, shared = GlobalMemory(), SharedMemory(64)
    total = np.full(8, 1.5, np.float32)
    shared.write(0, np.arange(8, dtype=np.float32).view(np.uint8))
    bulk_copy.reduce(memory, memory.register(total), shared, 0, 32, "f32", "add")
    assert total.tolist() == [i + 1.5 for i in range(8)]


def copies(source: int = 0, target: int = 0, size: int = 16) -> None:
    """A load with these offsets."""
    memory, shared = GlobalMemory(), SharedMemory(64)
    bulk_copy.load(memory, memory.register(np.zeros(64, np.uint8)) + source, shared, target, size)


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda: copies(size=24), TensorCopyError, "24 bytes: the size must be a multiple of 16"),
        (lambda: copies(source=8), TensorCopyError, "source 0x700000008"),
        (lambda: copies(target=4), TensorCopyError, "destination 0x4"),
        (lambda: copies(source=64), MemoryAccessError, "out of bounds"),
        (lambda: copies(target=64), MemoryAccessError, "out of bounds"),
    ],
)
def test_misaligned_or_outside_is_an_error(act: Callable[[], None], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        act()


def test_stores_need_written_bytes_and_loads_spare_barriers() -> None:
    memory, shared = GlobalMemory(), SharedMemory(64)
    address = memory.register(np.zeros(64, np.uint8))
    with pytest.raises(MemoryAccessError, match="unwritten"):
        bulk_copy.store(memory, address, shared, 0, 16)
    shared.guard(24, 8, "mbarrier")
    with pytest.raises(MemoryAccessError, match="the mbarrier at 0x18"):
        bulk_copy.load(memory, address, shared, 0, 32)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_lanes_copy_their_bytes_and_zeros_for_the_rest(width: int) -> None:
    memory, shared = GlobalMemory(), SharedMemory(1024)
    data = np.random.default_rng(1).integers(1, 256, 1024, np.uint8)
    lanes = np.arange(32)
    sizes = lanes % (width + 1)
    mask = lanes % 5 != 0
    bulk_copy.copy_lanes(memory, memory.register(data) + width * lanes[::-1], shared, width * lanes, width, sizes, mask)
    for lane in lanes:
        part = slice(width * lane, width * lane + width)
        if not mask[lane]:
            assert not shared.state[part].any()
            continue
        want = np.zeros(width, np.uint8)
        start = width * (31 - lane)
        want[: sizes[lane]] = data[start : start + sizes[lane]]
        assert shared.read(width * int(lane), width).tolist() == want.tolist()


def test_inactive_lanes_read_nothing() -> None:
    memory, shared = GlobalMemory(), SharedMemory(64)
    sources = np.array([memory.register(np.ones(16, np.uint8)), 3])
    bulk_copy.copy_lanes(memory, sources, shared, np.array([0, 1]), 16, np.array([8, 8]), np.array([True, False]))
    assert shared.read(0, 16).tolist() == [1] * 8 + [0] * 8


def test_a_lane_that_reads_nothing_may_have_any_address() -> None:
    memory, shared = GlobalMemory(), SharedMemory(64)
    bulk_copy.copy_lanes(memory, np.array([1, 3]), shared, np.array([0, 16]), 16, np.array([0, 0]))
    assert shared.read(0, 32).tolist() == [0] * 32


def test_lane_copies_of_other_sizes_are_refused() -> None:
    memory, shared = GlobalMemory(), SharedMemory(64)
    address = np.array([memory.register(np.zeros(64, np.uint8))])
    with pytest.raises(TensorCopyError, match="4, 8 and 16"):
        bulk_copy.copy_lanes(memory, address, shared, np.array([0]), 2)
    with pytest.raises(TensorCopyError, match="of 16"):
        bulk_copy.copy_lanes(memory, address, shared, np.array([0]), 16, np.array([17]))


@pytest.mark.parametrize("dtype", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("operation", ["add", "min", "max", "and", "or", "xor"])
@given(data=st.data())
def test_integer_reductions_are_those_of_python(dtype: str, operation: str, data: st.DataObject) -> None:
    bits, is_signed = int(dtype[1:]), dtype[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    x, y = (data.draw(st.integers(low, high)) for _ in range(2))
    kind = f"{'i' if is_signed else 'u'}{bits // 8}"
    got = reduce_values(np.array([x], kind).view(np.uint8), np.array([y], kind).view(np.uint8), dtype, operation)
    exact = {"add": x + y, "min": min(x, y), "max": max(x, y), "and": x & y, "or": x | y, "xor": x ^ y}[operation]
    assert int(got.view(kind)[0]) == (exact - low) % (1 << bits) + low


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_floating_minima_and_maxima(dtype: str) -> None:
    numbers = {"f16": (0x3C00, 0xC000), "bf16": (0x3F80, 0xC000)}[dtype]
    old, new = np.array(numbers, np.uint16).view(np.uint8), np.array(numbers[::-1], np.uint16).view(np.uint8)
    for operation, want in (("min", numbers[1]), ("max", numbers[0])):
        assert reduce_values(old, new, dtype, operation).view(np.uint16).tolist() == [want, want]
        with pytest.raises(TensorCopyError, match="never measured"):
            reduce_values(old, np.array([0x7FFF, 0], np.uint16).view(np.uint8), dtype, operation)


def test_16_bit_sums_are_rounded_once_to_nearest_even() -> None:
    old = np.array([0x3F80, 0x3F81, 0x7F7F], np.uint16)
    new = np.array([0x3B80, 0x3B80, 0x7F7F], np.uint16)
    got = reduce_values(old.view(np.uint8), new.view(np.uint8), "bf16", "add").view(np.uint16)
    # 1 + 2^-8 and 1 + 2^-7 + 2^-8 are ties; the largest number doubled overflows.
    assert got.tolist() == [0x3F80, 0x3F82, 0x7F80]


def test_reductions_that_do_not_exist_are_refused() -> None:
    zero = np.zeros(16, np.uint8)
    with pytest.raises(TensorCopyError, match="reduction 'mul'"):
        reduce_values(zero, zero, "u32", "mul")
    for operation, types in OPERATIONS.items():
        if "f32" not in types:
            with pytest.raises(TensorCopyError, match=f"reduction {operation} of f32"):
                reduce_values(zero, zero, "f32", operation)
