"""wgmma on the emulated machine: which bytes it reads, what it computes, and when it reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stridewright.codegen.emulator.accumulate import fused_sum
from stridewright.codegen.emulator.faults import DescriptorError, MemoryAccessError
from stridewright.codegen.emulator.matrix import Accumulator, WgmmaQueue, WgmmaShape, _block_width, wgmma
from stridewright.codegen.emulator.memory import SharedMemory
from stridewright.codegen.emulator.numerics import to_float32
from stridewright.codegen.emulator.operands import chunk_table, element_addresses, read_chunks

from .oracle import arrays, records

CASES = records("wgmma_descriptors", "cases")
ADDRESSES = arrays("wgmma_descriptors")
GROUPS = sorted({case["array"] for case in CASES})
SIZE = 1 << 17
PARTNERS = {"bf16": "f32", "f16": "f32", "tf32": "f32", "e4m3": "f32", "e5m2": "f32", "s8": "s32", "u8": "s32"}
CONTAINERS: dict[str, Any] = {
    "bf16": np.uint16,
    "f16": np.uint16,
    "tf32": np.uint32,
    "e4m3": np.uint8,
    "e5m2": np.uint8,
    "s8": np.uint8,
    "u8": np.uint8,
}


def random_memory(dtype: str, seed: int = 0, base: int = 0) -> SharedMemory:
    """Shared memory full of small integers of a type: every sum is exact in float32."""
    rng = np.random.default_rng(seed)
    shared = SharedMemory(SIZE, base)
    shared.write(base, encode(rng.integers(-2, 3, SIZE // CONTAINERS[dtype]().itemsize), dtype).view(np.uint8))
    return shared


def encode(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Small integers as codes of a type."""
    if dtype in ("s8", "u8"):
        return (np.abs(values) if dtype == "u8" else values).astype(np.int8).view(np.uint8)
    words = values.astype(np.float32).view(np.uint32)
    if dtype == "tf32":
        return words
    if dtype == "bf16":
        return (words >> 16).astype(np.uint16)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    table = to_float32(np.arange(256).astype(np.uint8), dtype)
    return np.array([int(np.flatnonzero(table == v)[0]) for v in np.arange(-2, 3)], np.uint8)[values + 2]


