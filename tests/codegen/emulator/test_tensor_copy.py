"""TMA against an H200's transfers byte by byte, and against a slow copy written from the measured rules."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stridewright.codegen.emulator.faults import MemoryAccessError, TensorCopyError
from stridewright.codegen.emulator.memory import GlobalMemory, SharedMemory
from stridewright.codegen.emulator.tensor_copy import BoundTensorMap, check, load, prefetch, reduce, store
from stridewright.layout import LayoutError
from stridewright.layout.hardware import TensorMap

from .oracle import arrays, records

CASES = records("tma_landing", "cases")
ARRAYS = arrays("tma_landing")
SIZE = 1 << 16
KINDS = {"cudaErrorMisalignedAddress": "misaligned", "cudaErrorIllegalInstruction": "illegal instruction"}


def tensor_map(case: dict[str, Any]) -> TensorMap:
    """The case's specification."""
    return TensorMap(
        dtype=case["dtype"],
        shape=tuple(case["dims"]),
        strides_bytes=tuple(case["strides"]),
        box=tuple(case["box"]),
        swizzle=case["swizzle"],
        element_strides=tuple(case["element_strides"]),
        interleave=case["interleave"],
        oob_fill=case["oob_fill"],
    )


def bind(m: TensorMap, data: NDArray[Any]) -> BoundTensorMap:
    """The map over an array."""
    memory = GlobalMemory()
    return BoundTensorMap(m, memory, memory.register(data))


def named(*wanted: str) -> list[Any]:
    """Cases of a direction that ended in one of these."""
    chosen = [
        c for c in CASES if f"{c['direction']} {'fault' if 'fault' in c else 'array'}" in wanted and "verdict" not in c
    ]
    return [pytest.param(c, id=c["name"]) for c in chosen]


@pytest.mark.parametrize("case", [c for c in named("load array") if c.values[0]["name"] in ARRAYS])
def test_a_load_puts_every_byte_where_the_chip_does(case: dict[str, Any]) -> None:
    m, want = tensor_map(case), ARRAYS[case["name"]].astype(np.int64)
    number = np.arange(SIZE)
    # Three tensors tell a byte's number: its low half, its high half, and whether it is tensor or fill at all.
    passes = []
    for data in (number & 255, number >> 8, np.full(SIZE, 255)):
        shared = SharedMemory(SIZE)
        copied = load(bind(m, data.astype(np.uint8)), case["coordinates"], shared, case["offset"])
        passes.append(shared.bytes[: want.size].astype(np.int64))
    written = shared.state[: want.size] == 1
    assert copied.bytes == case["bytes"]
    assert (written == (want != -1)).all()
    covered = np.zeros(SIZE, np.uint8)
    for low, high in copied.shared_ranges:
        covered[low:high] += 1
    assert (covered == shared.state).all()
    if not m.dtype.startswith("tf32") and m.oob_fill == "zero":
        got = np.where(passes[2] == 0, -2, passes[0] + (passes[1] << 8))
        assert (np.where(written, got, -1) == want).all()


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in CASES if c["name"] + "_fill" in ARRAYS])
def test_out_of_bounds_elements_get_the_chips_nan(case: dict[str, Any]) -> None:
    want = ARRAYS[case["name"] + "_fill"]
    shared = SharedMemory(SIZE)
    load(bind(tensor_map(case), np.zeros(SIZE, np.uint8)), case["coordinates"], shared, case["offset"])
    written = shared.state[: want.size] == 1
    assert (shared.bytes[: want.size] == want)[written].all()


@pytest.mark.parametrize("case", named("store array"))
def test_a_store_writes_what_the_chip_writes(case: dict[str, Any]) -> None:
    m, want = tensor_map(case), ARRAYS[case["name"]].astype(np.int64)
    number = np.arange(SIZE)
    passes = []
    for data in (number & 255, number >> 8, np.full(SIZE, 255)):
        shared, target = SharedMemory(SIZE), np.zeros(SIZE, np.uint8)
        shared.write(0, data.astype(np.uint8))
        store(bind(m, target), case["coordinates"], shared, case["offset"])
        passes.append(target[: want.size].astype(np.int64))
    assert (np.where(passes[2] == 0, -1, passes[0] + (passes[1] << 8)) == want).all()


