"""Layouts of scale factors against the definition in the PTX ISA, byte by byte, and on their way through the copies to tensor memory.

CuTe's headers are compared with in test_scale_factors_cute.py, the CuTe DSL in tests/foreign.
"""

from __future__ import annotations

import itertools
import random
import re

import ml_dtypes
import numpy as np
import pytest

from stridewright.layout import LayoutError, left_inverse, size
from stridewright.layout.hardware import MatrixDescriptor, scale_columns, scale_layout, tensor_memory_copy
from stridewright.layout.hardware.scale_factors import ScaleSlot, ScaleTensor, scale_layout_of

SIZES = [(1, 32), (32, 96), (128, 128), (129, 160), (200, 512), (384, 1024), (1000, 2080)]


def defined_byte(row: int, factor: int, factors: int) -> int:
    """PTX ISA 9.1, 9.7.16.10.5: a row's four factors side by side, rows 32 apart 4 bytes apart, lanes 16; 512 bytes an atom, along K first."""
    atoms = -(-factors // 4)
    return (row // 128 * atoms + factor // 4) * 512 + row % 32 * 16 + row // 32 % 4 * 4 + factor % 4


@pytest.mark.parametrize(("rows", "k"), SIZES)
@pytest.mark.parametrize(("vector", "dtype"), [(32, "ue8m0"), (16, "ue4m3")])
def test_every_factor_lies_where_the_definition_says(rows: int, k: int, vector: int, dtype: str) -> None:
    scales = ScaleTensor("scale_a", rows, k, vector, dtype)
    layout, positions = scales.layout, scales.positions()
    for row, factor in itertools.product(range(0, rows, 7), range(k // vector)):
        wanted = defined_byte(row, factor, k // vector)
        assert positions[row, factor] == wanted
        # Every element of a vector has its factor's byte.
        assert {layout(row, factor * vector + i) for i in (0, 1, vector - 1)} == {wanted}
    assert len(np.unique(positions)) == positions.size
    assert positions.max() < scales.bytes
    assert scales.bytes == 512 * scales.atoms[0] * scales.atoms[1] == int(np.prod(scales.shape))


@pytest.mark.parametrize(("rows", "k"), SIZES)
def test_the_array_s_dimensions_are_the_layout_s_modes(rows: int, k: int) -> None:
    scales = ScaleTensor("scale_b", rows, k)
    flat = np.arange(scales.bytes).reshape(scales.shape)
    for row, factor in itertools.product(range(0, rows, 11), range(k // 32)):
        index = (row // 128, factor // 4, row % 32, row // 32 % 4, factor % 4)
        assert flat[index] == scales.layout(row, factor * 32)


@pytest.mark.parametrize(("rows", "k"), SIZES)
@pytest.mark.parametrize(("vector", "dtype", "kind"), [(32, "ue8m0", ml_dtypes.float8_e8m0fnu), (16, "ue4m3", ml_dtypes.float8_e4m3fn)])  # fmt: skip
def test_factors_come_back_as_they_were(rows: int, k: int, vector: int, dtype: str, kind: type) -> None:
    scales = ScaleTensor("scale_a", rows, k, vector, dtype)
    codes = np.random.default_rng(rows).integers(0, 256, scales.factors).astype(np.uint8)
    placed = scales.place(codes, padding=0x5A)
    for array in (placed, placed.view(kind), placed.reshape(-1)):
        assert np.array_equal(scales.gather(array), codes)
    outside = np.ones(scales.bytes, bool)
    outside[scales.positions()] = False
    assert (placed.reshape(-1)[outside] == 0x5A).all()
    assert np.array_equal(scales.place(codes.view(kind), 0x5A), placed)


# -- through shared memory to tensor memory ---------------------------------------------------------------------------------------

KINDS = [("mxf8f6f4", 32, 32), ("mxf4", 32, 64), ("mxf4nvf4", 32, 64), ("mxf4nvf4", 16, 64)]


@pytest.mark.parametrize("rows", [128, 256])
@pytest.mark.parametrize(("kind", "vector", "step_k"), KINDS)
@pytest.mark.parametrize("atoms", [1, 2, 4])
def test_a_slot_in_tensor_memory_is_cute_s(rows: int, kind: str, vector: int, step_k: int, atoms: int) -> None:
    """Held against scale_layout, which is what CuTe prints (tests/data/cute_layouts.txt): for every instruction, row and factor."""
    slot = ScaleSlot(rows, atoms * 4 * vector, vector, step_k)
    each = step_k // vector
    theirs = scale_layout(kind, rows, vector, slot.steps)
    assert slot.columns == scale_columns(rows, 4 * atoms)
    for step, row, number in itertools.product(range(slot.steps), range(0, rows, 5), range(each)):
        shared = theirs.shape[2]
        where = (step % shared[0], step // shared[0]) if isinstance(shared, tuple) else step
        cell = theirs((((row % 32, row // 32), 0), (0, number)), 0, where)
        assert slot.memory(row, step * step_k + number * vector) == cell
        # The multiply is told a column and an id: together they are that cell.
        own = int(slot.memory(row, number * vector)) - number
        assert own + 4 * slot.step_columns(step) + slot.step_ids(step) + number == cell


@pytest.mark.parametrize(("rows", "k", "vector", "step_k"), [(128, 128, 32, 32), (256, 256, 32, 64), (192, 256, 16, 64), (64, 512, 32, 64)])  # fmt: skip
def test_the_copies_bring_every_factor_from_its_byte_to_its_cell(rows: int, k: int, vector: int, step_k: int) -> None:
    """Bytes of a slot, read through the copies' descriptors and written as tcgen05.cp.32x128b.warpx4 does, stand where `memory` says."""
    slot = ScaleSlot(rows, k, vector, step_k)
    copy = tensor_memory_copy("32x128b", "warpx4")
    memory = np.full((128, 512 * 4), -1)
    down, along = slot.atoms
    for i, j in itertools.product(range(down), range(along)):
        descriptor = MatrixDescriptor("sm_100a", int(slot.source(i, j)), 16, 128, "none")
        source = descriptor.addresses("u8", "k", 32, 16)
        for row, byte, quarter in itertools.product(range(32), range(16), range(4)):
            bit = int(copy.value_id(row, 8 * byte, quarter))
            memory[bit >> 21, 4 * int(slot.destination(i, j)) + (bit & 0x1FFFFF) // 8] = source[row, byte]
    for row, factor in itertools.product(range(rows), range(k // vector)):
        cell = int(slot.memory(row, factor * vector))
        for quarter in range(4):
            assert memory[(cell >> 18) + 32 * quarter, cell & 0x3FFFF] == slot.shared(row, factor * vector)


def test_every_byte_of_a_slot_is_a_factor_s() -> None:
    for rows, k, vector in ((128, 128, 32), (256, 256, 16), (192, 512, 32)):
        slot = ScaleSlot(rows, k, vector, 64)
        for byte in range(0, slot.bytes, 3):
            row, element = slot.coordinate(byte)
            assert element % vector == 0
            assert slot.shared(row, element) == byte


def test_a_slot_s_maps_are_one_to_one() -> None:
    for rows, atoms in itertools.product((128, 256), (1, 2, 4)):
        slot = ScaleSlot(rows, atoms * 128, 32, 64)
        columns = sorted(slot.destination(i) for i in range(size(slot.destination)))
        assert columns == list(range(0, slot.columns, 4))
        assert sorted(slot.source(i) for i in range(size(slot.source))) == list(range(0, slot.bytes, 512))
        inverse = left_inverse(slot.source)
        assert all(inverse(slot.source(i)) == i for i in range(size(slot.source)))


# -- refusals ---------------------------------------------------------------------------------------------------------------------


def test_a_wrong_shape_type_start_or_hole_is_refused_with_the_layout_drawn() -> None:
    scales = ScaleTensor("scale_a", 200, 512)
    with pytest.raises(LayoutError) as caught:
        scales.require((200, 16), "float32", address=0x7F0000000008, contiguous=False)
    text = str(caught.value)
    assert "scale_a.shape=(200, 16): must be (2, 4, 32, 4, 4); these are the factors as (rows, K / vector): place() lays them out" in text  # fmt: skip
    assert "scale_a.dtype=float32: must be uint8 or float8_e8m0fnu (format ue8m0)" in text
    assert "scale_a.address=0x7f0000000008: must be a multiple of 16 bytes (TMA)" in text
    assert "scale_a.strides=not contiguous" in text
    assert str(scales.layout) in text
    assert scales.draw() in text


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((16, 200), "transposed"),
        ((2, 32, 4, 4, 4), "another order"),
        ((4096,), None),
        ((2, 4, 32, 4, 4), None),
        ((4095,), "or 4096 bytes"),
        ((1, 4, 32, 4, 4), "must be"),
    ],
)
def test_what_is_near_is_named(shape: tuple[int, ...], words: str | None) -> None:
    found = ScaleTensor("scale_b", 200, 512).problems(shape, "uint8")
    assert [words in str(one) for one in found] == ([] if words is None else [True])


def test_the_drawing_s_rows_and_bytes_are_the_layout_s() -> None:
    """Every number in the drawing, read back and asked of the definition."""
    for rows, k in ((128, 128), (200, 512), (1000, 2048), (700, 96)):
        text = ScaleTensor("scale_a", rows, k).draw().splitlines()
        head = next(i for i, line in enumerate(text) if "byte |" in line)
        for line in text[head + 1 : head + 5]:
            start, *cells = line.split("|")
            if start.strip() == "..":
                continue
            for column, cell in enumerate(cells):
                assert defined_byte(int(cell.split()[1]), 0, 4) == int(start) + 4 * column
        head = next(i for i, line in enumerate(text) if "rows, K" in line)
        firsts = [re.match(r"\s*(\d+)\.\.\d+", cell) for cell in text[head].split("|")[1:]]
        checked = 0
        for line in text[head + 1 :]:
            if "|" not in line or line.split("|")[0].strip() == "..":
                continue
            start, *cells = line.split("(")[0].split("|")
            for first, cell in zip(firsts, cells, strict=True):
                if first is not None:
                    row = int(start.split("..")[0])
                    assert int(cell) == defined_byte(row, int(first[1]) // 32, k // 32)
                    checked += 1
        assert checked >= min(-(-rows // 128), 3) * min(-(-k // 128), 3)
        assert ("padding: any finite factor" in text[-1]) == (k % 128 != 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 100}, "must be a multiple of 32.*nearest 96, 128"),
        ({"vector": 16}, "ue8m0 for each 16 elements of K; there is ue8m0 for each 32, ue4m3 for each 16"),
        ({"dtype": "e4m3"}, "e4m3 for each 32"),
        ({"rows": 0}, "at least 1"),
        ({"rows": 1.5}, "rows must be an int"),
    ],
)
def test_factors_that_no_instruction_takes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        ScaleTensor(**({"name": "scale_a", "rows": 128, "k": 128} | changes))  # type: ignore[arg-type]


def test_codes_of_another_shape_are_not_laid_out() -> None:
    scales = ScaleTensor("scale_a", 64, 128)
    for codes in (np.zeros((64, 5), np.uint8), np.zeros((64, 4), np.float32), np.zeros(256, np.uint8)):
        with pytest.raises(LayoutError, match=r"\(64, 4\) of one byte each are expected"):
            scales.place(codes)


@pytest.mark.parametrize("padding", [-1, 256, 0.5, True])
def test_padding_is_a_byte(padding: object) -> None:
    with pytest.raises(LayoutError, match="padding"):
        ScaleTensor("scale_a", 4, 64).place(np.zeros((4, 2), np.uint8), padding)  # type: ignore[arg-type]


def test_any_tile_of_the_tensor_s_layout_is_the_slot_s() -> None:
    """What one copy engine's box cuts out of global memory is laid out as the slot: the same function, shifted."""
    draw = random.Random(5)
    for _ in range(200):
        vector = draw.choice((16, 32))
        rows, k = 128 * draw.randint(1, 4), 4 * vector * draw.randint(1, 6)
        tile_rows, tile_k = 128 * draw.randint(1, 2), 4 * vector * draw.randint(1, 3)
        whole, tile = scale_layout_of(rows, k, vector), scale_layout_of(tile_rows, tile_k, vector)
        row, element = draw.randrange(min(rows, tile_rows)), draw.randrange(min(k, tile_k))
        block, atom = row // 128, element // (4 * vector)
        assert whole(row, element) - block * (512 * (k // (4 * vector))) - atom * 512 == tile(row, element) - tile(block * 128, atom * 4 * vector)  # fmt: skip
