"""Descriptors derived from layouts against CuTe's, and against the layouts themselves byte by byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridewright.layout import Layout, Swizzle, compose, size
from stridewright.layout.hardware import (
    HardwareError,
    decode_matrix_descriptor,
    k_advance,
    matrix_descriptor,
    recognise,
    smem_atom,
    smem_tile,
)

from .cute_oracle import descriptors, layout

ENTRIES = [("sm_100a", entry) for entry in descriptors("UDESC")] + [("sm_90a", entry) for entry in descriptors("GDESC")]


def tile_of(entry: dict[str, str]) -> Any:
    """CuTe prints a swizzle of bytes over a layout of elements; ours acts in the layout's units."""
    plain = layout(entry["layout"])
    if entry["b"] == "0":
        return plain
    byte = Swizzle(int(entry["b"]), int(entry["m"]), int(entry["s"]))
    return compose(Swizzle(byte.bits, byte.base - (int(entry["bits"]) // 8).bit_length() + 1, byte.shift), plain)


def tile_of_4_bits(entry: dict[str, str]) -> Any:
    return compose(Swizzle(int(entry["b"]), int(entry["m"]) + 1, int(entry["s"])), layout(entry["layout"]))


def test_the_oracle_holds_all_its_entries() -> None:
    assert (len(descriptors("UDESC")), len(descriptors("GDESC"))) == (14, 8)


@pytest.mark.parametrize(
    ("arch", "entry"), ENTRIES, ids=[f"{a}-{e['type']}-{e['major']}-{e['name']}-{e['k']}" for a, e in ENTRIES]
)
def test_descriptor_and_k_advance_equal_cutes(arch: str, entry: dict[str, str]) -> None:
    tile = tile_of_4_bits(entry) if entry["bits"] == "4" else tile_of(entry)
    operand = recognise(tile, entry["type"], arch, entry["major"].lower())
    assert operand.descriptor.encode() == int(entry["word"], 16)
    assert (operand.descriptor.leading, operand.descriptor.stride) == (16 * int(entry["lbo"]), 16 * int(entry["sbo"]))
    steps = layout(entry["advance"])
    count = int(size(steps))
    assert [operand.k_advance(i) for i in range(count)] == [steps(i) for i in range(count)]
    assert matrix_descriptor(tile, entry["type"], arch, entry["major"].lower()) == int(entry["word"], 16)


SM90 = [
    (swizzle, major, dtype, order)
    for swizzle in ("none", "32B", "64B", "128B")
    for major, dtypes in (("k", ("bf16", "tf32", "e4m3")), ("mn", ("bf16", "f16")))
    for dtype in dtypes
    for order in ((0, 1), (1, 0))
]
SM100 = [
    (swizzle, major, dtype, order)
    for swizzle in ("none", "32B", "64B", "128B")
    for major, dtypes in (
        ("k", ("bf16", "tf32", "e4m3", "e2m1", "e2m1_padded", "e3m2")),
        ("mn", ("bf16", "e4m3", "s8")),
    )
    for dtype in dtypes
    for order in ((0, 1), (1, 0))
] + [("128B_atom_32B", "mn", "tf32", (0, 1)), ("128B_atom_32B", "mn", "tf32", (1, 0))]


@pytest.mark.parametrize(
    ("arch", "case"), [("sm_90a", c) for c in SM90] + [("sm_100a", c) for c in SM100], ids=lambda v: str(v)
)
def test_every_step_of_a_canonical_tile_reads_the_layouts_own_bytes(arch: str, case: tuple[str, str, str, Any]) -> None:
    swizzle, major, dtype, order = case
    rows, k = 128, 256
    tile = smem_tile(swizzle, major, dtype, rows, k, order)
    operand = recognise(tile, dtype, arch, major, address=2048)
    element_bits = {"bf16": 16, "f16": 16, "tf32": 32, "e2m1": 4}.get(dtype, 8)
    step = 256 // element_bits
    everywhere = np.asarray(tile(np.arange(rows * k))).reshape(k, rows).T * element_bits // 8 + 2048
    for j in range(k // step):
        word = operand.descriptor.advanced(operand.k_advance(j)).encode()
        read = decode_matrix_descriptor(word, arch).addresses(dtype, major, rows)
        assert np.array_equal(read, everywhere[:, j * step : (j + 1) * step])


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize(("major", "dtype"), [("k", "bf16"), ("k", "e4m3"), ("mn", "bf16")])
def test_a_tile_at_any_line_gets_the_base_offset_that_reads_it(swizzle: str, major: str, dtype: str) -> None:
    tile = smem_tile(swizzle, major, dtype, 128, 128)
    size_ = 2 if dtype == "bf16" else 1
    step = 32 // size_
    everywhere = np.asarray(tile(np.arange(128 * 128))).reshape(128, 128).T * size_
    for address in range(0, 2048, 128):
        operand = recognise(tile, dtype, "sm_90a", major, address)
        for j in range(128 // step):
            read = operand.descriptor.advanced(operand.k_advance(j)).addresses(dtype, major, 128)
            assert np.array_equal(read, everywhere[:, j * step : (j + 1) * step] + address)


def test_a_part_of_a_tile_is_an_operand_with_its_offset() -> None:
    tile = smem_tile("128B", "k", "bf16", 128, 64)
    lower = compose(tile, Layout((64, 64), (1, 128)))
    whole, part = recognise(tile, "bf16").descriptor, recognise(lower, "bf16").descriptor
    assert (part.start, part.stride) == (whole.start, whole.stride)


@pytest.mark.parametrize(
    ("tile", "keywords", "message"),
    [
        (Layout((64, 64), (64, 1)), {}, "nearest canonical form"),
        (Layout((64, 64), (72, 1)), {}, "no k-major none form"),
        (compose(Swizzle(3, 4, 3), Layout((64, 64), (64, 1))), {}, "no hardware swizzle"),
        (compose(Swizzle(3, 3, 3), Layout((64, 24), (64, 1))), {}, "k=24"),
        (compose(Swizzle(3, 3, 3), Layout((60, 64), (64, 1))), {}, "rows=60"),
        (
            compose(Swizzle(3, 3, 3), Layout((64, 64), (64, 1))),
            {"address": 576},
            "multiple of 128, and of 1024 for TMA",
        ),
        (compose(Swizzle(3, 3, 3), Layout((64, 64), (64, 1))), {"major": "mn"}, "nearest canonical form: k-major 128B"),
        (Layout((8, 16, 2), (16, 1, 128)), {}, "3 modes"),
        (smem_tile("128B", "mn", "e4m3", 128, 64), {"dtype": "e4m3", "major": "mn"}, "only bf16 and f16 MN-major"),
        (smem_tile("128B", "k", "f32", 64, 32), {"dtype": "f32"}, "wgmma reads"),
        (smem_tile("128B", "mn", "tf32", 64, 32), {"dtype": "tf32", "major": "mn", "arch": "sm_100a"}, "128B_atom_32B"),
        (smem_tile("128B", "mn", "e2m1", 256, 64), {"dtype": "e2m1", "major": "mn", "arch": "sm_100a"}, "K-major only"),
        (smem_tile("128B", "k", "bf16", 64, 64), {"major": "m"}, "must be 'k' or 'mn'"),
    ],
)
def test_what_is_no_canonical_form_is_refused_with_the_nearest(
    tile: Any, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(HardwareError, match=message):
        recognise(tile, **{"dtype": "bf16", **keywords})


def test_the_error_names_the_first_element_elsewhere() -> None:
    with pytest.raises(HardwareError, match=r"element \(row 0, k 1\) is at byte 2, that form has it at 16"):
        recognise(Layout((64, 64), (64, 1)), "bf16", "sm_90a", "mn")


def test_irregular_k_steps_are_refused() -> None:
    tile = compose(Swizzle(3, 3, 3), Layout((8, (24, 2)), (64, (1, 32))))
    with pytest.raises(HardwareError, match="k-step 1"):
        k_advance(tile)


def test_atoms_are_cutes() -> None:
    for _, entry in ENTRIES:
        name = {"INTER": "none", "SW32": "32B", "SW64": "64B", "SW128": "128B", "SW128_32B": "128B_atom_32B"}[
            entry["name"]
        ]
        rows, k = int(entry["rows"].strip("_")), int(entry["k"].strip("_"))
        ours = smem_tile(name, entry["major"].lower(), entry["type"], rows, k)
        theirs = tile_of_4_bits(entry) if entry["bits"] == "4" else tile_of(entry)
        every = np.arange(rows * k)
        assert np.array_equal(ours(every), theirs(every)), entry


def test_what_no_matrix_unit_reads_has_no_atom() -> None:
    with pytest.raises(HardwareError, match="TMA only"):
        smem_atom("128B_atom_64B", "k", "bf16")
    with pytest.raises(HardwareError, match="MN-major"):
        smem_atom("128B_atom_32B", "k", "tf32")
    with pytest.raises(HardwareError, match="rows=12"):
        smem_tile("128B", "k", "bf16", 12, 64)