@pytest.mark.parametrize("case", named("load fault", "store fault"))
def test_transfers_fault_as_on_the_chip(case: dict[str, Any]) -> None:
    shared = SharedMemory(SIZE)
    shared.write(0, np.zeros(SIZE, np.uint8))
    target = np.zeros(SIZE, np.uint8)
    copy = load if case["direction"] == "load" else store
    with pytest.raises(TensorCopyError) as raised:
        copy(bind(tensor_map(case), target), case["coordinates"], shared, case["offset"])
    assert raised.value.kind == KINDS[case["fault"]]


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in CASES if "verdict" in c])
def test_maps_that_the_driver_refuses_cannot_be_bound(case: dict[str, Any]) -> None:
    with pytest.raises(LayoutError):
        bind(tensor_map(case), np.zeros(SIZE, np.uint8))


@pytest.mark.parametrize(
    "name", sorted(key[7:-3] for key in ARRAYS if key.startswith("values_") and key.endswith("_in"))
)
def test_a_load_rounds_values_as_the_chip_does(name: str) -> None:
    given_bits, want = ARRAYS[f"values_{name}_in"], ARRAYS[f"values_{name}_out"]
    raw, size = given_bits.view(np.uint8).reshape(-1), given_bits.itemsize
    data = np.zeros(-(-raw.size // 128) * 128, np.uint8)
    data[: raw.size] = raw
    bound = bind(TensorMap(name, (128 // size, data.size // 128), (128,), (128 // size, 1)), data)
    shared, rows = SharedMemory(128), []
    for row in range(data.size // 128):
        load(bound, (0, row), shared, 0)
        rows.append(shared.read(0, 128).copy())
    assert (np.concatenate(rows)[: raw.size] == want.view(np.uint8).reshape(-1)).all()


SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


def reference(m: TensorMap, coordinates: tuple[int, ...], address: int, is_store: bool) -> dict[int, int]:
    """Shared byte -> tensor byte (or -1: filled), one byte at a time, from the rules as measured."""
    size = {"u8": 1, "bf16": 2, "f32": 4, "f64": 8}[m.dtype]
    span = SPANS[m.swizzle]
    pitch = span or m.box[0] * size
    steps = m.element_strides or (1,) * m.rank
    counts = [-(-b // s) for b, s in zip(m.box[1:], steps[1:], strict=True)]
    row_end = m.shape[0] * size
    if is_store:
        row_end = -(-row_end // 16) * 16
    moved = {}
    for row, position in enumerate(product(*(range(n) for n in reversed(counts)))):
        outer = [c + i * s for c, i, s in zip(coordinates[1:], reversed(position), steps[1:], strict=True)]
        inside = all(0 <= x < n for x, n in zip(outer, m.shape[1:], strict=True))
        begin = sum(x * s for x, s in zip(outer, m.strides_bytes, strict=True))
        for column in range(m.box[0] * size):
            at = address + row * pitch + column
            at ^= ((at >> 7) & (span // 16 - 1 if span else 0)) << 4
            x = coordinates[0] * size + column
            good = inside and 0 <= x < row_end
            if good or not is_store:
                moved[at] = begin + x if good else -1
    return moved


@st.composite
def transfers(draw: st.DrawFn) -> tuple[TensorMap, tuple[int, ...], int]:
    """A map of rank 1 to 5 that the driver takes, coordinates around the tensor's edges, and a shared address."""
    dtype, size = draw(st.sampled_from([("u8", 1), ("bf16", 2), ("f32", 4), ("f64", 8)]))
    swizzle = draw(st.sampled_from(list(SPANS)))
    rank = draw(st.integers(1, 5))
    width = draw(st.integers(1, (SPANS[swizzle] or 128) // 16)) * 16 // size
    outer_box = [draw(st.integers(1, 5)) for _ in range(rank - 1)]
    shape = [draw(st.integers(1, 160 // size))] + [draw(st.integers(1, 6)) for _ in range(rank - 1)]
    steps = [1] + [draw(st.integers(1, 3)) for _ in range(rank - 1)]
    strides, pitch = [], -(-shape[0] * size // 16) * 16
    for extent in shape[1:]:
        strides.append(pitch + 16 * draw(st.integers(0, 1)))
        pitch = strides[-1] * extent
    m = TensorMap(
        dtype, tuple(shape), tuple(strides), (width, *outer_box), swizzle=swizzle, element_strides=tuple(steps)
    )
    unit = 16 // size
    first = draw(st.integers(-2, -(-shape[0] // unit) + 1)) * unit
    coordinates = (first, *(draw(st.integers(-3, extent)) for extent in shape[1:]))
    return m, coordinates, 1024 + 128 * draw(st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(transfers())
def test_loads_agree_with_a_copy_byte_by_byte(case: tuple[TensorMap, tuple[int, ...], int]) -> None:
    m, coordinates, address = case
    data = np.random.default_rng(0).integers(1, 256, 1 << 18, np.uint8)
    shared = SharedMemory(1 << 16)
    copied = load(bind(m, data), coordinates, shared, address)
    want = reference(m, coordinates, address, False)
    assert np.flatnonzero(shared.state).tolist() == sorted(want)
    assert all(shared.bytes[at] == (data[x] if x >= 0 else 0) for at, x in want.items())
    assert copied.bytes == len(want)
    starts, length = copied.global_rows()
    touched = {int(start) - GlobalMemory.FIRST + i for start in starts for i in range(length)}
    assert touched == {x for x in want.values() if x >= 0}


@settings(max_examples=150, deadline=None)
@given(transfers())
def test_stores_agree_with_a_copy_byte_by_byte(case: tuple[TensorMap, tuple[int, ...], int]) -> None:
    m, coordinates, address = case
    rng = np.random.default_rng(1)
    target, before = rng.integers(0, 256, (2, 1 << 18), np.uint8)
    before[:] = target
    shared = SharedMemory(1 << 16)
    shared.write(0, rng.integers(0, 256, 1 << 16, np.uint8))
    if min(coordinates) < 0:
        with pytest.raises(TensorCopyError, match="illegal instruction"):
            store(bind(m, target), coordinates, shared, address)
        return
    store(bind(m, target), coordinates, shared, address)
    for at, x in reference(m, coordinates, address, True).items():
        before[x] = shared.bytes[at]
    assert (target == before).all()


def box_of_ones(dtype: str, element: Any, columns: int = 16) -> tuple[NDArray[Any], BoundTensorMap, SharedMemory]:
    """A tensor (4 rows) of ones of that numpy type, its map, and a box of ones in shared memory."""
    tensor = np.ones((4, columns), element)
    m = TensorMap(dtype, (columns, 4), (tensor.strides[0],), (columns, 2))
    shared = SharedMemory(1024)
    shared.write(0, np.ones((2, columns), element).view(np.uint8))
    return tensor, bind(m, tensor), shared


@pytest.mark.parametrize(
    ("dtype", "element"), [("u32", np.uint32), ("s32", np.int32), ("f32", np.float32), ("f16", np.float16)]
)
def test_a_reduction_adds_the_box_to_the_tensor(dtype: str, element: Any) -> None:
    tensor, bound, shared = box_of_ones(dtype, element)
    reduce(bound, (0, 1), shared, 0, "add")
    assert tensor.tolist() == [[1] * 16, [2] * 16, [2] * 16, [1] * 16]


@pytest.mark.parametrize(
    ("operation", "old", "new", "want"),
    [
        ("min", 5, 3, 3),
        ("max", 5, 3, 5),
        ("inc", 3, 3, 0),
        ("inc", 2, 3, 3),
        ("dec", 0, 3, 3),
        ("dec", 2, 3, 1),
        ("and", 6, 3, 2),
        ("or", 6, 3, 7),
        ("xor", 6, 3, 5),
    ],
)
def test_reductions_combine_as_ptx_says(operation: str, old: int, new: int, want: int) -> None:
    tensor, bound, shared = box_of_ones("u32", np.uint32)
    tensor[:] = old
    shared.write(0, np.full(32, new, np.uint32).view(np.uint8))
    reduce(bound, (0, 0), shared, 0, operation)
    assert tensor[:2].tolist() == [[want] * 16] * 2


def test_reductions_refuse_what_ptx_does_not_have_and_what_was_never_measured() -> None:
    _, bound, shared = box_of_ones("f32", np.float32)
    with pytest.raises(TensorCopyError, match="reduction min of f32"):
        reduce(bound, (0, 0), shared, 0, "min")
    tensor = np.zeros((4, 16), np.float32)
    ragged = bind(TensorMap("f32", (13, 4), (64,), (16, 2)), tensor)
    with pytest.raises(TensorCopyError, match="ends inside a 16-byte chunk"):
        reduce(ragged, (0, 0), shared, 0, "add")


@pytest.mark.parametrize(
    ("coordinates", "address", "kind"),
    [((1, 0), 0, "illegal instruction"), ((0, -1), 0, "illegal instruction"), ((0, 0), 64, "misaligned")],
)
def test_reductions_fault_as_stores_do(coordinates: tuple[int, int], address: int, kind: str) -> None:
    _, bound, shared = box_of_ones("f32", np.float32)
    with pytest.raises(TensorCopyError) as raised:
        reduce(bound, coordinates, shared, address, "add")
    assert raised.value.kind == kind
    with pytest.raises(TensorCopyError) as raised:
        check(bound, coordinates, address, store=True)
    assert raised.value.kind == kind


@pytest.mark.parametrize("swizzle", list(SPANS))
@pytest.mark.parametrize("base", [0, 2048, 3 << 24])
def test_copies_work_in_any_window_up_to_its_last_byte(swizzle: str, base: int) -> None:
    data = np.random.default_rng(6).integers(0, 256, (8, 128), np.uint8)
    m = TensorMap("u8", (128, 8), (128,), (SPANS[swizzle] or 64, 8), swizzle=swizzle)
    size = m.smem_bytes
    shared = SharedMemory(1024 + size, base)
    copied = load(bind(m, data), (0, 0), shared, base + 1024)
    assert copied.shared_ranges == ((base + 1024, base + 1024 + size),)
    for at, x in reference(m, (0, 0), 1024, False).items():
        assert shared.load(base + at, 1) == data.reshape(-1)[x]
    back = np.zeros_like(data)
    store(bind(m, back), (0, 0), shared, base + 1024)
    assert (back[:, : m.box[0]] == data[:, : m.box[0]]).all()
    with pytest.raises(MemoryAccessError, match="out of bounds"):
        store(bind(m, back), (0, 0), shared, base + 1024 + 128)


@pytest.mark.parametrize("corner", [(128, 0), (-128, 0), (0, 8), (0, -8), (128, 8)])
def test_a_box_outside_the_tensor_touches_no_global_memory(corner: tuple[int, int]) -> None:
    bound = bind(TensorMap("u8", (128, 8), (128,), (128, 8)), np.ones((8, 128), np.uint8))
    shared = SharedMemory(1024)
    copied = load(bound, corner, shared, 0)
    assert copied.global_rows()[0].size == copied.global_rows()[1] == 0
    assert copied.bytes == 1024
    assert not shared.read(0, 1024).any()
    if min(corner) >= 0:
        assert store(bound, corner, shared, 0).global_rows()[1] == 0


def test_a_map_may_begin_outside_its_array_if_coordinates_lead_back() -> None:
    memory = GlobalMemory()
    data = np.random.default_rng(8).integers(0, 256, (8, 64), np.uint8)
    address = memory.register(data)
    rows = 1 << 20
    bound = BoundTensorMap(TensorMap("u8", (64, rows + 5), (64,), (64, 4)), memory, address - 64 * rows, inside=address)
    shared = SharedMemory(1024)
    load(bound, (0, rows + 1), shared, 0)
    assert (shared.read(0, 256) == data[1:5].reshape(-1)).all()
    load(bound, (0, rows + 3), shared, 0)
    assert (shared.read(0, 128) == data[3:5].reshape(-1)).all()
    assert not shared.read(128, 128).any()
    with pytest.raises(MemoryAccessError, match="out of bounds"):
        load(bound, (0, rows - 1), shared, 0)
    with pytest.raises(MemoryAccessError, match="out of bounds"):
        BoundTensorMap(bound.map, memory, address - 64 * rows)


def test_interleaved_stores_were_never_measured() -> None:
    m = TensorMap("u16", (8, 3, 2), (768, 2304), (8, 2, 2), interleave="16B")
    shared = SharedMemory(1024)
    shared.write(0, np.zeros(1024, np.uint8))
    with pytest.raises(TensorCopyError, match="interleave 16B was never measured"):
        store(bind(m, np.zeros(8192, np.uint8)), (0, 0, 0), shared, 0)


def test_what_lies_outside_is_not_reduced() -> None:
    tensor, bound, shared = box_of_ones("u32", np.uint32)
    reduce(bound, (4, 3), shared, 0, "add")
    assert tensor[:3].tolist() == [[1] * 16] * 3
    assert tensor[3].tolist() == [1] * 4 + [2] * 12


def test_a_prefetch_faults_as_a_load_does_and_moves_nothing() -> None:
    _, bound, _ = box_of_ones("f32", np.float32)
    prefetch(bound, (-4, -1))
    with pytest.raises(TensorCopyError, match="illegal instruction"):
        prefetch(bound, (1, 0))
    with pytest.raises(LayoutError, match="rank 2"):
        prefetch(bound, (0,))


@pytest.mark.parametrize(
    "m",
    [
        TensorMap("u8", (128, 4), (128,), (128, 4), swizzle="128B_atom_32B_flip_8B", arch="sm_100a"),
        TensorMap("e2m1", (128, 4, 2), (64, 256), (32, 1, 1), interleave="16B", arch="sm_100a"),
    ],
    ids=["swizzle", "interleave"],
)
def test_what_no_source_describes_is_refused(m: TensorMap) -> None:
    assert m.problems() == []
    with pytest.raises(TensorCopyError, match="unknown"):
        bind(m, np.zeros(4096, np.uint8))


@pytest.mark.parametrize(("swizzle", "unit"), [("128B_atom_32B", 32), ("128B_atom_64B", 64)])
def test_wider_atoms_of_a_swizzle_change_places_by_the_line(swizzle: str, unit: int) -> None:
    # PTX ISA 9.1, section 5.5.7, swizzle atomicity: units of 32 or 64 bytes of a 128-byte line, by the line's number.
    data = np.random.default_rng(1).integers(0, 256, (8, 128), np.uint8)
    shared = SharedMemory(2048)
    load(bind(TensorMap("u8", (128, 8), (128,), (128, 8), swizzle, arch="sm_100a"), data), (0, 0), shared, 1024)
    for row in range(8):
        line = shared.read(1024 + 128 * row, 128).reshape(-1, unit)
        for place in range(128 // unit):
            assert line[place].tolist() == data[row].reshape(-1, unit)[place ^ row % (128 // unit)].tolist()


# -- padded values (PTX ISA 9.1, sections 5.5.1.1 and 9.7.9.27.1.1) ---------------------------------------------------------------


def codes_of(row: NDArray[np.uint8], bits: int) -> list[int]:
    """Values packed into bytes without gaps, the first in the lowest bits."""
    number = int.from_bytes(row.tobytes(), "little")
    return [number >> bits * i & (1 << bits) - 1 for i in range(row.size * 8 // bits)]


@pytest.mark.parametrize("coordinates", [(0, 0), (128, 3), (-128, 1), (256, 2), (0, -2), (128, 9)])
@pytest.mark.parametrize("swizzle", ["none", "128B", "128B_atom_32B"])
@pytest.mark.parametrize(("dtype", "bits"), [("e2m1_padded", 4), ("e2m3", 6), ("e3m2", 6)])
def test_padded_values_lie_sixteen_to_a_chunk(
    dtype: str, bits: int, swizzle: str, coordinates: tuple[int, int]
) -> None:
    rows, pitch = 10, 192 if bits == 6 else 160
    array = np.random.default_rng(bits).integers(0, 256, (rows, pitch), np.uint8)
    m = TensorMap(dtype, (256, rows), (pitch,), (128, 4), swizzle, arch="sm_100a")
    shared = SharedMemory(4096)
    copied = load(bind(m, array), coordinates, shared, 1024 + 128)
    atom = {"none": 16, "128B": 16, "128B_atom_32B": 32}[swizzle]
    for row in range(4):
        y, inside = coordinates[1] + row, 0 <= coordinates[0] < 256 and 0 <= coordinates[1] + row < rows
        want = codes_of(array[y], bits)[coordinates[0] :][:128] if inside else [0] * 128
        for group in range(8):
            at = 1024 + 128 + 128 * row + 16 * group
            if swizzle != "none":
                at ^= (at // 128 % (128 // atom)) * atom
            chunk = shared.read(at, 16)
            assert codes_of(chunk[: 2 * bits], bits) == want[16 * group : 16 * group + 16]
    # The barrier counts what was fetched from global memory, gaps excepted.
    assert copied.bytes == m.box_bytes == 4 * 128 * bits // 8


@pytest.mark.parametrize("swizzle", ["none", "128B", "128B_atom_64B"])
def test_a_store_packs_six_bits_of_every_byte(swizzle: str) -> None:
    random = np.random.default_rng(3)
    codes = random.integers(0, 64, (4, 128), np.uint8)
    array = np.zeros((6, 192), np.uint8)
    m = TensorMap("e2m3", (256, 6), (192,), (128, 4), swizzle, arch="sm_100a")
    shared = SharedMemory(1024)
    for row in range(4):
        for group in range(8):
            at = 128 * row + 16 * group
            unit = {"128B": 16, "128B_atom_64B": 64}.get(swizzle)
            at ^= (row % (128 // unit)) * unit if unit else 0
            junk = random.integers(0, 4, 16, np.uint8) << 6
            shared.write(at, codes[row, 16 * group : 16 * group + 16] | junk.astype(np.uint8))
    store(bind(m, array), (128, 3), shared, 0)  # the fourth row is outside
    assert not array[:3].any()
    assert not array[:, :96].any()
    assert [codes_of(array[3 + row], 6)[128:] for row in range(3)] == codes[:3].tolist()


@pytest.mark.parametrize(
    ("dtype", "swizzle", "coordinates", "is_store", "message"),
    [
        ("e2m1_padded", "none", (64, 0), False, "multiple of 128"),
        ("e2m3", "none", (32, 0), True, "multiple of 128"),
        ("e2m1_padded", "128B", (0, 0), True, "loaded, not stored"),
        ("e2m3", "128B_atom_64B", (0, 0), False, "for stores"),
    ],
)
def test_what_ptx_forbids_of_padded_values(
    dtype: str, swizzle: str, coordinates: tuple[int, int], is_store: bool, message: str
) -> None:
    bound = bind(TensorMap(dtype, (256, 4), (192,), (128, 4), swizzle, arch="sm_100a"), np.zeros((4, 192), np.uint8))
    shared = SharedMemory(1024)
    shared.write(0, np.zeros(1024, np.uint8))
    with pytest.raises(TensorCopyError, match=message):
        (store if is_store else load)(bound, coordinates, shared, 0)


@pytest.mark.parametrize("dtype", ["e2m1", "e2m3"])
def test_values_below_a_byte_are_not_reduced(dtype: str) -> None:
    bound = bind(TensorMap(dtype, (256, 4), (192,), (128, 4), arch="sm_100a"), np.zeros((4, 192), np.uint8))
    with pytest.raises(TensorCopyError, match="does not exist"):
        reduce(bound, (0, 0), SharedMemory(1024), 0, "add")


def test_nan_fill_of_64_bit_elements_was_never_measured() -> None:
    bound = bind(TensorMap("f64", (8, 4), (64,), (8, 2), oob_fill="nan"), np.zeros((4, 8)))
    shared = SharedMemory(1024)
    load(bound, (0, 0), shared, 0)
    with pytest.raises(TensorCopyError, match="never measured"):
        load(bound, (0, 3), shared, 0)


def test_a_load_over_a_barrier_is_an_error() -> None:
    _, bound, shared = box_of_ones("f32", np.float32)
    shared.guard(120, 8, "mbarrier")
    with pytest.raises(MemoryAccessError, match="the mbarrier at 0x78 lives there"):
        load(bound, (0, 0), shared, 0)
    load(bound, (0, 0), shared, 128)


def test_a_load_beside_the_rows_of_a_short_box_leaves_a_barrier_in_the_gap_alone() -> None:
    tensor = np.ones((4, 64), np.uint8)
    bound = bind(TensorMap("u8", (64, 4), (64,), (16, 4), swizzle="128B"), tensor)
    shared = SharedMemory(1024)
    shared.guard(128, 8, "mbarrier")
    load(bound, (0, 0), shared, 0)
    assert shared.read(144, 16).tolist() == [1] * 16


def test_a_store_of_bytes_never_written_is_an_error() -> None:
    _, bound, _ = box_of_ones("f32", np.float32)
    shared = SharedMemory(1024)
    shared.write(0, np.zeros(100, np.uint8))
    with pytest.raises(MemoryAccessError, match="unwritten: shared bytes 0x64"):
        store(bound, (0, 0), shared, 0)


def test_bytes_that_a_store_does_not_write_need_not_be_written() -> None:
    tensor, bound, _ = box_of_ones("f32", np.float32)
    shared = SharedMemory(1024)
    shared.write(0, np.full(16, 3, np.float32).view(np.uint8))
    store(bound, (0, 3), shared, 0)
    assert tensor[3].tolist() == [3.0] * 16


def test_tiles_outside_shared_memory_are_errors() -> None:
    _, bound, shared = box_of_ones("f32", np.float32)
    for copy in (load, store):
        with pytest.raises(MemoryAccessError, match="out of bounds"):
            copy(bound, (0, 0), shared, 1024)


def test_a_map_larger_than_its_array_is_an_error_where_it_is_used() -> None:
    tensor = np.ones((4, 16), np.float32)
    bound = bind(TensorMap("f32", (16, 8), (64,), (16, 2)), tensor)
    shared = SharedMemory(1024)
    load(bound, (0, 2), shared, 0)
    with pytest.raises(MemoryAccessError, match="reaches byte 320 of an array of 256"):
        load(bound, (0, 3), shared, 0)


def test_a_store_past_the_end_of_a_row_at_the_end_of_the_array_is_an_error() -> None:
    tensor = np.zeros(4 * 64 - 8, np.uint8)
    bound = bind(TensorMap("u8", (56, 4), (64,), (64, 4)), tensor)
    shared = SharedMemory(1024)
    shared.write(0, np.ones(256, np.uint8))
    with pytest.raises(MemoryAccessError, match="whole 16-byte chunks"):
        store(bound, (0, 0), shared, 0)


def test_stores_into_read_only_arrays_are_errors() -> None:
    tensor = np.ones((4, 16), np.float32)
    tensor.setflags(write=False)
    bound = bind(TensorMap("f32", (16, 4), (64,), (16, 2)), tensor)
    shared = SharedMemory(1024)
    load(bound, (0, 0), shared, 0)
    with pytest.raises(MemoryAccessError, match="read-only"):
        store(bound, (0, 0), shared, 0)


def test_elements_of_four_bits_move_two_in_a_byte() -> None:
    # cuda.h, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B: packed without gaps; coordinates count elements.
    array = np.random.default_rng(5).integers(0, 256, (12, 96), np.uint8)
    memory, shared = GlobalMemory(), SharedMemory(4096)
    packed = TensorMap("e2m1", (192, 12), (96,), (64, 4), "32B", arch="sm_100a")
    plain = TensorMap("u8", (96, 12), (96,), (32, 4), "32B")
    address = memory.register(array)
    for x, y in ((0, 0), (64, 3), (160, 10)):
        found = []
        for tensor_map, column in ((packed, x), (plain, x // 2)):
            bound = BoundTensorMap(tensor_map, memory, address)
            position = bound.position((column, y))
            assert load(bound, position, shared, 1024).bytes == 128
            found.append(shared.read(1024, 128).tolist())
        assert found[0] == found[1]
    with pytest.raises(TensorCopyError, match="two in a byte"):
        BoundTensorMap(packed, memory, address).position((3, 0))
