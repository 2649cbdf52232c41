"""The tables of the descriptor, swizzle and tensor-memory facts that are not printed by CuTe line by line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.layout import Swizzle, size
from stridewright.layout.hardware import (
    HardwareError,
    MatrixDescriptor,
    TensorMap,
    decode_matrix_descriptor,
    recognise,
    smem_tile,
    swizzle_mode,
    swizzle_modes,
    tensor_memory_copy,
)

# type, major, swizzle, rows, k, order of atoms: descriptor, and what every K step adds (units of 16 bytes).
VERIFIED: list[tuple[str, str, str, int, int, tuple[int, int], int, list[int]]] = [
    ("bf16", "k", "none", 128, 64, (0, 1), 0x0000400800800000, [0, 256, 512, 768]),
    ("bf16", "k", "32B", 128, 64, (0, 1), 0xC000401000010000, [0, 256, 512, 768]),
    ("bf16", "k", "64B", 128, 64, (0, 1), 0x8000402000010000, [0, 2, 512, 514]),
    ("bf16", "k", "128B", 128, 64, (0, 1), 0x4000404000010000, [0, 2, 4, 6]),
    ("bf16", "k", "128B", 128, 128, (0, 1), 0x4000404000010000, [0, 2, 4, 6, 1024, 1026, 1028, 1030]),
    ("bf16", "mn", "none", 128, 64, (0, 1), 0x0000400800800000, [0, 256, 512, 768]),
    ("bf16", "mn", "32B", 128, 64, (0, 1), 0xC000408000100000, [0, 256, 512, 768]),
    ("bf16", "mn", "64B", 128, 64, (0, 1), 0x8000408000200000, [0, 256, 512, 768]),
    ("bf16", "mn", "128B", 128, 64, (0, 1), 0x4000408000400000, [0, 256, 512, 768]),
    ("bf16", "mn", "128B", 128, 64, (1, 0), 0x4000404002000000, [0, 128, 256, 384]),
    ("e4m3", "k", "128B", 128, 128, (0, 1), 0x4000404000010000, [0, 2, 4, 6]),
    ("e2m1", "k", "128B", 128, 256, (0, 1), 0x4000404000010000, [0, 2, 4, 6]),
    ("tf32", "k", "128B", 128, 32, (0, 1), 0x4000404000010000, [0, 2, 4, 6]),
    ("e4m3", "mn", "128B", 128, 128, (0, 1), 0x4000404000000000, [0, 256, 512, 768]),
    ("tf32", "mn", "128B_atom_32B", 128, 32, (0, 1), 0x2000408000200000, [0, 256, 512, 768]),
]


@pytest.mark.parametrize("row", VERIFIED, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}-{row[4]}-{row[5]}")
def test_verified_descriptors_and_their_steps(row: Any) -> None:
    dtype, major, swizzle, rows, k, order, word, steps = row
    operand = recognise(smem_tile(swizzle, major, dtype, rows, k, order), dtype, "sm_100a", major)
    assert operand.descriptor.encode() == word
    assert [operand.k_advance(i) for i in range(int(size(operand.k_advance)))] == steps


def test_fields_are_18_bit_byte_numbers_without_their_low_four_bits() -> None:
    word = MatrixDescriptor("sm_100a", 0x3FFF0, 0x12340, 0x0ABC0, "64B", 5).encode()
    assert word & 0x3FFF == 0x3FFF
    assert word >> 16 & 0x3FFF == 0x1234
    assert word >> 32 & 0x3FFF == 0x0ABC
    assert word >> 46 & 7 == 1
    assert word >> 49 & 7 == 5
    assert word >> 61 == 4
    assert MatrixDescriptor("sm_90a", 0, 0, 0, "64B").encode() >> 62 == 2
    assert MatrixDescriptor("sm_103a", 0, 16, 0, "none", absolute_leading=True).encode() >> 52 & 1 == 1


CODES = {"none": (0, 0), "128B": (1, 2), "64B": (2, 4), "32B": (3, 6), "128B_atom_32B": (None, 1)}


@pytest.mark.parametrize("name", CODES)
def test_layout_codes_of_both_architectures(name: str) -> None:
    mode = swizzle_mode(name)
    assert (mode.wgmma_code, mode.tcgen05_code) == CODES[name]
    if mode.wgmma_code is not None and mode.tcgen05_code is not None:
        assert mode.wgmma_code << 62 == mode.tcgen05_code << 61


FUNCTIONS: dict[str, tuple[Any, int]] = {
    "32B": (lambda a: a ^ (((a >> 7) & 1) << 4), 256),
    "64B": (lambda a: a ^ (((a >> 7) & 3) << 4), 512),
    "128B": (lambda a: a ^ (((a >> 7) & 7) << 4), 1024),
    "128B_atom_32B": (lambda a: a ^ (((a >> 7) & 3) << 5), 512),
    "128B_atom_64B": (lambda a: a ^ (((a >> 7) & 1) << 6), 256),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_swizzle_functions_on_absolute_byte_addresses(name: str) -> None:
    function, repeat = FUNCTIONS[name]
    mode = swizzle_mode(name)
    addresses = np.arange(1 << 14)
    assert np.array_equal(mode.apply(addresses), function(addresses))
    assert mode.repeat == repeat
    assert np.array_equal(Swizzle(*mode.element_parameters(8))(addresses), function(addresses))
    for bits in (4, 8, 16, 32, 64):
        elements = np.arange(1 << 10)
        moved = Swizzle(*mode.element_parameters(bits))(elements)
        assert np.array_equal(
            moved * bits // 8, function(elements * bits // 8) // (max(bits, 8) // 8) * (max(bits, 8) // 8)
        )


def test_flip_8b_also_swaps_the_halves_of_16_bytes_on_alternate_lines() -> None:
    flip, atom = swizzle_mode("128B_atom_32B_flip_8B"), swizzle_mode("128B_atom_32B")
    for address in range(1024):
        expected = atom.apply(address) ^ (8 if address >> 7 & 1 else 0)
        assert flip.apply(address) == expected
    with pytest.raises(HardwareError, match="no single Swizzle"):
        flip.element_parameters(16)


def test_enumerators_are_in_the_order_of_cuda_h() -> None:
    assert [mode.tma_code for mode in swizzle_modes()] == list(range(7))


# PTX 9.7.16.9.2: which lanes row i of the source reaches.
LANES: dict[tuple[str, str], Any] = {
    ("128x256b", ""): lambda i: {i},
    ("128x128b", ""): lambda i: {i},
    ("32x128b", "warpx4"): lambda i: {i, i + 32, i + 64, i + 96},
    ("64x128b", "warpx2::02_13"): lambda i: {i, i + 64},
    ("64x128b", "warpx2::01_23"): lambda i: {i, i + 32} if i < 32 else {i + 32, i + 64},
}


@pytest.mark.parametrize("name", LANES, ids=lambda name: ".".join(name))
def test_copies_bring_every_row_to_its_lanes(name: tuple[str, str]) -> None:
    copy = tensor_memory_copy(*name)
    width = int(copy.shape.split("x")[1].removesuffix("b"))
    rows = int(copy.shape.split("x")[0])
    reached: dict[int, set[int]] = {row: set() for row in range(rows)}
    count = int(size(copy.source))
    destination_bits = [int(copy.value_id(int(copy.destination(i)))) for i in range(count)]
    for i in range(count):
        logical = int(copy.source(i))
        # Source bits are numbered rows first, in groups of the value id's first mode, then the 128 or 256 bits of a row.
        group = copy.value_id.shape[0]  # type: ignore[index]
        row = logical % group + group * (logical // (group * width))
        reached[row].add(destination_bits[i] >> 21)
    for row in range(rows):
        assert reached[row] == LANES[name](row), row
    assert width in (128, 256)


def test_4x256b_reaches_the_first_lane_of_each_quarter() -> None:
    copy = tensor_memory_copy("4x256b")
    lanes = {int(copy.value_id(int(copy.destination(i)))) >> 21 for i in range(int(size(copy.destination)))}
    assert lanes == {0, 32, 64, 96}


@pytest.mark.parametrize(
    ("dtype", "box", "swizzle", "fields"),
    [
        ("e2m1_padded", (128, 8), "128B", []),
        ("e2m1_padded", (64, 8), "128B", ["box[0]"]),
        ("e2m1_padded", (128, 8), "64B", ["box[0]", "swizzle"]),
        ("e2m1_padded", (128, 8), "128B_atom_64B", ["swizzle"]),
        ("e2m3", (128, 8), "128B_atom_64B", []),
        ("e2m1", (256, 8), "128B", []),
    ],
)
def test_rules_of_the_packed_types(dtype: str, box: tuple[int, int], swizzle: str, fields: list[str]) -> None:
    m = TensorMap(dtype, (256, 64), (256,), box, swizzle, arch="sm_100a")
    assert [problem.field for problem in m.problems()] == fields
    assert any(problem.field == "dtype" for problem in m.with_arch("sm_90a").problems())
    assert m.box_bytes == box[0] * box[1] * {"e2m1_padded": 4, "e2m1": 4, "e2m3": 6}[dtype] // 8


def test_a_descriptor_with_blackwells_version_bit_reads_the_same_on_hopper() -> None:
    word = MatrixDescriptor("sm_90a", 0, 16, 1024, "128B").encode()
    plain, versioned = decode_matrix_descriptor(word), decode_matrix_descriptor(word | 1 << 46)
    assert versioned.ignored == 1 << 46
    assert np.array_equal(plain.addresses("bf16", "k", 64), versioned.addresses("bf16", "k", 64))