def picked(shared: SharedMemory, addresses: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """The values at given byte addresses, one by one."""
    container = CONTAINERS[dtype]
    size = container().itemsize
    data = shared.bytes[(addresses.astype(np.int64)[..., None] - shared.base) + np.arange(size)]
    return to_float32(np.ascontiguousarray(data).view(container)[..., 0], dtype).astype(np.float64)


def plain(start: int, leading: int, stride: int) -> int:
    """A descriptor without swizzle."""
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32


def swizzled(start: int) -> int:
    """A K-major descriptor with the 128-byte swizzle and rows of 128 bytes."""
    return start >> 4 | 1 << 16 | 64 << 32 | 1 << 62


@pytest.mark.parametrize("group", GROUPS)
def test_wgmma_reads_the_bytes_that_the_chip_reads(group: str) -> None:
    for case in (case for case in CASES if case["array"] == group):
        want = ADDRESSES[group][case["index"]]
        word = int(case["descriptor"], 16)
        got = element_addresses(word, want.shape[0], case["type"], case["major"].lower())
        assert (got == want).all(), case


@pytest.mark.parametrize("group", GROUPS)
def test_products_are_those_of_the_bytes_that_the_chip_reads(group: str) -> None:
    cases = [case for case in CASES if case["array"] == group][::7]
    dtype, operand, major = cases[0]["type"], cases[0]["operand"], cases[0]["major"].lower()
    shared = random_memory(dtype)
    other = plain(1 << 16, 128, 256)
    n = ADDRESSES[group].shape[1] if operand == "B" else 32
    shape = WgmmaShape(n, dtype, dtype, PARTNERS[dtype], **{f"{operand.lower()}_major": major})
    for case in cases:
        word = int(case["descriptor"], 16)
        one = picked(shared, ADDRESSES[group][case["index"]], dtype)
        two = picked(shared, element_addresses(other, 64 if operand == "B" else n, dtype, "k"), dtype)
        accumulator = Accumulator(n, PARTNERS[dtype])
        wgmma(shared, shape, accumulator, *((word, other) if operand == "A" else (other, word)))
        assert (accumulator.matrix == (one @ two.T if operand == "A" else two @ one.T)).all(), case


@pytest.mark.parametrize("bit", [14, 15, 30, 31, 46, 47, 48, *range(52, 62)])
def test_bits_that_hardware_ignores_are_ignored(bit: int) -> None:
    word = swizzled(1024)
    assert (element_addresses(word | 1 << bit, 64, "bf16", "k") == element_addresses(word, 64, "bf16", "k")).all()


def test_addresses_count_from_the_window_of_the_block() -> None:
    # A descriptor has 18 bits for an address: a window above them (a block of a cluster) is known to the reader.
    results = []
    for base in (0, 4096, 5 << 24):
        shared = random_memory("bf16", base=base)
        accumulator = Accumulator(8, "f32")
        shape = WgmmaShape(8, "bf16", "bf16", "f32")
        low = base % (1 << 18)
        wgmma(shared, shape, accumulator, swizzled(low), swizzled(low + 8192))
        results.append(accumulator.matrix)
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()


@pytest.mark.parametrize("dtype", list(PARTNERS))
def test_every_n_of_every_type_multiplies(dtype: str) -> None:
    shared = random_memory(dtype)
    for n in range(8, 257, 8):
        if dtype in ("s8", "u8") and n > 24 and n % 16:
            with pytest.raises(DescriptorError, match="nearest"):
                WgmmaShape(n, dtype, dtype, "s32")
            continue
        shape = WgmmaShape(n, dtype, dtype, PARTNERS[dtype])
        accumulator = Accumulator(n, PARTNERS[dtype])
        wgmma(shared, shape, accumulator, swizzled(0), swizzled(32768))
        a = picked(shared, element_addresses(swizzled(0), 64, dtype, "k"), dtype)
        b = picked(shared, element_addresses(swizzled(32768), n, dtype, "k"), dtype)
        assert (accumulator.matrix == a @ b.T).all()


@pytest.mark.parametrize("dtype", list(PARTNERS))
@pytest.mark.parametrize("numerics", ["float32", "hardware"])
def test_a_from_registers_gives_what_a_from_memory_gives(dtype: str, numerics: Any) -> None:
    shared = random_memory(dtype)
    shape = WgmmaShape(16, dtype, dtype, PARTNERS[dtype])
    rows = np.ascontiguousarray(
        shared.bytes[element_addresses(swizzled(0), 64, dtype, "k")[:, :, None] + np.arange(32 // shape.k)]
    ).reshape(64, 32)
    registers = np.zeros((4, 128), np.uint32)
    for lane in range(128):
        for r in range(4):
            row, column = lane // 32 * 16 + lane % 32 // 4 + r % 2 * 8, lane % 4 * 4 + r // 2 * 16
            registers[r, lane] = int.from_bytes(rows[row, column : column + 4].tobytes(), "little")
    results = []
    for a in (swizzled(0), registers):
        accumulator = Accumulator(16, PARTNERS[dtype])
        wgmma(shared, shape, accumulator, a, swizzled(32768), numerics=numerics)
        results.append(accumulator.matrix)
    assert (results[0] == results[1]).all()
    assert results[0].any()


@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("negate", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("scale_d", [False, True])
def test_scales_and_signs(numerics: Any, negate: tuple[bool, bool], scale_d: bool) -> None:
    shared = random_memory("f16")
    start = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
    a = picked(shared, element_addresses(swizzled(0), 64, "f16", "k"), "f16")
    b = picked(shared, element_addresses(swizzled(32768), 8, "f16", "k"), "f16")
    sign = -1 if negate[0] != negate[1] else 1
    shape = WgmmaShape(8, "f16", "f16", "f32", negate_a=negate[0], negate_b=negate[1])
    accumulator = Accumulator(8, "f32", start.copy())
    wgmma(shared, shape, accumulator, swizzled(0), swizzled(32768), scale_d, numerics)
    assert (accumulator.matrix == sign * (a @ b.T) + (start if scale_d else 0)).all()


@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("saturate", [False, True])
def test_integer_sums_wrap_or_saturate(numerics: Any, saturate: bool) -> None:
    shared = random_memory("s8")
    a = picked(shared, element_addresses(swizzled(0), 64, "s8", "k"), "s8")
    b = picked(shared, element_addresses(swizzled(32768), 8, "s8", "k"), "s8")
    start = np.where(np.arange(512).reshape(64, 8) % 2, 2**31 - 2, -(2**31) + 1).astype(np.int32)
    accumulator = Accumulator(8, "s32", start.copy())
    shape = WgmmaShape(8, "s8", "s8", "s32", saturate=saturate)
    wgmma(shared, shape, accumulator, swizzled(0), swizzled(32768), numerics=numerics)
    exact = (a @ b.T).astype(np.int64) + start
    want = np.clip(exact, -(2**31), 2**31 - 1) if saturate else (exact + 2**31) % 2**32 - 2**31
    assert (accumulator.matrix == want).all()


@pytest.mark.parametrize(("a", "b"), [("s8", "u8"), ("u8", "s8"), ("u8", "u8")])
def test_long_chains_of_the_largest_integers_stay_exact(a: str, b: str) -> None:
    shared = SharedMemory(SIZE)
    shared.write(0, np.full(SIZE, 0xFF, np.uint8))
    queue, accumulator = WgmmaQueue(shared), Accumulator(8, "s32")
    for _ in range(40):
        queue.issue(WgmmaShape(8, a, b, "s32"), accumulator, swizzled(0), swizzled(32768))
    queue.commit()
    queue.wait(0)
    value = {"s8": -1, "u8": 255}
    assert (accumulator.matrix == 40 * 32 * value[a] * value[b]).all()


def test_f16_accumulators_hold_f16() -> None:
    shared = random_memory("f16")
    accumulator = Accumulator(16, "f16")
    assert accumulator.registers().shape == (4, 128)
    wgmma(shared, WgmmaShape(16, "f16", "f16", "f16"), accumulator, swizzled(0), swizzled(32768))
    a = picked(shared, element_addresses(swizzled(0), 64, "f16", "k"), "f16")
    b = picked(shared, element_addresses(swizzled(32768), 16, "f16", "k"), "f16")
    assert accumulator.matrix.dtype == np.float16
    assert (accumulator.matrix == a @ b.T).all()
    again = Accumulator.from_registers(accumulator.registers(), "f16")
    assert (again.matrix == accumulator.matrix).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("numerics", ["float32", "hardware"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32"])
def test_nan_and_infinity_go_through(dtype: str, numerics: Any) -> None:
    special = {"bf16": (0x7F80, 0x7F81), "f16": (0x7C00, 0x7C01), "tf32": (0x7F800000, 0x7FC00000)}[dtype]
    shared = SharedMemory(SIZE)
    one = encode(np.ones(SIZE // CONTAINERS[dtype]().itemsize), dtype)
    where = element_addresses(swizzled(0), 64, dtype, "k") // one.itemsize
    one[where[3, 1]], one[where[5, 2]] = special
    one[where[7, 0]], one[where[7, 1]] = special[0], special[0] | 1 << 8 * one.itemsize - 1
    shared.write(0, one.view(np.uint8))
    accumulator = Accumulator(8, "f32")
    shape = WgmmaShape(8, dtype, dtype, "f32")
    wgmma(shared, shape, accumulator, swizzled(0), swizzled(32768), numerics=numerics)
    matrix = accumulator.matrix
    assert np.isposinf(matrix[3]).all()
    assert np.isnan(matrix[[5, 7]]).all()
    assert (matrix[[0, 1, 2, 4, 6, *range(8, 64)]] == shape.k).all()


@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")])
def test_hardware_numerics_are_one_fused_sum_an_instruction(majors: tuple[str, str]) -> None:
    rng = np.random.default_rng(4)
    shared = SharedMemory(SIZE)
    shared.write(
        0, (rng.standard_normal(SIZE // 2).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    )
    shape = WgmmaShape(64, "bf16", "bf16", "f32", *majors)
    queue, accumulator = WgmmaQueue(shared, "hardware"), Accumulator(64, "f32")
    total = np.zeros((64, 64), np.uint32)
    for step in range(3):
        words = [plain(start + 256 * step, 1024, 2048) for start in (0, 1 << 16)]
        queue.issue(shape, accumulator, words[0], words[1])
        codes = []
        for word, major in zip(words, majors, strict=True):
            where = element_addresses(word, 64, "bf16", major)
            codes.append(shared.bytes[where].astype(np.uint16) | shared.bytes[where + 1].astype(np.uint16) << 8)
        total = fused_sum(codes[0], codes[1], total, "bf16", "bf16", "f32")
    queue.commit()
    queue.wait()
    assert (accumulator.matrix.view(np.uint32) == total).all()


def issued(shared: SharedMemory, late: bool, groups: int = 2) -> tuple[WgmmaQueue, Accumulator]:
    """Groups of four k-steps over one stage of 64 and 8 rows."""
    queue, accumulator = WgmmaQueue(shared), Accumulator(8, "f32")
    for group in range(groups):
        for step in range(4):
            a, b = (swizzled(start + 16384 * group + 32 * step) for start in (0, 8192))
            queue.issue(WgmmaShape(8, "bf16", "bf16", "f32"), accumulator, a, b, group + step > 0, late)
        queue.commit()
    return queue, accumulator


def stage_product(shared: SharedMemory, group: int) -> NDArray[np.float64]:
    """The product of one stage of ``issued``."""
    total = np.zeros((64, 8))
    for step in range(4):
        a, b = (
            picked(shared, element_addresses(swizzled(start + 16384 * group + 32 * step), rows, "bf16", "k"), "bf16")
            for start, rows in ((0, 64), (8192, 8))
        )
        total += a @ b.T
    return total


def test_a_group_is_complete_when_it_is_waited_for() -> None:
    shared = random_memory("bf16")
    queue, accumulator = issued(shared, late=False)
    assert (queue.pending, queue.groups, queue.complete, accumulator.in_flight) == (2, 2, 0, 8)
    queue.wait(1)
    assert (queue.pending, queue.complete, accumulator.in_flight) == (1, 1, 4)
    assert (accumulator.matrix == stage_product(shared, 0)).all()
    queue.wait(0)
    assert accumulator.in_flight == 0
    assert (accumulator.matrix == stage_product(shared, 0) + stage_product(shared, 1)).all()
    assert shared.readers == []


@pytest.mark.parametrize("late", [False, True])
def test_interleaved_accumulators_get_their_own_products_in_order(late: bool) -> None:
    shared = random_memory("bf16")
    queue = WgmmaQueue(shared)
    one, two = Accumulator(8, "f32"), Accumulator(8, "f32", np.ones((64, 8), np.float32))
    shape = WgmmaShape(8, "bf16", "bf16", "f32")
    want = [np.zeros((64, 8)), np.ones((64, 8))]
    for step, keep in enumerate((True, True, False, True)):
        for index, accumulator in enumerate((one, two)):
            a, b = swizzled(8192 * index + 32 * step), swizzled(32768 + 32 * step)
            queue.issue(shape, accumulator, a, b, keep, late)
            product = (
                picked(shared, element_addresses(a, 64, "bf16", "k"), "bf16")
                @ picked(shared, element_addresses(b, 8, "bf16", "k"), "bf16").T
            )
            want[index] = product + (want[index] if keep else 0)
    queue.commit()
    queue.wait(0)
    assert (one.matrix == want[0]).all()
    assert (two.matrix == want[1]).all()
    assert one.in_flight == two.in_flight == 0


def write_zeros(shared: SharedMemory, low: int, size: int) -> None:
    """As TMA does."""
    shared.write(low, np.zeros(size, np.uint8))


def scatter_zeros(shared: SharedMemory, low: int, size: int) -> None:
    """As stores do."""
    shared.scatter(low + 4 * np.arange(size // 4), np.zeros(size // 4, np.uint32), 4)


@pytest.mark.parametrize("write", [write_zeros, scatter_zeros])
@pytest.mark.parametrize(("low", "size"), [(0, 8192), (8192, 1024), (16384 + 4096, 64), (40000, 64)])
def test_early_readers_see_memory_as_it_was_at_issue(
    write: Callable[[SharedMemory, int, int], None], low: int, size: int
) -> None:
    shared = random_memory("bf16")
    want = stage_product(shared, 0) + stage_product(shared, 1)
    queue, accumulator = issued(shared, late=False)
    write(shared, low, size)
    queue.wait(0)
    assert (accumulator.matrix == want).all()
    assert shared.readers == []


def test_late_readers_see_memory_as_it_is_at_the_wait_or_when_told_to_take() -> None:
    shared = random_memory("bf16")
    first = stage_product(shared, 0)
    queue, accumulator = issued(shared, late=True)
    queue.take(4)
    write_zeros(shared, 0, 32768)
    queue.wait(0)
    assert (accumulator.matrix == first).all()
    queue, accumulator = issued(shared, late=True)
    shared.write(0, random_memory("bf16", seed=9).bytes[:32768])
    queue.wait(0)
    assert (accumulator.matrix == stage_product(shared, 0) + stage_product(shared, 1)).all()


def test_operands_never_written_or_under_a_barrier_are_errors() -> None:
    shared = SharedMemory(SIZE)
    shared.write(0, np.zeros(8192 + 1000, np.uint8))
    shape = WgmmaShape(8, "bf16", "bf16", "f32")
    with pytest.raises(MemoryAccessError, match="unwritten"):
        wgmma(shared, shape, Accumulator(8, "f32"), swizzled(0), swizzled(8192))
    shared.write(8192, np.zeros(1024, np.uint8))
    wgmma(shared, shape, Accumulator(8, "f32"), swizzled(0), swizzled(8192))
    shared.guard(8192 + 128, 8, "mbarrier")
    with pytest.raises(MemoryAccessError, match="the mbarrier at 0x2080"):
        wgmma(shared, shape, Accumulator(8, "f32"), swizzled(0), swizzled(8192))


def test_operands_outside_shared_memory_are_errors_at_issue() -> None:
    shared = SharedMemory(8192 + 1024, 1024)
    queue = WgmmaQueue(shared)
    shape = WgmmaShape(8, "bf16", "bf16", "f32")
    for a, b in (
        (swizzled(0), swizzled(9216)),
        (swizzled(3072), swizzled(9216)),
        (swizzled(1024), swizzled(9216 + 1024)),
    ):
        with pytest.raises(DescriptorError, match="out of bounds"):
            queue.issue(shape, Accumulator(8, "f32"), a, b)
    queue.issue(shape, Accumulator(8, "f32"), swizzled(1024), swizzled(9216))


def test_the_footprint_is_what_the_descriptors_reach() -> None:
    shared = random_memory("bf16")
    shape = WgmmaShape(16, "bf16", "bf16", "f32")
    word = swizzled(8192 + 32)
    touched = np.zeros(SIZE, bool)
    for addresses in (element_addresses(swizzled(0), 64, "bf16", "k"), element_addresses(word, 16, "bf16", "k")):
        touched[addresses] = touched[addresses + 1] = True
    marked = np.zeros(SIZE, int)
    for low, high in WgmmaQueue(shared).footprint(shape, swizzled(0), word):
        marked[low:high] += 1
    assert (marked == touched).all()
    chunks = WgmmaQueue(shared).footprint_chunks(shape, swizzled(0), word)
    assert chunks.tolist() == np.flatnonzero(touched[::16]).tolist()
    assert WgmmaQueue(shared).footprint_chunks(shape, swizzled(0), word) is chunks


def test_chunks_of_several_steps_lie_side_by_side() -> None:
    shared = random_memory("bf16")
    for major, axis in (("k", 1), ("mn", 0)):
        words = (plain(0, 1024, 2048), plain(512, 1024, 2048))
        both = read_chunks(shared, chunk_table(words, 64, "bf16", major, 0, SIZE))
        each = [read_chunks(shared, chunk_table((word,), 64, "bf16", major, 0, SIZE)) for word in words]
        assert (both.view(np.uint8) == np.concatenate(each, axis).view(np.uint8)).all()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: WgmmaShape(204, "bf16", "bf16", "f32"), "nearest 200, 208"),
        (lambda: WgmmaShape(0, "bf16", "bf16", "f32"), "nearest 8, 16"),
        (lambda: WgmmaShape(264, "e4m3", "e5m2", "f32"), "nearest 248, 256"),
        (lambda: WgmmaShape(8, "bf16", "f16", "f32"), "no bf16 x f16"),
        (lambda: WgmmaShape(8, "bf16", "bf16", "f16"), "bf16 -> f16"),
        (lambda: WgmmaShape(8, "s8", "s8", "f32"), "s8 -> f32"),
        (lambda: WgmmaShape(8, "e4m3", "e4m3", "f32", "mn"), "only 16-bit"),
        (lambda: WgmmaShape(8, "tf32", "tf32", "f32", "k", "mn"), "only 16-bit"),
        (lambda: WgmmaShape(8, "bf16", "bf16", "f32", "m"), "majors 'm'"),
        (lambda: WgmmaShape(8, "s8", "s8", "s32", negate_a=True), "no operand signs"),
        (lambda: WgmmaShape(8, "bf16", "bf16", "f32", saturate=True), "satfinite"),
        (lambda: Accumulator(8, "bf16"), "accumulator of type 'bf16'"),
        (
            lambda: WgmmaQueue(SharedMemory(64)).issue(
                WgmmaShape(8, "f16", "f16", "f32"), Accumulator(16, "f32"), 0, 0
            ),
            "n=8 into f32 on an accumulator of n=16",
        ),
        (
            lambda: WgmmaQueue(SharedMemory(SIZE)).issue(
                WgmmaShape(8, "f16", "f16", "f32", "mn"), Accumulator(8, "f32"), np.zeros((4, 128), np.uint32), 0
            ),
            "always K-major",
        ),
        (lambda: element_addresses(1 << 64, 64, "bf16", "k"), "64-bit word"),
    ],
)
def test_what_does_not_exist_is_refused(act: Callable[[], object], words: str) -> None:
    with pytest.raises(DescriptorError, match=words):
        act()


def test_products_stay_below_the_size_that_openblas_spreads_over_threads() -> None:
    for n in range(8, 257, 8):
        for k in range(8, 257, 8):
            width = _block_width(n, k)
            assert n % width == 0
            assert 64 * width * k <= 4 * 65536


def test_unknown_numerics_are_refused() -> None:
    with pytest.raises(ValueError, match="'float32' and 'hardware'"):
        WgmmaQueue(SharedMemory(64), "float64")  # type: ignore[arg-type]
